"""Lexical view: token id -> importance, exact matching (eq:lexical_score)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from hplus.types import (
    F32,
    F64,
    I32,
    I64,
    Lexical,
    TokenMatch,
    Tokens,
    WordMatch,
    item_of_row,
    offsets_of,
)
from hplus.units.words import words

QueryWord = tuple[str, tuple[int, ...]]
"""A word and the ids of its tokens."""


@dataclass(frozen=True)
class Spelling:
    """How tokens are written, and of which words of a text they are; without a model, numbers."""

    token: Callable[[int], str] = str
    words: Callable[[str], Sequence[QueryWord]] = lambda _: ()


def represent(tokens: Tokens, importance: F32, unknown: int | None) -> Lexical:
    """w_x(t) of eq:lexical_score: the largest importance of each token id in each text.

    The unknown token is left out: two texts that share it need not share a word. So is a token
    that weighs nothing, as a lexical head may decide.
    """
    known = np.flatnonzero((tokens.ids != (-1 if unknown is None else unknown)) & (importance > 0))
    text = item_of_row(tokens.offsets)[known]
    return _largest(text, tokens.ids[known], importance[known], len(tokens))


def join(parts: Sequence[Lexical]) -> Lexical:
    """One text from its parts, each the view of one text."""
    ids = np.concatenate([part.ids for part in parts])
    weights = np.concatenate([part.weights for part in parts])
    return _largest(np.zeros(len(ids), np.int64), ids, weights, 1)


def _largest(text: I64, ids: I32, weights: F32, texts: int) -> Lexical:
    """Each token id once in each text, with its largest weight there."""
    order = np.lexsort((ids, text))
    text, ids, weights = text[order], ids[order], weights[order]
    new = np.ones(len(ids), np.bool_)
    new[1:] = (text[1:] != text[:-1]) | (ids[1:] != ids[:-1])
    first = np.flatnonzero(new)
    largest = np.maximum.reduceat(weights, first) if len(first) else weights
    offsets = offsets_of(np.bincount(text[first], minlength=texts))
    return Lexical(ids[first], largest, offsets)


def score(query: Lexical, documents: Lexical) -> F64:
    """eq:lexical_score, raw: f64[n]."""
    rows, of_query = _shared(query, documents)
    products = query.weights[of_query].astype(np.float64) * documents.weights[rows]
    document = item_of_row(documents.offsets)[rows]
    return np.bincount(document, products, minlength=len(documents)).astype(np.float64)


def scale(query: Lexical) -> float:
    """Sum of the query's squared weights: what the query would score against itself."""
    return float(np.square(query.weights, dtype=np.float64).sum()) or 1.0


def explain(query: Lexical, document: Lexical, spell: Callable[[int], str]) -> list[TokenMatch]:
    """The shared token ids of one document, ascending; contributions sum to the raw score."""
    rows, of_query = _shared(query, document)
    return [
        TokenMatch(
            id=int(document.ids[row]),
            token=spell(int(document.ids[row])),
            query_weight=float(query.weights[own]),
            document_weight=float(document.weights[row]),
            contribution=float(query.weights[own]) * float(document.weights[row]),
        )
        for row, own in zip(rows, of_query, strict=True)
    ]


def words_of(tokens: Tokens) -> list[QueryWord]:
    """The words of one text with their tokens, each once, in reading order."""
    (text,) = tokens.texts
    spans = words(text, han="characters")
    starts = np.array([span.start for span in spans], np.int64)
    place = np.searchsorted(starts, tokens.spans[:, 0], side="right") - 1
    found: dict[tuple[int, ...], str] = {}
    for i in np.unique(place[place >= 0]).tolist():
        start, end = spans[i]
        found.setdefault(tuple(tokens.ids[place == i].tolist()), text[start:end])
    return [(word, ids) for ids, word in found.items()]


def by_word(matches: Sequence[TokenMatch], query_words: Sequence[QueryWord]) -> list[WordMatch]:
    """Matches of tokens as those of the query's words, most first.

    A token counts once, although two words may have it: first for a word that matched as a whole.
    """
    left = {match.id: match for match in matches}
    there = frozenset(left)
    rated = [(not there.issuperset(ids), word, ids) for word, ids in query_words]
    found = []
    for partly, word, ids in sorted(rated, key=lambda one: one[0]):
        own = [left.pop(i) for i in dict.fromkeys(ids) if i in left]
        if own:
            found.append(WordMatch(word, not partly, sum(match.contribution for match in own)))
    found += [WordMatch(match.token, True, match.contribution) for match in left.values()]
    return sorted(found, key=lambda match: -match.contribution)


def _shared(query: Lexical, documents: Lexical) -> tuple[I64, I64]:
    """Rows of the documents whose token ids the query has too, and the query's rows for them."""
    if not len(query.ids):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    place = np.searchsorted(query.ids, documents.ids)
    place = np.minimum(place, len(query.ids) - 1)
    rows = np.flatnonzero(query.ids[place] == documents.ids)
    return rows, place[rows]
