"""Scores of all queries and documents at once, against the model's own and against plain loops."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from builders import encode_units, random_encoded, random_units
from hplus import Budget, HPlus
from hplus.evaluate import rescore
from hplus.heads.crf import CRF
from hplus.heads.importance import ImportanceHead
from hplus.states_file import stored_states, unit_begins, weigh
from hplus.types import Encoded, Units
from hplus.units import rules
from hplus.units.select import spend
from hplus.views import lexical, phrase

some = settings(deadline=None, max_examples=40)
seeds = st.integers(0, 2**32 - 1)
lengths = st.lists(st.sampled_from([0, 1, 1, 2, 3, 9]), max_size=6)
TEXTS = [
    "type 2 diabetes of the heart and the chronic kidney disease of a patient",
    "",
    "chronic kidney disease with insulin therapy",
    "the heart failure of a patient is acute " * 9,
    "糖尿病患者的治疗 and sodium",
    "insulin therapy at 5 mg/kg",
]


def random_kept(random: np.random.Generator, counts: list[int]) -> Units:
    return spend(Budget(), random_units(random, counts))[0]


def plain_maxsim(queries: Units, documents: Units, *, uniform: bool) -> Any:
    """eq:phrase_score over the sum of the query's weights."""
    n, m = len(queries.offsets) - 1, len(documents.offsets) - 1
    scores = np.zeros((n, m))
    for q in range(n):
        own = range(queries.offsets[q], queries.offsets[q + 1])
        total = sum(1.0 if uniform else float(queries.weights[s]) for s in own)
        for d in range(m):
            theirs = range(documents.offsets[d], documents.offsets[d + 1])
            if not own or not theirs:
                continue
            for s in own:
                best = max(float(queries.vectors[s] @ documents.vectors[t]) for t in theirs)
                scores[q, d] += (1.0 if uniform else float(queries.weights[s])) * best / total
    return scores


@some
@given(seeds, lengths, lengths, st.sampled_from([1, 4, 4096]), st.booleans())
@example(0, [], [], 4, False)
@example(1, [0, 0], [2, 0], 4, False)
@example(2, [9, 0, 1], [0, 9, 0, 0, 2, 0], 4, True)
def test_maxsim_is_a_double_loop(
    seed: int, queries: list[int], documents: list[int], block: int, uniform: bool
) -> None:
    """Ragged, with texts that have no units and texts larger than a block."""
    random = np.random.default_rng(seed)
    q, d = random_kept(random, queries), random_kept(random, documents)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rescore, "BLOCK", block)
        weights = np.ones_like(q.weights) if uniform else q.weights
        (scores,) = rescore.maxsim_by(q, d, [weights])
    assert scores.dtype == np.float32
    assert scores.shape == (len(queries), len(documents))
    np.testing.assert_allclose(scores, plain_maxsim(q, d, uniform=uniform), atol=1e-5)


def test_maxsim_is_the_normalised_phrase_score() -> None:
    random = np.random.default_rng(0)
    queries, documents = random_units(random, [3, 1, 5]), random_units(random, [4, 2, 0, 6])
    expected = [
        phrase.score(query, encode_units(documents).units) / phrase.scale(query)
        for query in (encode_units(queries)[i].units for i in range(3))
    ]
    found = rescore.maxsim(*(spend(Budget(), side)[0] for side in (queries, documents)))
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_a_negative_best_stays_negative() -> None:
    """Neither padding nor a neighbouring document may win."""
    random = np.random.default_rng(0)
    queries = random_kept(random, [1])
    documents = random_kept(random, [2, 0, 2])
    against = -np.repeat(queries.vectors, 4, axis=0)
    scores = rescore.maxsim(queries, replace(documents, vectors=against))
    np.testing.assert_allclose(scores, [[-1, 0, -1]], atol=1e-6)


@some
@given(st.data(), seeds, lengths, lengths)
def test_candidates_alone(
    data: st.DataObject, seed: int, asked: list[int], held: list[int]
) -> None:
    """The kernel's way gives the same numbers, and nothing outside the pools."""
    random = np.random.default_rng(seed)
    queries, documents = random_kept(random, asked), random_kept(random, held)
    pools = [
        np.array(sorted(data.draw(st.sets(st.integers(0, len(held) - 1)))) if held else [], int)
        for _ in asked
    ]
    found = rescore.maxsim_of_pools(queries, documents, pools)
    expected = plain_maxsim(queries, documents, uniform=False)
    for row, own in enumerate(pools):
        np.testing.assert_allclose(found[row, own], expected[row, own], atol=1e-5)
        assert np.isneginf(np.delete(found[row], own)).all()


@some
@given(lengths, st.sampled_from([1, 4, 4096]))
def test_blocks_hold_every_row_once(counts: list[int], block: int) -> None:
    offsets = np.cumsum([0, *counts])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rescore, "BLOCK", block)
        blocks = rescore.blocks(offsets)
    rows = [row for first, last in blocks for row in range(offsets[first], offsets[last])]
    assert rows == list(range(sum(counts)))
    for first, last in blocks:
        assert (
            offsets[last] - offsets[first] <= block or sum(n > 0 for n in counts[first:last]) == 1
        )


@some
@given(seeds, st.integers(0, 4), st.integers(0, 5))
def test_lexical_is_the_view_s_normalised_score(seed: int, n: int, m: int) -> None:
    random = np.random.default_rng(seed)
    queries = random_encoded(random, [1] * n).lexical
    documents = random_encoded(random, [1] * m).lexical
    scores = rescore.lexical(queries, documents, vocabulary=24)
    assert scores.dtype == np.float32
    assert scores.shape == (n, m)
    for row in range(n):
        query = queries.take(np.array([row]))
        expected = lexical.score(query, documents) / lexical.scale(query)
        np.testing.assert_allclose(scores[row], expected, rtol=1e-4, atol=1e-6)


@pytest.fixture
def headed(tiny: HPlus) -> HPlus:
    """The tiny model with random heads, texts cut."""
    random = np.random.default_rng(3)

    def draw(*shape: int) -> Any:
        return random.normal(0, 0.2, shape).astype(np.float32)

    d = tiny.dim
    model = copy.copy(tiny)
    model.checkpoint = replace(
        tiny.checkpoint,
        recipe=replace(
            tiny.recipe,
            units="crf",
            importance="head",
            long="cut",
            layer=1,
            trained=("crf", "importance"),
        ),
        crf=CRF(draw(3, d), draw(3), draw(3, 3), draw(3), draw(3)),
        head=ImportanceHead(draw(d), 0.5),
    )
    return model


BUDGETS = [
    Budget(),
    Budget(3),
    Budget(1),
    Budget(share=0.6),
    Budget(3, policy="merge"),
    Budget(1, policy="merge"),
    Budget(4, share=0.7, policy="merge"),
]


def assert_kept(kept: Units, encoded: Encoded) -> None:
    for name in Units.__dataclass_fields__:
        ours, theirs = getattr(kept, name), getattr(encoded.units, name)
        assert ours.shape == theirs.shape, name
        if ours.dtype.kind == "f":
            np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5, err_msg=name)
        else:
            np.testing.assert_array_equal(ours, theirs, err_msg=name)


@pytest.mark.usefixtures("rounded")
@pytest.mark.parametrize("budget", BUDGETS, ids=str)
@pytest.mark.parametrize("width", [32, 7])
def test_units_are_those_of_the_model(
    headed: HPlus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, budget: Budget, width: int
) -> None:
    monkeypatch.setattr(rescore, "TEXTS", 4)
    stored = stored_states(headed, TEXTS, tmp_path)
    assert headed.checkpoint.crf is not None
    assert headed.checkpoint.head is not None
    begins, weights = (
        unit_begins(headed.checkpoint.crf, stored),
        weigh(headed.checkpoint.head, stored),
    )
    kept = rescore.units_of(stored, begins, weights, width, budget)
    encoded = headed.encode_document(TEXTS, budget=budget, width=width)
    assert len(TEXTS) <= len(encoded.units.weights) + 1 < len(begins)
    assert_kept(kept, encoded)


@pytest.mark.parametrize("units", ["tokens", "runs"])
def test_units_of_a_rule_are_those_of_the_model_within_float16(
    tiny: HPlus, tiny_folder: Path, tmp_path: Path, units: str
) -> None:
    model = HPlus(tiny_folder, units=units, long="cut")
    model.checkpoint = replace(model.checkpoint, idf=tiny.checkpoint.idf)
    model.checkpoint = replace(
        model.checkpoint, recipe=replace(model.checkpoint.recipe, importance="idf")
    )
    stored = stored_states(model, TEXTS, tmp_path)
    idf = model.checkpoint.idf
    assert idf is not None
    kept = rescore.units_of(
        stored,
        rules.rule(units)(stored.tokens),
        idf.importance(stored.tokens.ids),
        32,
        Budget(5),
    )
    encoded = model.encode_document(TEXTS, budget=5).units
    np.testing.assert_array_equal(kept.offsets, encoded.offsets)
    np.testing.assert_array_equal(kept.spans, encoded.spans)
    np.testing.assert_array_equal(kept.weights, encoded.weights)
    np.testing.assert_allclose(kept.vectors, encoded.vectors, atol=2e-3)


def test_no_texts_have_no_units(tiny: HPlus, tmp_path: Path) -> None:
    stored = stored_states(tiny, [], tmp_path)
    nothing: Callable[[type], Any] = lambda kind: np.empty(0, kind)  # noqa: E731
    kept = rescore.units_of(stored, nothing(np.bool_), nothing(np.float32), 32, Budget())
    assert kept.vectors.shape == (0, 32)
    assert kept.offsets.tolist() == [0]
