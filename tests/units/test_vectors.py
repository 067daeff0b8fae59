"""Unit vectors are normalised means at any width, and widths are prefixes."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from hplus.types import offsets_of
from hplus.units.partition import Partition
from hplus.units.vectors import normalise, unit_importance, unit_vectors

many = settings(deadline=None, max_examples=100)
seeds = st.integers(0, 2**32 - 1)
sizes_of_units = st.lists(st.integers(1, 5), max_size=8)


def one_text(sizes: list[int]) -> Partition:
    bounds = offsets_of(sizes)
    return Partition(bounds, np.array([0, len(sizes)]))


def mean_by_hand(rows: list[list[float]]) -> list[float]:
    means = [sum(column) / len(rows) for column in zip(*rows, strict=True)]
    length = math.sqrt(sum(value * value for value in means))
    return [value / length for value in means] if length else means


@many
@given(sizes_of_units, seeds, st.integers(1, 9), st.floats(-6, 6))
def test_pool_equals_a_loop_at_any_width(
    sizes: list[int], seed: int, width: int, exponent: float
) -> None:
    """eq:phrase_pool, whatever the length of the states."""
    units = one_text(sizes)
    random = np.random.default_rng(seed)
    states = (random.normal(size=(sum(sizes), 9)) * 10**exponent).astype(np.float32)
    vectors = unit_vectors(states, units, width)
    assert vectors.dtype == np.float32
    assert vectors.shape == (len(sizes), width)
    by_hand = [mean_by_hand(states[a:b, :width].tolist()) for a, b in pairwise(units.bounds)]
    np.testing.assert_allclose(vectors, np.reshape(by_hand, (-1, width)), atol=2e-5)


@many
@given(sizes_of_units, seeds, st.integers(1, 9))
def test_a_smaller_width_is_a_renormalised_prefix(sizes: list[int], seed: int, width: int) -> None:
    units = one_text(sizes)
    states = np.random.default_rng(seed).normal(size=(sum(sizes), 9)).astype(np.float32)
    prefix = unit_vectors(states, units, 9)[:, :width].tolist()
    expected = [mean_by_hand([row]) for row in prefix]
    np.testing.assert_allclose(
        unit_vectors(states, units, width), np.reshape(expected, (-1, width)), atol=1e-6
    )


def test_rows_of_zeros_stay_zero_and_others_have_length_one() -> None:
    vectors = np.array([[0, 0], [3, 4], [1e-30, 0], [0, -1e12]], np.float32)
    scaled = normalise(vectors)
    assert scaled.dtype == np.float32
    np.testing.assert_array_equal(scaled, np.array([[0, 0], [0.6, 0.8], [1, 0], [0, -1]], "f4"))
    assert vectors[1].tolist() == [3, 4]


def test_states_that_cancel_give_no_direction() -> None:
    states = np.array([[1, 2], [-1, -2], [1, 0]], np.float32)
    assert unit_vectors(states, one_text([2, 1]), 2).tolist() == [[0, 0], [1, 0]]


def test_no_tokens_no_units() -> None:
    nothing = Partition(np.zeros(1, np.int64), np.zeros(3, np.int64))
    assert unit_vectors(np.empty((0, 9), np.float32), nothing, 4).shape == (0, 4)
    assert unit_importance(np.empty(0, np.float32), nothing).shape == (0,)
