"""Phrase view: importance-weighted MaxSim between units (eq:phrase_score)."""

from __future__ import annotations

import numpy as np

from hplus.types import F32, F64, Bool, DroppedUnit, Span, Tokens, UnitMatch, Units
from hplus.units.partition import partition, spans_of_units
from hplus.units.select import Budget, spend
from hplus.units.vectors import unit_importance, unit_vectors


def represent(
    tokens: Tokens, states: F32, importance: F32, begins: Bool, *, width: int, budget: Budget
) -> tuple[Units, Units]:
    """Partition -> vectors and importance of units -> what the budget keeps and what it drops."""
    return spend(budget, units_of(tokens, states, importance, begins, width))


def units_of(tokens: Tokens, states: F32, importance: F32, begins: Bool, width: int) -> Units:
    """All units in reading order: eq:phrase_pool and eq:unit_importance."""
    units = partition(begins, tokens.offsets)
    return Units(
        vectors=unit_vectors(states, units, width),
        weights=unit_importance(importance, units),
        offsets=units.offsets,
        spans=spans_of_units(tokens, units),
        span_offsets=np.arange(len(units.bounds), dtype=np.int64),
    )


def similarities(query: Units, documents: Units, document: int) -> F32:
    """Cosines of every query unit with every unit of one document, f32[q, m].

    One product per document: its score does not depend on the other documents, to the last bit,
    so equal documents tie.
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


def contributions(query: Units, similarity: F32) -> F64:
    """What each query unit adds: a_q(s) times its best similarity, f64[q]."""
    return query.weights.astype(np.float64) * best_matches(similarity)


def score(query: Units, documents: Units) -> F64:
    """eq:phrase_score, raw: f64[n]; contributions added one by one in the order of the units."""
    parts = np.zeros((len(query.weights), len(documents)))
    for document in range(len(documents)):
        parts[:, document] = contributions(query, similarities(query, documents, document))
    scores = np.zeros(len(documents))
    for part in parts:
        scores += part
    return scores


def scale(query: Units) -> float:
    """Sum of the query's weights: raw scores divided by it lie in [-1, 1]."""
    return float(query.weights.sum(dtype=np.float64)) or 1.0


def explain(
    query: Units, query_text: str, documents: Units, document: int, document_text: str
) -> list[UnitMatch]:
    """For each query unit the document unit it matched; contributions sum to the raw score."""
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


def dropped(units: Units, document: int, text: str) -> list[DroppedUnit]:
    """The units that the budget left out of a document, weightiest first."""
    lost = []
    for unit in range(*units.offsets[document : document + 2].tolist()):
        spans = units.spans_of(unit)
        lost.append(DroppedUnit(spans, cited(text, spans), float(units.weights[unit])))
    return lost


def cited(text: str, spans: list[Span]) -> str:
    """The text at the spans, separate pieces joined by an ellipsis."""
    return " … ".join(text[start:end] for start, end in spans)
