"""How much each token counts: a learned head, or idf from a table. Both are positive.

Unit importance is the sum over a unit's tokens, so the rest of the code needs a positive importance
per token and nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hplus.errors import InputError
from hplus.types import F32, I32, I64, item_of_row


@dataclass(frozen=True)
class ImportanceHead:
    """Learned importance of token states; weight f32[d]."""

    weight: F32
    bias: float

    def importance(self, states: F32) -> F32:
        """states f32[T, d] -> f32[T], strictly positive.

        Where softplus underflows (below about -87) it is the smallest normal float32.
        """
        scores: F32 = states @ self.weight + np.float32(self.bias)
        softplus = np.logaddexp(np.float32(0), scores)  # eq:unit_importance
        return np.maximum(softplus, np.finfo(np.float32).tiny)


@dataclass(frozen=True)
class Idf:
    """Inverse document frequency as importance; table f32[V], strictly positive."""

    table: F32

    def __post_init__(self) -> None:
        if not (self.table > 0).all():
            worst = int(np.argmin(self.table > 0))
            raise InputError(f"idf must be positive, but token id {worst} has {self.table[worst]}")

    def importance(self, ids: I32) -> F32:
        """ids i32[T] -> f32[T].

        >>> Idf(np.array([0.5, 2], np.float32)).importance(np.array([1, 1, 0], np.int32))
        array([2. , 2. , 0.5], dtype=float32)
        """
        _require_known(ids, len(self.table))
        return self.table[ids]


class DocumentFrequency:
    """In how many texts each token id occurs, accumulated over a stream of batches."""

    def __init__(self, vocabulary_size: int) -> None:
        self.texts = 0
        self.counts: I64 = np.zeros(vocabulary_size, np.int64)

    def add(self, ids: I32, offsets: I64) -> None:
        """Count a batch: ids i32[T], offsets i64[n + 1]; empty texts count as texts."""
        size = len(self.counts)
        _require_known(ids, size)
        if offsets[-1] != len(ids):
            raise InputError(f"offsets end at {offsets[-1]}, but there are {len(ids)} token ids")
        pairs = np.unique(item_of_row(offsets) * size + ids)  # (text, id), once each
        self.counts += np.bincount(pairs % size, minlength=size)
        self.texts += len(offsets) - 1

    def idf(self) -> Idf:
        """log(1 + (N - df + 0.5) / (df + 0.5)) as float32.

        Positive for every df, even df = N; log 2 before any text is added.
        """
        odds = (self.texts - self.counts + 0.5) / (self.counts + 0.5)
        return Idf(np.log1p(odds).astype(np.float32))


def fit_idf(ids: I32, offsets: I64, vocabulary_size: int) -> Idf:
    """The idf of a batch of texts: ids i32[T], offsets i64[n + 1]."""
    frequency = DocumentFrequency(vocabulary_size)
    frequency.add(ids, offsets)
    return frequency.idf()


def _require_known(ids: I32, size: int) -> None:
    if ids.size and (ids.min() < 0 or ids.max() >= size):
        raise InputError(
            f"token ids run from {ids.min()} to {ids.max()}, but the idf table has {size} entries; "
            "use the tokenizer it was made for, or call fit_idf again"
        )
