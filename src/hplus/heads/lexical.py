"""A lexical view of its own: documents weigh their tokens, queries look theirs up.

Without it, the lexical view has the weights of the importance head (eq:lexical_score), which serve
units as well. With it, a document's token weighs log(1 + relu(w h + b)), so that a token may weigh
nothing and none runs away, and a query's token weighs what a table says, whatever the query: the
table begins as idf and is trained (arXiv 2505.01452).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from hplus.errors import InputError
from hplus.types import F32, I32


@dataclass(frozen=True)
class LexicalHead:
    """weight f32[d], bias; query f32[V], 0 or more."""

    weight: F32
    bias: float
    query: F32

    def __post_init__(self) -> None:
        if not (self.query >= 0).all():
            raise InputError("the lexical head's table of query weights has negative ones")

    def weights(self, ids: I32, states: F32, side: Literal["query", "document"]) -> F32:
        """What the tokens of one side weigh, f32[T]."""
        return self.of_query(ids) if side == "query" else self.of_document(states)

    def of_document(self, states: F32) -> F32:
        """Weights of a document's tokens: states f32[T, d] -> f32[T], 0 or more.

        >>> head = LexicalHead(np.float32([1]), 0.0, np.float32([0, 2]))
        >>> head.of_document(np.float32([[-3], [np.e - 1]])).round(4).tolist()
        [0.0, 1.0]
        """
        weights: F32 = np.log1p(np.maximum(states @ self.weight + np.float32(self.bias), 0))
        return weights

    def of_query(self, ids: I32) -> F32:
        """Weights of a query's tokens: ids i32[T] -> f32[T]."""
        return self.query[ids]
