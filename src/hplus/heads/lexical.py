"""A lexical view of its own: BM25 whose term frequencies and idf are learned.

Without it, the lexical view has the weights of the importance head (eq:lexical_score), which serve
units as well, and a token counts once however often a document repeats it. With it, an occurrence
counts relu(w h + b), the occurrences of a token add up and saturate as in BM25, and a table says
what a token id is worth, whatever the text. The head starts as BM25: every occurrence counts 1,
and the table is idf. Frequency and length are worth ten points of nDCG@10 over idf alone
(experiments/LOG.md).

Both sides carry the root of the table's value, so that the score is their plain product, and a
document that saturated every token of the query would score what the query scores against itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from hplus.errors import InputError
from hplus.types import F32, F64, I32, I64, Tokens, item_of_row

HALF = 1.2
"""Occurrences of a token that give half of its weight, in a text of `LENGTH` tokens; BM25's k1."""
SHARE = 0.75
"""How much of that depends on the length of the text; BM25's b."""
LENGTH = 180.0
"""Tokens of an ordinary text. A constant, since a text must not depend on its neighbours."""


@dataclass(frozen=True)
class LexicalHead:
    """weight f32[d] and bias: how much an occurrence counts; table f32[V], 0 or more."""

    weight: F32
    bias: float
    table: F32

    def __post_init__(self) -> None:
        if not (self.table >= 0).all():
            raise InputError("the lexical head's table has negative weights")

    def weights(self, tokens: Tokens, states: F32, side: Literal["query", "document"]) -> F32:
        """What the tokens of one side weigh, f32[T]; all occurrences of a token weigh the same."""
        return self.of_query(tokens.ids) if side == "query" else self.of_document(tokens, states)

    def of_document(self, tokens: Tokens, states: F32) -> F32:
        """Weights of the tokens of documents: states f32[T, d] -> f32[T], 0 or more."""
        counted = np.maximum(states @ self.weight + np.float32(self.bias), 0)
        frequency = _sums(tokens, counted)
        halves = half_weight(np.diff(tokens.offsets))[item_of_row(tokens.offsets)]
        saturated = frequency / (frequency + halves)
        weights: F32 = (np.sqrt(self.table[tokens.ids]) * saturated).astype(np.float32)
        return weights

    def of_query(self, ids: I32) -> F32:
        """Weights of a query's tokens: ids i32[T] -> f32[T].

        >>> head = LexicalHead(np.float32([1]), 0.0, np.float32([0, 4]))
        >>> head.of_query(np.int32([1, 0])).tolist()
        [2.0, 0.0]
        """
        weights: F32 = np.sqrt(self.table[ids])
        return weights


def half_weight(lengths: I64) -> F64:
    """The frequency at which a token of a text of so many tokens has half of its weight.

    >>> half_weight(np.array([180, 360])).round(2).tolist()
    [1.2, 2.1]
    """
    halves: F64 = HALF * (1 - SHARE + SHARE * lengths.astype(np.float64) / LENGTH)
    return halves


def _sums(tokens: Tokens, counted: F32) -> F64:
    """For each token, the sum over all tokens of its text that have its id, f64[T]."""
    text = item_of_row(tokens.offsets)
    _, group = np.unique(text * (2**32) + tokens.ids, return_inverse=True)
    sums: F64 = np.bincount(group, counted).astype(np.float64)
    return sums[group]
