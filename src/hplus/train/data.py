"""Training data in memory, and the order in which batches are made of it.

The batch of a step depends on the seed and the number of the step alone: a resumed run continues
with the very next batch, and every process of a distributed run knows all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from hplus.backbones import Backbone
from hplus.errors import InputError
from hplus.recipe import Recipe
from hplus.teach.align import tags_of_units
from hplus.teach.groups import Group
from hplus.train.config import Config
from hplus.train.texts import Texts, read_texts
from hplus.types import F32, I64, U8, Bool, Span


@dataclass(frozen=True)
class Data:
    """n queries over m distinct documents.

    members[i]: rows of the documents of query i, the positive first; scores[i]: their teacher
    logits, None where there are none. answers: every positive of a query's text. Tags u8 of the
    tokens of each side, and which texts have them.
    """

    queries: Texts
    documents: Texts
    members: list[I64]
    scores: list[F32 | None]
    sources: list[str]
    answers: list[frozenset[int]]
    query_tags: U8
    document_tags: U8
    query_labelled: Bool
    document_labelled: Bool

    @cached_property
    def by_source(self) -> dict[str, I64]:
        """Rows of the queries of each source."""
        rows: dict[str, list[int]] = {}
        for row, source in enumerate(self.sources):
            rows.setdefault(source, []).append(row)
        return {source: np.array(own) for source, own in sorted(rows.items())}


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


def make_data(
    groups: Sequence[Group],
    labels: Mapping[str, Sequence[Span]],
    backbone: Backbone,
    recipe: Recipe,
    config: Config,
) -> Data:
    """Groups as rows; labels: units of texts, beside those the groups carry themselves."""
    queries = list(dict.fromkeys(group.query for group in groups))
    documents = list(dict.fromkeys(text for group in groups for text in group.documents))
    query_row, row = ({t: i for i, t in enumerate(texts)} for texts in (queries, documents))
    answers: dict[str, set[int]] = {}
    units: list[dict[str, Sequence[Span]]] = [dict(labels), dict(labels)]
    for group in groups:
        answers.setdefault(group.query, set()).add(row[group.documents[0]])
        if group.query_units is not None:
            units[0][group.query] = group.query_units
        if group.positive_units is not None:
            units[1][group.documents[0]] = group.positive_units
    sides = (
        read_texts(queries, backbone, recipe, "query", config.data.query_length),
        read_texts(documents, backbone, recipe, "document", config.data.document_length),
    )
    empty = [
        text
        for side in sides
        for text, n in zip(side.tokens.texts, _counts(side), strict=True)
        if not n
    ]
    if empty:
        raise InputError(f"{len(empty)} texts have no tokens, the first is {empty[0]!r:.80}")
    tags = [
        tags_of_units(side.tokens, [own.get(text, ()) for text in side.tokens.texts])
        for side, own in zip(sides, units, strict=True)
    ]
    labelled = [
        np.array([text in own for text in side.tokens.texts], np.bool_)
        for side, own in zip(sides, units, strict=True)
    ]
    # One row per group: a query with two positives is two rows.
    asked = np.array([query_row[group.query] for group in groups])
    return Data(
        queries=sides[0].take(asked),
        documents=sides[1],
        members=[np.array([row[text] for text in group.documents]) for group in groups],
        scores=[None if g.scores is None else np.array(g.scores, np.float32) for g in groups],
        sources=[group.source for group in groups],
        answers=[frozenset(answers[group.query]) for group in groups],
        query_tags=_taken(sides[0], tags[0], asked),
        document_tags=tags[1],
        query_labelled=labelled[0][asked],
        document_labelled=labelled[1],
    )


def _counts(texts: Texts) -> I64:
    return np.diff(texts.tokens.offsets)


def _taken(texts: Texts, tags: U8, rows: I64) -> U8:
    from hplus.types import rows_of

    return tags[rows_of(texts.tokens.offsets, rows)[0]]


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
                f"({len(data.members)} rows in {len(counts)} sources); lower batch.queries"
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
            members, known = data.members[row], data.scores[row]
            others = 1 + random.permutation(len(members) - 1)[: size - 1]
            own = np.r_[0, np.sort(others)]
            chosen.append(members[own])
            if known is not None:
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
    positive, bool[b, D]: not its copies, not another answer to the same query."""
    allowed = np.ones((len(batch.queries), len(documents)), np.bool_)
    for i, row in enumerate(batch.queries.tolist()):
        allowed[i] = ~np.isin(documents, list(data.answers[row]))
        allowed[i, positive[i]] = True
    return allowed
