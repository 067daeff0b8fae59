"""Lexical view: token id -> importance, exact matching (eq:lexical_score)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hplus.types import F32, F64, I32, I64, Encoded, TermMatch, Tokens, item_of_row, offsets_of


def represent(tokens: Tokens, importance: F32, unknown: int | None) -> tuple[I32, F32, I64]:
    """w_x(t) of eq:lexical_score: the largest importance of each token id in each text.

    Returns ids i32[L] (ascending within a text), weights f32[L], offsets i64[n + 1]. The unknown
    token is left out: two texts that share it need not share a word.
    """
    known = np.flatnonzero(tokens.ids != (-1 if unknown is None else unknown))
    text = item_of_row(tokens.offsets)[known]
    ids, weights = tokens.ids[known], importance[known]
    order = np.lexsort((ids, text))
    text, ids, weights = text[order], ids[order], weights[order]
    new = np.ones(len(ids), np.bool_)
    new[1:] = (text[1:] != text[:-1]) | (ids[1:] != ids[:-1])
    first = np.flatnonzero(new)
    largest = np.maximum.reduceat(weights, first) if len(first) else weights
    return ids[first], largest, offsets_of(np.bincount(text[first], minlength=len(tokens)))


def score(query: Encoded, documents: Encoded) -> F64:
    """eq:lexical_score, raw: f64[n]."""
    rows, of_query = _shared(query, documents)
    products = query.lexical_weights[of_query].astype(np.float64) * documents.lexical_weights[rows]
    document = item_of_row(documents.lexical_offsets)[rows]
    return np.bincount(document, products, minlength=len(documents)).astype(np.float64)


def scale(query: Encoded) -> float:
    """Sum of the query's squared weights: what the query would score against itself."""
    return float(np.square(query.lexical_weights, dtype=np.float64).sum()) or 1.0


def explain(query: Encoded, document: Encoded, spell: Callable[[int], str]) -> list[TermMatch]:
    """The shared token ids of one document, ascending; contributions sum to the raw score."""
    rows, of_query = _shared(query, document)
    return [
        TermMatch(
            id=int(document.lexical_ids[row]),
            token=spell(int(document.lexical_ids[row])),
            query_weight=float(query.lexical_weights[term]),
            document_weight=float(document.lexical_weights[row]),
            contribution=float(query.lexical_weights[term]) * float(document.lexical_weights[row]),
        )
        for row, term in zip(rows, of_query, strict=True)
    ]


def _shared(query: Encoded, documents: Encoded) -> tuple[I64, I64]:
    """Rows of the documents' terms that the query has too, and its own rows for them."""
    if not len(query.lexical_ids):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    place = np.searchsorted(query.lexical_ids, documents.lexical_ids)
    place = np.minimum(place, len(query.lexical_ids) - 1)
    rows = np.flatnonzero(query.lexical_ids[place] == documents.lexical_ids)
    return rows, place[rows]
