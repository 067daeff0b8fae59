"""The inverted file over units: lists are complete, estimates as the docstring says, by hand."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import random_vectors, random_weights
from hplus.index import ivf
from hplus.index.segment import FORMATS, Format, dequantise, quantise
from hplus.types import F32, F64, I64, item_of_row, offsets_of
from hplus.units.pool import normalise

some = settings(deadline=None, max_examples=60)


def estimate_by_hand(
    query: F32, weights: F32, centroids: F32, lists: list[list[int]], documents: int, probes: int
) -> F64:
    """Per query unit and document: the similarity of the nearest list read that has the document,
    else of the first list that was not read (of the last one, where all were)."""
    width = min(query.shape[1], centroids.shape[1])
    near = normalise(query[:, :width]) @ normalise(centroids[:, :width]).T
    scores = np.zeros(documents)
    for unit, similarities in enumerate(near):
        falling = sorted(range(len(centroids)), key=lambda c: -similarities[c])
        read = falling[:probes]
        first_unread = falling[min(probes, len(falling) - 1)]
        for document in range(documents):
            best = similarities[first_unread]
            for c in reversed(read):
                if document in lists[c]:
                    best = similarities[c]
            scores[document] += float(weights[unit]) * float(best)
    return scores


@some
@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, 9),
    st.integers(1, 12),
    st.integers(0, 4),
    st.integers(1, 8),
    st.integers(1, 8),
)
def test_an_estimate_by_hand(
    seed: int, count: int, probes: int, units: int, query_width: int, width: int
) -> None:
    random = np.random.default_rng(seed)
    documents = 6
    lists = [np.flatnonzero(random.random(documents) < 0.4).tolist() for _ in range(count)]
    query, weights = random_vectors(random, units, query_width), random_weights(random, units)
    centroids = random_vectors(random, count, width)
    found = ivf.estimate(
        query,
        weights,
        centroids,
        offsets_of([len(some) for some in lists]),
        np.array([d for some in lists for d in some], np.uint8),
        documents,
        probes=probes,
    )
    if min(query_width, width) == 1:  # all similarities are 1 or -1: which list is read is open
        assert found.shape == (documents,)
        return
    by_hand = estimate_by_hand(query, weights, centroids, lists, documents, probes)
    np.testing.assert_allclose(found, by_hand, rtol=1e-5, atol=1e-5)


def clustered(random: np.random.Generator, topics: int, units: int, width: int) -> tuple[F32, I64]:
    """Units near one of some directions, and the direction of each."""
    directions = random_vectors(random, topics, width)
    topic = random.integers(0, topics, units)
    noise = 0.05 * random.normal(size=(units, width))
    return normalise((directions[topic] + noise).astype(np.float32)), topic


@pytest.mark.parametrize("format", FORMATS)
def test_each_document_stands_in_the_lists_of_its_units(
    monkeypatch: pytest.MonkeyPatch, format: Format
) -> None:
    monkeypatch.setattr(ivf, "BLOCK", 64)
    random = np.random.default_rng(1)
    lengths = random.integers(0, 7, 120)  # some documents have no units
    offsets = offsets_of(lengths)
    vectors, _ = clustered(random, 12, int(offsets[-1]), 10)
    codes, scales = quantise(vectors, format)
    built = ivf.build(codes, scales, offsets, per_list=20)
    assert set(built) == {"centroids", "list_offsets", "list_documents"}
    centroids = built["centroids"]
    assert len(centroids) == len(vectors) // 20
    np.testing.assert_allclose(np.linalg.norm(centroids, axis=1), 1, rtol=1e-6)
    assert built["list_documents"].dtype == np.uint8
    stored = normalise(dequantise(codes, scales))
    nearest = (stored @ centroids.T).argmax(axis=1)
    document = item_of_row(offsets)
    for c, (a, b) in enumerate(pairwise(built["list_offsets"])):
        members = built["list_documents"][a:b].tolist()
        assert members == sorted(set(document[nearest == c].tolist()))


def test_centroids_find_the_clusters() -> None:
    """Units of well separated directions lie near their centroid, nearly all of them."""
    vectors, _ = clustered(np.random.default_rng(2), 20, 1500, 32)
    built = ivf.build(vectors, None, offsets_of([5] * 300), per_list=25)
    similarity = (vectors @ built["centroids"].T).max(axis=1)
    assert np.median(similarity) > 0.95


def test_the_same_units_give_the_same_lists() -> None:
    vectors, _ = clustered(np.random.default_rng(3), 8, 1100, 8)
    offsets = offsets_of([11] * 100)
    once, again = (ivf.build(vectors, None, offsets) for _ in range(2))
    for name, array in once.items():
        np.testing.assert_array_equal(array, again[name])


@pytest.mark.parametrize("vectors", [np.ones((1, 4)), np.zeros((3, 4)), np.eye(4)[:2]])
def test_a_handful_of_units_is_one_list(vectors: F32) -> None:
    built = ivf.build(vectors.astype(np.float32), None, offsets_of([0, len(vectors), 0]))
    assert built["list_offsets"].tolist() == [0, 1]
    assert built["list_documents"].tolist() == [1]
    assert np.isfinite(built["centroids"]).all()


def test_only_the_first_columns_are_compared() -> None:
    vectors = random_vectors(np.random.default_rng(4), 60, ivf.WIDTH + 40)
    assert ivf.build(vectors, None, offsets_of([60]))["centroids"].shape == (1, ivf.WIDTH)


def test_equal_units_leave_centroids_without_members() -> None:
    """More centroids than directions: those that lose all members start anew and harm nobody."""
    vectors = np.repeat(random_vectors(np.random.default_rng(5), 2, 6), 20, axis=0)
    built = ivf.build(vectors, None, offsets_of([10] * 4), per_list=4)
    assert len(built["centroids"]) == 10
    assert np.isfinite(built["centroids"]).all()
    assert sorted(built["list_documents"].tolist()) == [0, 1, 2, 3]


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
