"""The embedded engine: branches over the segments of one snapshot.

Up to SCANNED vectors a branch meets every document, so its scores serve the candidates of the other
branch too. Above, lists of near units choose the documents that are worth an exact score.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from hplus.errors import IndexDamagedError
from hplus.filters.ast import Filter
from hplus.kernels import weighted_maxsim
from hplus.search.engine import Candidates, best
from hplus.storage import lists
from hplus.storage.catalogue import DocumentRow, Settings
from hplus.storage.segment import Segment, first_places, read
from hplus.storage.snapshot import Snapshot
from hplus.types import F32, F64, I32, I64, Encoded, Lexical, Units, concatenate
from hplus.views import lexical, phrase

# Up to this many vectors everything is scanned: exact, in tens of milliseconds.
SCANNED = 2_000_000
# Above: lists that the units of a query share, and a minimum for each of them; documents
# scored exactly after that (benchmarks/scale.py, experiments/LOG.md). In an index of more than
# PROBES * 48 lists, a query reads one list in 48.
PROBES = 1_024
UNIT_PROBES = 64
READ = 48
SURVIVORS = 4_000
# Of the lists of global vectors, a query reads one in 16 of each segment, and at least 24.
GLOBAL_PROBES = 24
GLOBAL_READ = 16
# Bisecting a list for one document costs about as much as reading this many postings.
BISECTION = 16
ONE = np.ones(1, np.float32)


class LocalEngine:
    """One generation of an index on disk."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot

    @property
    def settings(self) -> Settings:
        """Widths, budget, format and fusion weights."""
        return self.snapshot.settings

    def branches(
        self,
        query: Encoded,
        *,
        where: Filter | None = None,
        budget: int | None = None,
        exact: bool = False,
        threads: int = 1,
    ) -> LocalBranches:
        """See `Engine.branches`."""
        return LocalBranches(self, query, where, budget=budget, exact=exact, threads=threads)

    def find(self, ids: Sequence[str]) -> I64:
        """Documents by their ids."""
        return self.snapshot.find(ids)

    def rows(self, documents: I64) -> list[DocumentRow]:
        """Id, text and metadata."""
        return self.snapshot.rows(documents)

    def passages(self, documents: I64) -> tuple[I64, I64]:
        """See `Engine.passages`."""
        return self.snapshot.passages(documents)

    def ids(self, documents: I64) -> list[str]:
        """Their ids alone."""
        return self.snapshot.ids(documents)

    def read(self, documents: I64, tokens: I32 | None) -> Encoded:
        """Stored encodings of documents, ascending, up to the rounding of the stored format."""
        parts = by_part(self.snapshot, documents)
        return concatenate([read(segment, places, tokens=tokens) for segment, _, places in parts])


class LocalBranches:
    """One query over the documents that a filter lets through."""

    def __init__(
        self,
        engine: LocalEngine,
        query: Encoded,
        where: Filter | None,
        *,
        budget: int | None,
        exact: bool,
        threads: int,
    ) -> None:
        self.engine, self.query, self.where = engine, query, where
        self.budget, self.exact, self.threads = budget, exact, threads
        self._met: dict[str, tuple[I64, F64]] = {}
        """By view, the documents met so far, ascending, and their raw scores."""

    def candidates(self, view: str, k: int) -> Candidates:
        """See `Branches.candidates`."""
        branches = {"global": self._global, "phrase": self._phrase, "lexical": self._lexical}
        passages, path = branches[view](k)
        scores = self.scores(view, passages)
        documents = self.engine.snapshot.documents(passages)
        firsts = first_places(documents)
        if len(firsts) < len(documents):
            documents, scores = documents[firsts], np.maximum.reduceat(scores, firsts)
        chosen = best(self.engine, documents, scores, k)
        return Candidates(documents[chosen], scores[chosen], path)

    def scores(self, view: str, documents: I64) -> F64:
        """See `Branches.scores`: what a branch has scored is looked up, the rest is scored now."""
        if view not in self._met:
            self._met[view] = documents, self._raw(view, documents)
            return self._met[view][1] / self._scale(view)
        met, raw = self._met[view]
        place = np.searchsorted(met, documents)
        known = place < len(met)
        known[known] = met[place[known]] == documents[known]
        if not known.all():
            new = documents[~known]
            met, raw = np.append(met, new), np.append(raw, self._raw(view, new))
            order = np.argsort(met, kind="stable")
            self._met[view] = met, raw = met[order], raw[order]
            place = np.searchsorted(met, documents)
        scores: F64 = raw[place] / self._scale(view)
        return scores

    def _raw(self, view: str, documents: I64) -> F64:
        parts = by_part(self.engine.snapshot, documents)
        scored = [self._score(view, segment, places) for segment, _, places in parts]
        return np.concatenate([np.empty(0), *scored])

    def _scale(self, view: str) -> float:
        query = self.query
        if view == "global":
            return 1.0
        return phrase.scale(query.units) if view == "phrase" else lexical.scale(query.lexical)

    def _score(self, view: str, segment: Segment, places: I64) -> F32 | F64:
        if view == "global":
            return global_scores(segment, self.query.global_, places, self.threads)
        if view == "phrase":
            return phrase_scores(segment, self.query.units, places, self.budget, self.threads)
        return lexical_scores(segment, self.query.lexical, places)

    def _permitted(self) -> Iterator[tuple[Segment, int, I64]]:
        """Each segment with a document that may be found: its first number, the places."""
        snapshot = self.engine.snapshot
        firsts, permitted = snapshot.first.tolist(), snapshot.permitted(self.where)
        for part, first, places in zip(snapshot.parts, firsts, permitted, strict=False):
            if len(places):
                yield part.segment, first, places

    def _global(self, k: int) -> tuple[I64, str]:
        """Documents that the global branch meets."""
        found: list[I64] = []
        listed = 0
        every = self.exact or self.engine.snapshot.first[-1] <= SCANNED
        for segment, first, places in self._permitted():
            if not (every or segment.global_centroids is None or len(places) <= max(SURVIVORS, k)):
                assert segment.global_list_offsets is not None  # the three come together
                assert segment.global_list_rows is not None
                near = lists.members(
                    self.query.global_[0],
                    segment.global_centroids,
                    segment.global_list_offsets,
                    segment.global_list_rows,
                    probes=max(GLOBAL_PROBES, len(segment.global_centroids) // GLOBAL_READ),
                )
                near = np.intersect1d(places, near, assume_unique=True)
                if self._documents(first + near) >= k:  # else a filter has left too few of them
                    places, listed = near, listed + 1
            found.append(first + places)
        return _joined(found), self._path(listed)

    def _phrase(self, k: int) -> tuple[I64, str]:
        """Documents that the phrase branch meets: all, or survivors of an estimate by lists."""
        scanned: list[I64] = []
        listed: list[tuple[Segment, int, I64]] = []
        every = self.exact or self.engine.snapshot.units <= SCANNED
        kept = max(SURVIVORS, 2 * k)
        for segment, first, places in self._permitted():
            if every or segment.centroids is None or len(places) <= kept:
                scanned.append(first + places)
            else:
                listed.append((segment, first, places))
        if listed:
            estimated = estimates(self.query.units, listed, self.budget)
            documents = _joined([first + places for _, first, places in listed])
            # Ties among estimates are broken arbitrarily here.
            near = documents[np.argpartition(-estimated, kept - 1)[:kept]]
            while len(near) < len(documents) and self._documents(near) < k:  # of too few documents
                kept = min(4 * kept, len(documents))
                near = documents[np.argpartition(-estimated, kept - 1)[:kept]]
            scanned.append(near)
        return np.sort(_joined(scanned)), self._path(len(listed))

    def _documents(self, passages: I64) -> int:
        """How many documents these passages are of."""
        if self.engine.settings.passages is None:
            return len(passages)
        return len(np.unique(self.engine.snapshot.documents(passages)))

    def _lexical(self, k: int) -> tuple[I64, str]:  # noqa: ARG002  # as the other branches
        """Documents that share a token with the query."""
        documents = _joined([first + places for _, first, places in self._permitted()])
        return documents[self.scores("lexical", documents) > 0], "exact"

    def _path(self, listed: int) -> str:
        parts = len(self.engine.snapshot.parts)
        return f"lists of {listed} of {parts} segments" if listed else "exact"


def global_scores(segment: Segment, query: F32, places: I64, threads: int = 1) -> F32:
    """S_G of documents of a segment, query f32[1, r]: a document is a unit of its own."""
    vectors, scales = segment.global_vectors, segment.global_scales
    return weighted_maxsim(query, ONE, vectors, scales, places, places + 1, threads=threads)


def phrase_scores(
    segment: Segment, query: Units, places: I64, budget: int | None, threads: int = 1
) -> F32:
    """Raw S_P (eq:phrase_score) of documents of a segment, under a budget at query time."""
    starts, ends = segment.offsets[places], segment.offsets[places + 1]
    if budget is not None:
        ends = np.minimum(ends, starts + budget)  # units lie in order of importance
    scales = segment.scales_at(query.width)
    vectors, weights = query.vectors, query.weights
    return weighted_maxsim(vectors, weights, segment.vectors, scales, starts, ends, threads=threads)


def lexical_scores(segment: Segment, query: Lexical, places: I64) -> F64:
    """Raw S_L (eq:lexical_score) of documents of a segment, their places ascending.

    Either the postings of all the query's tokens are added up at once, or each list is bisected for
    the places: whichever reads less. Both add a document's products in the order of token ids.
    """
    postings = segment.postings(query.ids)
    weights = query.weights.astype(np.float64)
    lengths = [len(documents) for documents, _ in postings]
    if 0 < sum(lengths) <= BISECTION * len(places) * len(postings):
        documents = np.concatenate([documents for documents, _ in postings])
        products = np.concatenate([own for _, own in postings]) * np.repeat(weights, lengths)
        sums = np.bincount(documents, products, minlength=len(segment))
        if len(sums) > len(segment):
            raise IndexDamagedError(
                f"a token is listed in document {len(sums) - 1} of {len(segment)}; `hplus verify` "
                "finds the damaged segment"
            )
        return sums[places].astype(np.float64)
    scores = np.zeros(len(places))
    for weight, (documents, own) in zip(weights, postings, strict=True):
        if len(documents):
            found = np.minimum(np.searchsorted(documents, places), len(documents) - 1)
            there = documents[found] == places
            scores[there] += weight * own[found[there]]
    return scores


def estimates(query: Units, listed: list[tuple[Segment, int, I64]], budget: int | None) -> F32:
    """Raw S_P of permitted documents of segments with lists, as far as near lists tell, f32[n]."""
    near = [
        lists.similarities(query.vectors, segment.centroids)
        for segment, *_ in listed
        if segment.centroids is not None
    ]
    whole = np.concatenate(near, axis=1)
    probes = max(PROBES, whole.shape[1] // READ) // max(1, len(whole))
    unread = lists.first_unread(whole, max(UNIT_PROBES, probes))
    return np.concatenate(
        [
            lists.estimate(segment, query, own, unread, budget=budget)[places]
            for (segment, _, places), own in zip(listed, near, strict=True)
        ]
    )


def by_part(snapshot: Snapshot, documents: I64) -> Iterator[tuple[Segment, int, I64]]:
    """Documents, ascending, segment by segment: the segment, its first number, places in it."""
    bounds = np.searchsorted(documents, snapshot.first)
    for i in np.flatnonzero(np.diff(bounds)).tolist():
        first = int(snapshot.first[i])
        yield snapshot.parts[i].segment, first, documents[bounds[i] : bounds[i + 1]] - first


def recall(engine: LocalEngine, *, sampled: int = 64, query_units: int = 12) -> float | None:
    """Share of the exact top ten that the approximate path finds, stored documents taken as
    queries; None where every search is exact."""
    snapshot = engine.snapshot
    if snapshot.units <= SCANNED or all(part.segment.centroids is None for part in snapshot.parts):
        return None
    alive = zip(snapshot.permitted(None), snapshot.first.tolist(), strict=False)
    documents = _joined([places + first for places, first in alive])
    found = asked = 0
    for document in np.sort(np.random.default_rng(13).permutation(documents)[:sampled]):
        query = engine.read(np.array([document]), np.empty(0, np.int32)).at(budget=query_units)
        exact = engine.branches(query, exact=True).candidates("phrase", 10)
        near = engine.branches(query).candidates("phrase", 1000)
        found += len(np.intersect1d(exact.documents, near.documents))
        asked += len(exact.documents)
    return found / asked if asked else None


def _joined(parts: list[I64]) -> I64:
    return np.concatenate(parts) if parts else np.empty(0, np.int64)
