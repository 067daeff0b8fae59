"""What search needs of a store: the door behind which an engine stands.

An engine numbers its documents (i64, valid for as long as the engine object lives) and answers
one query at a time: `branches(query)` gives the candidates of each view with their scores, and
exact scores of any documents. The embedded index (`local.py`) is the first implementation; nothing
on this side of the door speaks of snapshots, segments or SQL.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from hplus.filters.ast import Filter
from hplus.types import F64, I32, I64, Encoded
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


class Branches(Protocol):
    """One query's way through an engine; what it has scored once it need not score again."""

    def candidates(self, view: str, k: int) -> Candidates:
        """eq:branch_retrieval: the best k documents of the whole corpus by "global", "phrase" or
        "lexical"; ties at the edge by id."""

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

    def rows(self, documents: I64) -> Sequence[Row]:
        """Id, text and metadata of documents."""

    def ids(self, documents: I64) -> list[str]:
        """Their ids alone."""

    def read(self, documents: I64, tokens: I32 | None) -> Encoded:
        """Stored encodings; lexical weights of these token ids alone, or of all."""


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
