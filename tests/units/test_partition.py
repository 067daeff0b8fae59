"""A partition is complete, disjoint and in order, for any tags over any texts."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hplus.heads.crf import I, O
from hplus.types import Tokens, offsets_of
from hplus.units.partition import (
    begins_of_tags,
    keep_characters_whole,
    partition,
    spans_of_units,
    tags_of_begins,
)
from hplus.units.vectors import unit_importance

many = settings(deadline=None, max_examples=200)
seeds = st.integers(0, 2**32 - 1)
tagged_texts = st.lists(st.lists(st.sampled_from([0, 1, 2]), max_size=8), max_size=5)


def flat(texts: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    tags = np.array([tag for text in texts for tag in text], np.uint8)
    return tags, offsets_of([len(text) for text in texts])


def units_by_hand(tags: list[int]) -> list[list[int]]:
    """Tokens of each unit of one text."""
    units: list[list[int]] = []
    for i, tag in enumerate(tags):
        if tag == I and i > 0 and tags[i - 1] != O:
            units[-1].append(i)
        else:
            units.append([i])
    return units


@st.composite
def tokens_with_shared_characters(draw: st.DrawFn) -> Tokens:
    """Spans whose starts and ends never go back, as every tokenizer gives them."""
    steps = st.tuples(st.integers(0, 2), st.integers(0, 2))
    texts = draw(st.lists(st.lists(steps, max_size=8), max_size=4))
    spans = []
    for text in texts:
        start = end = 0
        for step, length in text:
            start += step
            end = max(end, start + length)
            spans.append((start, end))
    return Tokens(
        texts=("x" * 40,) * len(texts),
        ids=np.zeros(len(spans), np.int32),
        spans=np.array(spans, np.int32).reshape(-1, 2),
        offsets=offsets_of([len(text) for text in texts]),
    )


@many
@given(tagged_texts)
@example([[], [2, 0], [], [2]])
def test_units_of_any_tags_equal_a_loop(texts: list[list[int]]) -> None:
    tags, offsets = flat(texts)
    units = partition(begins_of_tags(tags, offsets), offsets)
    found = [
        [
            list(range(units.bounds[s] - first, units.bounds[s + 1] - first))
            for s in range(units.offsets[i], units.offsets[i + 1])
        ]
        for i, first in enumerate(offsets[:-1].tolist())
    ]
    assert found == [units_by_hand(text) for text in texts]


@many
@given(tagged_texts)
def test_a_partition_is_complete_disjoint_in_order_and_within_texts(texts: list[list[int]]) -> None:
    tags, offsets = flat(texts)
    units = partition(begins_of_tags(tags, offsets), offsets)
    assert units.bounds.dtype == units.offsets.dtype == np.int64
    tokens = [t for a, b in pairwise(units.bounds.tolist()) for t in range(a, b)]
    assert tokens == list(range(len(tags)))
    assert (np.diff(units.bounds) > 0).all()
    assert units.offsets[0] == 0
    assert units.offsets[-1] == len(units.bounds) - 1
    # Units of a text are tokens of that text: its first unit begins where it does.
    np.testing.assert_array_equal(units.bounds[units.offsets], offsets)


@pytest.mark.parametrize(
    ("tags", "begins"),
    [
        ([0, 2, 2], [1, 1, 0]),
        ([2, 2], [1, 0]),
        ([1, 2, 1, 2, 2, 0], [1, 0, 1, 0, 0, 1]),
        ([1, 1, 0, 0], [1, 1, 1, 1]),
    ],
)
def test_worked_examples(tags: list[int], begins: list[int]) -> None:
    found = begins_of_tags(np.array(tags, np.uint8), np.array([0, len(tags)]))
    assert found.astype(int).tolist() == begins


def test_begins_leave_the_tags_alone() -> None:
    tags = np.array([2, 0, 2], np.uint8)
    begins_of_tags(tags, np.array([0, 1, 3]))
    assert tags.tolist() == [2, 0, 2]


@many
@given(tagged_texts)
def test_tags_of_begins_there_and_back(texts: list[list[int]]) -> None:
    tags, offsets = flat(texts)
    begins = begins_of_tags(tags, offsets)
    canonical = tags_of_begins(begins)
    assert canonical.dtype == np.uint8
    np.testing.assert_array_equal(begins_of_tags(canonical, offsets), begins)
    spelled = "".join("OBI"[tag] for tag in canonical)
    units = [units_by_hand(text) for text in texts]
    assert spelled == "".join(
        "O" if len(unit) == 1 else "B" + "I" * (len(unit) - 1) for text in units for unit in text
    )


@many
@given(tokens_with_shared_characters(), seeds)
def test_tokens_that_share_a_character_stay_together(tokens: Tokens, seed: int) -> None:
    begins = np.random.default_rng(seed).random(len(tokens.ids)) < 0.7
    before = begins.copy()
    whole = keep_characters_whole(begins, tokens)
    np.testing.assert_array_equal(begins, before)
    units = partition(whole, tokens.offsets)
    unit = np.searchsorted(units.bounds, np.arange(len(tokens.ids)), side="right")
    characters = [set(range(start, end)) for start, end in tokens.spans.tolist()]
    for first, last in pairwise(tokens.offsets.tolist()):
        for i in range(first, last):
            for j in range(i + 1, last):
                assert unit[i] == unit[j] or not characters[i] & characters[j]
            previous = tokens.spans[i - 1, 1] if i > first else 0
            free = tokens.spans[i, 0] >= previous
            assert whole[i] == (i == first or (begins[i] and free))


def test_bytes_of_an_emoji_are_one_unit_even_where_the_next_text_begins() -> None:
    spans = np.array([[0, 1], [0, 1], [0, 1], [1, 2], [0, 1], [0, 1]], np.int32)
    tokens = Tokens(("👍a", "½"), np.arange(6, dtype=np.int32), spans, np.array([0, 4, 6]))
    whole = keep_characters_whole(np.ones(6, np.bool_), tokens)
    assert whole.astype(int).tolist() == [1, 0, 0, 1, 1, 0]


@many
@given(tokens_with_shared_characters(), seeds)
def test_spans_run_from_the_first_token_to_the_last(tokens: Tokens, seed: int) -> None:
    begins = np.random.default_rng(seed).random(len(tokens.ids)) < 0.5
    units = partition(keep_characters_whole(begins, tokens), tokens.offsets)
    spans = spans_of_units(tokens, units)
    assert spans.dtype == np.int32
    by_hand = []
    for first, last in pairwise(units.bounds.tolist()):
        own = tokens.spans[first:last].tolist()
        by_hand.append([min(a for a, _ in own), max(b for _, b in own)])
    assert spans.tolist() == by_hand
    for first, last in pairwise(units.offsets.tolist()):
        own_spans = spans[first:last]
        assert (own_spans[1:, 0] >= own_spans[:-1, 1]).all()


@many
@given(tagged_texts, seeds)
def test_importance_is_preserved(texts: list[list[int]], seed: int) -> None:
    """eq:importance_preservation, text by text; eq:unit_importance, unit by unit."""
    tags, offsets = flat(texts)
    importance = np.random.default_rng(seed).gamma(1.0, size=len(tags)).astype(np.float32)
    units = partition(begins_of_tags(tags, offsets), offsets)
    weights = unit_importance(importance, units)
    assert weights.dtype == np.float32
    by_hand = [sum(importance[a:b].tolist()) for a, b in pairwise(units.bounds.tolist())]
    np.testing.assert_allclose(weights, by_hand, rtol=1e-6)
    for i, (first, last) in enumerate(pairwise(offsets.tolist())):
        own = weights[units.offsets[i] : units.offsets[i + 1]]
        assert sum(own.tolist()) == pytest.approx(sum(importance[first:last].tolist()), rel=1e-6)
