"""Products with rows of int8: exact integers, whatever computes them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hplus.kernels import products as module
from hplus.kernels.maxsim import KERNELS, weighted_maxsim
from hplus.kernels.products import products
from kernels.test_maxsim import COMPILED, compiled

NAMES = list(KERNELS)


@settings(deadline=None, max_examples=100)
@given(st.integers(0, 2**32 - 1), st.integers(1, 200), st.integers(1, 30), st.integers(0, 40))
def test_all_versions_give_the_same(seed: int, width: int, count: int, wanted: int) -> None:
    random = np.random.default_rng(seed)
    rows = random.integers(-127, 128, (count, width)).astype(np.int8)
    query = (random.standard_normal(width) * random.choice([1e-6, 1, 1e6])).astype(np.float32)
    places = random.integers(0, count, wanted)
    expected = rows[places].astype(np.float64) @ query.astype(np.float64)
    bound = np.abs(query).max() * 127 * width / 2 / min(32_639, (2**31 - 1) // (128 * width))
    found = [products(query, rows, places, kernel=name) for name in NAMES]
    for own in found:
        assert own.dtype == np.float32
        np.testing.assert_array_equal(own, found[0])
        np.testing.assert_allclose(own, expected, rtol=1e-5, atol=1.01 * bound)


@compiled
@settings(deadline=None, max_examples=100)
@given(st.integers(0, 2**32 - 1), st.integers(1, 400), st.integers(1, 30), st.integers(0, 40))
def test_scaled_products_are_those_of_maxsim(
    seed: int, width: int, count: int, wanted: int
) -> None:
    """To the last bit: a document of one row, and a query of one unit that weighs 1."""
    random = np.random.default_rng(seed)
    rows = random.integers(-127, 128, (count, width)).astype(np.int8)
    scales = random.random(count).astype(np.float16)
    query = (random.standard_normal(width) * random.choice([0, 1e-6, 1, 1e6])).astype(np.float32)
    places = random.integers(0, count, wanted)
    one = np.ones(1, np.float32)
    for name in COMPILED:
        found = products(query, rows, places, scales, kernel=name)
        expected = weighted_maxsim(query[None], one, rows, scales, places, places + 1, kernel=name)
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("name", NAMES)
def test_the_largest_sums_do_not_overflow(name: str) -> None:
    for width in (1, 16, 128, 4096):
        rows = np.array([[127] * width, [-127] * width], np.int8)
        found = products(np.ones(width, np.float32), rows, np.array([0, 1]), kernel=name)
        np.testing.assert_allclose(found, [127 * width, -127 * width], rtol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_a_query_of_zeros(name: str) -> None:
    rows = np.full((3, 5), 7, np.int8)
    assert products(np.zeros(5, np.float32), rows, np.arange(3), kernel=name).tolist() == [0, 0, 0]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("place", [-1, 3, 2**40])
@pytest.mark.parametrize("before", [1, 6])
def test_a_place_that_is_not_there(name: str, place: int, before: int) -> None:
    rows, places = np.ones((3, 40), np.int8), np.zeros(9, np.int64)
    places[before] = place
    with pytest.raises(ValueError, match="not in 0:3"):
        products(np.ones(40, np.float32), rows, places, kernel=name)


@pytest.mark.skipif(module._products is None, reason="nothing was compiled")
def test_arrays_that_do_not_fit_are_refused() -> None:
    rows, places = np.ones((3, 4), np.int8), np.arange(3)
    codes, out = np.ones(4, np.int16), np.empty(3, np.int32)
    for wrong in (
        (codes[:3], rows, places, out),
        (codes, rows, places, out[:2].copy()),
        (codes, rows.astype(np.int16), places, out),
        (codes, rows[:, ::2], places, out),
        (codes, rows, places.astype(np.int32), out),
        (codes.astype(np.float32), rows, places, out),
    ):
        with pytest.raises((ValueError, BufferError)):
            module._products.products(*wrong, 2)
