"""A larger model whose token states the student learns: encoded once, kept on disk."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from torch import Tensor

from hplus import checkpoint
from hplus.errors import InputError
from hplus.train.config import StudentSettings
from hplus.train.lower import Layer, stored_layer
from hplus.train.student import Student, require_bert
from hplus.train.texts import Texts
from hplus.types import I64

COMPARED = 200
"""Texts of each side by which two tokenizers are compared."""


@dataclass(frozen=True)
class Target:
    """What the teacher makes of one side of the data."""

    teacher: Student
    texts: Texts
    stored: Layer
    inner: Layer | None
    """What the teacher's heads read; None where that is the last layer, or is not learned."""

    def states(self, rows: I64) -> Tensor:
        """States of all tokens of some texts, [T, d], as the student gives them."""
        return self.teacher.turned(self.stored.take(rows), self.texts.take(rows))

    def read(self, rows: I64) -> Tensor:
        """What the teacher's heads read of these texts, [T, d]."""
        return self.states(rows) if self.inner is None else self.inner.take(rows)


def make_teacher(source: str, student: Student, *, heads: bool = False) -> Student:
    """A student that learns nothing."""
    found = checkpoint.load(source, device=str(student.backbone.device))
    teacher = Student(found, StudentSettings(mode="heads", heads=()), token=False)
    require_bert(teacher.encoder, "loss.states.teacher")
    if teacher.dim != student.dim:
        raise InputError(
            f"loss.states: {source} has states of {teacher.dim} numbers, the student of "
            f"{student.dim}; expected the same"
        )
    if heads:
        have = [(s.importance is not None, s.crf is not None) for s in (teacher, student)]
        if have[0] != have[1] or not any(have[0]):
            raise InputError(f"loss.states.heads: {source} and the student need the same heads")
    return teacher


def make_target(
    teacher: Student,
    student: Student,
    texts: Texts,
    cache: Path,
    *,
    chunk: int,
    what: str,
    heads: bool = False,
) -> Target:
    """The teacher's states of these texts, read as the student reads them."""
    some = texts.take(np.arange(min(COMPARED, len(texts))))
    own = teacher.backbone.tokenizer.tokens(some.tokens.texts)
    reread = student.backbone.tokenizer.tokens(some.tokens.texts)
    if not np.array_equal(own.ids, reread.ids):
        raise InputError("loss.states: the teacher divides texts into other tokens")
    what = f"{what} by the teacher"
    stored = stored_layer(teacher, teacher.depth, texts, cache, chunk=chunk, what=what)
    below = None
    if heads and teacher.layer < teacher.depth:
        what = f"{what} for heads"
        below = stored_layer(teacher, teacher.layer, texts, cache, chunk=chunk, what=what)
    return Target(teacher, texts, stored, below)
