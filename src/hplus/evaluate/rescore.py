"""Scores of many queries with many documents at once, for the laboratory.

Every query unit meets every document unit in blocks of matrix products; what is not in a query's
pool is computed too and left aside. That wastes nothing much while a pool of 1,000 is a good part
of the corpus, as in the sets here, and the products run at the speed of BLAS.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import numpy as np

from hplus.kernels import weighted_maxsim
from hplus.states_file import F16, StoredStates
from hplus.types import F32, I32, I64, Tokens, offsets_of
from hplus.units.partition import partition, spans_of_units
from hplus.units.pool import pool, unit_importance
from hplus.units.select import Budget, Kept, spend

# Rows and columns of one block of similarities: 64 MB.
BLOCK = 4_096
# Texts whose states are turned to float32 at a time.
TEXTS = 512


def units_of(
    stored: StoredStates, begins: np.ndarray, importance: F32, width: int, budget: Budget
) -> Kept:
    """The units that `begins` cuts, pooled from stored states, under a budget."""
    tokens = stored.tokens
    parts: list[Kept] = []
    for first in range(0, max(1, len(tokens)), TEXTS):
        last = min(first + TEXTS, len(tokens))
        rows = slice(tokens.offsets[first], tokens.offsets[last])
        offsets = tokens.offsets[first : last + 1] - tokens.offsets[first]
        some = Tokens(tokens.texts[first:last], tokens.ids[rows], tokens.spans[rows], offsets)
        cut = partition(begins[rows], offsets)
        vectors = pool(_f32(stored.states[rows, :width]), cut, width)
        weights = unit_importance(importance[rows], cut)
        parts.append(spend(budget, vectors, weights, spans_of_units(some, cut), cut.offsets))
    return _joined(parts)


def maxsim(queries: Kept, documents: Kept) -> F32:
    """Normalised S_P (eq:phrase_score over the sum of the query's weights), f32[queries, docs].

    A document or a query without units scores 0.
    """
    return maxsim_by(queries, documents, [queries.weights])[0]


def maxsim_of_pools(
    queries: Kept, documents: Kept, pools: Sequence[I64] | I64, *, threads: int = 1
) -> F32:
    """The same for each query's own candidates alone, f32[queries, docs]; elsewhere -inf.

    The kernel reads only these documents: the faster way while they are a small part of all.
    """
    n, m = len(queries.offsets) - 1, len(documents.offsets) - 1
    scores = np.full((n, m), -np.inf, np.float32)

    def one(row: int, own: I64) -> None:
        rows = slice(queries.offsets[row], queries.offsets[row + 1])
        weights = queries.weights[rows]
        raw = weighted_maxsim(
            queries.vectors[rows],
            weights,
            documents.vectors,
            None,
            documents.offsets[own],
            documents.offsets[own + 1],
        )
        total = weights.sum(dtype=np.float64)
        scores[row, own] = raw / total if total > 0 else 0

    each_query(one, pools, threads)
    return scores


def each_query(one: Callable[[int, I64], None], pools: Sequence[I64] | I64, threads: int) -> None:
    """Call `one` with every query's row and candidates, several queries at a time."""
    with ThreadPoolExecutor(threads) as workers:
        for _ in workers.map(one, range(len(pools)), pools):
            pass  # what one of them raises is raised here


def maxsim_by(queries: Kept, documents: Kept, weightings: Sequence[F32]) -> list[F32]:
    """The same under several weightings of the query units, f32[units] each, in one pass."""
    n, m = len(queries.offsets) - 1, len(documents.offsets) - 1
    scores = [np.zeros((n, m), np.float32) for _ in weightings]
    for q_first, q_last in blocks(queries.offsets):
        q_rows = slice(queries.offsets[q_first], queries.offsets[q_last])
        q_offsets = queries.offsets[q_first : q_last + 1] - queries.offsets[q_first]
        has_units = np.diff(q_offsets) > 0
        bounds = q_offsets[:-1][has_units]
        for d_first, d_last in blocks(documents.offsets):
            d_rows = slice(documents.offsets[d_first], documents.offsets[d_last])
            starts = documents.offsets[d_first:d_last] - documents.offsets[d_first]
            filled = np.diff(documents.offsets[d_first : d_last + 1]) > 0
            similar = documents.vectors[d_rows] @ queries.vectors[q_rows].T
            best = np.maximum.reduceat(similar, starts[filled], axis=0)  # [docs, query units]
            place = np.ix_(q_first + np.flatnonzero(has_units), d_first + np.flatnonzero(filled))
            for weights, result in zip(weightings, scores, strict=True):
                own = weights[q_rows]
                sums = np.add.reduceat(best * own, bounds, axis=1, dtype=np.float64)
                totals = np.add.reduceat(own, bounds, dtype=np.float64)
                result[place] = (sums / totals).T
    return scores


def lexical(queries: tuple[I32, F32, I64], documents: tuple[I32, F32, I64], vocabulary: int) -> F32:
    """Normalised S_L of every query with every document, f32[queries, docs]."""
    (q_ids, q_weights, q_offsets), (d_ids, d_weights, d_offsets) = queries, documents
    # Postings of the documents: for each token id the documents that have it.
    order = np.argsort(d_ids, kind="stable")
    document = np.repeat(np.arange(len(d_offsets) - 1), np.diff(d_offsets))[order]
    weight = d_weights[order]
    bounds = np.searchsorted(d_ids[order], np.arange(vocabulary + 1))
    scores = np.zeros((len(q_offsets) - 1, len(d_offsets) - 1), np.float32)
    for query, (first, last) in enumerate(pairwise(q_offsets.tolist())):
        norm = float(np.square(q_weights[first:last], dtype=np.float64).sum()) or 1.0
        for token, own in zip(q_ids[first:last], q_weights[first:last], strict=True):
            rows = slice(bounds[token], bounds[token + 1])
            scores[query, document[rows]] += own * weight[rows] / np.float32(norm)
    return scores


def blocks(offsets: I64) -> list[tuple[int, int]]:
    """Items together as long as they have at most BLOCK rows; one larger item goes alone."""
    found: list[tuple[int, int]] = []
    first = 0
    while first < len(offsets) - 1:
        last = int(np.searchsorted(offsets, offsets[first] + BLOCK, side="right")) - 1
        last = max(last, first + 1)
        if offsets[last] > offsets[first]:
            found.append((first, last))
        first = last
    return found


def _f32(states: F16) -> F32:
    return states.astype(np.float32)


def _joined(parts: list[Kept]) -> Kept:
    fields: dict[str, Any] = {
        name: offsets_of(np.concatenate([np.diff(getattr(part, name)) for part in parts]))
        if name.endswith("offsets")
        else np.concatenate([getattr(part, name) for part in parts])
        for name in Kept.__dataclass_fields__
    }
    return Kept(**fields)
