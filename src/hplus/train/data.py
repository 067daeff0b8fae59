"""Training data, read from disk row by row, and the order in which batches are made of it.

The batch of a step depends on the seed and the number of the step alone: a resumed run continues
with the very next batch, and every process of a distributed run knows all of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from hplus.errors import InputError
from hplus.train.config import Config
from hplus.train.texts import Texts
from hplus.types import F32, I64, U8, Bool


@dataclass(frozen=True)
class Data:
    """n queries over m distinct documents; all arrays are mapped from `folder`
    (`hplus.train.data_files`).

    members i64 with bounds i64[n + 1]: rows of the documents of each query, the positive first;
    scores f32: their teacher logits, minus infinity where there are none. source i64[n]: which of
    the sources. question i64[n]: the same number for the same query text; answers i64 with
    answer_bounds: every positive of a question. Tags u8 of the tokens of each side, and which
    texts have them.
    """

    folder: Path
    queries: Texts
    documents: Texts
    members: I64
    scores: F32
    bounds: I64
    source: I64
    sources: list[str]
    question: I64
    answers: I64
    answer_bounds: I64
    query_tags: U8
    document_tags: U8
    query_labelled: Bool
    document_labelled: Bool

    @cached_property
    def by_source(self) -> dict[str, I64]:
        """Rows of the queries of each source."""
        return {
            name: np.flatnonzero(self.source == number)
            for name, number in sorted((name, i) for i, name in enumerate(self.sources))
        }

    def group(self, row: int) -> tuple[I64, F32]:
        """Rows of the documents of a query, and their teacher logits."""
        own = slice(*self.bounds[row : row + 2].tolist())
        return self.members[own], self.scores[own]

    def answers_of(self, row: int) -> I64:
        """The positives of all queries with the same text."""
        number = int(self.question[row])
        return self.answers[slice(*self.answer_bounds[number : number + 2].tolist())]


@dataclass(frozen=True)
class Batch:
    """b queries and D documents, by their rows in `Data`.

    positive i64[b]: the column of each query's positive; group i64[b, g]: columns of its explicit
    group, -1 where it has fewer; teacher f32[b, g], minus infinity there and where no score is.
    """

    queries: I64
    documents: I64
    positive: I64
    group: I64
    teacher: F32
    draw: int
    """A number for whatever else is drawn for this batch."""


class Batches:
    """The batches of a run: `at(step)` for any step."""

    def __init__(self, data: Data, config: Config, *, processes: int = 1, stage: int = 2) -> None:
        self.data, self.config, self.stage = data, config, stage
        self.size = config.batch.queries * processes
        unknown = sorted(set(config.data.sources) - set(data.by_source))
        if unknown:
            raise InputError(
                f"data.sources names {unknown[0]!r}, which no row has; there are: "
                + ", ".join(data.by_source)
            )
        counts = {
            source: int(config.data.sources.get(source, 1.0) * len(rows) / self.size)
            for source, rows in data.by_source.items()
        }
        self.left_out = {s: len(data.by_source[s]) for s, count in counts.items() if not count}
        self.plan = np.repeat(np.arange(len(counts)), list(counts.values()))
        if not len(self.plan):
            raise InputError(
                f"no source has enough rows for one batch of {self.size} queries "
                f"({len(data.queries)} rows in {len(counts)} sources); lower batch.queries"
            )

    def __len__(self) -> int:
        """Batches of an epoch."""
        return len(self.plan)

    def at(self, step: int) -> Batch:
        """The batch of a step, all of it; queries of one source."""
        seed = self.config.schedule.seed
        epoch, number = divmod(step, len(self.plan))
        order = np.random.default_rng([seed, epoch]).permutation(self.plan)
        source = int(order[number])
        turn = int((order[:number] == source).sum())  # how often the source came before
        own = list(self.data.by_source.values())[source]
        rows = _turn(own, turn, self.size, np.random.default_rng([seed, epoch, source]))
        return self._made(rows, np.random.default_rng([seed, step, 1]))

    def _made(self, rows: I64, random: np.random.Generator) -> Batch:
        data, size = self.data, self.config.data.documents
        if self.stage == 1:
            size = 1
        chosen: list[I64] = []
        scores = np.full((len(rows), size), -np.inf, np.float32)
        for i, row in enumerate(rows.tolist()):
            members, known = data.group(row)
            others = 1 + random.permutation(len(members) - 1)[: size - 1]
            own = np.r_[0, np.sort(others)]
            chosen.append(members[own])
            scores[i, : len(own)] = known[own]
        documents, columns = np.unique(np.concatenate(chosen), return_inverse=True)
        group = np.full((len(rows), size), -1, np.int64)
        first = 0
        for i, own in enumerate(chosen):
            group[i, : len(own)] = columns[first : first + len(own)]
            first += len(own)
        return Batch(rows, documents, group[:, 0], group, scores, int(random.integers(2**31)))


def _turn(rows: I64, turn: int, size: int, random: np.random.Generator) -> I64:
    """The turn-th batch of a source's rows in random order, again and again if they run out."""
    per = max(1, len(rows) // size)
    for _ in range(turn // per + 1):
        order = random.permutation(rows)
    if len(order) < size:  # a weight above 1 on a small source
        order = np.resize(order, size)
    first = turn % per * size
    return order[first : first + size]


def part_of(batch: Batch, process: int, processes: int) -> Batch:
    """The queries of one process and the documents of their groups."""
    if processes == 1:
        return batch
    size = len(batch.queries) // processes
    own = slice(process * size, (process + 1) * size)
    there = batch.group[own] >= 0
    documents, columns = np.unique(batch.group[own][there], return_inverse=True)
    group = np.full_like(batch.group[own], -1)
    group[there] = columns
    return Batch(
        batch.queries[own],
        batch.documents[documents],
        group[:, 0],
        group,
        batch.teacher[own],
        batch.draw,
    )


def allowed(data: Data, batch: Batch, documents: I64, positive: I64) -> Bool:
    """Which documents (rows, in the columns of a score matrix) may stand against each query's
    positive, bool[b, D]: not its copies, not another answer to the same query, and of what several
    processes have, one."""
    once = np.zeros(len(documents), np.bool_)
    once[np.unique(documents, return_index=True)[1]] = True
    allowed = np.empty((len(batch.queries), len(documents)), np.bool_)
    for i, row in enumerate(batch.queries.tolist()):
        allowed[i] = once & ~np.isin(documents, data.answers_of(row))
        allowed[i, positive[i]] = True
    return allowed
