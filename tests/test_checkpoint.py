"""Checkpoints: what is saved loads again; what is damaged is refused with one clear sentence."""

from __future__ import annotations

import hashlib
import json
import pickle
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

from hplus import Budget, CheckpointError, HPlus, HPlusError, checkpoint
from hplus.checkpoint import Checkpoint
from hplus.heads.crf import CRF, emissions, viterbi
from hplus.heads.importance import Idf, ImportanceHead
from hplus.installed import BUILT_IN
from hplus.recipe import Recipe
from hplus.units.partition import begins_of_tags

TEXTS = ["type 2 diabetes", "heart failure of the kidney", ""]


@pytest.fixture
def saved(tiny: HPlus, tmp_path: Path) -> Path:
    """A checkpoint of everything: CRF, importance head, idf, adapter."""
    random = np.random.default_rng(0)

    def draw(*shape: int) -> np.ndarray:
        return random.normal(0, 0.1, shape).astype(np.float32)

    d = tiny.dim
    layer = "base_model.model.encoder.layer.0.attention.self.query"
    return checkpoint.save(
        tmp_path / "saved",
        Checkpoint(
            tiny.checkpoint.backbone,
            Recipe(
                name="everything",
                units="crf",
                importance="head",
                window=64,
                document_budget=Budget(8, share=0.9, policy="merge"),
                trained=("crf", "importance"),
            ),
            crf=CRF(draw(3, d), draw(3), draw(3, 3), draw(3), draw(3)),
            head=ImportanceHead(draw(d), 0.5),
            idf=Idf(np.abs(draw(tiny.checkpoint.backbone.tokenizer.vocabulary)) + 0.1),
            adapter={f"{layer}.lora_A.weight": draw(2, d), f"{layer}.lora_B.weight": draw(d, 2)},
            adapter_scale=2.0,
            notes={"data": "none"},
        ),
    )


def rewrite(folder: Path, **changes: Any) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | changes))


def replace_tensors(folder: Path, name: str, data: bytes) -> None:
    """Replace the bytes of a file and its hash, so that only the content is wrong."""
    (folder / name).write_bytes(data)
    config = json.loads((folder / "config.json").read_text())
    config["files"][name] = hashlib.sha256(data).hexdigest()
    (folder / "config.json").write_text(json.dumps(config))


def test_a_saved_model_loads_as_it_was(tiny: HPlus, tmp_path: Path) -> None:
    tiny.save(tmp_path / "copy")
    again = HPlus(tmp_path / "copy")
    assert again.fingerprint == tiny.fingerprint
    assert again.recipe == tiny.recipe
    for a, b in zip(
        vars(again.encode_document(TEXTS)).values(),
        vars(tiny.encode_document(TEXTS)).values(),
        strict=True,
    ):
        if isinstance(a, np.ndarray):
            np.testing.assert_array_equal(a, b)


def test_all_parts_load(saved: Path) -> None:
    model = HPlus(saved)
    assert model.recipe.document_budget == Budget(8, share=0.9, policy="merge")
    assert model.recipe.trained == ("crf", "importance")
    assert model.checkpoint.crf is not None
    assert len(model.encode_document(TEXTS)) == 3


def test_the_adapter_is_merged_alike_in_onnxruntime_and_torch(saved: Path, tiny: HPlus) -> None:
    with_adapter = HPlus(saved).states(TEXTS).states
    np.testing.assert_allclose(
        HPlus(saved, device="cpu").states(TEXTS).states, with_adapter, atol=1e-4
    )
    assert np.abs(with_adapter - tiny.states(TEXTS).states).max() > 1e-3


def test_a_model_with_an_adapter_saves_and_loads_as_it_was(saved: Path, tmp_path: Path) -> None:
    model = HPlus(saved)
    model.save(tmp_path / "again")
    again = HPlus(tmp_path / "again")
    assert again.fingerprint == model.fingerprint
    np.testing.assert_array_equal(again.states(TEXTS).states, model.states(TEXTS).states)


def test_relative_paths_are_recorded_whole(
    tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(tiny_folder, tmp_path / "encoder")
    monkeypatch.chdir(tmp_path)
    HPlus("encoder").save("saved")
    monkeypatch.chdir("/")
    HPlus(tmp_path / "saved").encode_query("type 2")


def test_a_built_in_name_wins_over_a_folder_of_that_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mini").mkdir()
    monkeypatch.chdir(tmp_path)
    assert HPlus("mini").recipe.name == "hplus-mini"
    for source in ("./mini", "", "nowhere/at/all"):
        with pytest.raises(CheckpointError):
            HPlus(source)


def test_the_fingerprint_follows_every_file_and_setting(saved: Path) -> None:
    base = HPlus(saved).fingerprint
    assert HPlus(saved, units="tokens").fingerprint != base
    assert HPlus(saved, importance="idf").fingerprint != base
    assert HPlus(saved, window=32).fingerprint != base
    assert HPlus(saved, long="cut").fingerprint != base
    assert HPlus(saved, patterns=True).fingerprint != base
    # Patterns settle the CRF's units alone.
    without = HPlus(saved, units="tokens", patterns=False)
    assert HPlus(saved, units="tokens", patterns=True).fingerprint == without.fingerprint
    # Budgets and fusion are chosen at encoding and at search; they change no weights.
    assert HPlus(saved, document_budget=Budget(3)).fingerprint == base
    heads = safetensors.numpy.load_file(saved / "heads.safetensors")
    heads["crf.bias"] = heads["crf.bias"] + np.float32(1e-3)
    replace_tensors(saved, "heads.safetensors", safetensors.numpy.save(heads))
    assert HPlus(saved).fingerprint != base


def test_a_mean_is_saved_and_changes_no_fingerprint(tiny: HPlus, tmp_path: Path) -> None:
    mean = np.linspace(-0.1, 0.1, tiny.dim, dtype=np.float32)
    checkpoint.save(tmp_path / "centred", replace(tiny.checkpoint, mean=mean))
    loaded = HPlus(tmp_path / "centred")
    np.testing.assert_array_equal(loaded.checkpoint.mean, mean)
    assert "mean.safetensors" in loaded.checkpoint.files
    assert loaded.fingerprint == tiny.fingerprint
    for wrong in ({"mean": mean[1:]}, {"other": mean}):
        replace_tensors(tmp_path / "centred", checkpoint.MEAN, safetensors.numpy.save(wrong))
        with pytest.raises(CheckpointError, match=r"mean\.safetensors: tensor mean"):
            HPlus(tmp_path / "centred")


@pytest.mark.parametrize("name", ["heads.safetensors", "idf.safetensors", "adapter.safetensors"])
def test_a_changed_file_is_refused(saved: Path, name: str) -> None:
    data = bytearray((saved / name).read_bytes())
    data[-1] ^= 1
    (saved / name).write_bytes(data)
    with pytest.raises(CheckpointError, match=rf"{name} has SHA-256"):
        HPlus(saved)


@pytest.mark.parametrize("name", ["heads.safetensors", "idf.safetensors", "config.json"])
def test_a_missing_file_is_named(saved: Path, name: str) -> None:
    (saved / name).unlink()
    with pytest.raises(HPlusError, match=rf"{name} is missing"):
        HPlus(saved)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff" * 16,
        (10**18).to_bytes(8, "little") + b"{}",
        (2).to_bytes(8, "little") + b"{}",
        pickle.dumps({"crf.weight": [1.0]}),
        safetensors.numpy.save({"crf.weight": np.zeros((3, 32), np.float32)})[:-5],
    ],
    ids=["empty", "noise", "huge header", "no tensors", "pickle", "truncated"],
)
def test_a_hostile_tensor_file_is_refused(saved: Path, data: bytes) -> None:
    replace_tensors(saved, "heads.safetensors", data)
    with pytest.raises(CheckpointError, match=r"heads\.safetensors"):
        HPlus(saved)


@pytest.mark.parametrize(
    ("tensor", "value"),
    [
        ("crf.weight", np.zeros((3, 5), np.float32)),
        ("crf.start", np.full(3, np.nan, np.float32)),
        ("crf.bias", np.zeros(3, np.float64)),
        ("importance.weight", np.zeros(7, np.float32)),
    ],
)
def test_a_tensor_of_another_shape_or_kind_is_refused(
    saved: Path, tensor: str, value: np.ndarray
) -> None:
    heads = safetensors.numpy.load_file(saved / "heads.safetensors")
    replace_tensors(saved, "heads.safetensors", safetensors.numpy.save(heads | {tensor: value}))
    with pytest.raises(CheckpointError, match=f"heads.safetensors: tensor {tensor}"):
        HPlus(saved)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": 2}, "format 2, this hplus reads 1"),
        ({"format": "1"}, "format '1'"),
        ({"format": True}, "format True"),
        ({"units": 5}, "wrong setting"),
        ({"units": "foo"}, r"config\.json has a wrong setting: unknown units 'foo'"),
        ({"notes": [1]}, "wrong setting"),
        ({"adapter": {"scale": "big"}}, "wrong setting"),
        ({"widths": {"global": 9999}}, r"config\.json.*9999"),
        ({"budgets": {"document": {"count": 2.5}}}, "wrong setting"),
        ({"backbone": {"kind": "bert", "path": 5}}, r"config\.json"),
        ({"backbone": {"kind": "bert", "hub": "a/b", "files": [1]}}, "neither path nor hub"),
        ({"window": 9999}, "window of 3 to 64 tokens, got 9999"),
        ({"window": "wide"}, "wrong setting|window"),
        ({"budgets": {"document": {"count": 0}}}, "wrong setting"),
        ({"budgets": {"document": {"colour": 1}}}, "wrong setting"),
        ({"fusion": {"taste": 1}}, "wrong setting"),
        ({"files": {"../../etc/passwd": "0"}}, "unknown files"),
        ({"backbone": {"kind": "mystery", "path": "x"}}, "mystery|missing"),
        ({"backbone": 5}, "wrong setting"),
        ({"units": "crf", "trained": ["importance"]}, "does not list it as trained"),
        ({"importance": "head", "trained": ["crf"]}, "does not list it as trained"),
    ],
)
def test_a_wrong_config_is_refused(saved: Path, change: dict[str, Any], message: str) -> None:
    rewrite(saved, **change)
    with pytest.raises(HPlusError, match=message):
        HPlus(saved).encode_query("x")


@pytest.mark.parametrize("content", ["", "[]", "{", "null"])
def test_a_config_that_is_not_an_object_is_refused(saved: Path, content: str) -> None:
    (saved / "config.json").write_text(content)
    with pytest.raises(CheckpointError, match=r"config\.json"):
        HPlus(saved)


def test_a_changed_backbone_is_refused(tiny_folder: Path, tmp_path: Path) -> None:
    folder = tmp_path / "backbone"
    shutil.copytree(tiny_folder, folder)
    HPlus(folder).save(tmp_path / "saved")
    weights = safetensors.numpy.load_file(folder / "model.safetensors")
    weights["embeddings.LayerNorm.bias"] += np.float32(1)
    safetensors.numpy.save_file(weights, folder / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"model\.safetensors has SHA-256"):
        HPlus(tmp_path / "saved")


def test_saving_never_overwrites(tiny: HPlus, saved: Path) -> None:
    before = sorted(path.name for path in saved.iterdir())
    with pytest.raises(CheckpointError, match="not empty"):
        tiny.save(saved)
    assert sorted(path.name for path in saved.iterdir()) == before


def test_a_failed_save_leaves_nothing(
    tiny: HPlus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> bytes:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(safetensors.numpy, "save", full)
    with pytest.raises(OSError, match="No space"):
        tiny.save(tmp_path / "target")
    assert list(tmp_path.iterdir()) == []


def test_untrained_heads_cannot_be_switched_on(tiny: HPlus, tmp_path: Path) -> None:
    crf = CRF(
        np.zeros((3, tiny.dim), np.float32),
        *(np.zeros(shape, np.float32) for shape in (3, (3, 3), 3, 3)),
    )
    recipe = replace(tiny.recipe, units="crf")
    checkpoint.save(tmp_path / "x", replace(tiny.checkpoint, recipe=recipe, crf=crf))
    with pytest.raises(CheckpointError, match="does not list it as trained"):
        HPlus(tmp_path / "x")


def test_an_unknown_name_tells_the_known_ones() -> None:
    with pytest.raises(CheckpointError, match="mini"):
        HPlus("maxi")


def test_the_default_says_what_was_trained_and_on_what(mini: HPlus) -> None:
    assert mini.recipe.trained == ("crf", "importance")
    assert mini.recipe.units == "crf"
    assert mini.recipe.importance == "head"
    data = mini.checkpoint.notes["data"]
    training = mini.checkpoint.notes["training"]
    assert {*training["labels"], *training["pairs"]} <= set(data)


@pytest.mark.parametrize("name", ["mini", "chunker", "small"])
def test_what_is_shipped_is_small_and_has_a_card(name: str) -> None:
    folder = BUILT_IN / name
    assert sum(path.stat().st_size for path in folder.iterdir()) < 1_000_000
    assert "licence" in (folder / "README.md").read_text().lower() or name == "chunker"


@pytest.fixture
def inner(tiny: HPlus, tmp_path: Path) -> Path:
    """A CRF with a hidden layer that reads the first of the two layers."""
    random = np.random.default_rng(1)

    def draw(*shape: int) -> np.ndarray:
        return random.normal(0, 0.3, shape).astype(np.float32)

    return checkpoint.save(
        tmp_path / "inner",
        Checkpoint(
            tiny.checkpoint.backbone,
            Recipe(units="crf", layer=1, window=64, trained=("crf",)),
            crf=CRF(
                draw(3, 5), draw(3), draw(3, 3), draw(3), draw(3), draw(3, tiny.dim, 5), draw(5)
            ),
        ),
    )


def test_a_crf_on_an_inner_layer_loads_and_reads_it(inner: Path) -> None:
    model = HPlus(inner)
    assert model.recipe.layer == 1
    crf = model.checkpoint.crf
    assert crf is not None
    read = model.states(TEXTS)
    below = HPlus(inner, layer=2).states(TEXTS)
    np.testing.assert_array_equal(below.inner, below.states)
    np.testing.assert_array_equal(read.states, below.states)
    assert np.abs(read.inner - read.states).max() > 0.1
    tags, _ = viterbi(crf, emissions(crf, read.inner, read.tokens.offsets), read.tokens.offsets)
    begins = begins_of_tags(tags, read.tokens.offsets)
    np.testing.assert_array_equal(begins_of_tags(read.tags, read.tokens.offsets), begins)
    assert model.fingerprint != HPlus(inner, layer=2).fingerprint


def test_a_layer_that_is_not_there_is_refused(inner: Path) -> None:
    rewrite(inner, layer=3)
    with pytest.raises(CheckpointError, match="read layer 3, but the backbone has 2"):
        HPlus(inner)
    rewrite(inner, layer=0)
    with pytest.raises(CheckpointError, match="expected layer of 1 or more, got 0"):
        HPlus(inner)


@pytest.mark.parametrize("lost", ["crf.hidden", "crf.hidden_bias", "crf.weight"])
def test_half_a_hidden_layer_is_refused(inner: Path, lost: str) -> None:
    path = inner / "heads.safetensors"
    tensors = safetensors.numpy.load_file(path)
    del tensors[lost]
    replace_tensors(inner, path.name, safetensors.numpy.save(tensors))
    with pytest.raises(CheckpointError, match=lost):
        HPlus(inner)
