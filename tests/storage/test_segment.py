"""Segments: what is stored is what was given, to the rounding of the format; or an error.

safetensors' own reader is the second opinion on the files.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, fields, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given, settings
from hypothesis import strategies as st

from brute_force import Corpus, corpora, row_errors
from builders import assert_same, random_encoded, random_vectors, with_units
from hplus.errors import IndexDamagedError
from hplus.kernels.int4 import split
from hplus.storage import lists as ivf
from hplus.storage import sketches
from hplus.storage.disk import Disk
from hplus.storage.segment import (
    FORMATS,
    LARGEST,
    Format,
    Segment,
    SegmentBuilder,
    dequantise,
    global_format,
    quantise,
    read,
    smallest,
)
from hplus.storage.segment_file import file_parts, open_segment
from hplus.types import Encoded, Lexical, offsets_of
from hplus.units.select import narrow
from hplus.units.vectors import normalise

some = settings(deadline=None, max_examples=50)


def write(path: Path, encoded: Encoded, format: Format, *, pieces: int = 1) -> dict[str, Any]:
    """A segment's file of documents numbered from 100; its arrays."""
    builder = SegmentBuilder(format)
    bounds = np.linspace(0, len(encoded), pieces + 1).astype(int)
    for a, b in pairwise(bounds):
        builder.add(np.arange(100 + a, 100 + b), encoded[a:b])
    arrays = builder.arrays()
    path.write_bytes(b"".join(bytes(part) for part in file_parts(arrays)))
    return arrays


def load(path: Path, encoded: Encoded, format: Format) -> Segment:
    return open_segment(
        Disk(),
        path,
        documents=len(encoded),
        size=path.stat().st_size,
        format=format,
        widths=(encoded.global_.shape[1], encoded.units.width),
    )


def as_stored(encoded: Encoded, format: Format) -> Encoded:
    """The rounding of the format, and of the lexical weights, which are float16 in each."""
    weights = np.minimum(encoded.lexical.weights, 65504).astype(np.float16).astype(np.float32)
    return replace(
        with_units(encoded, vectors=dequantise(*quantise(encoded.units.vectors, format))),
        global_=dequantise(*quantise(encoded.global_, global_format(format))),
        lexical=replace(encoded.lexical, weights=weights),
    )


@some
@given(
    st.integers(0, 2**32 - 1),
    st.integers(0, 6),
    st.integers(1, 20),
    st.sampled_from([1e-30, 1e-4, 1.0, 1e3]),
)
def test_a_stored_row_is_within_its_bound(seed: int, rows: int, width: int, size: float) -> None:
    vectors = random_vectors(np.random.default_rng(seed), rows, width) * np.float32(size)
    for format in FORMATS[width % 2 :]:  # two numbers of int4 share a byte
        codes, scales = quantise(vectors, format)
        back = dequantise(codes, scales)
        assert back.dtype == np.float32
        off = np.linalg.norm(back - vectors, axis=1)
        assert (off <= row_errors(vectors, format, width) + 1e-7 * size).all()
        again, same = quantise(back, format)  # once rounded, it stays: compaction loses nothing
        np.testing.assert_array_equal(again, codes)
        if format in LARGEST:
            assert codes.dtype == (np.uint8 if format == "int4" else np.int8)
            most, every = LARGEST[format], split(codes) if format == "int4" else codes
            largest = np.abs(every).max(axis=1)
            assert (largest == most).all() if size >= 1 else (largest <= most).all()
            np.testing.assert_array_equal(same, scales)
        else:
            assert scales is None


def test_tiny_rows_of_int4_are_rounded_once() -> None:
    """Where the smallest scale rules, too: read back, a row has the same codes."""
    random = np.random.default_rng(0)
    for size in (1e-6, 1e-4, 3e-4, 1e-3, 1e-2):
        vectors = random_vectors(random, 400, 8) * np.float32(size)
        codes, scales = quantise(vectors, "int4")
        again, same = quantise(dequantise(codes, scales), "int4")
        np.testing.assert_array_equal(again, codes)
        np.testing.assert_array_equal(same, scales)


def test_rows_of_zeros_stay_zero() -> None:
    for format in FORMATS:
        codes, scales = quantise(np.zeros((2, 6), np.float32), format)
        assert not dequantise(codes, scales).any()


@some
@given(corpora(), st.integers(1, 4))
def test_a_segment_gives_back_what_it_was_given(
    tmp_path_factory: pytest.TempPathFactory, corpus: Corpus, pieces: int
) -> None:
    path = tmp_path_factory.mktemp("segment") / "one"
    encoded, format = corpus.documents, corpus.format
    write(path, encoded, format, pieces=pieces)
    segment = load(path, encoded, format)
    assert len(segment) == len(encoded)
    assert segment.numbers.tolist() == list(range(100, 100 + len(encoded)))
    assert_same(read(segment, np.arange(len(encoded))), as_stored(encoded, format))


@some
@given(st.data(), corpora())
def test_any_documents_in_any_order_and_only_the_tokens_asked_for(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, corpus: Corpus
) -> None:
    path = tmp_path_factory.mktemp("segment") / "one"
    write(path, corpus.documents, corpus.format)
    segment = load(path, corpus.documents, corpus.format)
    order = data.draw(st.permutations(range(len(corpus))))
    places = np.array(order[: data.draw(st.integers(0, len(corpus)))], np.int64)
    tokens = np.array(sorted(data.draw(st.sets(st.integers(0, 30)))), np.int32)
    expected = as_stored(corpus.documents, corpus.format).take(places)
    assert_same(read(segment, places), expected)
    some = read(segment, places, tokens=tokens)
    for i in range(len(places)):
        mine = expected[i]
        kept = np.isin(mine.lexical.ids, tokens)
        np.testing.assert_array_equal(some[i].lexical.ids, mine.lexical.ids[kept])
        np.testing.assert_array_equal(some[i].lexical.weights, mine.lexical.weights[kept])


@some
@given(corpora())
def test_postings_name_every_document_of_a_token(
    tmp_path_factory: pytest.TempPathFactory, corpus: Corpus
) -> None:
    path = tmp_path_factory.mktemp("segment") / "one"
    write(path, corpus.documents, corpus.format)
    segment = load(path, corpus.documents, corpus.format)
    stored = as_stored(corpus.documents, corpus.format)
    expected: dict[int, list[tuple[int, float]]] = {}
    for document, (a, b) in enumerate(pairwise(stored.lexical.offsets)):
        for token, weight in zip(stored.lexical.ids[a:b], stored.lexical.weights[a:b], strict=True):
            expected.setdefault(int(token), []).append((document, float(weight)))
    tokens = np.arange(26, dtype=np.int32)
    for token, (documents, weights) in enumerate(segment.postings(tokens)):
        found = list(zip(documents.tolist(), weights.tolist(), strict=True))
        assert found == expected.get(token, [])


@some
@given(corpora(), st.integers(1, 5))
def test_the_file_depends_on_the_documents_alone(
    tmp_path_factory: pytest.TempPathFactory, corpus: Corpus, pieces: int
) -> None:
    """Whatever their order, the bytes are the same; and safetensors reads them."""
    folder = tmp_path_factory.mktemp("segment")
    arrays = write(folder / "whole", corpus.documents, corpus.format)
    write(folder / "pieces", corpus.documents, corpus.format, pieces=pieces)
    assert (folder / "whole").read_bytes() == (folder / "pieces").read_bytes()
    loaded = safetensors.numpy.load_file(folder / "whole")
    assert set(loaded) == set(arrays)
    for name, array in arrays.items():
        assert loaded[name].dtype == array.dtype
        np.testing.assert_array_equal(loaded[name], array)


@some
@given(corpora(formats=["int8", "f16", "f32"]))
def test_the_scale_at_a_width_renormalises_the_prefix(
    tmp_path_factory: pytest.TempPathFactory, corpus: Corpus
) -> None:
    path = tmp_path_factory.mktemp("segment") / "one"
    write(path, corpus.documents, corpus.format)
    segment = load(path, corpus.documents, corpus.format)
    stored = read(segment, np.arange(len(corpus)))
    units = replace(stored.units, vectors=normalise(stored.units.vectors))
    full = corpus.documents.units.width
    for width in range(1, full):
        scales = segment.scales_at(width)
        assert scales is segment.scales_at(width)  # computed once
        prefix = segment.vectors[:, :width].astype(np.float32) * scales[:, None]
        np.testing.assert_allclose(prefix, narrow(units, width).vectors, atol=1e-6)
    assert segment.scales_at(full) is segment.scales


def test_numbers_take_the_smallest_type() -> None:
    for largest, dtype in (
        (0, "u1"),
        (255, "u1"),
        (256, "u2"),
        (65_535, "u2"),
        (65_536, "u4"),
        (2**32 - 1, "u4"),
    ):
        found = smallest(np.array([0, largest], np.int64))
        assert found.dtype == dtype
        assert found.tolist() == [0, largest]
    assert smallest(np.empty(0, np.int64)).dtype == np.uint8


def test_spans_far_into_a_long_text(tmp_path: Path) -> None:
    encoded = random_encoded(np.random.default_rng(0), [2, 1], dropped=[1, 0])
    spans = encoded.units.spans + np.int32([[70_000], [3_000_000], [0]])
    encoded = with_units(encoded, spans=spans)
    write(tmp_path / "one", encoded, "f32")
    assert_same(
        read(load(tmp_path / "one", encoded, "f32"), np.arange(2)), as_stored(encoded, "f32")
    )


@pytest.mark.parametrize("weight", [0.0, 1e-9, 6e-5, 1.0, 65504.0, 1e9])
def test_lexical_weights_beyond_float16(tmp_path: Path, weight: float) -> None:
    """Weights that are too large become the largest, never infinite."""
    encoded = random_encoded(np.random.default_rng(2), [1])
    one = Lexical(np.array([7], np.int32), np.array([weight], np.float32), offsets_of([1]))
    encoded = replace(encoded, lexical=one)
    write(tmp_path / "one", encoded, "int8")
    segment = load(tmp_path / "one", encoded, "int8")
    ((_, weights),) = segment.postings(np.array([7], np.int32))
    assert np.isfinite(weights).all()
    assert weights[0] == pytest.approx(min(weight, 65504), rel=2**-11, abs=2**-25)


Change = Callable[[dict[str, Any]], Any]


def drop(name: str) -> Change:
    return lambda arrays: arrays.pop(name)


def put(name: str, make: Callable[[Any], Any]) -> Change:
    return lambda arrays: arrays.__setitem__(name, make(arrays[name]))


def backwards(offsets: Any) -> Any:
    changed = offsets.copy()
    changed[1] = changed[-1] + 1
    return changed


REQUIRED = [f.name for f in fields(Segment) if f.default is f.default_factory is MISSING]
DAMAGES: dict[str, Change] = {
    **{f"no {name}": drop(name) for name in REQUIRED},
    "one document less": put("numbers", lambda a: a[:-1]),
    "vectors of another format": put("vectors", lambda a: a.astype(np.float32)),
    "vectors of another width": put("vectors", lambda a: a[:, :-1].copy()),
    "global vectors of another width": put("global_vectors", lambda a: a[:, :-1].copy()),
    "a unit less": put("weights", lambda a: a[:-1]),
    "scales of another type": put("scales", lambda a: a.astype(np.float32)),
    "spans of another type": put("span_starts", lambda a: a.astype(np.int64)),
    "offsets backwards": put("offsets", backwards),
    "spans backwards": put("span_offsets", backwards),
    "lists backwards": put("lexical_offsets", backwards),
    "offsets from one": put("offsets", lambda a: a + 1),
    "a posting less": put("lexical_documents", lambda a: a[:-1]),
    "lists but no centroids' ends": put("global_list_offsets", lambda a: a[:-1]),
    "centroids of another type": put("global_centroids", lambda a: a.astype(np.float16)),
    "a sketch less": put("sketches", lambda a: a[:-1]),
    "sketches of another type": put("sketches", lambda a: a.astype(np.float32)),
    "sketches without columns": put("sketches", lambda a: a[:, :0]),
    "sketches without an axis": put("sketches", lambda _: np.array(3, np.int8)),
    "sketches without anchors": drop("anchors"),
    "no anchor": put("anchors", lambda a: a[:0]),
    "an anchor that is no document": put("anchors", lambda a: a + 3),
    "an anchor below 0": put("anchors", lambda a: a - 4),
    "anchors without a map": drop("anchor_map"),
    "a map of another shape": put("anchor_map", lambda a: a[:, :0]),
    "token ids without an axis": put("lexical_ids", lambda _: np.array(3, np.int32)),
    "centroids without an axis": put("global_centroids", lambda _: np.array(3, np.float32)),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_header_that_does_not_fit_is_refused(
    tmp_path: Path, damage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is a sound safetensors file of the right length, but not this segment."""
    encoded = random_encoded(np.random.default_rng(0), [3, 0, 2], dropped=[1, 0, 2])
    ids = np.array([1, 5, 5], np.int32)
    terms = Lexical(ids, np.ones(3, np.float32), offsets_of([2, 1, 0]))
    encoded = replace(encoded, lexical=terms)
    arrays = write(tmp_path / "one", encoded, "int8")
    arrays |= ivf.build(arrays["global_vectors"], arrays["global_scales"])
    monkeypatch.setattr(sketches, "SKETCHED", 1)
    arrays |= sketches.sketches_of(arrays)
    arrays["sketches"] = np.concatenate([*arrays["sketches"].blocks()])
    DAMAGES[damage](arrays)
    (tmp_path / "one").write_bytes(b"".join(bytes(part) for part in file_parts(arrays)))
    with pytest.raises(IndexDamagedError, match=r"one\b"):
        load(tmp_path / "one", encoded, "int8")


def test_a_file_of_another_length_or_kind_is_refused(tmp_path: Path) -> None:
    encoded = random_encoded(np.random.default_rng(0), [3, 0])
    path = tmp_path / "one"
    write(path, encoded, "f32")
    options: dict[str, Any] = {"documents": 2, "format": "f32", "widths": (8, 8)}
    whole = path.read_bytes()
    with pytest.raises(IndexDamagedError, match=f"{len(whole):,} bytes, expected 9"):
        open_segment(Disk(), path, size=9, **options)
    for content in (whole[:-1], b"", b"\x00" * 64, b"{" * 64, b"\xff" * 8 + whole[8:]):
        path.write_bytes(content)
        with pytest.raises(IndexDamagedError, match="not a valid segment"):
            open_segment(Disk(), path, size=len(content), **options)
    with pytest.raises(FileNotFoundError):  # a reader overtaken by a compaction begins again
        open_segment(Disk(), tmp_path / "other", size=9, **options)
