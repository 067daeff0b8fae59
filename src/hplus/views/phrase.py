"""Phrase view: importance-weighted MaxSim between units (eq:phrase_score)."""

from __future__ import annotations

import numpy as np

from hplus.types import F32, F64, Bool, DroppedUnit, Encoded, Span, Tokens, UnitMatch
from hplus.units.partition import partition, spans_of_units
from hplus.units.pool import pool, unit_importance
from hplus.units.select import Budget, Kept, spend


def represent(
    tokens: Tokens, states: F32, importance: F32, begins: Bool, *, width: int, budget: Budget
) -> Kept:
    """Partition -> pooled vectors and importance -> what the budget keeps."""
    units = partition(begins, tokens.offsets)
    return spend(
        budget,
        pool(states, units, width),
        unit_importance(importance, units),
        spans_of_units(tokens, units),
        units.offsets,
    )


def similarities(query: Encoded, documents: Encoded, document: int) -> F32:
    """Cosines of every query unit with every unit of one document, f32[q, m].

    One product per document: what a document scores does not depend on the others beside it,
    to the last bit, so equal documents tie.
    """
    units = slice(documents.offsets[document], documents.offsets[document + 1])
    return query.vectors @ documents.vectors[units].T


def best_matches(similarity: F32) -> F32:
    """The maximum over the document's own units, f32[q]; without units nothing matches: 0.

    Ragged, so there is no padding that could win.
    """
    if not similarity.shape[1]:
        return np.zeros(len(similarity), np.float32)
    best: F32 = similarity.max(axis=1)
    return best


def contributions(query: Encoded, similarity: F32) -> F64:
    """What each query unit adds: a_q(s) times its best similarity, f64[q]."""
    return query.weights.astype(np.float64) * best_matches(similarity)


def score(query: Encoded, documents: Encoded) -> F64:
    """eq:phrase_score, raw: f64[n]; contributions added one by one in the order of the units."""
    parts = np.zeros((len(query.weights), len(documents)))
    for document in range(len(documents)):
        parts[:, document] = contributions(query, similarities(query, documents, document))
    scores = np.zeros(len(documents))
    for part in parts:
        scores += part
    return scores


def scale(query: Encoded) -> float:
    """Sum of the query's weights: raw scores divided by it lie in [-1, 1]."""
    return float(query.weights.sum(dtype=np.float64)) or 1.0


def explain(
    query: Encoded, query_text: str, documents: Encoded, document: int, document_text: str
) -> list[UnitMatch]:
    """Per query unit the document unit it matched; contributions sum to the raw score."""
    similarity = similarities(query, documents, document)
    best = best_matches(similarity)
    parts = contributions(query, similarity)
    first = int(documents.offsets[document])
    matches = []
    for s in range(len(query.weights)):
        spans = query.spans_of(s)
        there = similarity.shape[1] > 0
        found = documents.spans_of(first + int(similarity[s].argmax())) if there else []
        matches.append(
            UnitMatch(
                spans=spans,
                text=cited(query_text, spans),
                weight=float(query.weights[s]),
                document_spans=found,
                document_text=cited(document_text, found),
                similarity=float(best[s]),
                contribution=float(parts[s]),
            )
        )
    return matches


def dropped(documents: Encoded, document: int, text: str) -> list[DroppedUnit]:
    """What the budget left out of a document, weightiest first."""
    units = range(
        int(documents.dropped_offsets[document]), int(documents.dropped_offsets[document + 1])
    )
    lost = []
    for unit in units:
        spans = documents.dropped_spans_of(unit)
        lost.append(DroppedUnit(spans, cited(text, spans), float(documents.dropped_weights[unit])))
    return lost


def cited(text: str, spans: list[Span]) -> str:
    """The text at the spans, separate pieces joined by an ellipsis."""
    return " … ".join(text[start:end] for start, end in spans)
