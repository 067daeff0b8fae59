"""Where units begin, remembered from batch to batch.

With a frozen CRF on stored states, or with a rule, a text is divided the same way every time:
decoding and patterns are done once per text instead of in every batch.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from torch import Tensor

from hplus.train.student import Student
from hplus.train.texts import Texts
from hplus.types import F32, I64, Bool, rows_of


class Partitions:
    """The partitions of one side's texts, by their row in the data."""

    def __init__(self, student: Student) -> None:
        self.student = student
        self.known: dict[int, Bool] = {}

    def of(self, rows: I64, texts: Texts, inner: Tensor) -> Bool:
        """Begins bool[T] of the texts of these rows, inner [T, d] the states of their tokens."""
        new = np.array(
            [i for i, row in enumerate(rows.tolist()) if row not in self.known], np.int64
        )
        if len(new):
            places, offsets = rows_of(texts.tokens.offsets, new)
            states: F32 = inner.detach().cpu().numpy()[places].astype(np.float32)
            begins = self.student.begins(states, texts.take(new).tokens)
            for row, (first, last) in zip(rows[new].tolist(), pairwise(offsets), strict=True):
                self.known[row] = begins[first:last]
        return np.concatenate([self.known[row] for row in rows.tolist()])
