"""Ward's method: compiled and numpy, equal to the last bit; scipy's where masses are equal, the
definition where they are not."""

from __future__ import annotations

import doctest
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform

from hplus.kernels import clustering, ward
from hplus.types import F64, I64
from hplus.units.select import cluster
from kernels.test_maxsim import some

WAYS = [None] + ([] if clustering._ward is None else [clustering._ward])


@pytest.fixture(params=WAYS, ids=["numpy", "C"][: len(WAYS)])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(clustering, "_ward", request.param)
    return request.param


def points(seed: int, n: int) -> tuple[F64, F64]:
    """Squared distances of random points, some of them the same, and masses of any size."""
    random = np.random.default_rng(seed)
    places = random.standard_normal((n, 3))[random.integers(0, n, n)]
    squares = np.square(places[:, None] - places[None]).sum(axis=2)
    return squares, random.choice([1e-4, 0.3, 1, 2.5, 40], n)


def by_both(squares: F64, masses: F64) -> I64:
    """The joins that every implementation finds."""
    found = []
    for extension in WAYS:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(clustering, "_ward", extension)
            found.append(ward(squares, masses))
    for other in found[1:]:
        np.testing.assert_array_equal(other, found[0])
    return found[0]


@some
@given(st.integers(0, 2**32 - 1), st.integers(1, 40))
def test_every_join_adds_least(seed: int, n: int) -> None:
    """The sum of squared distances from the groups' means grows by no more than any pair's."""
    squares, masses = points(seed, n)
    groups = {i: [i] for i in range(n)}

    def within(group: list[int]) -> float:
        own = masses[group]
        return float(own @ squares[np.ix_(group, group)] @ own / own.sum() / 2)

    def added(a: int, b: int) -> float:
        return within(groups[a] + groups[b]) - within(groups[a]) - within(groups[b])

    for kept, gone in by_both(squares, masses).tolist():
        least = min(added(a, b) for a in groups for b in groups if a < b)
        assert added(kept, gone) <= least + 1e-9 * (1 + masses.sum())
        groups[kept] += groups.pop(gone)
    assert len(groups) == 1


@some
@given(st.integers(0, 2**32 - 1), st.integers(2, 60), st.data())
def test_equal_masses_are_scipys(seed: int, n: int, data: st.DataObject) -> None:
    random = np.random.default_rng(seed)
    places, mass = random.standard_normal((n, 4)), random.choice([1.0, 7.0])
    squares = np.square(places[:, None] - places[None]).sum(axis=2)
    tree = linkage(squareform(np.sqrt(squares), checks=False), "ward")
    joins = by_both(squares, np.full(n, mass))
    count = data.draw(st.integers(1, n))
    own, theirs = cluster(joins, count), fcluster(tree, count, "maxclust")
    np.testing.assert_array_equal(own[:, None] == own, theirs[:, None] == theirs)


@pytest.mark.usefixtures("way")
def test_mass_decides_who_keeps_a_group() -> None:
    """Of 0, 1 | 10, 11.2 | 20, 21 two pairs join first, whichever is lighter."""
    places = np.array([0, 1, 10, 11.2, 20, 21])
    squares = np.square(np.subtract.outer(places, places))
    assert cluster(ward(squares, np.ones(6)), 4).tolist() == [0, 0, 1, 2, 3, 3]
    heavy_ends = np.array([9, 9, 1, 1, 9, 9.0])
    assert cluster(ward(squares, heavy_ends), 5).tolist() == [0, 1, 2, 2, 3, 4]


def test_ties_are_broken_alike() -> None:
    """Two joins of equal cost: what decides is the same in C and numpy."""
    places = np.array([[2.0, 0], [2, 2], [1, 0], [1, 2]])
    squares = np.square(places[:, None] - places[None]).sum(axis=2)
    joins = by_both(squares, np.array([2, 1e-3, 1e-3, 2]))
    assert sorted(joins[:2].tolist()) == [[0, 2], [1, 3]]


@pytest.mark.usefixtures("way")
def test_points_without_mass_and_lone_points() -> None:
    squares = np.square(np.subtract.outer([0.0, 3, 7], [0.0, 3, 7]))
    assert sorted(ward(squares, np.zeros(3)).tolist()) == [[0, 1], [0, 2]]
    assert cluster(ward(squares, np.array([1, 0, 1.0])), 2).tolist() == [0, 0, 1]
    assert ward(np.zeros((1, 1)), np.ones(1)).shape == (0, 2)
    assert ward(np.zeros((0, 0)), np.ones(0)).shape == (0, 2)


@pytest.mark.usefixtures("way")
def test_numbers_that_are_no_distances_end() -> None:
    """Whatever the matrix says, nothing is read or written beside it."""
    random, ended = np.random.default_rng(0), 0
    for kind in range(30):
        squares = random.standard_normal((30, 30))
        if kind % 3 == 2:
            squares += squares.T  # symmetric, but negative
        else:
            squares[random.random((30, 30)) < 0.1] = (np.nan, np.inf)[kind % 3]
        with suppress(ValueError):
            joins = ward(squares, np.ones(30))
            assert joins.shape == (29, 2)
            assert joins.min() >= 0
            assert joins.max() < 30
            ended += 1
    assert ended


@pytest.mark.skipif(clustering._ward is None, reason="nothing was compiled")
@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        (((3, 3), 2, (2, 2), 2), "2 masses, but 3 x 3 costs, 2 pairs, 2 heights"),
        (((3, 2), 3, (2, 2), 2), "3 masses, but 3 x 2 costs"),
        (((3, 3), 3, (3, 2), 2), "3 pairs, 2 heights"),
        (((3, 3), 3, (2, 3), 2), "3 masses"),
        (((3, 3), 3, (2, 2), 3), "2 pairs, 3 heights"),
    ],
)
def test_shapes_that_do_not_fit(shapes: Any, message: str) -> None:
    costs, masses, pairs, heights = shapes
    with pytest.raises(ValueError, match=message):
        clustering._ward.ward(
            np.ones(costs), np.ones(masses), np.ones(pairs, np.int64), np.ones(heights)
        )


@pytest.mark.skipif(clustering._ward is None, reason="nothing was compiled")
def test_masses_must_be_above_nothing() -> None:
    rest = np.ones((1, 2), np.int64), np.ones(1)
    for mass in (0.0, -1.0, np.nan):
        with pytest.raises(ValueError, match="mass 1 is not above 0"):
            clustering._ward.ward(np.ones((2, 2)), np.array([1, mass]), *rest)
    with pytest.raises(ValueError, match="costs must be a contiguous f64 matrix"):
        clustering._ward.ward(np.ones((2, 2), np.float32), np.ones(2), *rest)


def test_the_example() -> None:
    assert doctest.testmod(clustering).failed == 0
