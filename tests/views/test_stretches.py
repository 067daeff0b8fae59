"""A long text stretch by stretch: what is kept of it, against the same stretches as texts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from builders import assert_same, random_encoded
from hplus import Budget, HPlus
from hplus import model as model_module
from hplus.types import Encoded
from hplus.units.sentences import stretches as cut
from hplus.views import stretches

SENTENCE = "Chronic kidney disease, type {} diabetes; heart failure of patient {}. "
LONG = "".join(SENTENCE.format(i % 9, i) + "\n\n" * (i % 5 == 0) for i in range(60))


@pytest.fixture(autouse=True)
def _small_stretches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stretches, "SIZE", 700)
    monkeypatch.setattr(stretches, "GROUPS", 24)


def by_position(units: Any) -> list[tuple[list[list[int]], float]]:
    rows = range(len(units.weights))
    found = [([list(s) for s in units.spans_of(i)], float(units.weights[i])) for i in rows]
    return sorted(found)


def units_of_stretches(model: HPlus, text: str) -> list[tuple[list[list[int]], float]]:
    found = []
    for start, piece in cut(text, stretches.SIZE):
        units = model.encode_document([piece], budget=Budget()).units
        shifted = replace(units, spans=units.spans + np.int32(start))
        found += by_position(shifted)
    return found


def test_all_units_are_those_of_the_stretches(tiny: HPlus) -> None:
    pieces = list(cut(LONG, stretches.SIZE))
    assert len(pieces) > 5
    encoded = tiny.encode_document([LONG], budget=Budget())
    assert by_position(encoded.units) == units_of_stretches(tiny, LONG)
    shown = [(u.start, u.end, u.text) for u in tiny.segment(LONG)[0]]
    assert shown == [(a, b, LONG[a:b]) for [[a, b]], _ in by_position(encoded.units)]


@pytest.mark.parametrize("budget", [Budget(20), Budget(share=0.5), Budget(400, share=0.3)])
def test_a_budget_drops_as_if_all_units_had_been_there(tiny: HPlus, budget: Budget) -> None:
    everything = tiny.encode_document([LONG], budget=Budget())
    found = tiny.encode_document([LONG], budget=budget)
    assert_same(found, everything.at(budget=budget), rtol=1e-5)


@pytest.mark.parametrize("policy", ["merge", "ward"])
def test_merging_keeps_every_unit_and_all_importance(tiny: HPlus, policy: Any) -> None:
    encoded = tiny.encode_document([LONG], budget=Budget(8, policy=policy))
    everything = tiny.encode_document([LONG], budget=Budget())
    assert len(encoded.units.weights) == 8
    assert sorted(encoded.units.spans.tolist()) == sorted(everything.units.spans.tolist())
    np.testing.assert_allclose(encoded.units.weights.sum(), everything.coverage.importance[0])
    np.testing.assert_allclose(encoded.coverage.kept, encoded.coverage.importance)
    assert (np.diff(encoded.units.weights) <= 0).all()
    np.testing.assert_allclose(np.linalg.norm(encoded.units.vectors, axis=1), 1, rtol=1e-6)


@pytest.mark.parametrize("settings", [{}, {"mean_over": "text"}, {"pooling": "cls"}])
def test_the_global_vector_is_the_mean_of_all_states(
    tiny_folder: Path, settings: dict[str, Any]
) -> None:
    model = HPlus(tiny_folder, window=64, **settings)
    total = np.zeros(model.dim)
    windows = tokens = 0
    for _, piece in cut(LONG, stretches.SIZE):
        states = model.states([piece])
        n = len(states.states)
        part = model.encode_document([piece]).coverage
        tokens, windows = tokens + n, windows + int(part.windows[0])
        weights = {"mean_over": n, "pooling": int(part.windows[0])}
        weight = next((weights[name] for name in settings), n + 2)
        total += states.pooled[0].astype(np.float64) * weight
        if settings == {"mean_over": "text"}:  # no special tokens: simply all states
            mean = states.states.astype(np.float64).mean(axis=0)
            np.testing.assert_allclose(states.pooled[0], mean, rtol=1e-4, atol=1e-6)
    encoded = model.encode_document([LONG])
    np.testing.assert_allclose(encoded.global_[0], total / np.linalg.norm(total), atol=1e-6)
    assert encoded.coverage.tokens.tolist() == [tokens]
    assert encoded.coverage.windows.tolist() == [windows]


def test_the_lexical_view_is_the_largest_weight_of_each_token(tiny: HPlus) -> None:
    whole: dict[int, float] = {}
    for _, piece in cut(LONG, stretches.SIZE):
        part = tiny.encode_document([piece]).lexical
        for token, weight in zip(part.ids.tolist(), part.weights.tolist(), strict=True):
            whole[token] = max(weight, whole.get(token, 0))
    found = tiny.encode_document([LONG]).lexical
    assert dict(zip(found.ids.tolist(), found.weights.tolist(), strict=True)) == whole
    assert found.ids.tolist() == sorted(whole)


def test_short_texts_beside_a_long_one_stay_as_they_are(tiny: HPlus) -> None:
    texts = ["heart failure", LONG, "", "type 2 diabetes", LONG, LONG[:650], "Other. " + LONG]
    done: list[float] = []
    together = tiny.encode_step(texts, Budget(6, policy="merge"), None, done.append)
    assert sum(done) == pytest.approx(len(texts))
    for i, text in enumerate(texts):
        alone = tiny.encode_document([text], budget=Budget(6, policy="merge"))
        assert_same(together[i], alone, rtol=1e-5)


def test_states_of_the_whole_text_never_exist_at_once(
    tiny: HPlus, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    encode = model_module.encode_states

    def watched(backbone: Any, tokens: Any, *rest: Any, **options: Any) -> Any:
        read.append(sum(map(len, tokens.texts)))
        return encode(backbone, tokens, *rest, **options)

    monkeypatch.setattr(model_module, "encode_states", watched)
    tiny.encode_document([LONG])
    tiny.segment(LONG)
    assert len(read) >= len(LONG) / 700
    assert max(read) <= 700


def test_a_step_of_any_size_is_read_in_parts(tiny: HPlus, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    encode = model_module.encode_states

    def watched(backbone: Any, tokens: Any, *rest: Any, **options: Any) -> Any:
        read.append(len(tokens.texts))
        return encode(backbone, tokens, *rest, **options)

    monkeypatch.setattr(model_module, "encode_states", watched)
    texts = [f"heart failure of patient {i}" for i in range(600)]
    assert len(tiny.encode_step(texts, Budget(4), None)) == 600
    assert max(read) <= 256


def test_a_text_that_is_cut_is_not_read_further(tiny_folder: Path) -> None:
    encoded = HPlus(tiny_folder, window=64, long="cut").encode_document([LONG])
    assert encoded.coverage.tokens.tolist() == [62]
    assert encoded.coverage.windows.tolist() == [1]


def test_one_stretch_is_what_it_was() -> None:
    one = random_encoded(np.random.default_rng(0), [5], dropped=[3])
    pooled = one.global_.astype(np.float32)
    joined: Encoded = stretches.join([stretches.Stretch(0, one, pooled, 7)], Budget(), 99)
    assert_same(joined, one, rtol=1e-6)
