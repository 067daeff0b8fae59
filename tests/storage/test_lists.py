"""The inverted file over global vectors: lists are complete, members found by hand."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import random_vectors
from hplus.storage import lists as ivf
from hplus.storage.segment import FORMATS, Format, dequantise, quantise
from hplus.types import F32, I64, offsets_of
from hplus.units.vectors import normalise

some = settings(deadline=None, max_examples=60)


def clustered(random: np.random.Generator, topics: int, units: int, width: int) -> tuple[F32, I64]:
    """Units near one of some directions, and the direction of each."""
    directions = random_vectors(random, topics, width)
    topic = random.integers(0, topics, units)
    noise = 0.05 * random.normal(size=(units, width))
    return normalise((directions[topic] + noise).astype(np.float32)), topic


@pytest.mark.parametrize("format", FORMATS)
def test_each_vector_stands_in_the_list_of_its_nearest_centroid(
    monkeypatch: pytest.MonkeyPatch, format: Format
) -> None:
    monkeypatch.setattr(ivf, "BLOCK", 64)
    random = np.random.default_rng(1)
    vectors, _ = clustered(random, 12, 240, 10)
    codes, scales = quantise(vectors, format)
    monkeypatch.setattr(ivf, "PER_LIST", 20)
    built = ivf.build(codes, scales)
    assert set(built) == {"global_centroids", "global_list_offsets", "global_list_rows"}
    centroids = built["global_centroids"]
    assert len(centroids) == len(vectors) // 20
    np.testing.assert_allclose(np.linalg.norm(centroids, axis=1), 1, rtol=1e-6)
    assert built["global_list_rows"].dtype == np.uint8
    stored = normalise(dequantise(codes, scales))
    nearest = (stored @ centroids.T).argmax(axis=1)
    for c, (a, b) in enumerate(pairwise(built["global_list_offsets"])):
        assert built["global_list_rows"][a:b].tolist() == np.flatnonzero(nearest == c).tolist()


def test_centroids_find_the_clusters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Units of well separated directions lie near their centroid, nearly all of them."""
    vectors, _ = clustered(np.random.default_rng(2), 20, 1500, 32)
    monkeypatch.setattr(ivf, "PER_LIST", 25)
    built = ivf.build(vectors, None)
    similarity = (vectors @ built["global_centroids"].T).max(axis=1)
    assert np.median(similarity) > 0.95


def test_the_same_vectors_give_the_same_lists() -> None:
    vectors, _ = clustered(np.random.default_rng(3), 8, 1100, 8)
    once, again = (ivf.build(vectors, None) for _ in range(2))
    for name, array in once.items():
        np.testing.assert_array_equal(array, again[name])


@pytest.mark.parametrize("vectors", [np.ones((1, 4)), np.zeros((3, 4)), np.eye(4)[:2]])
def test_a_handful_of_vectors_is_one_list(vectors: F32) -> None:
    built = ivf.build(vectors.astype(np.float32), None)
    assert built["global_list_offsets"].tolist() == [0, len(vectors)]
    assert built["global_list_rows"].tolist() == list(range(len(vectors)))
    assert np.isfinite(built["global_centroids"]).all()


def test_only_the_first_columns_are_compared() -> None:
    vectors = random_vectors(np.random.default_rng(4), 60, ivf.WIDTH + 40)
    assert ivf.build(vectors, None)["global_centroids"].shape == (1, ivf.WIDTH)


def test_equal_vectors_leave_centroids_without_members(monkeypatch: pytest.MonkeyPatch) -> None:
    """More centroids than directions: those that lose all members start again elsewhere."""
    vectors = np.repeat(random_vectors(np.random.default_rng(5), 2, 6), 20, axis=0)
    monkeypatch.setattr(ivf, "PER_LIST", 4)
    built = ivf.build(vectors, None)
    assert len(built["global_centroids"]) == 10
    assert np.isfinite(built["global_centroids"]).all()
    assert sorted(built["global_list_rows"].tolist()) == list(range(40))


@some
@given(st.integers(0, 2**32 - 1), st.integers(1, 9), st.integers(1, 12), st.integers(2, 8))
def test_members_of_the_nearest_lists_by_hand(
    seed: int, count: int, probes: int, width: int
) -> None:
    random = np.random.default_rng(seed)
    lists = [np.flatnonzero(random.random(20) < 0.3).tolist() for _ in range(count)]
    centroids, query = random_vectors(random, count, width), random_vectors(random, 1, width + 2)[0]
    found = ivf.members(
        query,
        centroids,
        offsets_of([len(some) for some in lists]),
        np.array([d for some in lists for d in some], np.uint8),
        probes=probes,
    )
    falling = sorted(range(count), key=lambda c: -float(centroids[c] @ query[:width]))
    assert found.tolist() == sorted({d for c in falling[:probes] for d in lists[c]})
    assert found.dtype == np.int64
