"""What search needs of a store: the door behind which an engine stands.

An engine numbers its documents (i64, valid for as long as the engine object lives) and answers
one query at a time: `branches(query)` gives the candidates of each view with their scores, and
exact scores of any documents. An engine may divide its documents into passages: it then numbers
passages, a document has the number of its first one, and every passage is scored. The embedded
index (`local.py`) is the first implementation; nothing on this side of the door speaks of
snapshots, segments or SQL.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from hplus.filters.ast import Filter
from hplus.types import F64, I32, I64, Encoded, Span
from hplus.units.select import Budget


@dataclass(frozen=True)
class Candidates:
    """What one branch puts forward: documents i64[n], their normalised scores f64[n], best first or
    not, and the path the engine took ("exact", or how it approximated)."""

    documents: I64
    scores: F64
    path: str


class Stored(Protocol):
    """How an engine keeps its documents."""

    @property
    def global_width(self) -> int: ...
    @property
    def width(self) -> int: ...
    @property
    def budget(self) -> Budget: ...
    @property
    def fusion(self) -> Mapping[str, float]: ...


class Row(Protocol):
    """A document for people."""

    @property
    def id(self) -> str: ...
    @property
    def text(self) -> str: ...
    @property
    def metadata(self) -> dict[str, Any]: ...
    @property
    def passage(self) -> Span | None:
        """The characters of the passage asked for; None if documents are not divided."""


class Branches(Protocol):
    """One query's way through an engine; what it has scored once it need not score again."""

    def candidates(self, view: str, k: int) -> Candidates:
        """eq:branch_retrieval: the best k documents of the whole corpus by "global", "phrase" or
        "lexical", each by its best passage; ties at the edge by id."""

    def leaders(self, alphas: Mapping[str, float], pools: Mapping[str, int], k: int) -> I64 | None:
        """Documents, ascending, among which are the best k of the union of the candidates (so many
        of each view) by the fused score, and all that tie with the last of them; None where that
        takes the candidates themselves."""

    def scores(self, view: str, documents: I64) -> F64:
        """Normalised scores of these documents, ascending and distinct, by one view."""


class Engine(Protocol):
    """A store of encoded documents that can be searched."""

    @property
    def settings(self) -> Stored:
        """Widths, budget and default fusion weights."""

    def branches(
        self,
        query: Encoded,
        *,
        where: Filter | None = None,
        budget: int | None = None,
        exact: bool = False,
        threads: int = 1,
    ) -> Branches:
        """The way for one query, at the width at which its units come; budget: B_d."""

    def find(self, ids: Sequence[str]) -> I64:
        """Documents by their ids; an id that is not there is an InputError."""

    def passages(self, documents: I64) -> tuple[I64, I64]:
        """The passages of these documents, one document after another, with offsets i64[n + 1]; an
        engine that does not divide them gives the documents themselves."""

    def rows(self, documents: I64) -> Sequence[Row]:
        """Id, text and metadata of documents."""

    def ids(self, documents: I64) -> list[str]:
        """Their ids alone."""

    def read(self, documents: I64, tokens: I32 | None) -> Encoded:
        """Stored encodings; lexical weights of these token ids alone, or of all."""


def best_passages(scores: F64, offsets: I64) -> I64:
    """For each document the row of its best passage, the first of equal ones; none is empty.

    >>> best_passages(np.array([0.1, 0.3, 0.3, 0.2]), np.array([0, 3, 4])).tolist()
    [1, 3]
    """
    starts, lengths = offsets[:-1], np.diff(offsets)
    if len(starts) == len(scores):
        return starts
    largest = np.maximum.reduceat(scores, starts)
    rows = np.flatnonzero(scores == np.repeat(largest, lengths))
    return rows[np.searchsorted(rows, starts)]


def best(engine: Engine, documents: I64, scores: F64, k: int) -> I64:
    """Rows of the k largest scores, in no order; ties at the edge by document id."""
    if len(documents) <= k:
        return np.arange(len(documents))
    edge = np.partition(scores, len(scores) - k)[len(scores) - k]
    above, tied = np.flatnonzero(scores > edge), np.flatnonzero(scores == edge)
    if len(above) + len(tied) > k:
        by_id = np.argsort(np.array(engine.ids(documents[tied])), kind="stable")
        tied = tied[by_id[: k - len(above)]]
    return np.concatenate([above, tied])
