"""Ragged arrays: offsets, rows and slices agree with plain lists."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import assert_same, random_encoded, text_of_words
from hplus.types import Encoded, Scores, Span, concatenate, item_of_row, offsets_of

lengths_of_texts = st.lists(st.integers(0, 6), max_size=6)
seeds = st.integers(0, 2**32 - 1)
fast = settings(deadline=None, max_examples=60)


@st.composite
def encodings(draw: st.DrawFn) -> Encoded:
    lengths = draw(lengths_of_texts)
    dropped = draw(st.lists(st.integers(0, 3), min_size=len(lengths), max_size=len(lengths)))
    random = np.random.default_rng(draw(seeds))
    return random_encoded(random, lengths, dropped=dropped, merged=draw(st.booleans()))


def units_as_lists(encoded: Encoded) -> list[list[object]]:
    """Everything a text owns, by plain loops over the offsets."""
    texts = []
    own = encoded.units
    for i in range(len(encoded)):
        units = range(int(own.offsets[i]), int(own.offsets[i + 1]))
        lost = range(int(encoded.dropped.offsets[i]), int(encoded.dropped.offsets[i + 1]))
        terms = range(int(encoded.lexical.offsets[i]), int(encoded.lexical.offsets[i + 1]))
        texts.append(
            [
                encoded.global_[i].tolist(),
                [(own.vectors[u].tolist(), own.weights[u], own.spans_of(u)) for u in units],
                [(encoded.dropped.weights[u], encoded.dropped.spans_of(u)) for u in lost],
                [(encoded.lexical.ids[t], encoded.lexical.weights[t]) for t in terms],
                [values[i] for values in vars(encoded.coverage).values()],
            ]
        )
    return texts


@given(st.lists(st.integers(0, 9), max_size=12))
def test_offsets_are_running_sums(lengths: list[int]) -> None:
    offsets = offsets_of(lengths)
    assert offsets.dtype == np.int64
    assert offsets.tolist() == [sum(lengths[:i]) for i in range(len(lengths) + 1)]
    assert offsets_of(np.array(lengths, np.int32)).tolist() == offsets.tolist()


@given(st.lists(st.integers(0, 9), max_size=12))
def test_every_row_knows_its_item(lengths: list[int]) -> None:
    rows = item_of_row(offsets_of(lengths))
    assert rows.dtype == np.int64
    assert rows.tolist() == [item for item, length in enumerate(lengths) for _ in range(length)]


@fast
@given(encodings(), st.integers(-8, 8) | st.none(), st.integers(-8, 8) | st.none())
def test_a_slice_holds_what_its_texts_own(
    encoded: Encoded, first: int | None, last: int | None
) -> None:
    expected = units_as_lists(encoded)[first:last]
    piece = encoded[first:last]
    assert len(piece) == len(expected)
    assert units_as_lists(piece) == expected
    assert piece.units.offsets[0] == piece.units.span_offsets[0] == piece.lexical.offsets[0] == 0
    assert len(piece.units.vectors) == piece.units.offsets[-1]
    assert len(piece.units.spans) == piece.units.span_offsets[-1]
    assert len(piece.dropped.spans) == piece.dropped.span_offsets[-1]


@fast
@given(encodings())
def test_single_texts_concatenate_to_the_batch(encoded: Encoded) -> None:
    expected = units_as_lists(encoded)
    for i in range(len(encoded)):
        assert units_as_lists(encoded[i]) == [expected[i]]
        assert_same(encoded[i - len(encoded)], encoded[i])
    if len(encoded):
        assert_same(concatenate([encoded[i] for i in range(len(encoded))]), encoded)


@fast
@given(encodings(), st.lists(st.integers(0, 6), max_size=3))
def test_any_cut_concatenates_to_the_batch(encoded: Encoded, cuts: list[int]) -> None:
    edges = [0, *sorted(min(cut, len(encoded)) for cut in cuts), len(encoded)]
    parts = [encoded[a:b] for a, b in pairwise(edges)]
    assert_same(concatenate(parts), encoded)


def test_a_text_outside_the_batch_is_an_index_error() -> None:
    encoded = random_encoded(np.random.default_rng(0), [2, 3])
    for item in (2, -3):
        with pytest.raises(IndexError):
            encoded[item]


def test_texts_are_taken_in_any_order_and_more_than_once() -> None:
    encoded = random_encoded(np.random.default_rng(0), [2, 0, 3], dropped=[1, 2, 0], merged=True)
    order = [2, 0, 2, 1]
    parts = [encoded[i] for i in order]
    assert_same(encoded.take(np.array(order, np.int64)), concatenate(parts))
    assert_same(encoded[::-1], concatenate([encoded[2], encoded[1], encoded[0]]))


def test_spans_of_a_unit_in_reading_order() -> None:
    encoded = random_encoded(np.random.default_rng(3), [6], dropped=[4], merged=True)
    text = text_of_words()
    words = [[text[a:b] for a, b in encoded.units.spans_of(unit)] for unit in range(6)]
    words += [[text[a:b] for a, b in encoded.dropped.spans_of(unit)] for unit in range(4)]
    assert max(map(len, words)) > 1
    assert all(unit == sorted(unit) for unit in words)
    assert sorted(word for unit in words for word in unit) == text.split()[: sum(map(len, words))]
    assert all(isinstance(span, Span) for unit in range(6) for span in encoded.units.spans_of(unit))


@given(st.lists(st.sampled_from([-0.5, 0.0, 0.25, 1.0]), max_size=8))
def test_a_ranking_is_a_stable_sort(fused: list[float]) -> None:
    scores = Scores(None, None, None, None, None, np.array(fused))
    expected = sorted(range(len(fused)), key=lambda i: (-fused[i], i))
    assert scores.ranking().tolist() == expected
    assert len(scores) == len(fused)
