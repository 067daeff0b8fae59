"""The best k documents by weighted MaxSim, without a score for every one of them.

The compiled scan leaves a document as soon as it cannot come to the k-th place (_maxsim.c); numpy
scores all. Both give the same documents with the scores of `weighted_maxsim`, to the last bit, and
all that tie at the k-th place: who breaks ties needs to see them.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from hplus.kernels import maxsim
from hplus.kernels.int4 import numbers
from hplus.kernels.reference import Mean, Rows, Scales, shares_of
from hplus.kernels.threads import each_of, shares
from hplus.types import F32, F64, I64


class Wanted(NamedTuple):
    """A query and how many documents it wants: vectors f32[q, r], weights f32[q].

    base: f64[n], what other views give each document; documents are then ranked by base + score.
    Those that rank below `least` need not be told.
    """

    vectors: F32
    weights: F32
    k: int
    least: float = -np.inf
    base: F64 | None = None


def best_documents(
    queries: Sequence[Wanted],
    vectors: Rows,
    scales: Scales | None,
    starts: I64,
    ends: I64,
    mean: Mean | None = None,
    *,
    longest: tuple[float, float],
    threads: int = 1,
    kernel: str | None = None,
) -> list[tuple[I64, F32]]:
    """For each query, all documents that rank at least as high as its k-th, i64[m] ascending, and
    their scores f32[m]; the queries, of one width, share a pass over the vectors. All of them have
    a base, or none.

    Documents as in `weighted_maxsim`. longest: of the vectors at this width (`longest`).

    >>> vectors = np.eye(3, dtype=np.float32)
    >>> query = Wanted(vectors[:2], np.array([2, 1], np.float32), k=2)
    >>> starts, ends = np.array([0, 1, 2, 2]), np.array([1, 2, 3, 3])
    >>> (found,) = best_documents([query], vectors, None, starts, ends, longest=(1.0, 1.0))
    >>> found[0].tolist(), found[1].tolist()
    ([0, 1], [2.0, 1.0])
    """
    name = maxsim.implementation() if kernel is None else kernel
    compiled, level = maxsim.compiled(name)
    if compiled is None:
        found = [
            maxsim.weighted_maxsim(
                query.vectors,
                query.weights,
                vectors,
                scales,
                starts,
                ends,
                mean,
                threads=threads,
                kernel=name,
            )
            for query in queries
        ]
        every = np.arange(len(starts))
        return [_best(every, own, query) for own, query in zip(found, queries, strict=True)]
    query_vectors = _in_one([query.vectors for query in queries])
    weights = _in_one([query.weights for query in queries])
    offsets = np.array([0, *accumulate(len(query.vectors) for query in queries)])
    k = np.array([query.k for query in queries])
    least = np.array([query.least for query in queries])
    base = None
    if queries[0].base is not None:
        base = np.array([query.base for query in queries])
    starts, ends = np.ascontiguousarray(starts), np.ascontiguousarray(ends)

    def run(part: slice) -> list[tuple[I64, F32]]:
        found = compiled.scan(
            query_vectors,
            weights,
            vectors,
            scales,
            starts[part],
            ends[part],
            *(mean or (None, None)),
            offsets,
            k,
            least,
            None if base is None else np.ascontiguousarray(base[:, part]),
            *longest,
            level,
        )
        return [
            (np.frombuffer(own, np.int64) + part.start, np.frombuffer(scores, np.float32))
            for own, scores in found
        ]

    # Bytes are multiplied, and most documents left, some eight times as fast as floats: on 5,000
    # documents of 16 vectors a second thread costs more than it saves.
    each = query_vectors.size // (8 if vectors.itemsize == 1 else 1)
    parts = each_of(run, shares(starts, ends, threads, each))
    if len(parts) == 1:
        return parts[0]
    together = []
    for i, query in enumerate(queries):
        documents, scores = zip(*(part[i] for part in parts), strict=True)
        together.append(_best(np.concatenate(documents), np.concatenate(scores), query))
    return together


def _in_one(arrays: list[F32]) -> F32:
    """Rows of all queries, contiguous and aligned, as C reads them."""
    return maxsim.plain(arrays[0]) if len(arrays) == 1 else np.concatenate(arrays)


def longest(
    vectors: Rows, scales: Scales | None, width: int, mean: Mean | None = None
) -> tuple[float, float]:
    """The largest length of vectors[u, :width] times scales[u], with its share of the mean and
    without: the one bounds what is scored, the other what rounding a query changes.

    >>> longest(np.array([[3, 4, 5]], np.int8), np.array([0.5], np.float32), 2)
    (2.5, 2.5)
    """
    compiled, _ = maxsim.compiled(maxsim.implementation())
    if compiled is not None:
        found: tuple[float, float] = compiled.longest(
            vectors, scales, width, *(mean or (None, None))
        )
        return found
    whole = rest = 0.0
    for first in range(0, len(vectors), 65_536):
        rows = numbers(vectors[first : first + 65_536], width)
        if scales is not None:
            rows = rows * scales[first : first + 65_536, None]
        rest = max(rest, _longest(rows))
        if mean is not None:
            shares = shares_of(mean, scales, first, first + len(rows))
            rows = rows + shares[:, None] * mean.vector[:width]
        whole = max(whole, _longest(rows))
    return whole, rest


def _longest(rows: F32) -> float:
    return float(np.sqrt(np.einsum("ij,ij->i", rows, rows, dtype=np.float64)).max(initial=0))


def _best(documents: I64, scores: F32, query: Wanted) -> tuple[I64, F32]:
    """Those of at least the k-th highest rank."""
    edge, ranks = query.least, scores.astype(np.float64)
    if query.base is not None:
        ranks += query.base[documents]
    if len(ranks) > query.k:
        edge = max(edge, np.partition(ranks, len(ranks) - query.k)[len(ranks) - query.k])
    high = ranks >= edge
    return documents[high], scores[high]
