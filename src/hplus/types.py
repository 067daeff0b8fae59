"""The data that crosses the borders of the rooms: frozen dataclasses of arrays.

Ragged data is one flat array plus `offsets i64[n + 1]`: rows `offsets[i]:offsets[i + 1]`
belong to item i. So a batch is a handful of arrays, whatever its texts look like.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from numbers import Real
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar, get_args

import numpy as np
import numpy.typing as npt

from hplus.arguments import chosen, whole
from hplus.errors import BudgetError, InputError
from hplus.filters.ast import Filter

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
    """What the heads read: contextual token states (eq:shared_encoder), and one pooled per text.

    states f32[T, d], row for row with `tokens`, and inner f32[T, d], those after the layer that
    the heads read (if they read the last, the very same array); pooled f32[n, d], the mean of a
    text's states, its first or its last one, as the recipe says; windows i32[n] and cut i32[n] say
    how many windows a text took and how many of its tokens were left out.
    """

    tokens: Tokens
    states: F32
    inner: F32
    pooled: F32
    windows: I32
    cut: I32


@dataclass(frozen=True)
class TokenStates:
    """`HPlus.states`: everything known per token, for the laboratory and for training.

    inner f32[T, d] is what the heads read; tags u8[T] (0 O, 1 B, 2 I) as the model itself groups
    them; importance f32[T].
    """

    tokens: Tokens
    states: F32
    inner: F32
    pooled: F32
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
class Units:
    """Weighted units of n texts: the phrase view, and every step on the way to it.

    vectors f32[M, r], unit length; weights f32[M], importance a(s); offsets i64[n + 1], the units
    of each text; spans i32[S, 2] with span_offsets i64[M + 1], the characters each unit covers: one
    span per unit, several where a budget merged units. Units that lost their vectors have r = 0.
    """

    vectors: F32
    weights: F32
    offsets: I64
    spans: I32
    span_offsets: I64

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def width(self) -> int:
        """Columns of a vector."""
        return int(self.vectors.shape[1])

    def take(self, texts: I64) -> Units:
        """The texts of these numbers, in this order; a number may come more than once."""
        return self.rows(*rows_of(self.offsets, texts))

    def rows(self, rows: I64, offsets: I64) -> Units:
        """These units, in this order, as the texts that `offsets` counts."""
        spans, span_offsets = rows_of(self.span_offsets, rows)
        return Units(
            self.vectors[rows], self.weights[rows], offsets, self.spans[spans], span_offsets
        )

    def spans_of(self, unit: int) -> list[Span]:
        """The characters that unit `unit` (a row of `weights`) covers, in reading order."""
        first, last = self.span_offsets[unit : unit + 2].tolist()
        return [Span(*pair) for pair in self.spans[first:last].tolist()]


@dataclass(frozen=True)
class Lexical:
    """The lexical view of n texts: ids i32[L], ascending within a text, weights f32[L], offsets
    i64[n + 1]."""

    ids: I32
    weights: F32
    offsets: I64

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def take(self, texts: I64) -> Lexical:
        """The texts of these numbers, in this order."""
        rows, offsets = rows_of(self.offsets, texts)
        return Lexical(self.ids[rows], self.weights[rows], offsets)


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

    def take(self, texts: I64) -> Coverage:
        """The texts of these numbers, in this order."""
        return Coverage(*(getattr(self, field.name)[texts] for field in fields(self)))


@dataclass(frozen=True)
class Encoded:
    """A batch of n texts in the three views.

    global_   f32[n, R_g], unit length (a text without tokens: zeros).
    units     largest importance first, ties by position.
    lexical   token id -> importance.
    dropped   units the budget left out, in the same order and without vectors, so that an
              explanation can show them.

    encoded[3] is one text, still an Encoded (n = 1); encoded.at(budget=16, width=128) is, with
    drop, equal to a fresh encoding at (16, 128).
    """

    global_: F32
    units: Units
    lexical: Lexical
    dropped: Units
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

        same = self if width is None else replace(self, units=narrow(self.units, width))
        if budget is None:
            return same
        return shrink(same, budget if isinstance(budget, Budget) else Budget(budget))

    def take(self, texts: I64) -> Encoded:
        """The texts of these numbers, in this order; a number may come more than once."""
        return Encoded(
            global_=self.global_[texts],
            units=self.units.take(texts),
            lexical=self.lexical.take(texts),
            dropped=self.dropped.take(texts),
            coverage=self.coverage.take(texts),
        )


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
class TokenMatch:
    """One token id that query and document share."""

    id: int
    token: str
    query_weight: float
    document_weight: float
    contribution: float


@dataclass(frozen=True)
class WordMatch:
    """One word of the query and what the tokens it shares with the document add up to; `whole` if
    it shares all of them."""

    text: str
    whole: bool
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
    score, `shares` (alpha times the normalised score of each view that is on) to `fused`. `words`
    are the `lexical` ones by whole words of the query, most first.
    """

    phrase: list[UnitMatch]
    lexical: list[TokenMatch]
    shares: dict[str, float]
    dropped: list[DroppedUnit]
    phrase_raw: float | None
    lexical_raw: float | None
    fused: float
    words: list[WordMatch] = field(default_factory=list)


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

    def views(self) -> dict[str, F64]:
        """The normalised scores of every view that is on."""
        every = {"global": self.global_, "phrase": self.phrase, "lexical": self.lexical}
        return {view: scores for view, scores in every.items() if scores is not None}

    def ranking(self) -> I64:
        """Document indices, best first; ties by index."""
        return np.argsort(-self.fused, kind="stable").astype(np.int64)


View = Literal["hybrid", "global", "phrase", "lexical"]
VIEWS: tuple[str, ...] = get_args(View)


@dataclass(frozen=True)
class Search:
    """One search request, the same for Python, the command line and every engine.

    query         a text, or an encoding of exactly one text.
    view          hybrid (global and phrase find candidates, all three views score them), or one
                  view alone.
    k, from_      return hits from_ + 1 to from_ + k.
    where         a filter on metadata, as text or as a tree; applied before anything is ranked.
    budget        B_d: how many units of each document to use, the weightiest first.
    query_budget  B_q: the same for the query.
    width         how many columns of the unit vectors to use.
    alphas        weights of the views for this query; a view left out is off.
    pool          candidates of each branch, K_G and K_P; one number is for both.
    exact         scan all units, however many there are.
    explain       say which phrases and tokens matched, and what each contributed.
    min_score     leave out hits that score less.
    group_by      a field of the metadata, dots leading into nested ones: the best hit of each
                  value, so that k is a number of groups; a document without it is its own group.
    threads       threads that share the scan, or the queries of a list.

    >>> Search("type 2 diabetes", k=3, where="year >= 2020").pools
    (1000, 1000)
    """

    query: str | Encoded
    view: View = "hybrid"
    k: int = 10
    where: str | Filter | None = None
    budget: int | None = None
    query_budget: int | None = None
    width: int | None = None
    alphas: Mapping[str, float] | None = None
    pool: int | tuple[int, int] = 1000
    exact: bool = False
    explain: bool = False
    from_: int = 0
    min_score: float | None = None
    group_by: str | None = None
    threads: int = 1

    def __post_init__(self) -> None:
        if not isinstance(self.query, (str, Encoded)):
            given = type(self.query).__name__
            raise InputError(f"expected query to be a text or an encoding of one, got {given}")
        if not isinstance(self.where, str | Filter | None):
            given = type(self.where).__name__
            raise InputError(f"expected where to be a text or a tree of comparisons, got {given}")
        if not isinstance(self.group_by, str | None):
            given = type(self.group_by).__name__
            raise InputError(f"expected group_by to be the name of a field, got {given}")
        chosen("view", self.view, VIEWS)
        if self.view != "hybrid" and self.alphas is not None:
            raise InputError(f"alphas are for view='hybrid'; view={self.view!r} has one score")
        for name, least in (("k", 1), ("from_", 0), ("threads", 1)):
            self._set(name, whole(name, getattr(self, name), least))
        for name in ("budget", "query_budget", "width"):
            if getattr(self, name) is not None:
                self._set(name, whole(name, getattr(self, name), 1, BudgetError))
        pools = self.pools
        if len(pools) != 2:
            raise InputError(f"expected pool to be a number or a pair, got {self.pool!r}")
        self._set("pool", (whole("pool", pools[0]), whole("pool", pools[1])))
        lowest = self.min_score
        if lowest is not None and not (isinstance(lowest, Real) and math.isfinite(lowest)):
            raise InputError(f"expected min_score to be a finite number, got {lowest!r}")

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)  # frozen for everyone else

    @property
    def pools(self) -> tuple[int, int]:
        """K_G and K_P."""
        return self.pool if isinstance(self.pool, tuple) else (self.pool, self.pool)


@dataclass(frozen=True)
class Hit:
    """A document found: the score of each view that is on, and their weighted sum.

    passage: the characters of the passage that scored, in an index that divides documents; the
    offsets of an explanation refer to the whole text.
    """

    id: str
    score: float
    views: dict[str, float]
    text: str
    metadata: dict[str, Any]
    explanation: Explanation | None = None
    passage: Span | None = None


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


Ragged = TypeVar("Ragged", Units, Lexical, Coverage)


def concatenate_ragged(parts: Sequence[Ragged]) -> Ragged:
    """Units, lexical views or coverages of several batches as those of one batch."""

    def whole(name: str) -> Any:
        arrays = [getattr(part, name) for part in parts]
        if name.endswith("offsets"):
            return offsets_of(np.concatenate([np.diff(array) for array in arrays]))
        return np.concatenate(arrays)

    return type(parts[0])(*(whole(field.name) for field in fields(parts[0])))


def concatenate(parts: Sequence[Encoded]) -> Encoded:
    """Batches one after another as one batch."""
    if len(parts) == 1:
        return parts[0]
    return Encoded(
        global_=np.concatenate([part.global_ for part in parts]),
        units=concatenate_ragged([part.units for part in parts]),
        lexical=concatenate_ragged([part.lexical for part in parts]),
        dropped=concatenate_ragged([part.dropped for part in parts]),
        coverage=concatenate_ragged([part.coverage for part in parts]),
    )
