"""Random units follow a histogram of lengths, and depend on seed and text alone."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from builders import plain_tokens
from hplus.types import F64, Bool, Tokens
from hplus.units.partition import partition
from hplus_lab.length_histogram import histogram_random, length_histogram

SHARES = np.array([0.5, 0.0, 0.25, 0.0, 0.25])  # lengths 1, 3 and 5
lengths_of_texts = st.lists(st.integers(0, 30), max_size=5)
seeds = st.integers(0, 2**32 - 1)


def numbered_tokens(lengths: list[int]) -> Tokens:
    """Texts of `lengths` words, no two alike."""
    return plain_tokens(*(f"x{i} " + "word " * (n - 1) if n else "" for i, n in enumerate(lengths)))


def lengths_of_units(begins: Bool, tokens: Tokens) -> list[list[int]]:
    units = partition(begins, tokens.offsets)
    lengths = np.diff(units.bounds).tolist()
    return [lengths[first:last] for first, last in pairwise(units.offsets.tolist())]


@given(lengths_of_texts, seeds)
def test_units_have_the_histogram_s_lengths_alone_and_in_any_batch(
    lengths: list[int], seed: int
) -> None:
    tokens = numbered_tokens(lengths)
    together = lengths_of_units(histogram_random(tokens, SHARES, seed), tokens)
    assert [sum(sizes) for sizes in together] == lengths
    for sizes in together:
        assert set(sizes[:-1]) <= {1, 3, 5}  # the last is what is left of the text
    for text, expected in zip(tokens.texts, together, strict=True):
        alone = plain_tokens(text)
        assert lengths_of_units(histogram_random(alone, SHARES, seed), alone) == [expected]


def test_a_histogram_is_followed() -> None:
    tokens = numbered_tokens([6000])
    counts: F64 = 40 * SHARES  # counts do as well as shares
    drawn = histogram_random(tokens, counts, 3)
    np.testing.assert_allclose(length_histogram(drawn, tokens)[:5], SHARES, atol=0.04)
    assert (drawn != histogram_random(tokens, counts, 4)).any()


@given(lengths_of_texts, seeds)
def test_a_length_histogram_counts_units(lengths: list[int], seed: int) -> None:
    tokens = numbered_tokens(lengths)
    begins = histogram_random(tokens, SHARES, seed)
    units = [size for sizes in lengths_of_units(begins, tokens) for size in sizes]
    histogram = length_histogram(begins, tokens)
    expected = [units.count(length + 1) / max(len(units), 1) for length in range(len(histogram))]
    assert histogram.tolist() == expected
    assert len(histogram) == max(units, default=1)
