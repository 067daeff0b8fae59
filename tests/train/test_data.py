"""Batches by seed and step alone, and the part of each process: against the rows themselves."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hplus.train.config import Config
from hplus.train.data import Batches, Data, allowed, part_of
from hplus.train.texts import Texts
from hplus.types import Tokens, offsets_of


def texts(count: int) -> Texts:
    one = np.ones(count, np.int32)
    tokens = Tokens(("x",) * count, one, np.stack([0 * one, one], 1), np.arange(count + 1))
    return Texts(tokens, one[:1], one[:1], -1)


def data(counts: dict[str, int]) -> Data:
    """Rows of each source in turn; query i has documents 5 i to 5 i + 4 at most, scored 10 i + j.

    Queries 0 and 1 have the same text; query 2 has no negatives and no scores.
    """
    n = sum(counts.values())
    lengths = np.full(n, 5)
    lengths[2], lengths[4] = 1, 3
    members = np.concatenate([5 * i + np.arange(k) for i, k in enumerate(lengths)])
    scores = np.concatenate([10.0 * i + np.arange(k) for i, k in enumerate(lengths)])
    scores[members // 5 == 2] = -np.inf
    question = np.maximum(np.arange(n) - 1, 0)
    nothing: Any = np.empty(0, np.uint8)
    return Data(
        folder=Path(),
        queries=texts(n),
        documents=texts(5 * n),
        members=members,
        scores=scores.astype(np.float32),
        bounds=offsets_of(lengths),
        source=np.repeat(np.arange(len(counts)), list(counts.values())),
        sources=list(counts),
        question=question,
        answers=5 * np.arange(n),
        answer_bounds=np.r_[0, np.arange(2, n + 1)],
        query_tags=nothing,
        document_tags=nothing,
        query_labelled=nothing,
        document_labelled=nothing,
    )


def config(queries: int = 4, seed: int = 13, **sources: float) -> Config:
    made = Config()
    return replace(
        made,
        data=replace(made.data, documents=3, sources=sources),
        batch=replace(made.batch, queries=queries),
        schedule=replace(made.schedule, seed=seed),
    )


def rows_of(batches: Batches, epoch: int) -> list[list[int]]:
    size = len(batches)
    return [batches.at(step).queries.tolist() for step in range(epoch * size, (epoch + 1) * size)]


def test_an_epoch_reads_every_row_once_in_batches_of_one_source() -> None:
    made = data({"b": 12, "a": 20})
    batches = Batches(made, config())
    assert len(batches) == 8
    for epoch in (0, 1):
        rows = rows_of(batches, epoch)
        assert sorted(row for own in rows for row in own) == list(range(32))
        assert all(len({row < 12 for row in own}) == 1 for own in rows)


def test_the_order_depends_on_seed_and_epoch() -> None:
    made = data({"b": 12, "a": 20})
    first, again, other = (Batches(made, config(seed=seed)) for seed in (13, 13, 14))
    assert rows_of(first, 0) == rows_of(again, 0)
    assert rows_of(first, 0) != rows_of(other, 0)
    assert rows_of(first, 0) != rows_of(first, 1)
    # Which source comes when, and which rows of a source are together.
    turns = [
        [own[0] < 12 for own in rows_of(b, e)] for b, e in ((first, 0), (first, 1), (other, 0))
    ]
    assert turns[0] != turns[1]
    assert turns[0] != turns[2]
    together = [
        {frozenset(own) for own in rows_of(b, e)} for b, e in ((first, 0), (first, 1), (other, 0))
    ]
    assert not together[0] & together[1]
    assert not together[0] & together[2]


def test_negatives_and_draws_are_new_at_every_step() -> None:
    made = data({"a": 8})
    batches = Batches(made, config(queries=8))
    found = [batches.at(step) for step in range(6)]
    assert len({batch.draw for batch in found}) == 6
    alike = data({"b": 5, "a": 8})  # b is too small for a batch, and groups of a have one size
    draws = {Batches(alike, config(queries=8, seed=seed)).at(0).draw for seed in (13, 14)}
    assert len(draws) == 2
    chosen = set()
    for batch in found:
        row = batch.queries.tolist().index(7)
        chosen.add(tuple(batch.documents[batch.group[row]].tolist()))
    assert len(chosen) > 1
    assert {own[0] for own in chosen} == {35}  # the positive is always there, and first


def test_a_source_is_read_as_often_as_the_configuration_says() -> None:
    made = data({"a": 8, "b": 8, "c": 3})
    batches = Batches(made, config(a=2.0, b=0.5))
    counts = np.bincount([row for own in rows_of(batches, 0) for row in own], minlength=19)
    assert counts[:8].tolist() == [2] * 8
    assert len({frozenset(own) for own in rows_of(batches, 0) if own[0] < 8}) == 4  # anew
    assert counts[8:16].sum() == 4
    assert batches.left_out == {"c": 3}
    # A batch of four out of three rows: one of them comes twice.
    batches = Batches(made, config(c=2.0))
    (own,) = (own for own in rows_of(batches, 0) if own[0] >= 16)
    assert sorted(own.count(row) for row in (16, 17, 18)) == [1, 1, 2]


@pytest.mark.parametrize("processes", [1, 2, 4])
def test_processes_share_a_batch(processes: int) -> None:
    """Each has its own queries with their whole groups and logits, and no other documents."""
    made = data({"a": 8})
    whole = Batches(made, config(queries=8 // processes), processes=processes).at(3)
    parts = [part_of(whole, process, processes) for process in range(processes)]
    assert np.concatenate([part.queries for part in parts]).tolist() == whole.queries.tolist()
    for part in parts:
        assert part.draw == whole.draw
        assert len(part.queries) == 8 // processes
        used = set()
        for i, row in enumerate(part.queries.tolist()):
            columns = part.group[i][part.group[i] >= 0]
            documents = part.documents[columns]
            used |= set(documents.tolist())
            at = whole.queries.tolist().index(row)
            there = whole.group[at] >= 0
            assert documents.tolist() == whole.documents[whole.group[at][there]].tolist()
            assert part.documents[part.positive[i]] == 5 * row
            assert documents[0] == 5 * row
            logits = [-np.inf if row == 2 else 10.0 * row + d % 5 for d in documents.tolist()]
            assert part.teacher[i][: len(columns)].tolist() == logits
            assert (part.teacher[i][len(columns) :] == -np.inf).all()
            assert len(columns) == (1 if row == 2 else 3)
        assert sorted(used) == part.documents.tolist()


def test_answers_to_the_same_question_do_not_stand_against_each_other() -> None:
    made = data({"a": 8})
    batch = Batches(made, config(queries=8)).at(0)
    may = allowed(made, batch, batch.documents, batch.positive)
    for i, row in enumerate(batch.queries.tolist()):
        left_out = set(batch.documents[~may[i]].tolist())
        assert left_out == ({0, 5} - {5 * row} if row < 2 else set())


def test_what_several_processes_have_is_one_negative() -> None:
    """A copy of the positive on another process is none."""
    made = data({"a": 8})
    batch = Batches(made, config(queries=8)).at(0)
    twice = np.tile(batch.documents, 2)
    ahead = len(batch.documents)
    may = allowed(made, batch, twice, batch.positive + ahead)
    alone = allowed(made, batch, batch.documents, batch.positive)
    for i, own in enumerate(may):
        assert sorted(twice[own].tolist()) == sorted(batch.documents[alone[i]].tolist())
        assert own[batch.positive[i] + ahead]
