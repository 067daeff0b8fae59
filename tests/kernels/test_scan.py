"""The scan for the best k documents against a sort of all scores, ties and bad numbers included."""

from __future__ import annotations

import doctest
import importlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hplus.kernels import scan
from hplus.kernels import threads as threading
from hplus.kernels.int4 import numbers, packed
from hplus.kernels.reference import Mean, shares_of
from hplus.kernels.scan import Wanted, best_documents, longest
from hplus.types import F32, F64, I64
from kernels.test_maxsim import COMPILED, DTYPES, KERNELS, Case, cases, compiled, example, some


def wanted(case: Case, k: int, least: float = -np.inf, base: F64 | None = None) -> Wanted:
    return Wanted(case.query, case.weights, k, least, base)


def found(case: Case, queries: list[Wanted], kernel: str, **options: Any) -> list[tuple[I64, F32]]:
    most = longest(case.vectors, case.scales, case.query.shape[1], case.mean)
    documents = (case.vectors, case.scales, case.starts, case.ends, case.mean)
    return best_documents(queries, *documents, longest=most, kernel=kernel, **options)


def assert_best(
    own: tuple[I64, F32], scores: F32, k: int, least: float = -np.inf, base: F64 | None = None
) -> None:
    """Exactly those of at least the k-th rank: never fewer, and no more than the ties."""
    ranks = scores if base is None else base + scores
    edge = np.sort(ranks)[-k] if len(ranks) > k else -np.inf
    expected = np.flatnonzero(ranks >= max(edge, least))
    np.testing.assert_array_equal(own[0], expected)
    np.testing.assert_array_equal(own[1], scores[expected])


@st.composite
def searches(draw: st.DrawFn) -> tuple[Case, int]:
    """Near documents, some of them twice, under weights of all sizes and signs; with a mean taken
    off their rows, or without."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    dtype = draw(st.sampled_from(["f4", "f2", "i1", "i1", "i1", "u1"]))
    units, width = draw(st.integers(1, 40)), draw(st.sampled_from([1, 3, 16, 63, 64, 70, 128]))
    documents = draw(st.integers(1, 60))
    lengths = rng.integers(0, draw(st.sampled_from([2, 5, 20, 300])), documents)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    # Rows near the query: what one stage leaves open is decided by the next.
    query = rng.standard_normal((units, width))
    spread = draw(st.sampled_from([0.0, 1e-4, 0.1, 1.0, 10.0]))
    rows = query[rng.integers(0, units, offsets[-1])]
    rows = rows + spread * rng.standard_normal((offsets[-1], width))
    rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-9)
    scales = mean = None
    if draw(st.booleans()):
        vector = rng.standard_normal(width) * draw(st.sampled_from([0.01, 0.1, 1.0])) / width**0.5
        shares = rng.choice([0, 1, 1, 1.5, -1], offsets[-1]) if draw(st.booleans()) else None
        rows = (rows - vector) / 2
        mean = Mean(
            vector.astype(np.float32), None if shares is None else shares.astype(np.float32)
        )
    if dtype in ("i1", "u1"):
        most = 127 if dtype == "i1" else 7
        rows, scales = np.rint(most * rows.clip(-1, 1)), rng.choice([1, 1 / 127, -0.5], offsets[-1])
        scales[rng.random(offsets[-1]) < 0.05] = 0
        scales = scales.astype(draw(st.sampled_from(["f4", "f2"])))
    if dtype == "u1":  # two numbers a byte
        rows = packed(np.pad(rows, ((0, 0), (0, width % 2))).astype(np.int8))
    weights = rng.standard_normal(units) * 10.0 ** rng.integers(-4, 3, units)
    if draw(st.booleans()):
        weights = np.abs(weights)
    chosen = rng.integers(0, documents, 2 * documents)  # repeated documents tie
    case = Case(
        query=(query * draw(st.sampled_from([1.0, 1e-3, 1e3]))).astype(np.float32),
        weights=(weights * rng.integers(0, 2, units)).astype(np.float32),
        vectors=rows.astype(dtype),
        scales=scales,
        starts=offsets[chosen],
        ends=offsets[chosen + 1],
        mean=mean,
    )
    few = st.integers(1, 1 + documents // 4)  # so few are sought by a first, coarse pass
    return case, draw(few | st.integers(1, 2 * documents + 1))


@pytest.mark.parametrize("kernel", KERNELS)
@some
@given(search=searches(), share=st.sampled_from([None, 0.0, 0.5, 1.0]))
def test_finds_the_best_and_all_that_tie_with_the_last(
    kernel: str, search: tuple[Case, int], share: float | None
) -> None:
    case, k = search
    scores = case.scores(kernel)
    least = -np.inf if share is None else float(np.quantile(scores, share, method="nearest"))
    (own,) = found(case, [wanted(case, k, least)], kernel)
    assert_best(own, scores, k, least)


@pytest.mark.parametrize("kernel", KERNELS)
@some
@given(
    search=searches(),
    seed=st.integers(0, 2**32 - 1),
    spread=st.sampled_from([0.0, 0.01, 1.0, 10.0]),
    share=st.sampled_from([None, 0.5, 1.0]),
)
def test_ranks_by_what_other_views_give_and_the_score(
    kernel: str, search: tuple[Case, int], seed: int, spread: float, share: float | None
) -> None:
    """Whether the base decides nothing or nearly everything; two queries with bases of their
    own."""
    case, k = search
    scores = case.scores(kernel)
    size = spread * float(np.abs(scores).max(initial=0))
    bases = np.random.default_rng(seed).standard_normal((2, len(scores))) * size
    ranks = bases + scores
    least = [
        -np.inf if share is None else float(np.quantile(own, share, method="nearest"))
        for own in ranks
    ]
    queries = [wanted(case, k, low, own) for low, own in zip(least, bases, strict=True)]
    for own, low, base in zip(found(case, queries, kernel), least, bases, strict=True):
        assert_best(own, scores, k, low, base)


@pytest.mark.parametrize("kernel", KERNELS)
@some
@given(case=cases(), k=st.integers(1, 40))
def test_finds_the_best_of_any_ragged_documents(kernel: str, case: Case, k: int) -> None:
    (own,) = found(case, [wanted(case, k)], kernel)
    assert_best(own, case.scores(kernel), k)


@pytest.mark.parametrize("kernel", KERNELS)
def test_the_vectors_of_a_query_may_lie_anywhere(kernel: str) -> None:
    """Not aligned, as in a mapped file, or every second column of others."""
    case = example("i1")
    (expected,) = found(case, [wanted(case, 2)], kernel)
    size = case.query.nbytes
    unaligned = np.frombuffer(b"\0" + case.query.tobytes() + b"\0" * 3, np.uint8)[1 : size + 1]
    for query in (unaligned.view(np.float32).reshape(6, -1), np.repeat(case.query, 2, 1)[:, ::2]):
        (own,) = found(case, [Wanted(query, case.weights, 2)], kernel)
        np.testing.assert_array_equal(own[0], expected[0])
        np.testing.assert_array_equal(own[1], expected[1])


@pytest.mark.parametrize("kernel", KERNELS)
@some
@given(searched=searches(), data=st.data())
def test_queries_that_share_a_pass_find_what_each_finds(
    kernel: str, searched: tuple[Case, int], data: st.DataObject
) -> None:
    case, k = searched
    parts = data.draw(st.lists(st.integers(0, len(case.query)), min_size=1, max_size=4))
    queries = [Wanted(case.query[i:], case.weights[i:], k + i) for i in parts]
    for query, own in zip(queries, found(case, queries, kernel), strict=True):
        (alone,) = found(case, [query], kernel)
        np.testing.assert_array_equal(own[0], alone[0])
        np.testing.assert_array_equal(own[1], alone[1])


@pytest.mark.parametrize("kernel", KERNELS)
@some
@given(search=searches())
def test_threads_do_not_matter(kernel: str, search: tuple[Case, int]) -> None:
    case, k = search
    base = np.linspace(1, -1, len(case.starts))
    queries = [wanted(case, k, base=base), wanted(case, 2 * k, base=-base)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threading, "WORTH_A_THREAD", 1)
        for own, shared in zip(
            found(case, queries, kernel), found(case, queries, kernel, threads=3), strict=True
        ):
            np.testing.assert_array_equal(own[0], shared[0])
            np.testing.assert_array_equal(own[1], shared[1])


@compiled
def test_many_documents_are_left_early_and_none_wrongly() -> None:
    """Enough documents for the coarse first pass to matter, at each instruction set."""
    rng = np.random.default_rng(4)
    centres = rng.standard_normal((30, 96))
    rows = centres[np.repeat(rng.integers(0, 30, 2000), 7)] + rng.standard_normal((14_000, 96))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    scales = (np.abs(rows).max(axis=1) / 127).astype(np.float16)
    starts = 7 * np.arange(2000)
    case = Case(
        query=rows[70:90].astype(np.float32),
        weights=(rng.random(20) ** 3).astype(np.float32),
        vectors=np.rint(rows / scales[:, None]).clip(-127, 127).astype(np.int8),
        scales=scales,
        starts=starts,
        ends=starts + 7,
    )
    for kernel in COMPILED:
        base = rng.standard_normal(2000)
        for k in (1, 10, 300, 1999, 2000):
            (own,) = found(case, [wanted(case, k)], kernel)
            assert_best(own, case.scores(kernel), k)
            (own,) = found(case, [wanted(case, k, base=base)], kernel)
            assert_best(own, case.scores(kernel), k, base=base)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_nothing_to_do(kernel: str, dtype: str) -> None:
    case = example(dtype)
    none = np.zeros(0, np.int64)
    empty = Case(case.query, case.weights, case.vectors, case.scales, none, none)
    (own,) = found(empty, [wanted(case, 3)], kernel)
    assert (own[0].tolist(), own[1].tolist()) == ([], [])
    no_units = Wanted(case.query[:0], case.weights[:0], 2)
    (own,) = found(case, [no_units], kernel)
    assert (own[0].tolist(), own[1].tolist()) == ([0, 1, 2, 3, 4], [0] * 5)


@compiled
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_none_hide_no_other_document(dtype: str, bad: float) -> None:
    case = example(dtype)
    assert case.scales is not None
    scales = case.scales.copy()
    scales[0] = bad
    spoilt = Case(case.query, case.weights, case.vectors, scales, case.starts, case.ends)
    for kernel in COMPILED:
        scores = spoilt.scores(kernel)
        (own,) = found(spoilt, [wanted(case, 2)], kernel)
        best = 1 + np.argsort(-scores[1:])[: 1 if scores[0] > 0 else 2]
        assert set(best) <= set(own[0].tolist())


@compiled
def test_the_compiled_scan_trusts_nobody() -> None:
    module = importlib.import_module("hplus.kernels._maxsim")
    arguments = example().raw()
    good = [np.array([0, 6]), np.array([2]), np.zeros(1), np.zeros((1, 5))]
    for i, bad in (
        (0, np.array([0, 7])),
        (0, np.array([3, 2])),
        (0, np.array([-1, 6])),
        (0, np.array([0, 3, 6])),
        (1, np.array([0])),
        (1, np.array([2.0])),
        (2, np.zeros(2)),
        (2, np.zeros(1, np.float32)),
        (3, np.zeros((2, 5))),
        (3, np.zeros((1, 4))),
        (3, np.zeros((1, 5), np.float32)),
    ):
        wrong = [bad if i == j else array for j, array in enumerate(good)]
        for level in range(3):
            with pytest.raises(ValueError, match=r"query 0|every query|must be"):
                module.scan(*arguments, *wrong, 1.0, 1.0, level)
    ends = np.array([7, 7, 12, 39, 41])
    with pytest.raises(ValueError, match="rows of document 4 not in 0:40"):
        module.scan(*arguments[:5], ends, *arguments[6:], *good, 1.0, 1.0, 2)
    with pytest.raises(ValueError, match="every query needs weights"):
        module.scan(arguments[0], None, *arguments[2:], *good, 1.0, 1.0, 2)
    with pytest.raises(ValueError, match="25 of 24 columns"):
        module.longest(arguments[2], arguments[3], 25, None, None)
    mean, few = np.zeros(24, np.float32), np.zeros(23, np.float32)
    for wrong in ((few, None), (mean, few), (mean.astype(np.float64), None)):
        with pytest.raises(ValueError, match=r"a mean of|shares|must be"):
            module.longest(arguments[2], arguments[3], 24, *wrong)


@some
@given(case=cases())
def test_the_longest_row(case: Case) -> None:
    width = case.query.shape[1]
    rows = numbers(case.vectors, width).astype(np.float64)
    if case.scales is not None:
        rows *= case.scales.astype(np.float64)[:, None]
    rest = np.linalg.norm(rows, axis=1).max(initial=0)
    if case.mean is not None:
        shares = shares_of(case.mean, case.scales, 0, len(rows)).astype(np.float64)
        rows += shares[:, None] * case.mean.vector[:width]
    whole = np.linalg.norm(rows, axis=1).max(initial=0)
    found = longest(case.vectors, case.scales, width, case.mean)
    assert found == pytest.approx((whole, rest), rel=1e-5, abs=1e-6)


@compiled
def test_rows_that_their_mean_nearly_takes_away() -> None:
    """Whole vectors a thousand times shorter than their parts: what bounds them must not be lost to
    rounding."""
    rng = np.random.default_rng(5)
    mean = rng.standard_normal(64)
    mean = (mean / np.linalg.norm(mean)).astype(np.float32)
    rows = -mean + 1e-3 * rng.standard_normal((900, 64)) / 8
    scales = (np.abs(rows).max(axis=1) / 127).astype(np.float16)
    starts = 3 * np.arange(300)
    case = Case(
        query=rng.standard_normal((9, 64)).astype(np.float32),
        weights=(rng.random(9) ** 3).astype(np.float32),
        vectors=np.rint(rows / scales[:, None]).clip(-127, 127).astype(np.int8),
        scales=scales,
        starts=starts,
        ends=starts + 3,
        mean=Mean(mean),
    )
    for kernel in COMPILED:
        for k in (1, 10, 299):
            (own,) = found(case, [wanted(case, k)], kernel)
            assert_best(own, case.scores(kernel), k)


def test_the_examples() -> None:
    assert doctest.testmod(scan).failed == 0
