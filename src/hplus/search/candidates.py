"""The branches: which documents of the whole corpus each view would put first.

eq:branch_retrieval for global and phrase; the lexical view can stand on its own too. Documents are
numbered across the segments of a snapshot. Every branch tells which path it took.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from hplus.index import ivf
from hplus.index.segment import Segment
from hplus.index.snapshot import Snapshot
from hplus.kernels import weighted_maxsim
from hplus.types import F32, F64, I64, Bool, Encoded

# Up to so many vectors everything is scanned: tens of milliseconds, and it cannot be wrong.
SCANNED = 2_000_000
# Above: lists that the units of a query share, and at least so many for each of them; documents
# scored exactly after that (benchmarks/scale.py, experiments/LOG.md). In an index of more than
# PROBES * 48 lists they read such a share of all.
PROBES = 1_024
UNIT_PROBES = 64
READ = 48
SURVIVORS = 4_000
GLOBAL_PROBES = 24
ONE = np.ones(1, np.float32)


def global_scores(segment: Segment, query: Encoded, places: I64, threads: int = 1) -> F32:
    """S_G of documents of a segment: a document is a unit of its own."""
    return weighted_maxsim(
        query.global_,
        ONE,
        segment.global_vectors,
        segment.global_scales,
        places,
        places + 1,
        threads=threads,
    )


def phrase_scores(
    segment: Segment, query: Encoded, places: I64, budget: int | None, threads: int = 1
) -> F32:
    """Raw S_P (eq:phrase_score) of documents of a segment, under a budget at query time."""
    starts, ends = segment.offsets[places], segment.offsets[places + 1]
    if budget is not None:
        ends = np.minimum(ends, starts + budget)  # units lie in order of importance
    return weighted_maxsim(
        query.vectors,
        query.weights,
        segment.vectors,
        segment.scales_at(query.vectors.shape[1]),
        starts,
        ends,
        threads=threads,
    )


def lexical_scores(segment: Segment, query: Encoded, places: I64) -> F64:
    """Raw S_L (eq:lexical_score) of documents of a segment, their places ascending."""
    scores = np.zeros(len(places))
    whole = len(places) == len(segment)
    for token, weight in zip(query.lexical_ids.tolist(), query.lexical_weights, strict=True):
        documents, weights = segment.postings(token)
        if whole:
            scores[documents] += np.float64(weight) * weights
        elif len(documents):
            found = np.minimum(np.searchsorted(documents, places), len(documents) - 1)
            there = documents[found] == places
            scores[there] += np.float64(weight) * weights[found[there]]
    return scores


def global_branch(
    snapshot: Snapshot,
    query: Encoded,
    k: int,
    allowed: list[Bool],
    threads: int,
    *,
    exact: bool,
) -> tuple[I64, str]:
    """The top K_G documents by S_G."""
    found: list[tuple[I64, F64]] = []
    listed = 0
    every = exact or snapshot.first[-1] <= SCANNED
    for segment, first, places in _permitted(snapshot, allowed):
        if not (every or segment.global_centroids is None or len(places) <= max(SURVIVORS, k)):
            assert segment.global_list_offsets is not None  # they come together
            assert segment.global_list_rows is not None
            near = ivf.members(
                query.global_[0],
                segment.global_centroids,
                segment.global_list_offsets,
                segment.global_list_rows,
                probes=GLOBAL_PROBES,
            )
            near = np.intersect1d(places, near, assume_unique=True)
            if len(near) >= k:  # else a filter has left too few of them
                places, listed = near, listed + 1
        scores = global_scores(segment, query, places, threads)
        found.append((first + places, scores.astype(np.float64)))
    return best(snapshot, found, k), _path(snapshot, listed)


def phrase_branch(
    snapshot: Snapshot,
    query: Encoded,
    k: int,
    allowed: list[Bool],
    threads: int,
    *,
    budget: int | None,
    exact: bool,
) -> tuple[I64, str]:
    """The top K_P documents by S_P, over the whole corpus."""
    scanned: list[tuple[I64, F64]] = []
    listed: list[tuple[Segment, int, I64]] = []
    every = exact or snapshot.units <= SCANNED
    kept = max(SURVIVORS, 2 * k)
    for segment, first, places in _permitted(snapshot, allowed):
        if every or segment.centroids is None or len(places) <= kept:
            scores = phrase_scores(segment, query, places, budget, threads)
            scanned.append((first + places, scores.astype(np.float64)))
        else:
            listed.append((segment, first, places))
    if not listed:
        return best(snapshot, scanned, k), "exact"
    near = [
        ivf.similarities(query.vectors, segment.centroids)
        for segment, *_ in listed
        if segment.centroids is not None
    ]
    lists = np.concatenate(near, axis=1)
    probes = max(PROBES, lists.shape[1] // READ) // max(1, len(lists))
    unread = ivf.first_unread(lists, max(UNIT_PROBES, probes))
    estimated = np.concatenate(
        [
            ivf.estimate(segment, query, own, unread, budget=budget)[places]
            for (segment, _, places), own in zip(listed, near, strict=True)
        ]
    )
    documents = np.concatenate([first + places for _, first, places in listed])
    # Estimates tie by the thousand, and which of those goes on is no matter of ids.
    survivors = np.sort(documents[np.argpartition(-estimated, kept - 1)[:kept]])
    for part, places in by_part(snapshot, survivors):
        segment = snapshot.parts[part].segment
        scores = phrase_scores(segment, query, places, budget, threads)
        scanned.append((snapshot.first[part] + places, scores.astype(np.float64)))
    return best(snapshot, scanned, k), _path(snapshot, len(listed))


def lexical_branch(
    snapshot: Snapshot, query: Encoded, k: int, allowed: list[Bool]
) -> tuple[I64, str]:
    """The best documents by S_L among those that share a token with the query."""
    found = []
    for segment, first, places in _permitted(snapshot, allowed):
        scores = lexical_scores(segment, query, np.arange(len(segment)))[places]
        shared = scores > 0
        found.append((first + places[shared], scores[shared]))
    return best(snapshot, found, k), "exact"


def best(snapshot: Snapshot, found: list[tuple[I64, F64]], k: int) -> I64:
    """The k documents with the largest scores; ties at the edge by document id."""
    if not found:
        return np.empty(0, np.int64)
    documents = np.concatenate([some for some, _ in found])
    scores = np.concatenate([values for _, values in found])
    if len(documents) <= k:
        return documents
    edge = np.partition(scores, len(scores) - k)[len(scores) - k]
    above, tied = documents[scores > edge], documents[scores == edge]
    if len(above) + len(tied) > k:
        by_id = np.argsort(np.array(snapshot.ids(tied)), kind="stable")
        tied = tied[by_id[: k - len(above)]]
    return np.concatenate([above, tied])


def by_part(snapshot: Snapshot, documents: I64) -> Iterator[tuple[int, I64]]:
    """Documents, ascending, as segment by segment their places there."""
    part = np.searchsorted(snapshot.first, documents, side="right") - 1
    for i in np.unique(part).tolist():
        yield i, documents[part == i] - snapshot.first[i]


def _path(snapshot: Snapshot, listed: int) -> str:
    return f"lists of {listed} of {len(snapshot.parts)} segments" if listed else "exact"


def _permitted(snapshot: Snapshot, allowed: list[Bool]) -> Iterator[tuple[Segment, int, I64]]:
    """Each segment with a document that may be found: its first number, the places."""
    for part, first, mask in zip(snapshot.parts, snapshot.first.tolist(), allowed, strict=False):
        places = np.flatnonzero(mask)
        if len(places):
            yield part.segment, first, places
