"""The inverted file over units: lists are complete, estimates worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brute_force import Corpus, corpora, index_of
from builders import random_vectors
from hplus.storage import lists as ivf
from hplus.storage.segment import FORMATS, Format, dequantise, quantise
from hplus.types import F32, I64, offsets_of
from hplus.units.vectors import normalise

some = settings(deadline=None, max_examples=60)


@some
@given(st.data(), corpora(), st.integers(1, 9), st.integers(1, 12))
def test_an_estimate_by_hand(data: st.DataObject, corpus: Corpus, count: int, probes: int) -> None:
    """Of each query unit the best unit that it met in the lists read, or the first list unread."""
    random = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    budget = data.draw(st.one_of(st.none(), st.integers(1, 8)))
    query = corpus.query.units
    width = query.width
    centroids = random_vectors(random, count, data.draw(st.integers(1, width)))
    with index_of(replace(corpus, cuts=[])) as index:
        segment = index.engine.snapshot.parts[0].segment
        nearest = random.integers(0, count, len(segment.weights))
        listed = replace(
            segment,
            centroids=centroids,
            list_offsets=offsets_of(np.bincount(nearest, minlength=count)),
            list_rows=np.argsort(nearest, kind="stable").astype(np.uint16),
        )
        total = max(1.0, float(query.weights.sum()))
        near = ivf.similarities(query.vectors, centroids)
        unread = ivf.first_unread(near, probes)
        found = ivf.estimate(listed, query, near, unread, budget=budget)
        rows = dequantise(segment.vectors, segment.scales) @ query.vectors.T
        for document, (first, last) in enumerate(pairwise(segment.offsets.tolist())):
            expected = 0.0
            for unit, weight in enumerate(query.weights.tolist()):
                falling = np.sort(near[unit])[::-1]
                edge = falling[probes] if probes < count else -2.0
                met = [
                    rows[row, unit]
                    for row in range(first, last)
                    if near[unit, nearest[row]] > edge and (budget is None or row - first < budget)
                ]
                expected += weight * max([edge, *met])
            assert found[document] == pytest.approx(expected, rel=1e-4, abs=1e-3 * total)


def test_lists_of_all_segments_are_one() -> None:
    near = np.array([[0.9, 0.1, 0.5, 0.4], [0.2, 0.3, 0.1, 0.8]], np.float32)
    assert ivf.first_unread(near, 2).tolist() == pytest.approx([0.4, 0.2])
    assert ivf.first_unread(near, 4).tolist() == [-2, -2]


def clustered(random: np.random.Generator, topics: int, units: int, width: int) -> tuple[F32, I64]:
    """Units near one of some directions, and the direction of each."""
    directions = random_vectors(random, topics, width)
    topic = random.integers(0, topics, units)
    noise = 0.05 * random.normal(size=(units, width))
    return normalise((directions[topic] + noise).astype(np.float32)), topic


@pytest.mark.parametrize("format", FORMATS)
def test_each_unit_stands_in_the_list_of_its_nearest_centroid(
    monkeypatch: pytest.MonkeyPatch, format: Format
) -> None:
    monkeypatch.setattr(ivf, "BLOCK", 64)
    random = np.random.default_rng(1)
    vectors, _ = clustered(random, 12, 240, 10)
    codes, scales = quantise(vectors, format)
    built = ivf.build(codes, scales, per_list=20)
    assert set(built) == {"centroids", "list_offsets", "list_rows"}
    centroids = built["centroids"]
    assert len(centroids) == len(vectors) // 20
    np.testing.assert_allclose(np.linalg.norm(centroids, axis=1), 1, rtol=1e-6)
    assert built["list_rows"].dtype == np.uint8
    stored = normalise(dequantise(codes, scales))
    nearest = (stored @ centroids.T).argmax(axis=1)
    for c, (a, b) in enumerate(pairwise(built["list_offsets"])):
        assert built["list_rows"][a:b].tolist() == np.flatnonzero(nearest == c).tolist()


def test_centroids_find_the_clusters() -> None:
    """Units of well separated directions lie near their centroid, nearly all of them."""
    vectors, _ = clustered(np.random.default_rng(2), 20, 1500, 32)
    built = ivf.build(vectors, None, per_list=25)
    similarity = (vectors @ built["centroids"].T).max(axis=1)
    assert np.median(similarity) > 0.95


def test_the_same_units_give_the_same_lists() -> None:
    vectors, _ = clustered(np.random.default_rng(3), 8, 1100, 8)
    once, again = (ivf.build(vectors, None) for _ in range(2))
    for name, array in once.items():
        np.testing.assert_array_equal(array, again[name])


@pytest.mark.parametrize("vectors", [np.ones((1, 4)), np.zeros((3, 4)), np.eye(4)[:2]])
def test_a_handful_of_units_is_one_list(vectors: F32) -> None:
    built = ivf.build(vectors.astype(np.float32), None)
    assert built["list_offsets"].tolist() == [0, len(vectors)]
    assert built["list_rows"].tolist() == list(range(len(vectors)))
    assert np.isfinite(built["centroids"]).all()


def test_only_the_first_columns_are_compared() -> None:
    vectors = random_vectors(np.random.default_rng(4), 60, ivf.WIDTH + 40)
    assert ivf.build(vectors, None)["centroids"].shape == (1, ivf.WIDTH)


def test_equal_units_leave_centroids_without_members() -> None:
    """More centroids than directions: those that lose all members start again elsewhere."""
    vectors = np.repeat(random_vectors(np.random.default_rng(5), 2, 6), 20, axis=0)
    built = ivf.build(vectors, None, per_list=4)
    assert len(built["centroids"]) == 10
    assert np.isfinite(built["centroids"]).all()
    assert sorted(built["list_rows"].tolist()) == list(range(40))


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
