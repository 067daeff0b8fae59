"""States on disk: what the model gives, encoded once, resumed, and never another set's."""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hplus import HPlus, InputError, states_file
from hplus.backbones.encode import encode_states
from hplus.heads.crf import CRF
from hplus.heads.importance import ImportanceHead
from hplus.states_file import StoredStates, stored_states, unit_begins, weigh
from hplus.units.partition import partition, spans_of_units

TEXTS = [
    "type 2 diabetes of the heart",
    "",
    "chronic kidney disease",
    "the heart failure of a patient " * 12,
    "糖尿病患者的治疗 and ½ 🫀 of it",
    "insulin therapy at 5 mg/kg",
    " ",
    "cell protein gene",
]
ARRAYS = ("states", "inner", "mean")


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three texts per step and seven rows at a time, so that a few texts cross step borders."""
    monkeypatch.setattr(states_file, "STEP", 3)
    monkeypatch.setattr(states_file, "ROWS", 7)


@pytest.fixture
def model(tiny_folder: Path) -> HPlus:
    return HPlus(tiny_folder, long="cut", layer=1)


class StoppedError(Exception):
    """The encoding is interrupted."""


class Encoder:
    """`encode_states` that counts its calls and fails at one of them, if asked."""

    def __init__(self, fails_at: int | None = None) -> None:
        self.calls, self.fails_at = 0, fails_at

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        if self.calls == self.fails_at:
            raise StoppedError
        self.calls += 1
        return encode_states(*arguments, **options)


@pytest.fixture
def encoder(monkeypatch: pytest.MonkeyPatch) -> Callable[[int | None], Encoder]:
    def install(fails_at: int | None = None) -> Encoder:
        counted = Encoder(fails_at)
        monkeypatch.setattr(states_file, "encode_states", counted)
        return counted

    return install


def random_crf(d: int, hidden: int, seed: int = 7) -> CRF:
    random = np.random.default_rng(seed)

    def draw(*shape: int) -> Any:
        return random.normal(0, 0.2, shape).astype(np.float32)

    layer = {"hidden": draw(3, d, hidden), "hidden_bias": draw(hidden)} if hidden else {}
    return CRF(draw(3, hidden or d), draw(3), draw(3, 3), draw(3), draw(3), **layer)


def with_heads(model: HPlus, hidden: int) -> HPlus:
    """The model with random heads as its units and importance."""
    weight = np.random.default_rng(1).normal(size=model.dim).astype(np.float32)
    recipe = replace(
        model.recipe, units="crf", importance="head", trained=("crf", "importance"), long="cut"
    )
    headed = copy.copy(model)
    headed.checkpoint = replace(
        model.checkpoint,
        recipe=recipe,
        crf=random_crf(model.dim, hidden),
        head=ImportanceHead(weight, 0.5),
    )
    return headed


def assert_same(actual: StoredStates, expected: StoredStates) -> None:
    for name in ("states", "inner", "pooled"):
        np.testing.assert_array_equal(getattr(actual, name), getattr(expected, name))
    np.testing.assert_array_equal(actual.tokens.offsets, expected.tokens.offsets)


def only_folder(cache: Path) -> Path:
    (folder,) = cache.iterdir()
    return folder


def test_stored_states_are_the_model_s(model: HPlus, tmp_path: Path) -> None:
    stored, fresh = stored_states(model, TEXTS, tmp_path), model.states(TEXTS)
    assert stored.tokens.texts == tuple(TEXTS)
    for name in ("ids", "spans", "offsets"):
        np.testing.assert_array_equal(getattr(stored.tokens, name), getattr(fresh.tokens, name))
    for name in ("states", "inner"):
        assert getattr(stored, name).dtype == np.float16
        np.testing.assert_allclose(
            getattr(stored, name), getattr(fresh, name), rtol=2**-10, atol=1e-5
        )
    assert stored.pooled.dtype == np.float32
    np.testing.assert_allclose(stored.pooled, fresh.pooled, atol=1e-5)
    assert np.abs(stored.inner.astype("f4") - stored.states).max() > 0.1


def test_a_model_that_stitches_is_stored_cut(tiny: HPlus, tmp_path: Path) -> None:
    assert tiny.recipe.long == "stitch"
    stored = stored_states(tiny, TEXTS, tmp_path)
    room = tiny.recipe.window - 2
    lengths = np.diff(tiny.checkpoint.backbone.tokenizer.tokens(TEXTS).offsets)
    assert lengths.max() > room
    np.testing.assert_array_equal(np.diff(stored.tokens.offsets), np.minimum(lengths, room))


@pytest.mark.parametrize("texts", [[], [""], ["", " "]])
def test_texts_without_tokens(model: HPlus, tmp_path: Path, texts: list[str]) -> None:
    for _ in range(2):
        stored = stored_states(model, texts, tmp_path)
        assert stored.states.shape == stored.inner.shape == (0, model.dim)
        np.testing.assert_array_equal(stored.pooled, np.zeros((len(texts), model.dim)))
        assert unit_begins(random_crf(model.dim, 4), stored).shape == (0,)
        assert weigh(ImportanceHead(np.ones(model.dim, np.float32), 0.0), stored).shape == (0,)


def test_what_is_stored_is_not_encoded_again(
    model: HPlus, tmp_path: Path, encoder: Callable[..., Encoder]
) -> None:
    first = stored_states(model, TEXTS, tmp_path)
    never = encoder(fails_at=0)
    assert_same(stored_states(model, TEXTS, tmp_path), first)
    assert never.calls == 0


@pytest.mark.parametrize("steps", [0, 1, 2])
def test_an_interrupted_encoding_goes_on_where_it_stopped(
    model: HPlus, tmp_path: Path, encoder: Callable[..., Encoder], steps: int
) -> None:
    whole = stored_states(model, TEXTS, tmp_path / "whole")
    encoder(fails_at=steps)
    with pytest.raises(StoppedError):
        stored_states(model, TEXTS, tmp_path / "parts")
    rest = encoder()
    assert_same(stored_states(model, TEXTS, tmp_path / "parts"), whole)
    assert rest.calls == 3 - steps


def test_each_set_has_its_own_folder(model: HPlus, tiny_folder: Path, tmp_path: Path) -> None:
    narrow = HPlus(tiny_folder, long="cut", layer=1, window=32)
    deep = HPlus(tiny_folder, long="cut", layer=2)
    sets = [
        (model, ["ab", "c"]),
        (model, ["a", "bc"]),
        (model, ["c", "ab"]),
        (model, ["ab", "c", ""]),
        (narrow, ["ab", "c"]),
        (deep, ["ab", "c"]),
    ]
    for number, (one, texts) in enumerate(sets, start=1):
        stored_states(one, texts, tmp_path)
        assert len(list(tmp_path.iterdir())) == number
    for one, texts in sets:
        stored_states(one, texts, tmp_path)
    assert len(list(tmp_path.iterdir())) == len(sets)


def test_what_changes_no_state_shares_the_folder(
    model: HPlus, tiny_folder: Path, tmp_path: Path
) -> None:
    elsewhere = shutil.copytree(tiny_folder, tmp_path / "elsewhere")
    stored_states(model, TEXTS, tmp_path / "cache")
    stored_states(HPlus(elsewhere, layer=1, units="words"), TEXTS, tmp_path / "cache")
    stored_states(with_heads(model, 0), TEXTS, tmp_path / "cache")
    only_folder(tmp_path / "cache")
    last = HPlus(tiny_folder), HPlus(tiny_folder, layer=2)  # None is the last layer
    for same in last:
        stored_states(same, TEXTS, tmp_path / "last")
    only_folder(tmp_path / "last")


def test_texts_need_not_be_unicode(model: HPlus, tmp_path: Path) -> None:
    assert len(stored_states(model, ["a \udcff b"], tmp_path).tokens) == 1


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", "null", "{}", '{"texts": "3"}', '{"texts": true}', '{"texts": -1}', b"\xff"],
)
def test_a_damaged_note_is_one_sentence(model: HPlus, tmp_path: Path, content: str | bytes) -> None:
    stored_states(model, TEXTS, tmp_path)
    folder = only_folder(tmp_path)
    data = content if isinstance(content, bytes) else content.encode()
    (folder / "done.json").write_bytes(data)
    with pytest.raises(InputError, match=rf"done\.json is damaged; delete {folder}$"):
        stored_states(model, TEXTS, tmp_path)


def test_a_note_of_more_texts_than_there_are_is_refused(model: HPlus, tmp_path: Path) -> None:
    stored_states(model, TEXTS, tmp_path)
    folder = only_folder(tmp_path)
    (folder / "done.json").write_text(json.dumps({"texts": len(TEXTS) + 1}))
    with pytest.raises(InputError, match=f"delete {folder}$"):
        stored_states(model, TEXTS, tmp_path)


def halve(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])


DAMAGE: dict[str, Callable[[Path], object]] = {
    "missing": Path.unlink,
    "empty": lambda path: path.write_bytes(b""),
    "noise": lambda path: path.write_bytes(b"\xff" * 4096),
    "other shape": lambda path: np.save(path, np.zeros((2, 3), np.float16)),
    "other kind": lambda path: np.save(path, np.load(path).astype("i2")),
}


@pytest.mark.parametrize("name", ARRAYS)
@pytest.mark.parametrize(
    "damage",
    [
        *DAMAGE,
        pytest.param(
            "halved",
        ),
    ],
)
def test_a_damaged_array_is_one_sentence(
    model: HPlus, tmp_path: Path, name: str, damage: str
) -> None:
    stored_states(model, TEXTS, tmp_path)
    folder = only_folder(tmp_path)
    (DAMAGE | {"halved": halve})[damage](folder / f"{name}.npy")
    with pytest.raises(InputError, match=rf"{name}\.npy .*delete {folder}$") as caught:
        stored_states(model, TEXTS, tmp_path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("hidden", [0, 5])
def test_cut_is_the_partition_of_the_model(model: HPlus, tmp_path: Path, hidden: int) -> None:
    headed = with_heads(model, hidden)
    stored = stored_states(headed, TEXTS, tmp_path)
    crf = headed.checkpoint.crf
    assert crf is not None
    units = partition(unit_begins(crf, stored), stored.tokens.offsets)
    spans = spans_of_units(stored.tokens, units).tolist()
    found = [spans[first:last] for first, last in pairwise(units.offsets.tolist())]
    assert found == [[[u.start, u.end] for u in units] for units in headed.segment(TEXTS)]
    assert len(TEXTS) < len(spans) < len(stored.tokens.ids)


def test_weigh_is_the_head_s_importance(model: HPlus, tmp_path: Path) -> None:
    headed = with_heads(model, 0)
    stored = stored_states(headed, TEXTS, tmp_path)
    head = headed.checkpoint.head
    assert head is not None
    weights = weigh(head, stored)
    assert weights.dtype == np.float32
    np.testing.assert_allclose(
        weights, head.importance(np.asarray(stored.inner, np.float32)), rtol=1e-5
    )
    np.testing.assert_allclose(weights, headed.states(TEXTS).importance, rtol=1e-2, atol=5e-3)


def test_each_way_of_reading_has_a_folder_of_its_own(tiny_folder: Path, tmp_path: Path) -> None:
    prompts = {"query_prompt": "type: ", "document_prompt": "disease: "}
    ways = [{}, {"pooling": "cls"}, {"pooling": "last"}, {"mean_over": "text"}, prompts]
    for count, settings in enumerate(ways, start=1):
        stored_states(HPlus(tiny_folder, **settings), TEXTS, tmp_path)
        assert len(list(tmp_path.iterdir())) == count
    model = HPlus(tiny_folder, **prompts, long="cut")
    for side in ("query", "document"):
        stored, fresh = (
            stored_states(model, TEXTS, tmp_path, side=side),
            model.states(TEXTS, side=side),
        )
        np.testing.assert_array_equal(stored.tokens.ids, fresh.tokens.ids)
        np.testing.assert_allclose(stored.pooled, fresh.pooled, atol=1e-5)
        np.testing.assert_allclose(stored.states, fresh.states, atol=5e-3)
    assert len(list(tmp_path.iterdir())) == len(ways) + 1
