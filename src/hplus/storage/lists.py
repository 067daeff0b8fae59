"""An inverted file over global vectors: centroid -> rows of the vectors nearest to it.

The machinery of the lexical view, with centroids in place of tokens. A query scores the vectors in
the lists of the nearest centroids.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from hplus.storage.segment import F16, Array, dequantise, smallest
from hplus.types import F32, I64, offsets_of, rows_of
from hplus.units.vectors import normalise

# Columns that are compared: the first ones suffice to choose lists.
WIDTH = 128
# Vectors per centroid, and vectors per centroid in the sample that the centroids are learned from.
PER_LIST = 64
SAMPLE_PER_LIST = 8
# Learning takes the square of the lists: more vectors than fill this many are divided evenly.
LEARNED = 4_096
ROUNDS = 4
BLOCK = 2_048
# From this many documents on, a segment has lists of them.
LISTED_DOCUMENTS = 8_192


def lists_of(arrays: Mapping[str, Array]) -> dict[str, Array]:
    """The lists of a new segment, if it is large enough to have any."""
    if len(arrays["global_vectors"]) < LISTED_DOCUMENTS:
        return {}
    return build(arrays["global_vectors"], arrays.get("global_scales"))


def build(vectors: Array, scales: F16 | None) -> dict[str, Array]:
    """global_centroids f32[K, r], global_list_offsets i64[K + 1] and global_list_rows: every row is
    in one list."""

    def take(rows: I64) -> F32:
        return unit_rows(vectors, scales, rows)

    learned = [learn(rows, take) for rows in evenly(np.arange(len(vectors)))]
    centroids, counts, rows = (np.concatenate(column) for column in zip(*learned, strict=True))
    return {
        "global_centroids": centroids,
        "global_list_offsets": offsets_of(counts),
        "global_list_rows": smallest(rows),
    }


def evenly(rows: I64) -> list[I64]:
    """Rows in as few equal parts as lists can be learned from."""
    return np.array_split(rows, max(1, -(-len(rows) // (LEARNED * PER_LIST))))


def learn(rows: I64, take: Callable[[I64], F32], *, seed: int = 13) -> tuple[F32, I64, I64]:
    """Centroids f32[K, r], the lengths of their lists i64[K] and the rows in them, list by list.

    take: the unit vectors of some rows at the width that is compared.
    """
    count = max(1, len(rows) // PER_LIST)
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
