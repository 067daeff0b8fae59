"""Exact counts (eq:exact_count): every rule keeps the same feasible number of units in every text.

C_x(B) is the least of B and of the number of units that any rule finds in the text x; each rule
keeps its C_x(B) most important ones. Since units come in order of importance, all budgets are
prefixes of one list, and one matrix product serves them all.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np

from hplus.evaluate.rescore import blocks
from hplus.types import F32, I64
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
    weights: F32 | None = None,
) -> list[list[F32]]:
    """Normalised S_P with the first units of each text, f32[queries, documents], for each of
    several ways to count a query's units, and each budget.

    Both sides in order of importance; document_counts i64[documents, budgets], which do not fall
    from one budget to the next, and each of query_counts i64[queries, budgets]. weights: of the
    query units, in place of their importance.
    """
    own = queries.weights if weights is None else weights
    n, m = len(queries.offsets) - 1, len(documents.offsets) - 1
    budgets = document_counts.shape[1]
    scores = [[np.zeros((n, m), np.float32) for _ in range(budgets)] for _ in query_counts]
    rank = np.arange(len(own)) - np.repeat(queries.offsets[:-1], np.diff(queries.offsets))
    text = np.repeat(np.arange(n), np.diff(queries.offsets))
    # A unit beyond the count weighs nothing.
    taken: list[F32] = [
        np.where(rank < counts[text].T, own, np.float32(0)) for counts in query_counts
    ]
    for q_first, q_last in blocks(queries.offsets):
        q_rows = slice(queries.offsets[q_first], queries.offsets[q_last])
        bounds = queries.offsets[q_first:q_last] - queries.offsets[q_first]
        filled = np.diff(queries.offsets[q_first : q_last + 1]) > 0
        totals = [
            np.add.reduceat(some[:, q_rows], bounds[filled], axis=1, dtype=np.float64)
            for some in taken
        ]
        for d_first, d_last in blocks(documents.offsets):
            best = _best_of_prefixes(
                documents, d_first, d_last, document_counts[d_first:d_last], queries.vectors[q_rows]
            )
            place = np.ix_(q_first + np.flatnonzero(filled), np.arange(d_first, d_last))
            for way, budget in product(range(len(taken)), range(budgets)):
                weighted = best[budget] * taken[way][budget, q_rows]
                sums = np.add.reduceat(weighted, bounds[filled], axis=1, dtype=np.float64)
                with np.errstate(invalid="ignore"):
                    scores[way][budget][place] = np.nan_to_num(sums / totals[way][budget]).T
    return scores


def _best_of_prefixes(documents: Kept, first: int, last: int, counts: I64, queries: F32) -> F32:
    """Maxima over the first counts[d, b] units of documents first:last, f32[budgets, docs, q]."""
    starts = documents.offsets[first:last]
    rows = documents.vectors[starts[0] : documents.offsets[last]]
    similar = rows @ queries.T
    budgets = counts.shape[1]
    # From each budget's count to the next one's: a stretch of units that is reduced once.
    ends = (starts - starts[0])[:, None] + counts
    begins = np.concatenate([(starts - starts[0])[:, None], ends[:, :-1]], axis=1)
    best = np.full((budgets, last - first, len(queries)), -np.inf, np.float32)
    document, budget = np.nonzero(ends > begins)
    if len(document):
        edges = np.stack([begins[document, budget], ends[document, budget]], axis=1).ravel()
        closed = edges[-1] == len(similar)
        reduced = np.maximum.reduceat(similar, edges[:-1] if closed else edges, axis=0)[::2]
        best[budget, document] = reduced
    best = np.maximum.accumulate(best, axis=0)
    return np.where(np.isneginf(best), np.float32(0), best)
