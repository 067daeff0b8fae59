"""Exact counts (eq:exact_count): every rule keeps the same feasible number of units in every text.

C_x(B) is the least of B and of the number of units that any rule finds in the text x; each rule
keeps its C_x(B) most important ones. Units come in order of importance, so that every budget is a
prefix of the same list.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np

from hplus.evaluate.rescore import each_query
from hplus.kernels import maxima
from hplus.types import F32, F64, I64
from hplus.units.select import Kept


def feasible_counts(natural: Sequence[I64], budgets: Sequence[int]) -> I64:
    """C_x(B) of every text, i64[texts, budgets]; natural: units of each text by each rule.

    >>> feasible_counts([np.array([5, 2]), np.array([3, 9])], [2, 4]).tolist()
    [[2, 3], [2, 2]]
    """
    least = np.min(np.stack(natural), axis=0)
    counts: I64 = np.minimum(least[:, None], np.asarray(budgets, np.int64))
    return counts


def maxsim_of_prefixes(
    queries: Kept,
    documents: Kept,
    document_counts: I64,
    query_counts: Sequence[I64],
    pools: Sequence[I64] | I64,
    *,
    weights: F32 | None = None,
    threads: int = 1,
) -> list[list[F32]]:
    """Normalised S_P of each query's candidates with the first units of each text, for each of
    several ways to count a query's units and each budget: f32[queries, documents], else -inf.

    Both sides in order of importance; document_counts i64[documents, budgets], budgets ascending,
    and each of query_counts i64[queries, budgets]. weights: of the query units, in place of their
    importance.
    """
    importance = queries.weights if weights is None else weights
    shape = (len(queries.offsets) - 1, len(documents.offsets) - 1)
    budgets = range(document_counts.shape[1])
    scores = [[np.full(shape, -np.inf, np.float32) for _ in budgets] for _ in query_counts]

    def one(row: int, own: I64) -> None:
        units = slice(queries.offsets[row], queries.offsets[row + 1])
        best = _maxima_of_prefixes(queries.vectors[units], documents, document_counts, own)
        for way, budget in product(range(len(query_counts)), budgets):
            count = query_counts[way][row, budget]
            some = importance[units][:count].astype(np.float64)
            total = some.sum()
            raw = best[:, budget, :count] @ some
            scores[way][budget][row, own] = raw / total if total > 0 else 0

    each_query(one, pools, threads)
    return scores


def _maxima_of_prefixes(query: F32, documents: Kept, counts: I64, own: I64) -> F64:
    """Of every query unit over the first units of some documents, f64[documents, budgets, q].

    Every unit is met once: a prefix has the maxima of the one before it and of what it adds.
    """
    ends = documents.offsets[own][:, None] + counts[own]  # [documents, budgets]
    starts = np.concatenate([documents.offsets[own][:, None], ends[:, :-1]], axis=1)
    found = maxima(query, documents.vectors, None, starts.ravel(), ends.ravel())
    found = found.reshape(*ends.shape, len(query))
    found[ends == starts] = -np.inf
    best = np.maximum.accumulate(found, axis=1)
    best[counts[own] == 0] = 0
    return best.astype(np.float64)
