"""An inverted file over vectors: centroid -> rows of the vectors nearest to it.

The machinery of the lexical view, with centroids in place of tokens. A query unit reads the lists
of its nearest centroids, whichever segment they are in, and scores every unit in them; a document
with no unit there is given the similarity of the first centroid not read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from hplus.errors import IndexDamagedError
from hplus.kernels import weighted_maxsim
from hplus.storage.segment import F16, Array, Segment, dequantise, smallest
from hplus.types import F32, I64, Units, offsets_of, rows_of
from hplus.units.vectors import normalise

# Columns that are compared: the first ones suffice to choose lists.
WIDTH = 128
# Vectors per centroid, and vectors per centroid in the sample that the centroids are learned from.
UNITS_PER_LIST = 128
GLOBALS_PER_LIST = 64
SAMPLE_PER_LIST = 8
# Learning takes the square of the lists: more vectors than fill this many are divided evenly.
LEARNED = 4_096
ROUNDS = 4
BLOCK = 2_048
# From this many units or documents on, a segment has lists of them.
LISTED = 65_536
LISTED_DOCUMENTS = 8_192
ONE = np.ones(1, np.float32)


def build(
    vectors: Array, scales: F16 | None, *, per_list: int = UNITS_PER_LIST, seed: int = 13
) -> dict[str, Array]:
    """Centroids f32[K, r], list_offsets i64[K + 1] and list_rows: every row is in one list."""

    def take(rows: I64) -> F32:
        return unit_rows(vectors, scales, rows)

    learned = [
        learn(rows, take, per_list=per_list, seed=seed)
        for rows in evenly(np.arange(len(vectors)), per_list)
    ]
    centroids, counts, rows = (np.concatenate(column) for column in zip(*learned, strict=True))
    return {
        "centroids": centroids,
        "list_offsets": offsets_of(counts),
        "list_rows": smallest(rows),
    }


def lists_of(arrays: Mapping[str, Array]) -> dict[str, Array]:
    """The lists of a new segment, if it is large enough to have any."""
    made: dict[str, Array] = {}
    if len(arrays["vectors"]) >= LISTED:
        made |= build(arrays["vectors"], arrays.get("scales"))
    if len(arrays["global_vectors"]) >= LISTED_DOCUMENTS:
        vectors, scales = arrays["global_vectors"], arrays.get("global_scales")
        found = build(vectors, scales, per_list=GLOBALS_PER_LIST)
        made |= {f"global_{name}": array for name, array in found.items()}
    return made


def evenly(rows: I64, per_list: int) -> list[I64]:
    """Rows in as few equal parts as lists can be learned from."""
    return np.array_split(rows, max(1, -(-len(rows) // (LEARNED * per_list))))


def learn(
    rows: I64, take: Callable[[I64], F32], *, per_list: int, seed: int = 13
) -> tuple[F32, I64, I64]:
    """Centroids f32[K, r], the lengths of their lists i64[K] and the rows in them, list by list.

    take: the unit vectors of some rows at the width that is compared.
    """
    count = max(1, len(rows) // per_list)
    random = np.random.default_rng(seed)
    sample = np.sort(random.permutation(len(rows))[: count * SAMPLE_PER_LIST])
    centroids = _k_means(take(rows[sample]), count, random)
    nearest = np.concatenate(
        [
            _nearest(take(rows[first : first + BLOCK]), centroids)
            for first in range(0, len(rows), BLOCK)
        ]
    )
    counts = np.bincount(nearest, minlength=len(centroids))
    return centroids, counts, rows[np.argsort(nearest, kind="stable")]


def similarities(query: F32, centroids: F32) -> F32:
    """Cosines of all query units with all centroids, f32[q, K], at the smaller width of the two."""
    if query.shape[1] < centroids.shape[1]:
        centroids = normalise(centroids[:, : query.shape[1]])
    near: F32 = normalise(query[:, : centroids.shape[1]]) @ centroids.T
    return near


def first_unread(near: F32, probes: int) -> F32:
    """For every query unit the similarity of the nearest list that it does not read, f32[q]."""
    if near.shape[1] <= probes:
        return np.full(len(near), -2, np.float32)  # all are read; below every cosine
    place = near.shape[1] - probes - 1
    edge: F32 = np.partition(near, place, axis=1)[:, place]
    return edge


def estimate(segment: Segment, query: Units, near: F32, unread: F32, *, budget: int | None) -> F32:
    """Raw S_P of every document of a segment, estimated from the lists nearer than `unread`."""
    assert segment.list_offsets is not None  # a segment has all of them or none
    assert segment.list_rows is not None
    scales = segment.scales_at(query.width)
    best = np.repeat(unread[:, None], len(segment), axis=1)
    for unit in range(len(near)):
        places, _ = rows_of(segment.list_offsets, np.flatnonzero(near[unit] > unread[unit]))
        rows = np.sort(segment.list_rows[places]).astype(np.int64)
        document = np.searchsorted(segment.offsets, rows, side="right") - 1
        if budget is not None:
            paid = rows - segment.offsets[document] < budget
            rows, document = rows[paid], document[paid]
        try:
            similar = weighted_maxsim(
                query.vectors[unit : unit + 1], ONE, segment.vectors, scales, rows, rows + 1
            )
        except ValueError as error:
            raise IndexDamagedError(f"a list of units is damaged: {error}") from None
        np.maximum.at(best[unit], document, similar)
    scores: F32 = query.weights @ best
    return scores


def members(query: F32, centroids: F32, list_offsets: I64, list_rows: Array, *, probes: int) -> I64:
    """Rows, ascending, of the lists nearest to one vector, f32[r]."""
    near = centroids @ normalise(query[None, : centroids.shape[1]])[0]
    lists = np.sort(np.argsort(-near, kind="stable")[:probes])
    rows, _ = rows_of(list_offsets, lists)
    return np.unique(list_rows[rows]).astype(np.int64)


def unit_rows(vectors: Array, scales: F16 | None, rows: I64) -> F32:
    """Stored rows as unit vectors, as far as lists compare them."""
    return normalise(dequantise(vectors[rows, :WIDTH], None if scales is None else scales[rows]))


def _nearest(rows: F32, centroids: F32) -> I64:
    nearest: I64 = np.argmax(rows @ centroids.T, axis=1)
    return nearest


def _k_means(sample: F32, count: int, random: np.random.Generator) -> F32:
    """Spherical k-means; a centroid without members restarts at a random row of the sample."""
    centroids = sample[random.permutation(len(sample))[:count]]
    for _ in range(ROUNDS):
        nearest = np.concatenate(
            [_nearest(sample[i : i + BLOCK], centroids) for i in range(0, len(sample), BLOCK)]
        )
        counts = np.bincount(nearest, minlength=len(centroids))
        starts = offsets_of(counts)[:-1]
        sums = sample[random.integers(0, len(sample), len(centroids))]
        by_centroid = sample[np.argsort(nearest, kind="stable")]
        sums[counts > 0] = np.add.reduceat(by_centroid, starts[counts > 0], axis=0)
        centroids = normalise(sums)
    return centroids
