"""Training the CRF: toy grammars to near perfection, and every figure against plain loops."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from hplus.errors import InputError  # noqa: E402
from hplus.heads.crf import CRF, B, I, O, emissions, viterbi  # noqa: E402
from hplus.heads.crf_torch import LinearChainCRF  # noqa: E402
from hplus.train import crf as training  # noqa: E402
from hplus.train.crf import Tagged, train_crf, units_f1  # noqa: E402
from hplus.train.loop import Schedule  # noqa: E402
from hplus.types import offsets_of  # noqa: E402

DIM = 16
KINDS = 3  # words of a class
SCHEDULE = Schedule(epochs=15, learning_rate=0.05, patience=15)


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "BATCH", 256)


def chains(classes: list[int]) -> list[int]:
    """0 1 1 …: a token of class 0 and the 1s that follow it are a unit; all else is outside."""
    tags: list[int] = []
    for place, kind in enumerate(classes):
        followed = place + 1 < len(classes) and classes[place + 1] == 1
        if kind == 0:
            tags.append(B if followed else O)
        else:
            tags.append(I if kind == 1 and tags and tags[-1] in (B, I) else O)
    return tags


def pairs(classes: list[int]) -> list[int]:
    """0 2 and 1 3 are units ("5 mg", "half past"), but 0 3 and 1 2 are not: no tag of one token
    says it, only two tokens side by side do."""
    tags = [O] * len(classes)
    for place, pair in enumerate(pairwise(classes)):
        if pair in ((0, 2), (1, 3)):
            tags[place : place + 2] = [B, I]
    return tags


def grammar(rule: Any, texts: int, seed: int) -> Tagged:
    """Random classes, words and embeddings; the embeddings are the same for every seed."""
    table = np.random.default_rng(0).normal(size=(4 * KINDS, DIM)).astype(np.float16)
    random = np.random.default_rng(seed)
    lengths = random.integers(0, 12, texts)
    classes = [random.integers(0, 4, n) for n in lengths]
    words = np.concatenate([own * KINDS + random.integers(0, KINDS, len(own)) for own in classes])
    tags = [tag for own in classes for tag in rule(own.tolist())]
    return Tagged(table[words], np.array(tags, np.uint8), offsets_of(lengths))


def random_crf(seed: int, hidden: int = 0) -> CRF:
    torch.manual_seed(seed)
    module = LinearChainCRF(DIM, hidden)
    with torch.no_grad():
        module.transitions.normal_()
    return module.to_numpy()


def random_tagged(seed: int, texts: int = 12) -> Tagged:
    random = np.random.default_rng(seed)
    lengths = random.integers(0, 8, texts)
    tags: list[int] = []
    for n in lengths:
        own: list[int] = []
        for tag in random.integers(0, 3, n).tolist():
            own.append(B if tag == I and (not own or own[-1] == O) else tag)
        tags += own
    states = random.normal(size=(lengths.sum(), DIM)).astype(np.float16)
    return Tagged(states, np.array(tags, np.uint8), offsets_of(lengths))


def long_units(tags: list[int]) -> set[tuple[int, int]]:
    """First and last token of the units of two tokens or more."""
    units: list[list[int]] = []
    for place, tag in enumerate(tags):
        if tag == I and units and tags[place - 1] != O:
            units[-1].append(place)
        else:
            units.append([place])
    return {(unit[0], unit[-1]) for unit in units if len(unit) > 1}


def plain_f1(crf: CRF, tagged: Tagged) -> float:
    found, gold = set(), set()
    for text, (first, last) in enumerate(pairwise(tagged.offsets.tolist())):
        alone = offsets_of([last - first])
        scores = emissions(crf, tagged.states[first:last].astype(np.float32), alone)
        tags, _ = viterbi(crf, scores, alone)
        found |= {(text, *unit) for unit in long_units(tags.tolist())}
        gold |= {(text, *unit) for unit in long_units(tagged.tags[first:last].tolist())}
    if not found or not gold:
        return 0.0
    precision, recall = len(found & gold) / len(found), len(found & gold) / len(gold)
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0


@pytest.mark.parametrize("seed", range(6))
def test_units_f1_equals_a_computation_with_sets(seed: int) -> None:
    crf, tagged = random_crf(seed, hidden=4 * (seed % 2)), random_tagged(seed)
    assert units_f1(crf, tagged) == pytest.approx(plain_f1(crf, tagged))


def test_units_f1_is_one_for_its_own_units_and_zero_without_any() -> None:
    crf, tagged = random_crf(3), random_tagged(3)
    own, _ = viterbi(
        crf, emissions(crf, tagged.states.astype("f4"), tagged.offsets), tagged.offsets
    )
    assert (own == I).any()
    assert units_f1(crf, Tagged(tagged.states, own, tagged.offsets)) == 1
    outside = np.zeros_like(own)
    assert units_f1(crf, Tagged(tagged.states, outside, tagged.offsets)) == 0


@pytest.mark.parametrize(("rule", "hidden"), [(chains, 0), (chains, 16), (pairs, 16)])
def test_a_toy_grammar_is_learned(rule: Any, hidden: int, tmp_path: Path) -> None:
    train, held_out = grammar(rule, 400, 1), grammar(rule, 80, 2)
    crf, curve = train_crf(
        train,
        grammar(rule, 50, 3),
        hidden=hidden,
        schedule=SCHEDULE,
        file=tmp_path / "toy.safetensors",
    )
    assert plain_f1(crf, held_out) > 0.95
    assert curve[-1]["loss"] < curve[0]["loss"]
    assert (crf.hidden is None) == (hidden == 0)


def test_what_two_neighbours_decide_needs_the_hidden_layer(tmp_path: Path) -> None:
    train, held_out = grammar(pairs, 400, 1), grammar(pairs, 80, 2)
    crf, _ = train_crf(
        train, held_out, hidden=0, schedule=SCHEDULE, file=tmp_path / "toy.safetensors"
    )
    assert plain_f1(crf, held_out) < 0.8


def loss_a_token(crf: CRF, tagged: Tagged) -> float:
    """eq:seg_loss text by text, over the number of tokens."""
    module = LinearChainCRF.from_numpy(crf)
    total = 0.0
    for first, last in pairwise(tagged.offsets.tolist()):
        if first == last:
            continue
        states = torch.from_numpy(tagged.states[first:last].astype("f4"))[None]
        tags = torch.from_numpy(tagged.tags[first:last].astype("i8"))[None]
        mask = torch.ones_like(tags, dtype=torch.bool)
        with torch.no_grad():
            total -= float(module.log_likelihood(module.emissions(states, mask), tags, mask))
    return total / len(tagged.tags)


@pytest.mark.parametrize("hidden", [0, 4])
def test_the_curve_says_what_the_returned_crf_does(tmp_path: Path, hidden: int) -> None:
    schedule = Schedule(epochs=4, learning_rate=0.3, patience=4)
    train, validation = grammar(chains, 40, 1), random_tagged(0)  # what is learned does not fit
    crf, curve = train_crf(
        train, validation, hidden=hidden, schedule=schedule, file=tmp_path / "x.safetensors"
    )
    best = min(curve, key=lambda row: row["loss"])
    assert best["epoch"] < len(curve) == 4
    assert loss_a_token(crf, validation) == pytest.approx(best["loss"], rel=1e-4)
    assert plain_f1(crf, validation) == pytest.approx(best["f1"])


def test_the_same_call_gives_the_same_crf_and_another_seed_another(tmp_path: Path) -> None:
    data = grammar(chains, 30, 1), grammar(chains, 10, 2)

    def train(folder: str, seed: int) -> CRF:
        schedule = Schedule(epochs=2, seed=seed)
        torch.rand(3)
        crf, _ = train_crf(
            *data, hidden=4, schedule=schedule, file=tmp_path / folder / "crf.safetensors"
        )
        return crf

    first, second, other = train("a", 13), train("b", 13), train("c", 14)
    for name, value in vars(first).items():
        np.testing.assert_array_equal(getattr(second, name), value)
    assert not np.array_equal(other.weight, first.weight)


@pytest.mark.parametrize("size", [1, 30, 10_000])
def test_batches_hold_every_text_with_tokens_once(
    monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr(training, "BATCH", size)
    lengths = np.random.default_rng(size).integers(0, 20, 50)
    batches = training._batches(offsets_of(lengths))
    rows = np.concatenate(batches)
    assert sorted(rows.tolist()) == np.flatnonzero(lengths).tolist()
    for batch in batches:
        assert len(batch) == 1 or len(batch) * lengths[batch].max() <= size
    assert training._batches(offsets_of([0, 0])) == []


def test_a_validation_set_without_tokens_is_refused(tmp_path: Path) -> None:
    nothing = Tagged(np.empty((0, DIM), np.float16), np.empty(0, np.uint8), offsets_of([0]))
    train = grammar(chains, 10, 1)
    with pytest.raises(InputError):
        train_crf(train, nothing, hidden=0, schedule=SCHEDULE, file=tmp_path / "crf.safetensors")
