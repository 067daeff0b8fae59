"""Phrase view: importance-weighted MaxSim between units (eq:phrase_score)."""

from __future__ import annotations

import numpy as np

from hplus.types import F32, F64, I64, Bool, DroppedUnit, Encoded, Span, Tokens, UnitMatch
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


def similarities(query: Encoded, documents: Encoded) -> F32:
    """Cosines of every query unit with every document unit, f32[q, M]."""
    return query.vectors @ documents.vectors.T


def best_matches(similarity: F32, offsets: I64) -> F32:
    """Maximum over each document's own units, f32[q, n]; a document without units matches
    nothing: 0. Ragged, so there is no padding that could win."""
    best = np.zeros((len(similarity), len(offsets) - 1), np.float32)
    filled = np.diff(offsets) > 0
    if filled.any():
        best[:, filled] = np.maximum.reduceat(similarity, offsets[:-1][filled], axis=1)
    return best


def contributions(query: Encoded, best: F32) -> F64:
    """What each query unit adds: a_q(s) times its best similarity, f64[q, n]."""
    return query.weights[:, None].astype(np.float64) * best


def score(query: Encoded, documents: Encoded) -> F64:
    """eq:phrase_score, raw: f64[n]."""
    best = best_matches(similarities(query, documents), documents.offsets)
    return total(contributions(query, best))


def total(parts: F64) -> F64:
    """Sum of the query units' contributions, added one by one in their order."""
    scores = np.zeros(parts.shape[1])
    for part in parts:
        scores += part
    return scores


def scale(query: Encoded) -> float:
    """Sum of the query's weights: raw scores divided by it lie in [-1, 1]."""
    return float(query.weights.sum(dtype=np.float64)) or 1.0


def explain(
    query: Encoded,
    query_text: str,
    documents: Encoded,
    document: int,
    document_text: str,
    similarity: F32,
) -> list[UnitMatch]:
    """Per query unit the document unit it matched; contributions sum to the raw score."""
    units = slice(int(documents.offsets[document]), int(documents.offsets[document + 1]))
    best = best_matches(similarity[:, units], np.array([0, units.stop - units.start]))[:, 0]
    parts = contributions(query, best[:, None])[:, 0]
    matches = []
    for s in range(len(query.weights)):
        spans = query.spans_of(s)
        matched = (
            units.start + int(similarity[s, units].argmax()) if units.stop > units.start else None
        )
        found = [] if matched is None else documents.spans_of(matched)
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
