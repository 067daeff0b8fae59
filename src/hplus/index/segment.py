"""A segment: the three views of some documents as plain arrays in one safetensors file.

Written once, never changed. Vectors are int8 with one float16 scale a row, float16 or float32; the
lexical view is stored the other way round, token id -> documents, so that a query reads only the
lists of its own tokens. Numbers take the smallest type that holds them.
"""

from __future__ import annotations

import json
import mmap
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import safetensors

from hplus.errors import IndexDamagedError
from hplus.index.store import Disk
from hplus.types import F32, I32, I64, Coverage, Encoded, item_of_row, offsets_of, rows_of

Format = Literal["int8", "f16", "f32"]
FORMATS: tuple[Format, ...] = get_args(Format)
_CODES: dict[Format, str] = {"int8": "I8", "f16": "F16", "f32": "F32"}
# safetensors' names of the types, in the order in which the arrays lie in the file.
_TYPES: dict[str, np.dtype[Any]] = {
    "I64": np.dtype("<i8"),
    "F32": np.dtype("<f4"),
    "I32": np.dtype("<i4"),
    "U32": np.dtype("<u4"),
    "F16": np.dtype("<f2"),
    "U16": np.dtype("<u2"),
    "I8": np.dtype("i1"),
    "U8": np.dtype("u1"),
}
_NAMES = {dtype: name for name, dtype in _TYPES.items()}
_UNSIGNED = ("U8", "U16", "U32")

Array = npt.NDArray[Any]
F16 = npt.NDArray[np.float16]


def quantise(vectors: F32, format: Format) -> tuple[Array, F16 | None]:
    """Rows in the stored format, and the scale of each row where it needs one.

    int8 is symmetric over the largest number of the row, codes in [-127, 127].
    """
    if format != "int8":
        return vectors.astype(np.float16 if format == "f16" else np.float32), None
    largest = np.abs(vectors).max(axis=1, initial=0)
    # Not below the smallest normal float16, so that a row of zeros divides by something.
    scales = np.maximum(largest / 127, np.float32(6.2e-5)).astype(np.float16)
    codes = np.rint(vectors / scales.astype(np.float32)[:, None])
    return np.clip(codes, -127, 127).astype(np.int8), scales


def dequantise(codes: Array, scales: F16 | None) -> F32:
    """The vectors that stored rows stand for."""
    vectors: F32 = codes.astype(np.float32)
    return vectors if scales is None else vectors * scales.astype(np.float32)[:, None]


@dataclass(frozen=True)
class Segment:
    """n documents, M units, S spans, D dropped units, E spans of those, T token ids, L postings.

    numbers i64[n] are the documents' own numbers, which never change. offsets, span_offsets,
    dropped_offsets, dropped_span_offsets i64[n + 1] count units and spans a document;
    span_counts[M] and dropped_counts[D] the spans a unit. lexical_offsets i64[T + 1] counts the
    postings of each of lexical_ids. Centroids and lists are there in large segments only: the
    units list_rows[list_offsets[c] : list_offsets[c + 1]] lie nearest to centroid c; the same for
    global vectors.
    """

    numbers: I64
    global_vectors: Array
    global_scales: F16 | None
    vectors: Array
    scales: F16 | None
    weights: F32
    offsets: I64
    span_counts: Array
    span_starts: Array
    span_lengths: Array
    span_offsets: I64
    dropped_weights: F32
    dropped_offsets: I64
    dropped_counts: Array
    dropped_starts: Array
    dropped_lengths: Array
    dropped_span_offsets: I64
    lexical_ids: I32
    lexical_offsets: I64
    lexical_documents: Array
    lexical_weights: F16
    tokens: I32
    windows: I32
    cut: I32
    importance: F32
    kept: F32
    centroids: F32 | None = None
    list_offsets: I64 | None = None
    list_rows: Array | None = None
    global_centroids: F32 | None = None
    global_list_offsets: I64 | None = None
    global_list_rows: Array | None = None
    inverse_norms: dict[int, F32] = field(default_factory=dict, repr=False, compare=False)

    def __len__(self) -> int:
        return len(self.numbers)

    def scales_at(self, width: int) -> F16 | F32 | None:
        """What a row's product with a query of this width is to be multiplied by.

        A prefix is renormalised: its own length takes the place of one. Computed once a width.
        """
        if width == self.vectors.shape[1]:
            return self.scales
        if width not in self.inverse_norms:
            norms = np.empty(len(self.vectors), np.float32)
            for first in range(0, len(norms), 65_536):
                rows = self.vectors[first : first + 65_536, :width].astype(np.float32)
                norms[first : first + 65_536] = np.sqrt(np.einsum("ij,ij->i", rows, rows))
            self.inverse_norms[width] = np.divide(
                1, norms, out=np.zeros_like(norms), where=norms > 0
            )
        return self.inverse_norms[width]

    def postings(self, token: int) -> tuple[Array, F16]:
        """Documents that have a token id, ascending, and their weights."""
        place = int(np.searchsorted(self.lexical_ids, token))
        if place == len(self.lexical_ids) or self.lexical_ids[place] != token:
            return self.lexical_documents[:0], self.lexical_weights[:0]
        rows = slice(self.lexical_offsets[place], self.lexical_offsets[place + 1])
        documents = self.lexical_documents[rows]
        if len(documents) and documents.max() >= len(self):
            raise IndexDamagedError(
                f"token {token} stands in document {documents.max()} of {len(self)}; verify tells "
                "which segment is damaged"
            )
        return documents, self.lexical_weights[rows]


class SegmentBuilder:
    """Collects documents, vectors already in their stored format, until they make a segment."""

    def __init__(self, format: Format) -> None:
        self.format = format
        self.parts: list[dict[str, Array]] = []
        self.lexical: list[tuple[I32, I64, F16]] = []
        self.documents = 0
        self.bytes = 0

    def add(self, numbers: I64, encoded: Encoded) -> None:
        """Some more documents."""
        part: dict[str, Array] = {"numbers": numbers.astype(np.int64)}
        for name, rows in (("global_", encoded.global_), ("", encoded.vectors)):
            codes, scales = quantise(rows, self.format)
            part[f"{name}vectors"] = codes
            if scales is not None:
                part[f"{name}scales"] = scales
        part["weights"], part["dropped_weights"] = encoded.weights, encoded.dropped_weights
        for name, units, spans, ends in (
            ("span", encoded.offsets, encoded.spans, encoded.span_offsets),
            (
                "dropped",
                encoded.dropped_offsets,
                encoded.dropped_spans,
                encoded.dropped_span_offsets,
            ),
        ):
            part[f"{name}_counts"] = smallest(np.diff(ends))
            part[f"{name}_starts"] = smallest(spans[:, 0])
            part[f"{name}_lengths"] = smallest(spans[:, 1] - spans[:, 0])
            part["offsets" if name == "span" else "dropped_offsets"] = np.diff(units)
            spans_of = "span_offsets" if name == "span" else "dropped_span_offsets"
            part[spans_of] = np.diff(ends[units])
        part |= {name: getattr(encoded.coverage, name) for name in _COVERAGE}
        self.parts.append(part)
        weights = np.minimum(encoded.lexical_weights, np.finfo(np.float16).max)
        document = self.documents + item_of_row(encoded.lexical_offsets)
        self.lexical.append((encoded.lexical_ids, document, weights.astype(np.float16)))
        self.documents += len(numbers)
        self.bytes += sum(array.nbytes for array in part.values()) + 6 * len(document)

    def arrays(self) -> dict[str, Array]:
        """Everything of the segment but its inverted file of units."""
        arrays: dict[str, Array] = {}
        for name in self.parts[0]:
            whole = np.concatenate([part[name] for part in self.parts])
            if name.endswith("offsets"):
                whole = offsets_of(whole)
            elif name.endswith(("_counts", "_starts", "_lengths")):
                whole = smallest(whole)
            arrays[name] = whole
        ids, document, weights = (
            np.concatenate(column) for column in zip(*self.lexical, strict=True)
        )
        order = np.lexsort((document, ids))
        tokens, counts = np.unique(ids, return_counts=True)
        arrays |= {
            "lexical_ids": tokens.astype(np.int32),
            "lexical_offsets": offsets_of(counts),
            "lexical_documents": smallest(document[order]),
            "lexical_weights": weights[order],
        }
        return arrays


_COVERAGE = ("tokens", "windows", "cut", "importance", "kept")


def smallest(values: Array) -> Array:
    """The same numbers, none negative, in the smallest unsigned type that holds them."""
    largest = int(values.max(initial=0))
    return values.astype(
        np.uint8 if largest < 256 else np.uint16 if largest < 65_536 else np.uint32
    )


def file_parts(arrays: dict[str, Array]) -> Iterator[bytes | memoryview]:
    """A safetensors file, piece by piece; the same arrays give the same bytes."""
    types = [*_NAMES]
    order = sorted(arrays, key=lambda name: (types.index(arrays[name].dtype), name))
    header, position = {}, 0
    for name in order:
        array = arrays[name]
        end = position + array.nbytes
        header[name] = {
            "dtype": _NAMES[array.dtype],
            "shape": list(array.shape),
            "data_offsets": [position, end],
        }
        position = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    yield len(text).to_bytes(8, "little")
    yield text
    for name in order:
        if arrays[name].size:
            yield np.ascontiguousarray(arrays[name]).data.cast("B")


def open_segment(
    disk: Disk, path: Path, *, documents: int, size: int, format: Format, widths: tuple[int, int]
) -> Segment:
    """A segment mapped into memory; its header must say exactly what the catalogue expects."""
    try:
        if (found := disk.size(path)) != size:
            raise IndexDamagedError(f"{path} has {found:,} bytes, {size:,} were written")
        memory = disk.map(path)
        with safetensors.safe_open(path, framework="numpy"):
            pass  # sizes, overflow and overlap are checked by the library
        arrays = _views(memory)
    except (safetensors.SafetensorError, ValueError, KeyError, TypeError) as error:
        raise IndexDamagedError(f"{path} is not a sound segment: {error}") from None
    _check(path, arrays, documents, format, widths)
    present: dict[str, Any] = {"global_scales": None, "scales": None}
    present |= {f.name: arrays[f.name] for f in fields(Segment) if f.name in arrays}
    return Segment(**present)


def _views(memory: mmap.mmap) -> dict[str, Array]:
    length = int.from_bytes(memory[:8], "little")
    header = json.loads(memory[8 : 8 + length], object_pairs_hook=_once)
    arrays = {}
    for name, about in header.items():
        dtype, shape = _TYPES[about["dtype"]], tuple(about["shape"])
        flat = np.frombuffer(
            memory, dtype, count=int(np.prod(shape)), offset=8 + length + about["data_offsets"][0]
        )
        if not flat.flags.aligned:
            raise ValueError(f"{name} does not start at a multiple of its {dtype.itemsize} bytes")
        arrays[name] = flat.reshape(shape)
    return arrays


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Readers differ in which of two equal names they take."""
    if len({name for name, _ in pairs}) < len(pairs):
        raise ValueError("a name stands twice in the header")
    return dict(pairs)


def _check(
    path: Path, arrays: dict[str, Array], n: int, format: Format, widths: tuple[int, int]
) -> None:
    """Names, types and shapes fit one another, and no offset runs backwards."""

    def expect(name: str, types: tuple[str, ...], *shape: int) -> None:
        found = arrays.get(name)
        if found is None or _NAMES[found.dtype] not in types or found.shape != shape:
            came = "is missing" if found is None else f"is {_NAMES[found.dtype]}{list(found.shape)}"
            raise IndexDamagedError(
                f"{path}: {name} {came}, expected {' or '.join(types)}{list(shape)}"
            )

    def counted(name: str, items: int) -> int:
        """Offsets of so many items: from 0, never backwards; what they end at."""
        expect(name, ("I64",), items + 1)
        offsets = arrays[name]
        if offsets[0] != 0 or (offsets[1:] < offsets[:-1]).any():
            raise IndexDamagedError(f"{path}: {name} does not start at 0 or runs backwards")
        return int(offsets[-1])

    expect("numbers", ("I64",), n)
    for name in ("tokens", "windows", "cut"):
        expect(name, ("I32",), n)
    for name in ("importance", "kept"):
        expect(name, ("F32",), n)
    units, dropped = counted("offsets", n), counted("dropped_offsets", n)
    spans, lost = counted("span_offsets", n), counted("dropped_span_offsets", n)
    for prefix, rows, width in (("global_", n, widths[0]), ("", units, widths[1])):
        expect(f"{prefix}vectors", (_CODES[format],), rows, width)
        if format == "int8":
            expect(f"{prefix}scales", ("F16",), rows)
    expect("weights", ("F32",), units)
    expect("dropped_weights", ("F32",), dropped)
    for prefix, owners, count in (("span", units, spans), ("dropped", dropped, lost)):
        expect(f"{prefix}_counts", _UNSIGNED, owners)
        expect(f"{prefix}_starts", _UNSIGNED, count)
        expect(f"{prefix}_lengths", _UNSIGNED, count)
    tokens = arrays["lexical_ids"].size if "lexical_ids" in arrays else 0
    expect("lexical_ids", ("I32",), tokens)
    postings = counted("lexical_offsets", tokens)
    expect("lexical_documents", _UNSIGNED, postings)
    expect("lexical_weights", ("F16",), postings)
    for prefix in ("", "global_"):
        if f"{prefix}centroids" in arrays:
            shape = arrays[f"{prefix}centroids"].shape
            lists, width = shape if len(shape) == 2 and shape[0] else (1, 1)
            expect(f"{prefix}centroids", ("F32",), lists, width)
            expect(f"{prefix}list_rows", _UNSIGNED, counted(f"{prefix}list_offsets", lists))


def read(segment: Segment, places: I64, *, terms: I32 | None = None) -> Encoded:
    """Documents at these places as they were encoded, up to the rounding of the stored format.

    terms: token ids, ascending, whose lexical weights are wanted; without them all.
    """
    units, offsets = rows_of(segment.offsets, places)
    lost, dropped_offsets = rows_of(segment.dropped_offsets, places)
    spans, span_offsets = _spans(segment, "span", places, units)
    dropped_spans, dropped_span_offsets = _spans(segment, "dropped", places, lost)
    ids, weights, lexical_offsets = (
        _lexical(segment, places) if terms is None else _lexical_of(segment, places, terms)
    )
    scales, global_scales = segment.scales, segment.global_scales
    return Encoded(
        global_=dequantise(
            segment.global_vectors[places], None if global_scales is None else global_scales[places]
        ),
        vectors=dequantise(segment.vectors[units], None if scales is None else scales[units]),
        weights=segment.weights[units],
        offsets=offsets,
        spans=spans,
        span_offsets=span_offsets,
        lexical_ids=ids,
        lexical_weights=weights,
        lexical_offsets=lexical_offsets,
        dropped_weights=segment.dropped_weights[lost],
        dropped_offsets=dropped_offsets,
        dropped_spans=dropped_spans,
        dropped_span_offsets=dropped_span_offsets,
        coverage=Coverage(**{name: getattr(segment, name)[places] for name in _COVERAGE}),
    )


def _spans(segment: Segment, kind: str, places: I64, units: I64) -> tuple[I32, I64]:
    offsets = segment.span_offsets if kind == "span" else segment.dropped_span_offsets
    rows, _ = rows_of(offsets, places)
    starts = getattr(segment, f"{kind}_starts")[rows].astype(np.int32)
    ends = starts + getattr(segment, f"{kind}_lengths")[rows].astype(np.int32)
    counted = offsets_of(getattr(segment, f"{kind}_counts")[units])
    if counted[-1] != len(rows):
        raise IndexDamagedError(
            f"{kind}_counts say {counted[-1]} spans, {len(rows)} are there; verify tells which "
            "segment is damaged"
        )
    return np.stack([starts, ends], axis=1), counted


def _lexical(segment: Segment, places: I64) -> tuple[I32, F32, I64]:
    """Token id -> documents turned round again: ids ascending within each document."""
    document = segment.lexical_documents.astype(np.int64)
    token = segment.lexical_ids[item_of_row(segment.lexical_offsets)]
    by_place = np.argsort(places, kind="stable")
    place = np.searchsorted(places[by_place], document)
    place = np.minimum(place, max(0, len(places) - 1))
    mine = np.flatnonzero(places[by_place][place] == document) if len(places) else place[:0]
    wanted = by_place[place[mine]]
    order = np.lexsort((token[mine], wanted))
    weights = segment.lexical_weights[mine[order]].astype(np.float32)
    counts = np.bincount(wanted, minlength=len(places))
    return token[mine[order]], weights, offsets_of(counts)


def _lexical_of(segment: Segment, places: I64, terms: I32) -> tuple[I32, F32, I64]:
    """The same for a few token ids: each place is looked up in their lists."""
    weights = np.zeros((len(places), len(terms)), np.float32)
    there = np.zeros(weights.shape, np.bool_)
    for column, term in enumerate(terms.tolist()):
        documents, found = segment.postings(term)
        if len(documents):
            at = np.minimum(np.searchsorted(documents, places), len(documents) - 1)
            there[:, column] = documents[at] == places
            weights[:, column] = found[at]
    return terms[np.nonzero(there)[1]], weights[there], offsets_of(there.sum(axis=1))
