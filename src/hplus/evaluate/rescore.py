"""Scores of many queries with many documents at once, from stored states.

Every query unit is compared with every document unit in blocks of matrix products, at the speed of
BLAS; scores outside a query's pool are computed too and ignored. That wastes little while a pool of
1,000 is a good part of the corpus; `maxsim_of_pools` scores the pools alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from hplus.kernels import weighted_maxsim
from hplus.states_file import F16, StoredStates
from hplus.types import F32, I32, I64, Lexical, Tokens, Units, concatenate_ragged, item_of_row
from hplus.units.select import Budget, spend
from hplus.views import phrase

# Rows and columns of one block of similarities: 64 MB.
BLOCK = 4_096
# Texts whose states are turned to float32 at a time.
TEXTS = 512


def units_of(
    stored: StoredStates, begins: np.ndarray, importance: F32, width: int, budget: Budget
) -> Units:
    """The units that `begins` marks, made from stored states, under a budget."""
    tokens = stored.tokens
    parts: list[Units] = []
    for first in range(0, max(1, len(tokens)), TEXTS):
        last = min(first + TEXTS, len(tokens))
        rows = slice(tokens.offsets[first], tokens.offsets[last])
        offsets = tokens.offsets[first : last + 1] - tokens.offsets[first]
        some = Tokens(tokens.texts[first:last], tokens.ids[rows], tokens.spans[rows], offsets)
        states = _f32(stored.states[rows, :width])
        units = phrase.units_of(some, states, importance[rows], begins[rows], width)
        parts.append(spend(budget, units)[0])
    return concatenate_ragged(parts)


def maxsim(queries: Units, documents: Units) -> F32:
    """Normalised S_P (eq:phrase_score over the sum of the query's weights), f32[queries, docs].

    A document or a query without units scores 0.
    """
    return maxsim_by(queries, documents, [queries.weights])[0]


def maxsim_of_pools(
    queries: Units, documents: Units, pools: Sequence[I64] | I64, *, threads: int = 1
) -> F32:
    """The same for each query's own candidates alone, f32[queries, docs]; elsewhere -inf.

    The kernel reads only these documents, which is faster while they are a small part of all.
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
            pass  # an exception in one of them is raised here


def maxsim_by(queries: Units, documents: Units, weightings: Sequence[F32]) -> list[F32]:
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


class Postings(NamedTuple):
    """Of token id t, rows bounds[t]:bounds[t + 1]: the documents that have it, and its weights."""

    documents: I64
    weights: F32
    bounds: I64


def postings(documents: Lexical, vocabulary: int) -> Postings:
    """The documents' lexical view by token id."""
    order = np.argsort(documents.ids, kind="stable")
    bounds = np.searchsorted(documents.ids[order], np.arange(vocabulary + 1))
    return Postings(item_of_row(documents.offsets)[order], documents.weights[order], bounds)


def lexical_of(ids: I32, weights: F32, found: Postings, n: int) -> F32:
    """Normalised S_L of one query with n documents, f32[n]."""
    scores = np.zeros(n, np.float32)
    norm = np.float32(float(np.square(weights, dtype=np.float64).sum()) or 1.0)
    for token, own in zip(ids, weights, strict=True):
        rows = slice(found.bounds[token], found.bounds[token + 1])
        scores[found.documents[rows]] += own * found.weights[rows] / norm
    return scores


def lexical(queries: Lexical, documents: Lexical, vocabulary: int) -> F32:
    """Normalised S_L of every query with every document, f32[queries, docs]."""
    n, found = len(documents), postings(documents, vocabulary)
    scores = np.zeros((len(queries), n), np.float32)
    for query, (first, last) in enumerate(pairwise(queries.offsets.tolist())):
        own = slice(first, last)
        scores[query] = lexical_of(queries.ids[own], queries.weights[own], found, n)
    return scores


def blocks(offsets: I64) -> list[tuple[int, int]]:
    """Runs of items of at most BLOCK rows together; a larger item is a run by itself."""
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
