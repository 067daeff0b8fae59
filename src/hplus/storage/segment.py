"""A segment: the three views of some documents as plain arrays in one safetensors file.

Written once, never changed. Vectors are int8 with one float16 scale per row, float16 or float32;
those of units may be int4, two numbers a byte (`kernels.int4`), beside global vectors in int8;
the lexical view is stored inverted, token id -> documents, so that a query reads only the lists of
its own tokens. Counts and offsets in texts take the smallest type that holds them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from hplus.errors import BudgetError, IndexDamagedError
from hplus.kernels import Mean, longest
from hplus.kernels.int4 import columns, packed, split
from hplus.storage.spread import gathered, spread
from hplus.types import (
    F32,
    I32,
    I64,
    Coverage,
    Encoded,
    Lexical,
    Units,
    item_of_row,
    offsets_of,
    rows_of,
)

Format = Literal["int4", "int8", "f16", "f32"]
FORMATS: tuple[Format, ...] = get_args(Format)
# Bytes of one number of a vector, and of the scale of one vector.
BYTES: dict[str, float] = {"f32": 4.0, "f16": 2.0, "int8": 1.0, "int4": 0.5}
SCALE: dict[str, float] = {"f32": 0.0, "f16": 0.0, "int8": 2.0, "int4": 2.0}
# The largest code of the formats whose numbers are codes.
LARGEST: dict[str, int] = {"int8": 127, "int4": 7}

Array = npt.NDArray[Any]
F16 = npt.NDArray[np.float16]


def quantise(vectors: F32, format: Format, mean: F32 | None = None) -> tuple[Array, F16 | None]:
    """Rows in the stored format, and the scale of each row for int8 and int4.

    Codes are symmetric: the largest number of a row gets the largest code (127 or 7) or its
    negative. With a mean, the codes are of what a row is without it, which is shorter, so that they
    are finer; a row of zeros then has the scale 0, by which it is known. int4 codes are of rows
    that are spread over their columns, and their scale keeps a row's length, which such coarse
    steps would change by a hundredth or two.
    """
    if format not in LARGEST:
        return vectors.astype(np.float16 if format == "f16" else np.float32), None
    most = LARGEST[format]
    rest = vectors if mean is None else vectors - mean
    if format == "int4":
        rest = spread(rest)
    largest = np.abs(rest).max(axis=1, initial=0)
    # At least the smallest normal float16, so that a row of zeros is not divided by zero.
    scales = np.maximum(largest / most, np.float32(6.2e-5)).astype(np.float16)
    codes = np.clip(np.rint(rest / scales.astype(np.float32)[:, None]), -most, most).astype(np.int8)
    if format == "int4":
        lengths, steps = (np.linalg.norm(rows, axis=1) for rows in (rest, codes.astype(np.float32)))
        # Not where the smallest scale rules: read back, such a row would get other codes.
        longer = largest >= 2 * most * np.float32(6.2e-5)
        scales = np.where(longer, lengths / np.maximum(steps, 1), scales).astype(np.float16)
    if mean is not None:
        zero = ~vectors.any(axis=1)
        codes[zero], scales[zero] = 0, 0
    return packed(codes) if format == "int4" else codes, scales


def dequantise(codes: Array, scales: F16 | None, mean: F32 | None = None) -> F32:
    """The vectors that stored rows represent; mean: what was taken off them."""
    vectors: F32 = (split(codes) if codes.dtype == np.uint8 else codes).astype(np.float32)
    if scales is not None:
        vectors *= scales.astype(np.float32)[:, None]
        if codes.dtype == np.uint8:
            vectors = gathered(vectors)
        if mean is not None:
            vectors[scales != 0] += mean
    return vectors


def global_format(format: Format) -> Format:
    """How an index of a format keeps its global vectors: there is one a document, so that fewer
    bits would save little."""
    return "int8" if format == "int4" else format


def to_meet(vectors: F32, rows: Array) -> F32:
    """Vectors as the kernels compare them with stored rows: spread where the rows are."""
    return spread(vectors) if rows.dtype == np.uint8 else vectors


def check_format(format: Format, width: int) -> None:
    """Two numbers of int4 share a byte."""
    if format == "int4" and width % 2:
        raise BudgetError(f"int4 keeps two numbers a byte, so width {width} must be even")


def as_float16(weights: F32) -> F16:
    """Lexical weights as they are kept; one beyond float16 is its largest number."""
    return np.minimum(weights, np.finfo(np.float16).max).astype(np.float16)


def bytes_of(vectors: float, width: int, format: str) -> float:
    """Bytes of a document's vectors in a format.

    >>> round(bytes_of(288.59, 128, "f16") / 1000, 1)  # KB, as in the paper
    73.9
    """
    return vectors * (width * BYTES[format] + SCALE[format])


@dataclass(frozen=True)
class Segment:
    """n documents, M units, S spans, D dropped units, E spans of those, T token ids, L postings.

    numbers i64[n] are the documents' own numbers, which never change. offsets, span_offsets,
    dropped_offsets, dropped_span_offsets i64[n + 1] give the units and spans of each document;
    span_counts[M] and dropped_counts[D] the number of spans of each unit. lexical_offsets
    i64[T + 1] gives the postings of each of lexical_ids. Only large segments have sketches
    i8[n, r], by which phrase scores are estimated (`sketches`), with anchors i64[A], places of
    documents, and anchor_map f32[r, A]; and lists of global vectors: the rows
    global_list_rows[global_list_offsets[c] : global_list_offsets[c + 1]] are nearest to
    global_centroids[c]. Where documents are divided, each row is a passage, those of a
    document follow one another with the same number, and passage_starts[n] and passage_lengths[n]
    are the characters of its text that it covers. mean f32[R]: what was taken off the vectors of
    the units before they became codes; it belongs to the index, not to the file.
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
    sketches: Array | None = None
    anchors: I64 | None = None
    anchor_map: F32 | None = None
    global_centroids: F32 | None = None
    global_list_offsets: I64 | None = None
    global_list_rows: Array | None = None
    passage_starts: Array | None = None
    passage_lengths: Array | None = None
    mean: F32 | None = None
    inverse_norms: dict[int, F32] = field(default_factory=dict, repr=False, compare=False)
    scales_of_width: dict[int, F32] = field(default_factory=dict, repr=False, compare=False)
    longest_rows: dict[tuple[str, int], tuple[float, float]] = field(
        default_factory=dict, repr=False, compare=False
    )

    def __len__(self) -> int:
        return len(self.numbers)

    def passages(self, places: I64) -> I64 | None:
        """Start and end of the passages at these places, i64[n, 2]; None if documents are whole."""
        if self.passage_starts is None or self.passage_lengths is None:
            return None
        starts = self.passage_starts[places].astype(np.int64)
        return np.stack([starts, starts + self.passage_lengths[places]], axis=1)

    def scales_at(self, width: int) -> F16 | F32 | None:
        """The factor for a row's product with a query of this width, computed once per width.

        A prefix of a vector is renormalised, hence divided by its own length. Rows of int4 have no
        prefixes.
        """
        if width == columns(self.vectors):
            return self.scales
        if width not in self.scales_of_width:
            scales = self._inverse_norms(width)
            if self.mean is not None and self.scales is not None:
                scales = scales * self.scales.astype(np.float32)
            self.scales_of_width[width] = scales
        return self.scales_of_width[width]

    def mean_at(self, width: int) -> Mean | None:
        """What is to be added to a row's product with a query of this width, if a mean was taken
        off; a prefix has as much more of it as it is renormalised."""
        if self.met_mean is None:
            return None
        whole = width == columns(self.vectors)
        return Mean(self.met_mean, None if whole else self._inverse_norms(width))

    @cached_property
    def met_mean(self) -> F32 | None:
        """The mean as the kernels add it to stored rows."""
        return None if self.mean is None else to_meet(self.mean, self.vectors)

    def _inverse_norms(self, width: int) -> F32:
        if width not in self.inverse_norms:
            norms = np.empty(len(self.vectors), np.float32)
            for first in range(0, len(norms), 65_536):
                part = slice(first, first + 65_536)
                rows = self.vectors[part, :width].astype(np.float32)
                if self.mean is not None and self.scales is not None:
                    rows = dequantise(rows, self.scales[part], self.mean[:width])
                norms[part] = np.sqrt(np.einsum("ij,ij->i", rows, rows))
            self.inverse_norms[width] = np.divide(
                1, norms, out=np.zeros_like(norms), where=norms > 0
            )
        return self.inverse_norms[width]

    def longest(self, view: str, width: int) -> tuple[float, float]:
        """The longest vectors of the "global" or "phrase" view at a width, computed once: they
        bound what a scan can still find."""
        if (view, width) not in self.longest_rows:
            if view == "global":
                found = longest(self.global_vectors, self.global_scales, width)
            else:
                found = longest(self.vectors, self.scales_at(width), width, self.mean_at(width))
            self.longest_rows[view, width] = found
        return self.longest_rows[view, width]

    def postings(self, tokens: I32) -> list[tuple[Array, F16]]:
        """For each of these token ids the documents that have it, ascending, and their weights;
        both empty for an id that no document has."""
        starts, ends = self.lists(tokens)
        bounds = zip(starts.tolist(), ends.tolist(), strict=True)
        return [
            (self.lexical_documents[start:end], self.lexical_weights[start:end])
            for start, end in bounds
        ]

    def lists(self, tokens: I32) -> tuple[I64, I64]:
        """Where the postings of these token ids start and end; at once where there are none."""
        places = np.searchsorted(self.lexical_ids, tokens)
        known = np.append(self.lexical_ids, -1)[places] == tokens
        return self.lexical_offsets[places], self.lexical_offsets[places + known]


class SegmentBuilder:
    """Collects documents, with vectors in the stored format, until they make a segment."""

    def __init__(self, format: Format, mean: F32 | None = None) -> None:
        self.format, self.mean = format, mean
        self.parts: list[dict[str, Array]] = []
        self.lexical: list[tuple[I32, I64, F16]] = []
        self.documents = 0
        self.bytes = 0

    def add(self, numbers: I64, encoded: Encoded, passages: I64 | None = None) -> None:
        """More documents, or their passages: start and end of each, i64[n, 2]."""
        part: dict[str, Array] = {"numbers": numbers.astype(np.int64)}
        if passages is not None:
            part["passage_starts"] = smallest(passages[:, 0])
            part["passage_lengths"] = smallest(passages[:, 1] - passages[:, 0])
        for name, rows, format, mean in (
            ("global_", encoded.global_, global_format(self.format), None),
            ("", encoded.units.vectors, self.format, self.mean),
        ):
            codes, scales = quantise(rows, format, mean)
            part[f"{name}vectors"] = codes
            if scales is not None:
                part[f"{name}scales"] = scales
        part["weights"], part["dropped_weights"] = encoded.units.weights, encoded.dropped.weights
        for name, prefix, units in (
            ("span", "", encoded.units),
            ("dropped", "dropped_", encoded.dropped),
        ):
            spans = units.spans
            part[f"{name}_counts"] = smallest(np.diff(units.span_offsets))
            part[f"{name}_starts"] = smallest(spans[:, 0])
            part[f"{name}_lengths"] = smallest(spans[:, 1] - spans[:, 0])
            part[f"{prefix}offsets"] = np.diff(units.offsets)
            part[f"{prefix}span_offsets"] = np.diff(units.span_offsets[units.offsets])
        part |= {name: getattr(encoded.coverage, name) for name in _COVERAGE}
        self.parts.append(part)
        lexical = encoded.lexical
        document = self.documents + item_of_row(lexical.offsets)
        self.lexical.append((lexical.ids, document, as_float16(lexical.weights)))
        self.documents += len(numbers)
        self.bytes += sum(array.nbytes for array in part.values()) + 6 * len(document)

    def arrays(self) -> dict[str, Array]:
        """All arrays of the segment except its sketches and lists."""
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


def first_places(numbers: I64) -> I64:
    """Where documents begin among rows of these numbers: their passages follow one another."""
    new = np.ones(len(numbers), np.bool_)
    new[1:] = numbers[1:] != numbers[:-1]
    return np.flatnonzero(new)


_COVERAGE = ("tokens", "windows", "cut", "importance", "kept")


def smallest(values: Array) -> Array:
    """Numbers of 0 or more in the smallest unsigned type that holds them."""
    return values.astype(smallest_type(int(values.max(initial=0))))


def smallest_type(largest: int) -> np.dtype[Any]:
    """The smallest unsigned type that holds a number."""
    return np.dtype(np.uint8 if largest < 256 else np.uint16 if largest < 65_536 else np.uint32)


def read(segment: Segment, places: I64, *, tokens: I32 | None = None) -> Encoded:
    """Documents at these places as they were encoded, up to the rounding of the stored format.

    tokens: read the lexical weights of these ids only, given ascending.
    """
    units, offsets = rows_of(segment.offsets, places)
    lost, dropped_offsets = rows_of(segment.dropped_offsets, places)
    scales, global_scales = segment.scales, segment.global_scales
    return Encoded(
        global_=dequantise(
            segment.global_vectors[places], None if global_scales is None else global_scales[places]
        ),
        units=Units(
            dequantise(
                segment.vectors[units], None if scales is None else scales[units], segment.mean
            ),
            segment.weights[units],
            offsets,
            *_spans(segment, "span", places, units),
        ),
        lexical=_lexical(segment, places) if tokens is None else _found(segment, places, tokens),
        dropped=Units(
            np.empty((len(lost), 0), np.float32),
            segment.dropped_weights[lost],
            dropped_offsets,
            *_spans(segment, "dropped", places, lost),
        ),
        coverage=Coverage(**{name: getattr(segment, name)[places] for name in _COVERAGE}),
    )


# Documents that `chunks` decodes at a time, at most 50 MB of float32; and how many have their token
# ids sorted out at once, for which all postings of the segment are read.
CHUNK = 512
LEXICAL_CHUNK = 16_384


def chunks(segment: Segment, places: I64) -> Iterator[tuple[I64, Encoded]]:
    """Documents at many places, ascending, as `read` gives them, some at a time."""
    for start, end in _pieces(segment.numbers[places], LEXICAL_CHUNK):
        many = places[start:end]
        lexical = _lexical(segment, many)
        for first, last in _pieces(segment.numbers[many], CHUNK):
            own = lexical.take(np.arange(first, last))
            encoded = read(segment, many[first:last], tokens=_NO_TOKENS)
            yield many[first:last], replace(encoded, lexical=own)


def _pieces(numbers: I64, most: int) -> Iterator[tuple[int, int]]:
    """Rows in parts of at most so many, which end with a document unless it has more than that."""
    bounds = np.append(first_places(numbers), len(numbers))
    first = 0
    while first < len(numbers):
        last = int(bounds[np.searchsorted(bounds, first + most, side="right") - 1])
        if last <= first:
            last = first + most
        yield first, last
        first = last


_NO_TOKENS: I32 = np.empty(0, np.int32)


def _spans(segment: Segment, kind: str, places: I64, units: I64) -> tuple[I32, I64]:
    offsets = segment.span_offsets if kind == "span" else segment.dropped_span_offsets
    rows, _ = rows_of(offsets, places)
    starts = getattr(segment, f"{kind}_starts")[rows].astype(np.int32)
    ends = starts + getattr(segment, f"{kind}_lengths")[rows].astype(np.int32)
    counted = offsets_of(getattr(segment, f"{kind}_counts")[units])
    if counted[-1] != len(rows):
        raise IndexDamagedError(
            f"{kind}_counts add up to {counted[-1]} spans, expected {len(rows)}; `hplus verify` "
            "finds the damaged segment"
        )
    return np.stack([starts, ends], axis=1), counted


def _lexical(segment: Segment, places: I64) -> Lexical:
    """Token id -> documents inverted again: ids ascending within each document."""
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
    return Lexical(token[mine[order]], weights, offsets_of(counts))


def _found(segment: Segment, places: I64, tokens: I32) -> Lexical:
    """The same for a few token ids: each place is looked up in their lists."""
    weights = np.zeros((len(places), len(tokens)), np.float32)
    there = np.zeros(weights.shape, np.bool_)
    for column, (documents, found) in enumerate(segment.postings(tokens)):
        if len(documents):
            at = np.minimum(np.searchsorted(documents, places), len(documents) - 1)
            there[:, column] = documents[at] == places
            weights[:, column] = found[at]
    return Lexical(tokens[np.nonzero(there)[1]], weights[there], offsets_of(there.sum(axis=1)))
