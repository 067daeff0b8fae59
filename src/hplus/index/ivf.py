"""An inverted file over unit vectors: centroid -> documents that have a unit near it.

The machinery of the lexical view, with centroids for tokens. A query unit reads the lists of its
few nearest centroids; a document that stands in one of them is worth the centroid's similarity, one
that stands in none at most that of the first centroid not read, which is imputed.
"""

from __future__ import annotations

import numpy as np

from hplus.errors import IndexDamagedError
from hplus.index.segment import F16, Array, dequantise, smallest
from hplus.types import F32, F64, I64, item_of_row, offsets_of, rows_of
from hplus.units.pool import normalise

# Columns that are compared: the first ones carry the direction well enough to choose candidates.
WIDTH = 128
# Units for each centroid, and units of the sample that the centroids are learned from.
UNITS_PER_LIST = 512
# A global vector stands in one list alone: shorter lists, more of them read.
GLOBALS_PER_LIST = 64
SAMPLE_PER_LIST = 48
ROUNDS = 6
BLOCK = 16_384


def build(
    vectors: Array,
    scales: F16 | None,
    offsets: I64,
    *,
    per_list: int = UNITS_PER_LIST,
    seed: int = 13,
) -> dict[str, Array]:
    """Centroids f32[K, r], list_offsets i64[K + 1] and list_documents of a segment's units."""
    count = max(1, len(vectors) // per_list)
    random = np.random.default_rng(seed)
    rows = np.sort(random.permutation(len(vectors))[: count * SAMPLE_PER_LIST])
    centroids = _k_means(_unit(vectors, scales, rows), count, random)
    nearest = np.concatenate(
        [
            _nearest(
                _unit(vectors, scales, np.arange(first, min(first + BLOCK, len(vectors)))),
                centroids,
            )
            for first in range(0, len(vectors), BLOCK)
        ]
    )
    # A document stands once in a list, however many of its units are there.
    pairs = np.unique(nearest * (len(offsets) - 1) + item_of_row(offsets))
    lists, documents = np.divmod(pairs, len(offsets) - 1)
    return {
        "centroids": centroids,
        "list_offsets": offsets_of(np.bincount(lists, minlength=len(centroids))),
        "list_documents": smallest(documents),
    }


def estimate(
    query: F32,
    weights: F32,
    centroids: F32,
    list_offsets: I64,
    list_documents: Array,
    documents: int,
    *,
    probes: int,
) -> F64:
    """Raw S_P of every document of a segment as far as its lists tell, f64[documents]."""
    width = min(query.shape[1], centroids.shape[1])
    near = normalise(query[:, :width]) @ normalise(centroids[:, :width]).T  # [q, K]
    probes = min(probes, near.shape[1])
    order = np.argpartition(-near, min(probes, near.shape[1] - 1), axis=1)[:, : probes + 1]
    scores = np.zeros(documents)
    best = np.empty(documents, np.float32)
    for unit in range(len(query)):
        lists = order[unit][np.argsort(near[unit, order[unit]], kind="stable")]
        imputed = near[unit, lists[0]]
        best.fill(imputed)
        for centroid in lists[-probes:]:  # rising, so that the nearest has the last word
            members = list_documents[list_offsets[centroid] : list_offsets[centroid + 1]]
            try:
                best[members] = near[unit, centroid]
            except IndexError as error:
                raise IndexDamagedError(f"a list of units is damaged: {error}") from None
        scores += np.float64(weights[unit]) * best
    return scores


def members(
    query: F32, centroids: F32, list_offsets: I64, list_documents: Array, *, probes: int
) -> I64:
    """Documents, ascending, of the lists nearest to one vector, f32[r]."""
    width = centroids.shape[1]
    near = centroids @ normalise(query[None, :width])[0]
    lists = np.sort(np.argsort(-near, kind="stable")[:probes])
    rows, _ = rows_of(list_offsets, lists)
    return np.unique(list_documents[rows]).astype(np.int64)


def _unit(vectors: Array, scales: F16 | None, rows: I64) -> F32:
    return normalise(dequantise(vectors[rows, :WIDTH], None if scales is None else scales[rows]))


def _nearest(rows: F32, centroids: F32) -> I64:
    nearest: I64 = np.argmax(rows @ centroids.T, axis=1)
    return nearest


def _k_means(sample: F32, count: int, random: np.random.Generator) -> F32:
    """Spherical k-means; a centroid that loses all its members starts anew at a random one."""
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
