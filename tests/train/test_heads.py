"""Both heads on the tiny backbone: labels beside states, resumed, with and without pairs."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

from builders import TERMS, random_labelled
from hplus import HPlus, states_file
from hplus.errors import InputError
from hplus.heads.crf import B, I, O
from hplus.states_file import stored_states
from hplus.teach.labels import Labelled
from hplus.train import heads as training
from hplus.train.heads import Heads, tagged, train_heads
from hplus.train.loop import Schedule
from hplus.train.pairs import Pairs
from hplus.types import Span

SCHEDULE = Schedule(epochs=2)


def some_pairs(queries: list[str]) -> Pairs:
    documents = [f"the {term} of the patient" for term in TERMS]
    random = np.random.default_rng(0)
    groups = np.stack([random.permutation(len(documents))[:3] for _ in queries])
    return Pairs(queries, documents, groups, {})


RANDOM = np.random.default_rng(0)
LABELS = {"notes": random_labelled(RANDOM, 20), "papers": random_labelled(RANDOM, 10)}
DEV = {"notes": random_labelled(RANDOM, 6)}
PAIRS = some_pairs([f"{term} therapy" for term in TERMS * 4])


@pytest.fixture
def model(tiny_folder: Path) -> HPlus:
    return HPlus(tiny_folder, long="cut", layer=1)


def train(model: HPlus, folder: Path, pairs: Pairs | None = PAIRS) -> Heads:
    return train_heads(
        model,
        LABELS,
        DEV,
        pairs,
        cache=folder / "cache",
        folder=folder / "run",
        hidden=4,
        schedule=SCHEDULE,
    )


def assert_same(actual: Heads, expected: Heads) -> None:
    for field in fields(expected.crf):
        np.testing.assert_array_equal(
            getattr(actual.crf, field.name), getattr(expected.crf, field.name)
        )
    assert (actual.importance is None) == (expected.importance is None)
    if actual.importance is not None and expected.importance is not None:
        np.testing.assert_array_equal(actual.importance.weight, expected.importance.weight)
        assert actual.importance.bias == expected.importance.bias
    assert actual.curves == expected.curves


def test_tagged_puts_labels_and_inner_states_side_by_side(model: HPlus, tmp_path: Path) -> None:
    labels = {
        "one": [Labelled("the heart failure of", (Span(4, 17),), ("term",))],
        "two": [
            Labelled("", (), ()),
            Labelled("type 2 diabetes is xy", (Span(0, 15),), ("term",)),
        ],
    }
    data = tagged(model, labels, tmp_path)
    assert data.offsets.tolist() == [0, 4, 4, 10]
    # "xy" is two tokens of the vocabulary, and one word.
    assert data.tags.tolist() == [O, B, I, O, B, I, I, O, B, I]
    texts = [item.text for items in labels.values() for item in items]
    np.testing.assert_allclose(data.states, model.states(texts).inner, rtol=2**-10, atol=1e-5)


def test_a_label_beyond_the_window_is_left_out(model: HPlus, tmp_path: Path) -> None:
    text = "the " * 80 + "heart failure"
    item = Labelled(text, (Span(320, 333),), ("term",))
    data = tagged(model, {"long": [item]}, tmp_path)
    assert data.offsets.tolist() == [0, 62]
    assert (data.tags == O).all()


def test_sources_are_cached_one_by_one(
    model: HPlus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = tagged(model, LABELS, tmp_path)

    def never(*_: Any, **__: Any) -> None:
        raise AssertionError("encoded again")

    monkeypatch.setattr(states_file, "encode_states", never)
    turned = tagged(model, dict(reversed(LABELS.items())), tmp_path)
    assert sorted(np.diff(turned.offsets)) == sorted(np.diff(both.offsets))
    alone = tagged(model, {"another name": LABELS["notes"]}, tmp_path)
    np.testing.assert_array_equal(alone.states, both.states[: len(alone.tags)])
    np.testing.assert_array_equal(alone.tags, both.tags[: len(alone.tags)])


def test_both_heads_are_trained(model: HPlus, tmp_path: Path) -> None:
    heads = train(model, tmp_path)
    assert heads.crf.dim == model.dim
    assert heads.crf.weight.shape == (3, 4)
    assert heads.importance is not None
    assert heads.importance.weight.shape == (model.dim,)
    assert np.abs(heads.importance.weight).max() > 0
    assert list(heads.curves) == ["crf", "importance"]
    assert [len(curve) for curve in heads.curves.values()] == [2, 2]


def test_without_pairs_there_is_a_crf_alone(model: HPlus, tmp_path: Path) -> None:
    whole, alone = train(model, tmp_path / "a"), train(model, tmp_path / "b", pairs=None)
    assert alone.importance is None
    assert_same(alone, Heads(whole.crf, None, {"crf": whole.curves["crf"]}))


def test_interrupted_between_the_heads_it_ends_the_same(
    model: HPlus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = train(model, tmp_path / "whole")

    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(training, "make_groups", stop)
        with pytest.raises(KeyboardInterrupt):
            train(model, tmp_path / "parts")
    assert_same(train(model, tmp_path / "parts"), whole)


def test_queries_without_tokens_are_left_out(model: HPlus, tmp_path: Path) -> None:
    heads = train(model, tmp_path, some_pairs(["heart", "", "type 2", " "]))
    assert heads.importance is not None


def test_pairs_whose_queries_have_no_tokens_are_refused(model: HPlus, tmp_path: Path) -> None:
    with pytest.raises(InputError):
        train(model, tmp_path, some_pairs(["", " "]))


def test_the_importance_head_reads_the_units_of_the_crf(
    model: HPlus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[Any, ...]] = []
    make = training.make_groups

    def spy(*arguments: Any) -> Any:
        seen.append(arguments)
        return make(*arguments)

    monkeypatch.setattr(training, "make_groups", spy)
    heads = train(model, tmp_path)
    ((queries, documents, q_begins, d_begins, groups),) = seen
    np.testing.assert_array_equal(groups, PAIRS.groups)
    for texts, side, begins in (
        (PAIRS.queries, queries, q_begins),
        (PAIRS.documents, documents, d_begins),
    ):
        expected = stored_states(model, texts, tmp_path / "cache")
        np.testing.assert_array_equal(side.states, expected.states)
        np.testing.assert_array_equal(begins, states_file.unit_begins(heads.crf, expected))
