"""The data that crosses the borders of the rooms: frozen dataclasses of arrays.

Ragged data is one flat array plus `offsets i64[n + 1]`: rows `offsets[i]:offsets[i + 1]`
belong to item i. So a batch is a handful of arrays, whatever its texts look like.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from hplus.units.select import Budget

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]
I32 = npt.NDArray[np.int32]
I64 = npt.NDArray[np.int64]
U8 = npt.NDArray[np.uint8]
Bool = npt.NDArray[np.bool_]


class Span(NamedTuple):
    """Characters `start:end` of the original text."""

    start: int
    end: int


@dataclass(frozen=True)
class Tokens:
    """A batch of texts as the backbone's tokens, special tokens left out.

    ids i32[T]; spans i32[T, 2] in characters of the original text; offsets i64[n + 1].
    """

    texts: tuple[str, ...]
    ids: I32
    spans: I32
    offsets: I64

    def __len__(self) -> int:
        return len(self.texts)


@dataclass(frozen=True)
class States:
    """What the heads read: contextual token states (eq:shared_encoder) and their mean.

    states f32[T, d], row for row with `tokens`, and inner f32[T, d], those after the layer that
    the heads read (if they read the last, the very same array); mean f32[n, d], over every state
    the backbone's pooling was trained on (special tokens included where it was); windows i32[n]
    and cut i32[n] say how many windows a text took and how many of its tokens were left out.
    """

    tokens: Tokens
    states: F32
    inner: F32
    mean: F32
    windows: I32
    cut: I32


@dataclass(frozen=True)
class TokenStates:
    """`HPlus.states`: everything known per token, for the laboratory and for training.

    inner f32[T, d] is what the heads read; tags u8[T] (0 O, 1 B, 2 I) as the model's own grouping
    cuts; importance f32[T].
    """

    tokens: Tokens
    states: F32
    inner: F32
    mean: F32
    tags: U8
    importance: F32


@dataclass(frozen=True)
class Unit:
    """One unit of a text for people: characters `start:end`, the text there, its importance."""

    start: int
    end: int
    text: str
    weight: float


@dataclass(frozen=True)
class Coverage:
    """What of each text was seen and kept, one entry per text.

    tokens i32, windows i32 (1 unless stitched), cut i32 (tokens lost to length),
    importance f32 (total) and kept f32 (what the budget left; equal under merge).
    """

    tokens: I32
    windows: I32
    cut: I32
    importance: F32
    kept: F32

    def __getitem__(self, rows: slice | I64) -> Coverage:
        return Coverage(
            self.tokens[rows],
            self.windows[rows],
            self.cut[rows],
            self.importance[rows],
            self.kept[rows],
        )


@dataclass(frozen=True)
class Encoded:
    """A batch of n texts in the three views.

    global_  f32[n, R_g], unit length (a text without tokens: zeros).
    vectors  f32[M, R_p], unit length; weights f32[M]; offsets i64[n + 1]: units of each text,
             largest importance first, ties by position.
    spans    i32[S, 2] with span_offsets i64[M + 1]: the characters each unit covers; one span
             a unit, several where the budget merged units.
    lexical_ids i32[L] ascending within a text, lexical_weights f32[L], lexical_offsets i64[n + 1].
    dropped_weights f32[D], dropped_offsets i64[n + 1], dropped_spans i32[E, 2],
             dropped_span_offsets i64[D + 1]: units the budget left out, in the same order and
             without vectors, so that an explanation can show them.

    >>> encoded[3]          # one text, still an Encoded (n = 1)
    >>> encoded.at(budget=16, width=128)   # with drop: equal to a fresh encoding at (16, 128)
    """

    global_: F32
    vectors: F32
    weights: F32
    offsets: I64
    spans: I32
    span_offsets: I64
    lexical_ids: I32
    lexical_weights: F32
    lexical_offsets: I64
    dropped_weights: F32
    dropped_offsets: I64
    dropped_spans: I32
    dropped_span_offsets: I64
    coverage: Coverage

    def __len__(self) -> int:
        return len(self.global_)

    def __getitem__(self, item: int | slice) -> Encoded:
        rows = range(len(self))[item]
        chosen = [rows] if isinstance(rows, int) else list(rows)
        return self.take(np.array(chosen, np.int64))

    def at(self, *, budget: Budget | int | None = None, width: int | None = None) -> Encoded:
        """The same texts at a smaller budget and phrase width, without encoding again.

        A count keeps the weightiest units; a `Budget` may merge them instead.
        """
        from hplus.units.select import Budget, narrow, shrink

        same = self if width is None else narrow(self, width)
        if budget is None:
            return same
        return shrink(same, budget if isinstance(budget, Budget) else Budget(budget))

    def take(self, texts: I64) -> Encoded:
        """The texts of these numbers, in this order; a number may come more than once."""
        units, offsets = rows_of(self.offsets, texts)
        spans, span_offsets = rows_of(self.span_offsets, units)
        terms, lexical_offsets = rows_of(self.lexical_offsets, texts)
        dropped, dropped_offsets = rows_of(self.dropped_offsets, texts)
        lost, dropped_span_offsets = rows_of(self.dropped_span_offsets, dropped)
        return Encoded(
            global_=self.global_[texts],
            vectors=self.vectors[units],
            weights=self.weights[units],
            offsets=offsets,
            spans=self.spans[spans],
            span_offsets=span_offsets,
            lexical_ids=self.lexical_ids[terms],
            lexical_weights=self.lexical_weights[terms],
            lexical_offsets=lexical_offsets,
            dropped_weights=self.dropped_weights[dropped],
            dropped_offsets=dropped_offsets,
            dropped_spans=self.dropped_spans[lost],
            dropped_span_offsets=dropped_span_offsets,
            coverage=self.coverage[texts],
        )

    def spans_of(self, unit: int) -> list[Span]:
        """The characters unit `unit` (row of `vectors`) covers, in reading order."""
        return _spans(self.spans, self.span_offsets, unit)

    def dropped_spans_of(self, unit: int) -> list[Span]:
        """The same for a unit that the budget left out (row of `dropped_weights`)."""
        return _spans(self.dropped_spans, self.dropped_span_offsets, unit)


@dataclass(frozen=True)
class UnitMatch:
    """One query unit and the document unit it matched best (none in an empty document)."""

    spans: list[Span]
    text: str
    weight: float
    document_spans: list[Span]
    document_text: str
    similarity: float
    contribution: float


@dataclass(frozen=True)
class TermMatch:
    """One token id that query and document share."""

    id: int
    token: str
    query_weight: float
    document_weight: float
    contribution: float


@dataclass(frozen=True)
class DroppedUnit:
    """A document unit that the budget left out."""

    spans: list[Span]
    text: str
    weight: float


@dataclass(frozen=True)
class Explanation:
    """Why a document scored as it did.

    `phrase` contributions sum to the raw phrase score exactly, `lexical` ones to the raw lexical
    score, `shares` (alpha times the normalised score of each view that is on) to `fused`.
    """

    phrase: list[UnitMatch]
    lexical: list[TermMatch]
    shares: dict[str, float]
    dropped: list[DroppedUnit]
    phrase_raw: float | None
    lexical_raw: float | None
    fused: float


@dataclass(frozen=True)
class Scores:
    """One query against n documents, f64[n] each; a view that is off is None, not zero."""

    global_: F64 | None
    phrase: F64 | None
    phrase_raw: F64 | None
    lexical: F64 | None
    lexical_raw: F64 | None
    fused: F64
    explanations: list[Explanation] | None = None

    def __len__(self) -> int:
        return len(self.fused)

    def ranking(self) -> I64:
        """Document indices, best first; ties by index."""
        return np.argsort(-self.fused, kind="stable").astype(np.int64)


def offsets_of(lengths: Sequence[int] | npt.NDArray[Any]) -> I64:
    """Lengths of the items -> offsets i64[n + 1].

    >>> offsets_of([2, 0, 3]).tolist()
    [0, 2, 2, 5]
    """
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(np.asarray(lengths, np.int64), out=offsets[1:])
    return offsets


def item_of_row(offsets: I64) -> I64:
    """For each row the item it belongs to.

    >>> item_of_row(offsets_of([2, 0, 3])).tolist()
    [0, 0, 2, 2, 2]
    """
    return np.repeat(np.arange(len(offsets) - 1, dtype=np.int64), np.diff(offsets))


def rows_of(offsets: I64, items: I64) -> tuple[I64, I64]:
    """The rows of these items one after another, and the offsets they then have."""
    lengths = offsets[items + 1] - offsets[items]
    ends = offsets_of(lengths)
    item = item_of_row(ends)
    return offsets[items][item] + np.arange(ends[-1]) - ends[item], ends


def _spans(spans: I32, offsets: I64, unit: int) -> list[Span]:
    return [Span(*pair) for pair in spans[offsets[unit] : offsets[unit + 1]].tolist()]


def concatenate(parts: Sequence[Encoded]) -> Encoded:
    """Batches one after another as one batch."""
    first = parts[0]

    def rows(name: str) -> Any:
        return np.concatenate([getattr(part, name) for part in parts])

    def ends(name: str) -> I64:
        return offsets_of(np.concatenate([np.diff(getattr(part, name)) for part in parts]))

    coverage = {
        name: np.concatenate([getattr(part.coverage, name) for part in parts])
        for name in first.coverage.__dataclass_fields__
    }
    fields: dict[str, Any] = {
        name: ends(name) if name.endswith("offsets") else rows(name)
        for name in first.__dataclass_fields__
        if name != "coverage"
    }
    return Encoded(**fields, coverage=Coverage(**coverage))
