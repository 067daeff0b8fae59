"""Search in a Qdrant collection: candidates by the server, exact scores by the server, fusion ours.

Weighted MaxSim is plain MaxSim with the query's vectors scaled by their weights, and the weights
are divided by their sum first: scores are then normalised already, and a query whose weights are
all twice as large is the very same request (with quantisation, Qdrant's choice of candidates
depends on a query's length). The lexical view is searched by the server's inverted index, the
others are scanned at every size, which is exact; the units of a collection with 8-bit codes by
them, and the best of them are scored exactly. A graph (HNSW) over multivectors is dear to build and
does not find 98 of 100 (docs/benchmarks.md); beside a scan of the units, one for the global vectors
would save little.

A budget or width below the stored one is beyond the server: it would have to leave out rows and
renormalise prefixes. Candidates are then found with what is stored, fetched, and scored here by the
kernel of the embedded engine.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from qdrant_client import grpc

from hplus.arguments import as_ids
from hplus.engines.qdrant import filters
from hplus.engines.qdrant.points import (
    DOCUMENT,
    dense,
    document,
    multi_dense,
    payload,
    point_id,
    sparse,
)
from hplus.engines.scoring import phrase_scores
from hplus.engines.store import Named
from hplus.errors import MissingDocumentError
from hplus.filters.ast import Filter
from hplus.search.engine import Candidates, best
from hplus.search.met import Met
from hplus.storage.catalogue import Settings
from hplus.types import F64, I32, I64, Encoded
from hplus.views import lexical, phrase

if TYPE_CHECKING:
    from hplus.engines.qdrant.collection import Collection

# Documents that are scored exactly after a scan of codes: this many, or times as many as wanted.
RESCORED = 4_000
OVERSAMPLED = 4.0
# Documents whose vectors are fetched to be scored here, at least, if there are so many.
FETCHED = 1_000


class QdrantEngine:
    """A collection as one search sees it: its documents are numbered as they are met."""

    def __init__(self, collection: Collection) -> None:
        self.collection = collection
        self._points: list[str] = []
        self._numbers: dict[str, int] = {}

    @property
    def settings(self) -> Settings:
        """Widths, budget and default fusion weights."""
        return self.collection.settings

    def branches(
        self,
        query: Encoded,
        *,
        where: Filter | None = None,
        budget: int | None = None,
        exact: bool = False,
        threads: int = 1,
    ) -> QdrantBranches:
        """See `Engine.branches`; threads are the server's own affair."""
        del threads
        return QdrantBranches(self, query, where, budget=budget, exact=exact)

    def find(self, ids: Sequence[str]) -> I64:
        """Documents by their ids."""
        ids = as_ids(ids)
        known = self.collection.held(ids)
        missing = [id_ for id_ in ids if id_ not in known]
        if missing:
            raise MissingDocumentError(f"no document {missing[0]!r} in the index")
        return self.numbers(map(point_id, ids))

    def passages(self, documents: I64) -> tuple[I64, I64]:
        """A collection keeps whole documents."""
        return documents, np.arange(len(documents) + 1)

    def rows(self, documents: I64) -> list[Named]:
        """Id, text and metadata."""
        found = self.collection.fetch(self.points(documents), DOCUMENT)
        rows = [document(payload(point)) for point in found]
        return [Named(row.id, row.text, row.metadata) for row in rows]

    def ids(self, documents: I64) -> list[str]:
        """Their ids alone."""
        found = self.collection.fetch(self.points(documents), ("id",))
        return [point.payload["id"].string_value for point in found]

    def read(self, documents: I64, tokens: I32 | None) -> Encoded:
        """Stored encodings; the words are part of every point, so all of them are given."""
        del tokens
        return self.collection.read_points(self.points(documents))

    def numbers(self, points: Iterable[str]) -> I64:
        """The numbers of points, which keep them as long as this engine lives."""
        found = []
        for point in points:
            if point not in self._numbers:
                self._numbers[point] = len(self._points)
                self._points.append(point)
            found.append(self._numbers[point])
        return np.array(found, np.int64)

    def points(self, documents: I64) -> list[str]:
        """The points of numbers."""
        return [self._points[number] for number in documents.tolist()]


class QdrantBranches:
    """One query over the documents that a filter lets through."""

    def __init__(
        self,
        engine: QdrantEngine,
        query: Encoded,
        where: Filter | None,
        *,
        budget: int | None,
        exact: bool,
    ) -> None:
        self.engine, self.query, self.exact, self.budget = engine, query, exact, budget
        settings = engine.settings
        self.passing = None if where is None else engine.collection.passing(where)
        most = settings.budget.count
        self.narrowed = query.units.width < settings.width or (
            budget is not None and (most is None or budget < most)
        )
        self._vectors = {
            "global": _nearest(dense=dense(query.global_[0])),
            "phrase": _nearest(multi_dense=multi_dense(_weighted(query, settings.width))),
            "lexical": _nearest(sparse=_normalised(query)),
        }
        self._met = Met(self._score)

    def leaders(self, alphas: Mapping[str, float], pools: Mapping[str, int], k: int) -> I64 | None:
        """See `Branches.leaders`: candidates are united."""
        del alphas, pools, k
        return None

    def candidates(self, view: str, k: int) -> Candidates:
        """See `Branches.candidates`."""
        if view == "lexical" and not len(self.query.lexical.ids):
            return Candidates(np.empty(0, np.int64), np.empty(0), "exact")
        if view == "phrase" and self.narrowed:
            return self._fetched(k)
        documents, scores = self._top(view, k)
        self._met.note(view, documents, scores)
        chosen = best(self.engine, documents, scores, k)
        return Candidates(documents[chosen], scores[chosen], self._path(view))

    def scores(self, view: str, documents: I64) -> F64:
        """See `Branches.scores`: what a branch has scored is looked up, the server scores the
        rest, exactly."""
        return self._met.scores(view, documents)

    def _score(self, view: str, documents: I64) -> F64:
        scores = np.zeros(len(documents))
        if not len(documents) or (view == "lexical" and not len(self.query.lexical.ids)):
            return scores
        if view == "phrase" and self.narrowed:
            return self._scored_here(documents)
        points = self.engine.points(documents)
        row = {point: i for i, point in enumerate(points)}
        for found in self._ask(view, len(points), filters.with_ids(points), "exact"):
            scores[row[found.id.uuid]] = found.score
        return scores

    def _top(self, view: str, k: int) -> tuple[I64, F64]:
        """At least the best k documents, and all that score as the last of them: which of those are
        the best is a matter of ids, which a server does not order by."""
        limit = k + 1
        while True:
            found = self._ask(view, limit, self.passing, self._path(view))
            if len(found) < limit or found[-1].score < found[k - 1].score:
                break
            limit *= 4
        documents = self.engine.numbers(point.id.uuid for point in found)
        return documents, np.array([point.score for point in found], np.float64)

    def _fetched(self, k: int) -> Candidates:
        """The phrase view at a smaller budget or width: candidates at the stored one, scored
        here."""
        collection = self.engine.collection
        if self.exact or collection.approximate_count() <= max(FETCHED, k):
            documents = self.engine.numbers(collection.every_point(self.passing))
            path = "exact"
        else:
            documents, _ = self._top("phrase", max(FETCHED, 2 * k))
            path = f"the best {len(documents):,} at the stored budget and width"
        documents = np.sort(documents)
        scores = self._met.scores("phrase", documents)
        chosen = best(self.engine, documents, scores, k)
        return Candidates(documents[chosen], scores[chosen], path)

    def _scored_here(self, documents: I64) -> F64:
        collection, units = self.engine.collection, self.query.units
        read = collection.in_pages(self.engine.points(documents))
        parts = [phrase_scores(units, page.units, self.budget) for page in read]
        return np.concatenate(parts) / phrase.scale(units)

    def _path(self, view: str) -> str:
        """How a view finds its candidates."""
        codes = view == "phrase" and self.engine.collection.codes == "int8" and not self.exact
        return "8-bit codes" if codes else "exact"

    def _ask(self, view: str, limit: int, passing: Any, path: str) -> Sequence[Any]:
        """The best points of a view, best first."""
        request = grpc.QueryPoints(
            collection_name=self.engine.collection.name,
            query=self._vectors[view],
            using=USING[view],
            limit=limit,
            filter=passing,
            with_payload=grpc.WithPayloadSelector(enable=False),
            params=_parameters(path, limit),
        )
        found: Sequence[Any] = self.engine.collection.nodes.points("Query", request).result
        return found


USING = {"global": "global", "phrase": "units", "lexical": "lexical"}


def _parameters(path: str, limit: int) -> Any:
    if path == "8-bit codes":
        codes = grpc.QuantizationSearchParams(
            rescore=True, oversampling=max(OVERSAMPLED, RESCORED / limit)
        )
        return grpc.SearchParams(quantization=codes)
    # The vectors themselves instead of their codes.
    ignored = grpc.QuantizationSearchParams(ignore=True)
    return grpc.SearchParams(exact=True, quantization=ignored)


def _nearest(**vector: Any) -> Any:
    return grpc.Query(nearest=grpc.VectorInput(**vector))


def _weighted(query: Encoded, width: int) -> Any:
    """The query's units, each as long as its share of the weight, f32[q, width]; zeros if there are
    none, and in the columns that a narrower query lacks."""
    units = query.units
    rows = np.zeros((max(1, len(units.weights)), width), np.float32)
    shares = (units.weights.astype(np.float64) / phrase.scale(units)).astype(np.float32)
    rows[: len(units.weights), : units.width] = units.vectors * shares[:, None]
    return rows


def _normalised(query: Encoded) -> Any:
    own = query.lexical
    shares = (own.weights / lexical.scale(own)).astype(np.float32)
    return sparse(replace(own, weights=shares), 0, len(shares))
