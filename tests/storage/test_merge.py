"""Segments put together array by array are what the documents alone would give; their number stays
small at every size, and so does the memory that it takes."""

from __future__ import annotations

import tracemalloc
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given, settings
from hypothesis import strategies as st

from brute_force import Corpus, QuickDisk, corpora, index_of
from builders import random_encoded
from hplus.index import Index
from hplus.storage import compact, lists, merge, merge_lists, segment
from hplus.storage.merge import Kept, kept_of
from hplus.storage.segment import FORMATS, Array, Format, SegmentBuilder, dequantise, read
from hplus.storage.segment_file import file_parts
from hplus.storage.writer import open_writer
from hplus.units.vectors import normalise

some = settings(deadline=None, max_examples=60)
SETTINGS: dict[str, Any] = {"width": 8, "global_width": 8, "fingerprint": "x"}


def written(arrays: Any) -> dict[str, Array]:
    """The arrays as another reader of the file finds them."""
    return safetensors.numpy.load(b"".join(bytes(part) for part in file_parts(arrays)))


@st.composite
def kept_documents(draw: st.DrawFn, index: Index) -> list[Kept]:
    parts = index.engine.snapshot.parts
    alive = [
        np.array(draw(st.lists(st.booleans(), min_size=n, max_size=n)), np.bool_)
        for n in (len(part.segment) for part in parts)
    ]
    return kept_of([(part.segment, own) for part, own in zip(parts, alive, strict=True)])


@some
@given(st.data(), corpora(), st.integers(1, 7))
def test_merged_arrays_are_those_of_the_documents(
    data: st.DataObject, corpus: Corpus, block: int
) -> None:
    """Whatever was deleted, however small the blocks; the documents go through `Encoded` here."""
    with index_of(corpus) as index, pytest.MonkeyPatch.context() as patch:
        patch.setattr(merge, "BLOCK", block)
        kept = data.draw(kept_documents(index))
        builder = SegmentBuilder(corpus.format, corpus.mean)
        for part in kept:
            if len(part):
                builder.add(part.segment.numbers[part.places], read(part.segment, part.places))
        if not builder.documents:
            return
        found, expected = written(merge.merge(kept)), written(builder.arrays())
        assert sorted(found) == sorted(expected)
        for name, array in expected.items():
            assert found[name].dtype == array.dtype, name
            np.testing.assert_array_equal(found[name], array, err_msg=name)


@some
@given(st.data(), corpora(), st.integers(1, 3), st.integers(1, 4))
def test_merged_lists_hold_every_vector_once(
    data: st.DataObject, corpus: Corpus, per_list: int, learned: int
) -> None:
    """Those carried over keep their members; the others are in the list of the nearest centroid
    among those that were learned with them."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {
            "LISTED_DOCUMENTS": 1,
            "PER_LIST": per_list,
            "LEARNED": learned,
        }.items():
            patch.setattr(lists, name, value)
        patch.setattr(merge_lists, "BLOCK", 2)
        with index_of(corpus) as index:
            kept = data.draw(kept_documents(index))
            if not any(len(part) for part in kept):
                return
            arrays = merge.merge(kept)
            found = written(arrays | merge_lists.merge_lists(kept))
            check_lists(found, kept, per_list)


def check_lists(found: dict[str, Array], kept: list[Kept], per_list: int) -> None:
    vectors = found["global_vectors"]
    rows, offsets = found["global_list_rows"], found["global_list_offsets"]
    assert sorted(rows.tolist()) == list(range(len(vectors)))
    assert all((np.diff(rows[a:b].astype(int)) > 0).all() for a, b in pairwise(offsets))
    stored = normalise(dequantise(vectors, found.get("global_scales")))
    list_of = np.empty(len(rows), np.int64)
    list_of[rows] = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    # By hand: which segments keep their lists, and which rows those were.
    first = begun = 0
    for part in kept:
        centroids, count = part.segment.global_centroids, len(part)
        if (
            centroids is not None
            and 2 * len(centroids) >= lists.LEARNED
            and 2 * count >= len(centroids) * per_list
        ):
            own, members = part.segment.global_list_offsets, part.segment.global_list_rows
            before = np.empty(len(members), np.int64)
            before[members] = np.repeat(np.arange(len(own) - 1), np.diff(own))
            expected = begun + before[part.places]
            np.testing.assert_array_equal(list_of[first : first + count], expected)
            begun += len(centroids)
        first += count
    learned = list_of >= begun
    near = stored[learned] @ found["global_centroids"][begun:].T
    if learned.sum() <= lists.LEARNED * per_list:  # learned at once
        chosen = near[np.arange(len(near)), list_of[learned] - begun]
        np.testing.assert_allclose(chosen, near.max(axis=1, initial=-1), atol=1e-6)


def test_documents_one_by_one_are_those_read_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment, "CHUNK", 2)
    monkeypatch.setattr(segment, "LEXICAL_CHUNK", 5)
    corpus = Corpus(
        query=random_encoded(np.random.default_rng(1), [1]),
        documents=random_encoded(np.random.default_rng(2), [2] * 17, dropped=[1] * 17),
        ids=[f"d{i:02d}" for i in range(17)],
        copies=list(range(17)),
        cuts=[],
        format="f32",
    )
    with index_of(corpus) as index:
        (part,) = index.engine.snapshot.parts
        places = np.arange(0, 17, 2)
        found = list(segment.chunks(part.segment, places))
        assert np.concatenate([some for some, _ in found]).tolist() == places.tolist()
        whole = read(part.segment, places).lexical
        assert np.concatenate([one.lexical.ids for _, one in found]).tolist() == whole.ids.tolist()
        weights = np.concatenate([one.lexical.weights for _, one in found])
        assert weights.tolist() == whole.weights.tolist()


# How many there are


def levels(index: Index) -> list[int]:
    """Segments of each order of magnitude, by eights."""
    sizes = [part.row.documents for part in index.engine.snapshot.parts]
    return np.bincount([(size.bit_length() - 1) // 3 for size in sizes]).tolist()


def test_large_segments_are_put_together_too(tmp_path: Path) -> None:
    """Those of 4,096 documents never were: one segment for every call, for ever."""
    encoded = random_encoded(np.random.default_rng(0), [1] * 4_096, 2)
    options: dict[str, Any] = {"width": 2, "global_width": 2, "fingerprint": "x"}
    with Index.create(tmp_path / "index", disk=QuickDisk(), **options) as index:
        for call in range(9):
            index.add_encoded([f"{call}-{i}" for i in range(4_096)], encoded)
        assert [part.row.documents for part in index.engine.snapshot.parts] == [8 * 4_096, 4_096]
        assert index.verify().problems == []


@settings(deadline=None, max_examples=10)
@given(st.lists(st.integers(1, 40), min_size=1, max_size=60))
def test_at_most_seven_segments_of_a_size(sizes: list[int]) -> None:
    encoded = random_encoded(np.random.default_rng(0), [1] * 40)
    with index_of_nothing() as index:
        for call, size in enumerate(sizes):
            index.add_encoded([f"{call}-{i}" for i in range(size)], encoded[:size])
        assert max(levels(index)) < compact.TIER
        assert len(index) == sum(sizes)


def index_of_nothing() -> Any:
    empty = Corpus(
        query=random_encoded(np.random.default_rng(1), [1]),
        documents=random_encoded(np.random.default_rng(2), [1]),
        ids=["first"],
        copies=[0],
        cuts=[],
        format="int8",
    )
    return emptied(empty)


class emptied:  # noqa: N801  # a context manager
    """An index from which everything was deleted."""

    def __init__(self, corpus: Corpus) -> None:
        self.made = index_of(corpus)

    def __enter__(self) -> Index:
        index: Index = self.made.__enter__()
        index.delete("first")
        index.compact()
        return index

    def __exit__(self, *error: Any) -> None:
        self.made.__exit__(*error)


def test_what_was_replaced_does_not_pile_up(tmp_path: Path) -> None:
    """The same documents again and again: never more than twice what is alive, and a little."""
    with Index.create(tmp_path / "index", disk=QuickDisk(), **SETTINGS) as index:
        for round_ in range(30):
            random = np.random.default_rng(round_)
            index.delete([f"d{i}" for i in range(50)])
            index.add_encoded([f"d{i}" for i in range(50)], random_encoded(random, [2] * 50))
            assert index.stats().deleted <= 50
        assert len(index) == 50


# What it takes


def peak_of_merging(path: Path) -> int:
    with open_writer(path, QuickDisk()) as out:
        rows = compact.catalogue.segments(out.connection)
        tracemalloc.start()
        try:
            compact.put_together(out, rows)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()


@pytest.mark.parametrize("format", FORMATS)
def test_memory_does_not_grow_with_the_vectors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: Format
) -> None:
    """Eight segments, of one size and of four times that; a third of all documents deleted."""
    monkeypatch.setattr(compact, "TIER", 100)
    monkeypatch.setattr(merge, "BLOCK", 256)
    options: dict[str, Any] = {"width": 64, "global_width": 64, "fingerprint": "x"}
    peaks, sizes = [], []
    for units in (8, 32):
        path = tmp_path / str(units)
        encoded = random_encoded(np.random.default_rng(0), [units] * 100, 64)
        with Index.create(path, format=format, disk=QuickDisk(), **options) as index:
            for call in range(8):
                index.add_encoded([f"{call}-{i}" for i in range(100)], encoded)
            index.delete([f"{call}-{i}" for call in range(4) for i in range(60)])
        peaks.append(peak_of_merging(path))
        with Index.open(path) as index:
            assert len(index) == 560
            assert index.verify().problems == []
            sizes.append(sum(part.row.bytes for part in index.engine.snapshot.parts))
    assert sizes[1] > 2.5 * sizes[0]
    assert peaks[1] < 1.5 * peaks[0]
