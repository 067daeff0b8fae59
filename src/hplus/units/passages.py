"""A long text as overlapping passages of a bounded number of tokens.

A passage ends with a paragraph, if one ends in its second half, else with a sentence; a sentence
longer than a passage is cut between words, a word between tokens, a character never. The next
passage begins up to a quarter earlier, with a sentence, so that what stands at an edge has its
context in one of the two.
"""

from __future__ import annotations

import numpy as np

from hplus.types import I32, I64, Bool, Span
from hplus.units.sentences import paragraph_ends, sentence_ends

# Of a passage: what it may share with the one before.
OVERLAP = 4


def passages(text: str, spans: I32, limit: int) -> list[Span]:
    """The passages of a text in reading order, at most `limit` of its tokens in each.

    spans i32[T, 2]: the characters of the text's tokens. Together the passages cover the text.

    >>> text = "One two three. Four five. Six seven eight."
    >>> spans = np.array([(0, 3), (4, 7), (8, 13), (13, 14), (15, 19), (20, 24), (24, 25),
    ...                   (26, 29), (30, 35), (36, 41), (41, 42)], np.int32)
    >>> [text[a:b] for a, b in passages(text, spans, 8)]
    ['One two three. Four five. ', 'Six seven eight.']
    """
    n = len(spans)
    if n <= limit:
        return [Span(0, len(text))]
    whole = _between_characters(spans)
    levels = [_at(places, spans, whole) for places in (paragraph_ends(text), sentence_ends(text))]
    words = np.array([text[i - 1 : i].isspace() for i in spans[:, 0].tolist()])
    levels += [np.flatnonzero(whole & words), np.flatnonzero(whole)]
    found: list[Span] = []
    first = last = 0
    while True:
        last = _end(levels, first, last, limit, n)
        found.append(Span(_edge(spans, first), len(text) if last == n else _edge(spans, last)))
        if last == n:
            return found
        # A rest of a few tokens would match by chance: the last passage reaches further back.
        back = min(last - limit // OVERLAP, max(n - limit // 2, last - limit // 2))
        first = _start(levels[1:3], max(back, first + 1), last)


def _end(levels: list[I64], first: int, before: int, limit: int, n: int) -> int:
    """Where a passage from token `first` ends: the last place of the best kind there is, beyond the
    end of the passage before."""
    if n - first <= limit:
        return n
    least = first + max(1, limit // 2)
    for places in levels:
        inside = places[(places >= least) & (places <= first + limit)]
        if len(inside) and inside[-1] > before:
            return int(inside[-1])
        least = first + 1  # a sentence may end in the first half, too
    later = levels[-1][
        levels[-1] > max(first, before)
    ]  # one character of more tokens than the limit
    return int(later[0]) if len(later) else n


def _start(levels: list[I64], least: int, last: int) -> int:
    """Where the next passage begins: with the first sentence from `least` on, else where the one
    before ended; within a sentence, with a word."""
    sentences, words = levels
    if last in sentences:
        words = sentences
    for places in (sentences, words):
        inside = places[(places >= least) & (places < last)]
        if len(inside):
            return int(inside[0])
    return last


def _between_characters(spans: I32) -> Bool:
    """Before which tokens a text may be cut: no character belongs to both sides."""
    ends = np.maximum.accumulate(spans[:, 1])
    whole = np.zeros(len(spans), np.bool_)
    whole[1:] = (spans[1:, 0] >= ends[:-1]) & (spans[1:, 0] > 0) & (spans[1:, 0] < spans[1:, 1])
    return whole


def _at(places: list[int], spans: I32, whole: Bool) -> I64:
    """Tokens that begin at or after these places of the text, where it may be cut."""
    starts = np.maximum.accumulate(spans[:, 0])
    tokens = np.unique(np.searchsorted(starts, np.array(places, np.int64)))
    tokens = tokens[tokens < len(spans)]
    return tokens[whole[tokens]]


def _edge(spans: I32, token: int) -> int:
    return int(spans[token, 0]) if token else 0
