"""The importance head: groups against double loops, figures against numpy, and what is learned."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from hplus.heads.importance import ImportanceHead  # noqa: E402
from hplus.states_file import StoredStates  # noqa: E402
from hplus.train import importance  # noqa: E402
from hplus.train.importance import (  # noqa: E402
    Group,
    make_groups,
    train_importance,
)
from hplus.train.loop import Schedule  # noqa: E402
from hplus.types import Tokens, offsets_of  # noqa: E402

DIM = 6
SCHEDULE = Schedule(epochs=12, learning_rate=0.1, patience=12)
UNIFORM = ImportanceHead(np.zeros(DIM, np.float32), importance.BIAS)


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importance, "BATCH", 16)


def telling_group(random: np.random.Generator, size: int = 4) -> Group:
    """One query whose tokens lie along axis 0 or axis 1. Only those along axis 0 tell the positive
    from the rest: their units match it better, and it alone shares their ids."""
    tells = np.array([True, False, *(random.random(random.integers(0, 4)) < 0.5)])
    states = random.normal(0, 0.1, (len(tells), DIM)) + np.where(
        tells[:, None], np.eye(DIM)[0], np.eye(DIM)[1]
    )
    best = random.uniform(0.3, 0.7, (len(tells), size))
    best[tells, 0] += 0.2
    ids = 10 * tells + random.permutation(9)[: len(tells)]
    shared = [(own, place) for own in range(len(ids)) for place in range(size)]
    shared = [
        (own, place)
        for own, place in shared
        if (tells[own] and place == 0) or (not tells[own] and random.random() < 0.5)
    ]
    rows = [own for own, _ in shared]
    return Group(
        query=torch.tensor(states, dtype=torch.float32),
        query_ids=torch.tensor(ids),
        unit=torch.arange(len(ids)),
        best=torch.tensor(best, dtype=torch.float32),
        document=torch.tensor(states[rows], dtype=torch.float32),
        document_ids=torch.tensor(ids[rows]),
        place=torch.tensor([place for _, place in shared]),
    )


def telling_groups(count: int, seed: int = 0) -> list[Group]:
    random = np.random.default_rng(seed)
    return [telling_group(random) for _ in range(count)]


def scores_of(head: ImportanceHead, group: Group) -> tuple[list[float], list[float]]:
    """Interaction and lexical scores of each document, by dictionaries and loops."""
    own = head.importance(group.query.float().numpy()).astype(float)
    units: dict[int, float] = {}
    asked: dict[int, float] = {}
    for weight, unit, token in zip(own, group.unit.tolist(), group.query_ids.tolist(), strict=True):
        units[unit] = units.get(unit, 0) + weight
        asked[token] = asked.get(token, 0) + weight**importance.SHARPNESS
    units = {unit: weight**importance.SHARPNESS for unit, weight in units.items()}
    interaction, lexical = [], []
    document = head.importance(group.document.float().numpy()).astype(float)
    document **= importance.SHARPNESS
    for place in range(group.best.shape[1]):
        total = sum(weight * float(group.best[unit, place]) for unit, weight in units.items())
        interaction.append(total / sum(units.values()))
        raw = 0.0
        for row, weight in enumerate(document):
            if int(group.place[row]) == place:
                raw += asked.get(int(group.document_ids[row]), 0) * weight
        lexical.append(np.log1p(raw))
    return interaction, lexical


def plain_loss(head: ImportanceHead, groups: list[Group]) -> dict[str, float]:
    losses: dict[str, list[float]] = {"interaction_loss": [], "lexical_loss": []}
    first: dict[str, list[bool]] = {"interaction_first": [], "lexical_first": []}
    for group in groups:
        for name, scores, tau in zip(
            ("interaction", "lexical"),
            scores_of(head, group),
            (importance.TAU_INTERACTION, importance.TAU_LEXICAL),
            strict=True,
        ):
            scaled = np.array(scores) / tau
            losses[f"{name}_loss"].append(np.logaddexp.reduce(scaled) - scaled[0])
            first[f"{name}_first"].append(int(np.argmax(scores)) == 0)
    figures = {name: float(np.mean(values)) for name, values in (losses | first).items()}
    loss = importance.INTERACTION * figures["interaction_loss"] + figures["lexical_loss"]
    return {"loss": loss, **figures}


@pytest.fixture(scope="module")
def groups() -> list[Group]:
    return telling_groups(100)


def test_tokens_that_tell_weigh_more(groups: list[Group], tmp_path: Path) -> None:
    head, curve = train_importance(
        groups, validation=20, schedule=SCHEDULE, file=tmp_path / "importance.safetensors"
    )
    held_out = telling_groups(30, seed=1)
    states = np.concatenate([group.query.numpy() for group in held_out])
    tells = states[:, 0] > 0.5
    weights = head.importance(states)
    assert weights[tells].min() > weights[~tells].max()
    assert weights[tells].mean() > 3 * weights[~tells].mean()
    assert plain_loss(head, held_out)["loss"] < 0.7 * plain_loss(UNIFORM, held_out)["loss"]
    assert curve[-1]["training_loss"] < curve[0]["training_loss"]


def test_training_starts_from_uniform_weights(groups: list[Group]) -> None:
    module = importance._Head(DIM)
    with torch.no_grad():
        torch.testing.assert_close(module(groups[0].query), torch.ones(len(groups[0].query)))
    np.testing.assert_allclose(UNIFORM.importance(np.ones((2, DIM), np.float32)), 1, rtol=1e-6)


@pytest.mark.parametrize("validation", [1, 7, 40])
def test_the_curve_says_what_the_returned_head_does(
    groups: list[Group], tmp_path: Path, validation: int
) -> None:
    """Ragged queries and documents in one batch: padding counts for nothing."""
    head, curve = train_importance(
        groups[:60],
        validation=validation,
        schedule=SCHEDULE,
        file=tmp_path / "importance.safetensors",
    )
    assert head.weight.dtype == np.float32
    assert head.weight.shape == (DIM,)
    best = min(curve, key=lambda row: row["loss"])
    expected = plain_loss(head, groups[60 - validation : 60])
    measured = {name: best[name] for name in expected}
    assert measured == pytest.approx(expected, rel=1e-4, abs=1e-6)


def test_the_last_groups_are_not_trained_on(groups: list[Group], tmp_path: Path) -> None:
    """With other groups held out, the same first epochs are trained."""
    schedule = Schedule(epochs=1, learning_rate=0.1)
    first, _ = train_importance(
        [*groups[:40], *groups[40:50]],
        validation=10,
        schedule=schedule,
        file=tmp_path / "a" / "importance.safetensors",
    )
    second, _ = train_importance(
        [*groups[:40], *groups[60:80]],
        validation=20,
        schedule=schedule,
        file=tmp_path / "b" / "importance.safetensors",
    )
    np.testing.assert_array_equal(first.weight, second.weight)


def test_the_same_call_gives_the_same_head(groups: list[Group], tmp_path: Path) -> None:
    def train(folder: str, seed: int = 13) -> ImportanceHead:
        schedule = Schedule(epochs=3, learning_rate=0.1, seed=seed)
        head, _ = train_importance(
            groups,
            validation=10,
            schedule=schedule,
            file=tmp_path / folder / "importance.safetensors",
        )
        return head

    first, second, other = train("a"), train("b"), train("c", seed=14)
    np.testing.assert_array_equal(first.weight, second.weight)
    assert first.bias == second.bias
    assert not np.array_equal(first.weight, other.weight)


def test_a_batch_that_shares_no_token_does_not_crash(groups: list[Group], tmp_path: Path) -> None:
    """A query and passages in different languages, say: the lexical view then says nothing."""
    lonely = [
        Group(
            query=group.query,
            query_ids=group.query_ids,
            unit=group.unit,
            best=group.best,
            document=group.document[:0],
            document_ids=group.document_ids[:0],
            place=group.place[:0],
        )
        for group in groups[:2]
    ]
    head, curve = train_importance(
        [*groups[2:8], *lonely],
        validation=2,
        schedule=Schedule(epochs=1),
        file=tmp_path / "importance.safetensors",
    )
    assert curve[0] == pytest.approx(curve[0] | plain_loss(head, lonely), rel=1e-4)
    assert curve[0]["lexical_loss"] == pytest.approx(np.log(4))


def random_stored(random: np.random.Generator, lengths: list[int]) -> StoredStates:
    rows = sum(lengths)
    return StoredStates(
        tokens=Tokens(
            texts=("",) * len(lengths),
            ids=random.integers(0, 6, rows).astype(np.int32),
            spans=np.zeros((rows, 2), np.int32),
            offsets=offsets_of(lengths),
        ),
        states=random.normal(size=(rows, DIM)).astype(np.float16),
        inner=random.normal(size=(rows, DIM)).astype(np.float16),
        pooled=np.zeros((len(lengths), DIM), np.float32),
    )


def random_begins(random: np.random.Generator, stored: StoredStates) -> Any:
    begins = random.random(len(stored.tokens.ids)) < 0.4
    for first, last in pairwise(stored.tokens.offsets.tolist()):
        begins[first : min(first + 1, last)] = True
    return begins


def units_of(stored: StoredStates, begins: Any, text: int) -> list[list[int]]:
    """Rows of each unit of a text."""
    units: list[list[int]] = []
    for row in range(stored.tokens.offsets[text], stored.tokens.offsets[text + 1]):
        if begins[row]:
            units.append([])
        units[-1].append(row)
    return units


def vector(stored: StoredStates, rows: list[int]) -> Any:
    mean = stored.states[rows].astype(np.float64).mean(axis=0)
    return mean / np.linalg.norm(mean)


@pytest.mark.parametrize("seed", range(4))
def test_groups_equal_double_loops_over_units(seed: int) -> None:
    random = np.random.default_rng(seed)
    queries = random_stored(random, [3, 1, 0, 5])
    documents = random_stored(random, [4, 1, 7, 2, 3])
    q_begins, d_begins = random_begins(random, queries), random_begins(random, documents)
    members = np.stack([random.permutation(5)[:3] for _ in range(4)])
    made = make_groups(queries, documents, q_begins, d_begins, members)
    assert len(made) == 4
    for text, group in enumerate(made):
        own = slice(queries.tokens.offsets[text], queries.tokens.offsets[text + 1])
        np.testing.assert_array_equal(group.query, queries.inner[own].astype(np.float32))
        np.testing.assert_array_equal(group.query_ids, queries.tokens.ids[own])
        units = units_of(queries, q_begins, text)
        numbers = [number for number, rows in enumerate(units) for _ in rows]
        assert group.unit.tolist() == numbers
        assert group.best.shape == (len(units), 3)
        shared: list[tuple[int, int]] = []
        for place, member in enumerate(members[text].tolist()):
            theirs = units_of(documents, d_begins, member)
            for number, rows in enumerate(units):
                best = max(vector(queries, rows) @ vector(documents, other) for other in theirs)
                assert float(group.best[number, place]) == pytest.approx(best, abs=1e-5)
            first, last = documents.tokens.offsets[member : member + 2]
            asked = set(group.query_ids.tolist())
            shared += [
                (place, row) for row in range(first, last) if documents.tokens.ids[row] in asked
            ]
        rows = [row for _, row in shared]
        assert group.place.tolist() == [place for place, _ in shared]
        np.testing.assert_array_equal(group.document_ids, documents.tokens.ids[rows])
        np.testing.assert_array_equal(group.document, documents.inner[rows].astype(np.float32))


def test_a_document_without_tokens_matches_nothing() -> None:
    random = np.random.default_rng(0)
    queries, documents = random_stored(random, [3]), random_stored(random, [4, 0])
    (group,) = make_groups(
        queries,
        documents,
        random_begins(random, queries),
        random_begins(random, documents),
        np.array([[0, 1]]),
    )
    assert (group.best[:, 1] == 0).all()
    assert (group.place == 0).all()
