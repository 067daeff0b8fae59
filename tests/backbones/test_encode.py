"""Windows against brute force; states against direct passes of single windows."""

import threading
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hplus.backbones import encode
from hplus.backbones.bert import Bert
from hplus.backbones.encode import Long, Reading, cut_tokens, encode_states, plan_windows
from hplus.backbones.tokenizer import Tokenizer
from hplus.errors import InputError
from hplus.types import F32, I32, I64, Tokens, offsets_of

WORDS = "type 2 diabetes with chronic kidney disease and heart failure in the patient 糖尿病 "


@dataclass
class Echo:
    """A backbone whose states are the ids themselves, so that rows can be followed."""

    tokenizer: Tokenizer
    dim: int = 1
    depth: int = 2
    limit: int = 64
    concurrent: bool = True
    one_thread_each = staticmethod(nullcontext)
    reference: dict[str, Any] = field(default_factory=dict)
    longest: int = 0
    threads: set[int] = field(default_factory=set)
    fail_at: int | None = None

    def forward(self, ids: I32, offsets: I64) -> F32:
        self.threads.add(threading.get_ident())
        self.longest = max(self.longest, int(np.diff(offsets).max()))
        if self.fail_at in ids:
            raise RuntimeError(f"no state for {self.fail_at}")
        return ids[:, None].astype(np.float32)

    def layers(self, ids: I32, offsets: I64, wanted: Sequence[int]) -> list[F32]:
        states = self.forward(ids, offsets)
        return [states + (self.depth - layer) / 2 for layer in wanted]


@pytest.fixture
def echo(tiny: Bert) -> Echo:
    return Echo(tiny.tokenizer)


@pytest.fixture
def small_packs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many packs out of few texts."""
    monkeypatch.setattr(encode, "PACK", 100)


def numbered(lengths: list[int]) -> Tokens:
    """Texts of these lengths in tokens; every token's id is its row, plus 1,000."""
    rows = sum(lengths)
    ids = np.arange(1_000, 1_000 + rows, dtype=np.int32)
    spans = np.stack([np.arange(rows), np.arange(1, rows + 1)], axis=1).astype(np.int32)
    return Tokens(("",) * len(lengths), ids, spans, offsets_of(lengths))


def window_states(backbone: Bert, ids: I32) -> F32:
    """One window alone, special tokens around it: f32[n + 2, d]; unknown tokens are zeros."""
    tokenizer = backbone.tokenizer
    row = np.array([*tokenizer.prefix, *ids.tolist(), *tokenizer.suffix], np.int32)
    states = backbone.forward(row, offsets_of([len(row)]))
    states[row == tokenizer.unknown] = 0
    return states


@settings(max_examples=300, deadline=None)
@given(
    lengths=st.lists(st.integers(0, 120), max_size=5),
    capacity=st.integers(1, 40),
)
def test_windows_against_brute_force(lengths: list[int], capacity: int) -> None:
    offsets = offsets_of(lengths)
    plan = plan_windows(offsets, capacity)
    windows = list(
        zip(plan.text, plan.first, plan.last, plan.keep_first, plan.keep_last, strict=True)
    )
    kept = np.zeros(sum(lengths), np.int64)
    for text, first, last, keep_first, keep_last in windows:
        assert 0 < last - first <= capacity
        assert offsets[text] <= first <= keep_first < keep_last <= last <= offsets[text + 1]
        kept[keep_first:keep_last] += 1
        mine = [(a, b) for other, a, b, _, _ in windows if other == text]
        for token in range(keep_first, keep_last):
            depths = [min(token - a, b - 1 - token) for a, b in mine if a <= token < b]
            assert min(token - first, last - 1 - token) == max(depths)
    assert (kept == 1).all()
    assert sorted(set(plan.text.tolist())) == [n for n, length in enumerate(lengths) if length]


@settings(max_examples=100, deadline=None)
@given(lengths=st.lists(st.integers(0, 30), max_size=5), capacity=st.integers(1, 20))
def test_cut_tokens_are_the_first_of_each_text(lengths: list[int], capacity: int) -> None:
    tokens = numbered(lengths)
    short = cut_tokens(tokens, capacity)
    assert np.diff(short.offsets).tolist() == [min(length, capacity) for length in lengths]
    for (begin, _), (a, b) in zip(pairwise(tokens.offsets), pairwise(short.offsets), strict=True):
        assert short.ids[a:b].tolist() == tokens.ids[begin : begin + b - a].tolist()
        assert short.spans[a:b].tolist() == tokens.spans[begin : begin + b - a].tolist()


@settings(max_examples=100, deadline=None)
@given(length=st.integers(0, 500), capacity=st.integers(1, 60))
def test_neighbouring_windows_share_a_quarter_and_no_window_is_spare(
    length: int, capacity: int
) -> None:
    plan = plan_windows(offsets_of([length]), capacity)
    overlap = capacity // 4
    for (_, last), (first, _) in pairwise(zip(plan.first, plan.last, strict=True)):
        assert last - first >= overlap
    if len(plan.text) > 1:
        assert (len(plan.text) - 1) * (capacity - overlap) + overlap < length


def test_plans_of_nothing_have_no_windows() -> None:
    for lengths in ([], [0], [0, 0]):
        assert len(plan_windows(offsets_of(lengths), 8).text) == 0


@pytest.mark.parametrize("long", ["stitch", "cut"])
def test_a_text_of_one_window_equals_a_direct_pass_in_every_mode(tiny: Bert, long: Long) -> None:
    texts = ["type 2 diabetes", "a", "糖尿病 with heart failure 😀", WORDS]
    tokens = tiny.tokenizer.tokens(texts)
    found = encode_states(tiny, tokens, Reading(64, long))
    assert found.states.dtype == found.pooled.dtype == np.float32
    assert found.windows.tolist() == [1] * 4
    assert found.cut.tolist() == [0] * 4
    assert np.array_equal(found.tokens.ids, tokens.ids)
    assert np.array_equal(found.tokens.spans, tokens.spans)
    for row, (first, last) in enumerate(pairwise(tokens.offsets)):
        direct = window_states(tiny, tokens.ids[first:last])
        np.testing.assert_allclose(found.states[first:last], direct[1:-1], atol=1e-5)
        np.testing.assert_allclose(found.pooled[row], direct.mean(axis=0), atol=1e-5)


def test_a_text_that_just_fits_takes_one_window_and_one_more_token_takes_two(echo: Echo) -> None:
    tokens = numbered([62, 63])
    assert encode_states(echo, tokens, Reading(64)).windows.tolist() == [1, 2]
    assert echo.longest == 64


def test_a_long_stitched_text_has_each_token_once(echo: Echo) -> None:
    tokens = numbered([5, 3_000, 0, 70])
    found = encode_states(echo, tokens, Reading(64))
    assert found.tokens is tokens
    assert np.array_equal(found.states[:, 0], tokens.ids)
    assert found.cut.tolist() == [0, 0, 0, 0]
    assert found.windows.tolist() == [1, 64, 0, 2]
    assert echo.longest == 64
    special = sum(echo.tokenizer.prefix) + sum(echo.tokenizer.suffix)
    for row, (first, last) in enumerate(pairwise(tokens.offsets)):
        mean = (tokens.ids[first:last].sum() + special) / (last - first + 2) if last > first else 0
        assert found.pooled[row, 0] == pytest.approx(mean, rel=1e-6)


def test_stitched_states_come_from_the_window_that_shows_most_around_them(
    tiny: Bert,
) -> None:
    tokens = tiny.tokenizer.tokens([WORDS * 12])
    n, window = len(tokens.ids), 32
    plan = plan_windows(tokens.offsets, window - 2)
    assert len(plan.text) > 5
    found = encode_states(tiny, tokens, Reading(window))
    windows = [
        (a, b, window_states(tiny, tokens.ids[a:b]))
        for a, b in zip(plan.first, plan.last, strict=True)
    ]
    for token in range(n):
        seen = [
            (min(token - a, b - 1 - token), states[1 + token - a])
            for a, b, states in windows
            if a <= token < b
        ]
        deepest = max(depth for depth, _ in seen)
        best = [state for depth, state in seen if depth == deepest]
        assert min(np.abs(found.states[token] - state).max() for state in best) < 1e-5
    total = found.states.sum(axis=0) + windows[0][2][0] + windows[-1][2][-1]
    np.testing.assert_allclose(found.pooled[0], total / (n + 2), atol=1e-5)


def test_cut_keeps_the_first_window_and_reports_the_rest(echo: Echo) -> None:
    tokens = numbered([3, 100, 0, 30, 31])
    found = encode_states(echo, tokens, Reading(32, "cut"))
    assert found.cut.tolist() == [0, 70, 0, 0, 1]
    assert found.windows.tolist() == [1, 1, 0, 1, 1]
    assert found.tokens.offsets.tolist() == [0, 3, 33, 33, 63, 93]
    kept = np.r_[0:3, 3:33, 103:133, 133:163]
    assert np.array_equal(found.tokens.ids, tokens.ids[kept])
    assert np.array_equal(found.tokens.spans, tokens.spans[kept])
    assert np.array_equal(found.states[:, 0], tokens.ids[kept])
    special = sum(echo.tokenizer.prefix) + sum(echo.tokenizer.suffix)
    assert found.pooled[1, 0] == pytest.approx((tokens.ids[3:33].sum() + special) / 32)


@pytest.mark.parametrize("long", ["stitch", "cut"])
@pytest.mark.parametrize("texts", [[], [""], ["", " "], ["", "heart", ""]])
def test_texts_without_tokens_have_zero_means(tiny: Bert, texts: list[str], long: Long) -> None:
    found = encode_states(tiny, tiny.tokenizer.tokens(texts), Reading(64, long))
    words = [int(text == "heart") for text in texts]
    assert found.pooled.shape == (len(texts), tiny.dim)
    assert found.windows.tolist() == words
    assert len(found.states) == sum(words)
    assert np.abs(found.pooled).any(axis=1).astype(int).tolist() == words


@pytest.mark.usefixtures("small_packs")
def test_companions_and_order_change_nothing(tiny: Bert) -> None:
    texts = [WORDS * n + word for n in (3, 0, 1, 7) for word in ("heart", "gene", "")]
    found = encode_states(tiny, tiny.tokenizer.tokens(texts), Reading(40))
    for row, text in enumerate(texts):
        one = encode_states(tiny, tiny.tokenizer.tokens([text]), Reading(40))
        rows = slice(found.tokens.offsets[row], found.tokens.offsets[row + 1])
        np.testing.assert_allclose(found.states[rows], one.states, atol=1e-5)
        np.testing.assert_allclose(found.pooled[row], one.pooled[0], atol=1e-5)


@pytest.mark.usefixtures("small_packs")
@pytest.mark.parametrize("long", ["stitch", "cut"])
def test_two_threads_agree_with_one(tiny: Bert, long: Long) -> None:
    tokens = tiny.tokenizer.tokens([WORDS * (n % 7) for n in range(40)])
    one, two = (encode_states(tiny, tokens, Reading(64, long), threads=n) for n in (1, 2))
    np.testing.assert_allclose(one.states, two.states, atol=1e-6, rtol=0)
    np.testing.assert_allclose(one.pooled, two.pooled, atol=1e-6, rtol=0)
    assert np.array_equal(one.cut, two.cut)


@pytest.mark.usefixtures("small_packs")
@pytest.mark.parametrize("concurrent", [True, False])
def test_threads_are_for_backbones_that_gain_by_them(echo: Echo, concurrent: bool) -> None:
    echo.concurrent = concurrent
    tokens = numbered([20] * 50)
    found = encode_states(echo, tokens, Reading(64), threads=2)
    assert np.array_equal(found.states[:, 0], tokens.ids)
    assert (echo.threads == {threading.get_ident()}) == (not concurrent)


@pytest.mark.usefixtures("small_packs")
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("token", [1_000, 1_500, 1_999])
def test_a_pass_that_raises_surfaces(echo: Echo, threads: int, token: int) -> None:
    echo.fail_at = token
    with pytest.raises(RuntimeError, match=f"no state for {token}"):
        encode_states(echo, numbered([20] * 50), Reading(64), threads=threads)


@pytest.mark.parametrize("window", [-1, 0, 1, 2, 65, 1_000])
def test_a_window_out_of_range_is_refused(tiny: Bert, window: int) -> None:
    with pytest.raises(InputError, match=f"window of 3 to 64 tokens, got {window}"):
        encode_states(tiny, tiny.tokenizer.tokens(["heart"]), Reading(window))


@pytest.mark.parametrize("window", [3, 4, 64])
def test_the_smallest_and_the_largest_window_serve(tiny: Bert, window: int) -> None:
    tokens = tiny.tokenizer.tokens([WORDS * 8])
    found = encode_states(tiny, tokens, Reading(window))
    assert len(found.states) == len(tokens.ids) > 64
    assert np.isfinite(found.states).all()


@pytest.mark.usefixtures("small_packs")
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("long", ["stitch", "cut"])
@pytest.mark.parametrize("lengths", [[], [0], [0, 0, 7], [500, 0, 3, 70, 0, 61, 62, 63, 1, 200]])
def test_advance_sums_to_the_number_of_texts(
    echo: Echo, lengths: list[int], long: Long, threads: int
) -> None:
    steps: list[int] = []
    count: Callable[[int], None] = steps.append
    encode_states(echo, numbered(lengths), Reading(64, long), threads=threads, advance=count)
    assert sum(steps) == pytest.approx(len(lengths))
    assert all(step >= 0 for step in steps)


def test_inner_states_are_those_of_the_layer_token_for_token(echo: Echo) -> None:
    tokens = echo.tokenizer.tokens(["type 2 diabetes " * 40, "", "heart failure"])
    read = encode_states(echo, tokens, Reading(16, layer=1))
    np.testing.assert_array_equal(read.states[:, 0], tokens.ids)
    np.testing.assert_array_equal(read.inner, read.states + 0.5)
    last = encode_states(echo, tokens, Reading(16))
    assert last.inner is last.states
