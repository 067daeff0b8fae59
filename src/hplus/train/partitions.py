"""Where units begin, remembered from batch to batch.

With a frozen CRF on stored states, or with a rule, a text is divided the same way every time:
decoding and patterns are done once per text instead of in every batch.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
from torch import Tensor

from hplus.train.student import Student
from hplus.train.texts import Texts
from hplus.types import F32, I64, Bool, rows_of


class Partitions:
    """The partitions of one side's texts, by their row in the data: a byte for each token, in a
    file of `folder` that nobody else sees."""

    def __init__(self, student: Student, texts: Texts, folder: Path) -> None:
        self.student, self.offsets = student, texts.tokens.offsets
        self.known = np.zeros(len(texts), np.bool_)
        with tempfile.TemporaryFile(dir=folder) as file:
            self.begins = np.memmap(file, np.bool_, "w+", shape=int(self.offsets[-1]))

    def of(self, rows: I64, texts: Texts, inner: Tensor) -> Bool:
        """Begins bool[T] of the texts of these rows, inner [T, d] the states of their tokens."""
        new = np.flatnonzero(~self.known[rows])
        if len(new):
            own, _ = rows_of(texts.tokens.offsets, new)
            states: F32 = inner.detach().cpu().numpy()[own].astype(np.float32)
            places, _ = rows_of(self.offsets, rows[new])
            self.begins[places] = self.student.begins(states, texts.take(new).tokens)
            self.known[rows[new]] = True
        return self.begins[rows_of(self.offsets, rows)[0]]
