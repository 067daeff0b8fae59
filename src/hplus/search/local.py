"""The embedded engine: branches over the segments of one snapshot.

Up to SCANNED vectors a branch meets every document; those that only the other branch puts forward
are scored afterwards. Above, sketches (phrase) or lists of near vectors (global) choose the
documents that are worth an exact score.

A hybrid search that scans needs no score for all of its candidates: a document's global and lexical
scores say how high its phrase score can lift it, and the scan leaves those that stay too low.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from weakref import ref

import numpy as np

from hplus.errors import BudgetError, IndexDamagedError
from hplus.filters.ast import Filter
from hplus.kernels import Mean, Wanted, add_lists, best_documents, weighted_maxsim
from hplus.kernels.int4 import columns
from hplus.kernels.products import products
from hplus.kernels.reference import Rows as Vectors
from hplus.kernels.reference import Scales
from hplus.search.engine import Candidates, best
from hplus.search.met import Met
from hplus.storage import lists, sketches
from hplus.storage.catalogue import DocumentRow, Settings
from hplus.storage.segment import LARGEST, Segment, first_places, read, to_meet
from hplus.storage.snapshot import Snapshot
from hplus.types import F32, F64, I32, I64, Encoded, Lexical, Units, concatenate
from hplus.views import fusion, lexical, phrase

# Up to this many vectors everything is scanned: exact, in tens of milliseconds.
SCANNED = 2_000_000
# Above: documents that are scored exactly after an estimate, one in 256 and at least 4,000
# (benchmarks/scale.py, experiments/LOG.md).
SURVIVORS = 4_000
SURVIVING = 256
# Of many estimates one in so many says how high the best are.
SAMPLED = 64
# Of the lists of global vectors, a query reads one in 16 of each segment, and at least 24.
GLOBAL_PROBES = 24
GLOBAL_READ = 16
# Bisecting a list for one document costs about as much as reading this many postings.
BISECTION = 16
ONE = np.ones(1, np.float32)
NONE = np.empty(0, np.int64), np.empty(0)

Rows = tuple[Vectors, Scales | None, I64, I64, Mean | None]
"""Vectors, their scales, where the rows of each document start and end, and the mean that was taken
off them."""


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
        self._met = Met(self._raw)
        self.together = [ref(self)]
        """Queries that are answered at the same time; they share a pass over the vectors."""
        self._scanned: dict[tuple[str, int], tuple[I64, F64]] = {}
        """By view and k, what a pass has found."""
        self._least: dict[tuple[str, int], float] = {}
        """By view and k, a raw score that k passages are known to reach."""
        self._ranked: dict[tuple[object, ...], tuple[I64, F64]] = {}
        """By fusion weights and k, what a pass has found for the sum of the views."""
        self._scales: dict[str, float] = {}

    def candidates(self, view: str, k: int) -> Candidates:
        """See `Branches.candidates`."""
        branches = {"global": self._global, "phrase": self._phrase, "lexical": self._lexical}
        passages, path = branches[view](k)
        # Codes of whole vectors are scored faster than a scan can leave them.
        if view == "phrase" or (view == "global" and self.engine.settings.format not in LARGEST):
            # Lists and sketches choose for one query.
            shared = self._together() if path == "exact" else [self]
            passages = self._leading(view, passages, k, shared)
        scores = self.scores(view, passages)
        documents = self.engine.snapshot.documents(passages)
        if documents is not passages:  # a document is as good as its best passage
            firsts = first_places(documents)
            documents, scores = documents[firsts], np.maximum.reduceat(scores, firsts)
        if len(documents) > k:
            chosen = best(self.engine, documents, scores, k)
            documents, scores = documents[chosen], scores[chosen]
        return Candidates(documents, scores, path)

    def scores(self, view: str, documents: I64) -> F64:
        """See `Branches.scores`: what a branch has scored is looked up, the rest is scored now."""
        scores: F64 = self._met.scores(view, documents) / self._scale(view)
        return scores

    def leaders(self, alphas: Mapping[str, float], pools: Mapping[str, int], k: int) -> I64 | None:
        """See `Branches.leaders`."""
        both = alphas.get("phrase", 0) > 0 and "global" in alphas
        if not both or self.engine.settings.passages is not None:
            return None
        snapshot = self.engine.snapshot
        if not self.exact and max(snapshot.units, snapshot.first[-1]) > SCANNED:
            return None
        documents = self._every()
        if len(documents) <= max(pools.values()):
            return None  # all are candidates
        asked = (*alphas.items(), k)
        if asked not in self._ranked:
            waiting = [own for own in self._together() if asked not in own._ranked]
            bases = [own._base(alphas, documents) for own in waiting]
            for own, result in zip(
                waiting, scan(waiting, "phrase", documents, k, bases), strict=True
            ):
                own._ranked[asked] = result
        found, raw = self._ranked[asked]
        self._met.note("phrase", found, raw)
        fused = fusion.fuse({view: self.scores(view, found) for view in alphas}, alphas)
        high = found[fused >= np.partition(fused, len(fused) - k)[len(fused) - k]]
        return found if self._are_candidates(high, documents, pools) else None

    def _base(self, alphas: Mapping[str, float], documents: I64) -> F64:
        """What the other views give to documents, in raw scores of the phrase view: by the sum of
        both, documents rank as by the fused score."""
        others = {view: alpha for view, alpha in alphas.items() if view != "phrase"}
        given = fusion.fuse({view: self.scores(view, documents) for view in others}, others)
        return given * (self._scale("phrase") / alphas["phrase"])

    def _are_candidates(self, high: I64, documents: I64, pools: Mapping[str, int]) -> bool:
        """Whether a branch puts forward each of these documents, which are scored already."""
        every = self.scores("global", documents)
        after = len(every) - pools["global"] - 1  # the best one that is no candidate
        edge = np.partition(every, after)[after]
        left = high[self.scores("global", high) <= edge]
        if not len(left):
            return True
        k = pools["phrase"]
        self._least["phrase", k] = float(self._met.scores("phrase", left).min())
        found = self._leading("phrase", documents, k, [self])
        candidates = found[best(self.engine, found, self.scores("phrase", found), k)]
        return bool(np.isin(left, candidates).all())

    def _leading(self, view: str, passages: I64, k: int, shared: list[LocalBranches]) -> I64:
        """Of these passages those of the best k documents, and all that tie with the last of them;
        others are left as soon as it is clear that they are not (kernels/scan.py)."""
        wanted = k
        found, raw = self._scan(view, passages, wanted, shared)
        while len(found) < len(passages) and self._documents(found) < k:
            wanted *= 4  # several passages are of one document
            found, raw = self._scan(view, passages, wanted, shared)
        self._met.note(view, found, raw)
        return found

    def _scan(
        self, view: str, passages: I64, k: int, shared: list[LocalBranches]
    ) -> tuple[I64, F64]:
        """See `scan`; what it finds for the other queries waits until they ask."""
        if (view, k) not in self._scanned:
            waiting = [own for own in shared if (view, k) not in own._scanned]
            found = scan(waiting, view, passages, k)
            for own, result in zip(waiting, found, strict=True):
                own._scanned[view, k] = result
        return self._scanned[view, k]

    def _together(self) -> list[LocalBranches]:
        return [own for one in self.together if (own := one()) is not None]

    def _every(self) -> I64:
        """All that the filter lets through."""
        parts = self._permitted()
        return _joined([first + places if first else places for _, first, places in parts])

    def _raw(self, view: str, documents: I64) -> F64:
        parts = by_part(self.engine.snapshot, documents)
        scored = [self._score(view, segment, places) for segment, _, places in parts]
        return np.concatenate([np.empty(0), *scored])

    def _scale(self, view: str) -> float:
        """What a raw score is divided by, computed once."""
        if view == "global":
            return 1.0
        if view not in self._scales:
            query = self.query
            self._scales[view] = (
                phrase.scale(query.units) if view == "phrase" else lexical.scale(query.lexical)
            )
        return self._scales[view]

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
        return _joined(found), self._path("lists", listed)

    def _phrase(self, k: int) -> tuple[I64, str]:
        """Documents that the phrase branch meets: all, or survivors of an estimate by sketches."""
        if self.exact or self.engine.snapshot.units <= SCANNED:
            return self._every(), "exact"
        scanned: list[I64] = []
        sketched: list[tuple[Segment, int, I64]] = []
        kept = max(SURVIVORS, 2 * k)
        if self.budget is not None:  # sketches are of all units
            stored = self.engine.snapshot.units / max(1, self.engine.snapshot.first[-1])
            kept *= max(1, round(stored / self.budget))
        for segment, first, places in self._permitted():
            if segment.sketches is None or len(places) <= kept:
                scanned.append(first + places)
            else:
                sketched.append((segment, first, places))
        if sketched:
            estimated = np.concatenate(
                [
                    estimates(segment, self.query.units, places, self.budget, self.threads)
                    for segment, _, places in sketched
                ]
            )
            documents = _joined([first + places for _, first, places in sketched])
            kept = max(kept, len(documents) // SURVIVING)
            chosen = _largest(estimated, kept)
            near = documents[chosen]
            # With the scores of the likely best in hand, a scan leaves most others early.
            likely = near[_largest(estimated[chosen], k)]
            self._least["phrase", k] = float(self._raw("phrase", likely).min())
            while len(near) < len(documents) and self._documents(near) < k:  # of too few documents
                kept *= 4
                near = documents[_largest(estimated, kept)]
            scanned.append(near)
        documents = _joined(scanned)
        if sketched:
            documents.sort()
        return documents, self._path("sketches", len(sketched))

    def _documents(self, passages: I64) -> int:
        """How many documents these passages are of."""
        if self.engine.settings.passages is None:
            return len(passages)
        return len(np.unique(self.engine.snapshot.documents(passages)))

    def _lexical(self, k: int) -> tuple[I64, str]:  # noqa: ARG002  # as the other branches
        """Documents that share a token with the query."""
        documents = self._every()
        return documents[self.scores("lexical", documents) > 0], "exact"

    def _path(self, by: str, count: int) -> str:
        parts = len(self.engine.snapshot.parts)
        return f"{by} of {count} of {parts} segments" if count else "exact"


def scan(
    branches: Sequence[LocalBranches],
    view: str,
    passages: I64,
    k: int,
    bases: Sequence[F64] | None = None,
) -> list[tuple[I64, F64]]:
    """For each query the best k of these passages and those that tie with the last of them,
    ascending, and their raw scores; of several segments a few more.

    bases: of each query, what is added to the score of each passage before it is ranked. The
    queries have one engine, budget, width and number of threads.
    """
    first = branches[0]
    found: list[list[tuple[I64, F64]]] = [[] for _ in branches]
    ranks: list[list[F64]] = [[] for _ in branches]
    least = [own._least.get((view, k), -np.inf) for own in branches]
    width = (first.query.global_ if view == "global" else first.query.units.vectors).shape[1]
    done = 0
    for segment, start, places in by_part(first.engine.snapshot, passages):
        rows = (
            global_rows(segment, places)
            if view == "global"
            else phrase_rows(segment, width, places, first.budget)
        )
        own_bases: list[F64 | None] = [None] * len(branches)
        if bases is not None:
            own_bases = [base[done : done + len(places)] for base in bases]
        wanted = [
            Wanted(own.query.global_, ONE, k, low, base)
            if view == "global"
            else Wanted(
                to_meet(own.query.units.vectors, rows[0]), own.query.units.weights, k, low, base
            )
            for own, low, base in zip(branches, least, own_bases, strict=True)
        ]
        longest = segment.longest(view, width)
        scanned = best_documents(wanted, *rows, longest=longest, threads=first.threads)
        done += len(places)
        for i, (own, scores) in enumerate(scanned):
            raw = scores.astype(np.float64)
            found[i].append((start + places[own], raw))
            if len(places) < len(passages):  # there are other segments
                base = own_bases[i]
                ranks[i].append(raw if base is None else raw + base[own])
                least[i] = max(least[i], _edge(ranks[i], k))
    return [some[0] if len(some) == 1 else _united(some) for some in found]


def _united(found: list[tuple[I64, F64]]) -> tuple[I64, F64]:
    """Documents and scores of several segments, or of none."""
    documents, scores = zip(NONE, *found, strict=True)
    return np.concatenate(documents), np.concatenate(scores)


def share(branches: Sequence[LocalBranches]) -> None:
    """Let queries over the same documents, at one width and budget, share a pass."""
    if len(branches) == 1:
        return
    every = [ref(own) for own in branches]
    for own in branches:
        own.together = every


def _edge(scores: list[F64], k: int) -> float:
    """The k-th largest score, if there are so many."""
    every = np.concatenate(scores)
    return float(np.partition(every, len(every) - k)[-k]) if len(every) >= k else -np.inf


def global_scores(segment: Segment, query: F32, places: I64, threads: int = 1) -> F32:
    """S_G of documents of a segment, query f32[1, r]: a document is a unit of its own."""
    if segment.global_scales is not None:  # the same to the last bit
        return products(query[0], segment.global_vectors, places, segment.global_scales)
    return weighted_maxsim(query, ONE, *global_rows(segment, places), threads=threads)


def phrase_scores(
    segment: Segment, query: Units, places: I64, budget: int | None, threads: int = 1
) -> F32:
    """Raw S_P (eq:phrase_score) of documents of a segment, under a budget at query time."""
    rows = phrase_rows(segment, query.width, places, budget)
    vectors = to_meet(query.vectors, rows[0])
    return weighted_maxsim(vectors, query.weights, *rows, threads=threads)


def global_rows(segment: Segment, places: I64) -> Rows:
    """What the kernels read of documents of a segment for the global view."""
    return segment.global_vectors, segment.global_scales, places, places + 1, None


def phrase_rows(segment: Segment, width: int, places: I64, budget: int | None) -> Rows:
    """The same for the phrase view at a width."""
    whole = columns(segment.vectors)
    if segment.vectors.dtype == np.uint8 and width != whole:
        raise BudgetError(
            f"width {width} requested, but int4 vectors are searched at their whole width, "
            f"{whole}; `hplus compact --width {width}` makes a narrower index"
        )
    starts, ends = segment.offsets[:-1], segment.offsets[1:]
    if len(places) < len(segment):  # places are distinct and ascending: else it is all of them
        starts, ends = starts[places], ends[places]
    if budget is not None:
        ends = np.minimum(ends, starts + budget)  # units lie in order of importance
    return segment.vectors, segment.scales_at(width), starts, ends, segment.mean_at(width)


def lexical_scores(segment: Segment, query: Lexical, places: I64) -> F64:
    """Raw S_L (eq:lexical_score) of documents of a segment, their places ascending.

    Either the postings of all the query's tokens are added up at once, or each list is bisected for
    the places: whichever reads less. Both add a document's products in the order of token ids.
    """
    weights = query.weights.astype(np.float64)
    starts, ends = segment.lists(query.ids)
    if int((ends - starts).sum()) <= BISECTION * len(places) * len(starts):
        documents, own = segment.lexical_documents, segment.lexical_weights
        try:
            return add_lists(len(segment), documents, own, starts, ends, weights)[places]
        except ValueError as error:
            raise IndexDamagedError(
                f"a token is listed in {error}; `hplus verify` finds the damaged segment"
            ) from None
    postings = segment.postings(query.ids)
    scores = np.zeros(len(places))
    for weight, (documents, own) in zip(weights, postings, strict=True):
        if len(documents):
            found = np.minimum(np.searchsorted(documents, places), len(documents) - 1)
            there = documents[found] == places
            scores[there] += weight * own[found[there]]
    return scores


def estimates(
    segment: Segment, query: Units, places: I64, budget: int | None, threads: int = 1
) -> F32:
    """Raw S_P of documents of a segment as their sketches tell: the query is scored exactly with
    the anchors alone."""
    assert segment.sketches is not None  # the three come together
    assert segment.anchors is not None
    assert segment.anchor_map is not None
    known = phrase_scores(segment, query, segment.anchors, budget, threads)
    vector = sketches.fit(segment.anchor_map, known)
    near = products(vector, segment.sketches, places)
    near += known.mean()
    return near


def _largest(values: F32, count: int) -> I64:
    """Rows of the largest values, ascending; ties at the edge are broken arbitrarily."""
    if count >= len(values):
        return np.arange(len(values))
    sample, likely = values[::SAMPLED], 2 * count // SAMPLED + 1
    if likely < len(sample):  # twice as many as wanted are looked at, not all
        low = np.partition(sample, len(sample) - likely)[len(sample) - likely]
        high = np.flatnonzero(values >= low)
        if count <= len(high) < len(values):
            return high[_largest(values[high], count)]
    edge = np.partition(values, len(values) - count)[len(values) - count]
    above, tied = np.flatnonzero(values > edge), np.flatnonzero(values == edge)
    return np.sort(np.append(above, tied[: count - len(above)]))


def by_part(snapshot: Snapshot, documents: I64) -> Iterator[tuple[Segment, int, I64]]:
    """Documents, ascending, segment by segment: the segment, its first number, places in it."""
    if len(snapshot.parts) == 1:  # as after a compaction: nothing to divide
        if len(documents):
            yield snapshot.parts[0].segment, 0, documents
        return
    bounds = np.searchsorted(documents, snapshot.first)
    for i in np.flatnonzero(np.diff(bounds)).tolist():
        first = int(snapshot.first[i])
        yield snapshot.parts[i].segment, first, documents[bounds[i] : bounds[i + 1]] - first


def recall(engine: LocalEngine, *, sampled: int = 64, query_units: int = 12) -> float | None:
    """Share of the exact top ten that the approximate path finds, stored documents taken as
    queries; None where every search is exact."""
    snapshot = engine.snapshot
    if snapshot.units <= SCANNED or all(part.segment.sketches is None for part in snapshot.parts):
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
    if len(parts) == 1:
        return parts[0]
    return np.concatenate(parts) if parts else np.empty(0, np.int64)
