"""Sketches: estimates near the exact scores, one per document, whatever became of the segments."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from brute_force import QuickDisk
from builders import random_encoded, random_vectors, with_units
from hplus import Index
from hplus.any_index import settings_for
from hplus.search import local
from hplus.storage import sketches
from hplus.storage.create import create
from hplus.storage.segment import FORMATS, Array, Format
from hplus.types import Encoded
from hplus.units.vectors import normalise

WIDTH = 12


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sketches, "SKETCHED", 60)
    monkeypatch.setattr(sketches, "BLOCK", 50)


def about_topics(random: np.random.Generator, documents: int) -> Encoded:
    """Documents of one to six units, all near two directions of their own among thirty."""
    counts = random.integers(1, 7, documents).tolist()
    encoded = random_encoded(random, counts, WIDTH)
    topics = random_vectors(np.random.default_rng(3), 30, WIDTH)
    own = random.integers(0, 30, (documents, 2))
    chosen = np.repeat(own, counts, axis=0)[
        np.arange(sum(counts)), random.integers(0, 2, sum(counts))
    ]
    noise = 0.1 * random.standard_normal((sum(counts), WIDTH))
    return with_units(encoded, vectors=normalise((topics[chosen] + noise).astype(np.float32)))


def made(
    path: Path, format: Format, documents: Encoded, *, calls: int = 1, mean: float = 0
) -> Index:
    options: dict[str, Any] = {"width": WIDTH, "global_width": WIDTH, "fingerprint": "x"}
    settings = settings_for(None, format=format, **options)
    if mean:
        settings = replace(settings, mean=(mean,) * WIDTH)
    create(path, settings, QuickDisk())
    index = Index.open(path, disk=QuickDisk())
    for rows in np.array_split(np.arange(len(documents)), calls):
        index.add_encoded([f"d{i:04d}" for i in rows], documents.take(rows))
    return index


def arrays_of(index: Index) -> dict[str, Array]:
    (part,) = index.engine.snapshot.parts
    segment = part.segment
    return {name: getattr(segment, name) for name in ("sketches", "anchors", "anchor_map")}


@pytest.mark.parametrize("format", FORMATS)
def test_an_estimate_follows_the_score(tmp_path: Path, format: Format) -> None:
    random = np.random.default_rng(0)
    with made(tmp_path / "index", format, about_topics(random, 1200)) as index:
        segment = index.engine.snapshot.parts[0].segment
        places = np.arange(len(segment))
        for query in (about_topics(random, 1) for _ in range(20)):
            exact = local.phrase_scores(segment, query.units, places, None)
            near = local.estimates(segment, query.units, places, None)
            assert np.corrcoef(exact, near)[0, 1] > 0.9
            some = np.sort(random.permutation(1200)[:70])
            np.testing.assert_array_equal(
                local.estimates(segment, query.units, some, None), near[some]
            )


def test_a_mean_that_was_taken_off_is_in_what_sketches_are_made_of(tmp_path: Path) -> None:
    documents = about_topics(np.random.default_rng(7), 200)
    with (
        made(tmp_path / "plain", "f32", documents) as plain,
        made(tmp_path / "mean", "int8", documents, mean=0.2) as index,
    ):
        found = []
        for one in (plain, index):
            segment = one.engine.snapshot.parts[0].segment
            offsets, vectors = segment.offsets, segment.vectors
            part = (vectors, segment.scales, offsets[:-1], offsets[1:], segment.mean)
            landmarks = sketches._landmarks([part], len(vectors), np.random.default_rng(0))
            found.append((landmarks, sketches._met(part, landmarks, np.arange(200))))
        for ours, theirs in zip(*found, strict=True):
            np.testing.assert_allclose(ours, theirs, atol=0.02)


def test_segments_put_together_are_sketched_as_one(tmp_path: Path) -> None:
    """The same documents in the same order give the same arrays, in one call or in several."""
    documents = about_topics(np.random.default_rng(1), 300)
    found = []
    for calls in (1, 5):
        with made(tmp_path / str(calls), "int8", documents, calls=calls) as index:
            index.compact()
            found.append(arrays_of(index))
    for name, array in found[0].items():
        np.testing.assert_array_equal(array, found[1][name])
    assert found[0]["sketches"].shape == (300, 9)  # 75 anchors
    assert len(found[0]["anchors"]) == 75


def test_what_was_deleted_has_no_sketch(tmp_path: Path) -> None:
    documents = about_topics(np.random.default_rng(2), 200)
    with made(tmp_path / "some", "int8", documents) as index:
        index.delete([f"d{i:04d}" for i in range(0, 200, 3)])
        index.compact()
        found = arrays_of(index)
    kept = documents.take(np.array([i for i in range(200) if i % 3]))
    with made(tmp_path / "kept", "int8", kept) as index:
        for name, array in arrays_of(index).items():
            np.testing.assert_array_equal(array, found[name])


def test_a_small_segment_has_none_and_is_scanned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Segments with and without sketches answer together."""
    monkeypatch.setattr(local, "SCANNED", 0)
    monkeypatch.setattr(local, "SURVIVORS", 20)
    documents = about_topics(np.random.default_rng(4), 140)
    with made(tmp_path / "index", "int8", documents[:100]) as index:
        index.add_encoded([f"e{i}" for i in range(40)], documents[100:])
        sketched = [part.segment.sketches is not None for part in index.engine.snapshot.parts]
        assert sketched == [True, False]
        query = documents[120]
        results = index.search(query, view="phrase", k=5, pool=5)
        assert results.paths == {"phrase": "sketches of 1 of 2 segments"}
        exact = index.search(query, view="phrase", k=5, exact=True)
        assert results[0].id == exact[0].id == "e20"
        small = {hit.id for hit in exact if hit.id.startswith("e")}
        assert small <= {hit.id for hit in results}  # those scanned are not missed


@pytest.mark.parametrize("units", [0, 1])
def test_documents_without_units_or_all_equal(tmp_path: Path, units: int) -> None:
    random = np.random.default_rng(5)
    documents = random_encoded(random, [units] * 80, WIDTH)
    if units:
        documents = documents.take(np.zeros(80, np.int64))
    with made(tmp_path / "index", "int8", documents) as index:
        found = arrays_of(index)
        assert (found["sketches"] is None) == (units == 0)
        assert index.verify().problems == []
        if units:
            assert np.isfinite(found["anchor_map"]).all()
