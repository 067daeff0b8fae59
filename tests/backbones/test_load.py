"""From references and folders to backbones: what loads which, and what is refused."""

import json
from pathlib import Path
from typing import Any

import pytest

from hplus.backbones.bert import Bert
from hplus.backbones.load import load_backbone, reference_of_folder
from hplus.errors import BackboneError
from tiny import write_tiny


@pytest.mark.parametrize(
    ("model_type", "kind"),
    [("bert", "bert"), ("qwen3", "qwen3"), ("roberta", "transformers"), (None, "transformers")],
)
def test_the_architecture_decides_who_serves_a_folder(
    tmp_path: Path, model_type: str | None, kind: str
) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": model_type}))
    assert reference_of_folder(tmp_path) == {"kind": kind, "path": str(tmp_path)}


@pytest.mark.parametrize("content", [None, "", "{", "[]", "7"])
def test_a_folder_without_a_sound_config_is_refused(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "config.json").write_text(content)
    with pytest.raises(BackboneError, match=r"config\.json") as caught:
        reference_of_folder(tmp_path)
    assert str(tmp_path) in str(caught.value)


def test_a_bert_folder_is_served_in_onnxruntime(tiny_folder: Path) -> None:
    assert isinstance(load_backbone(reference_of_folder(tiny_folder)), Bert)


def test_a_recorded_reference_loads_again(tmp_path: Path) -> None:
    first = Bert.from_folder(write_tiny(tmp_path))
    assert load_backbone(first.reference).reference == first.reference


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json"])
@pytest.mark.parametrize("device", [None, "cpu"])
def test_a_file_changed_since_it_was_recorded_is_named(
    tmp_path: Path, name: str, device: str | None
) -> None:
    reference = Bert.from_folder(write_tiny(tmp_path)).reference
    path = tmp_path / name
    path.write_bytes(path.read_bytes() + b"\n")
    with pytest.raises(BackboneError, match="SHA-256") as caught:
        load_backbone(reference, device=device)
    assert str(path) in str(caught.value)


def test_a_recorded_file_that_is_gone_is_named(tmp_path: Path) -> None:
    reference = Bert.from_folder(write_tiny(tmp_path)).reference
    (tmp_path / "tokenizer.json").unlink()
    with pytest.raises(BackboneError, match=r"tokenizer\.json is missing"):
        load_backbone(reference)


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ({}, "neither path nor hub"),
        ({"kind": "bert"}, "neither path nor hub"),
        ({"kind": "elmo", "path": "somewhere"}, "'elmo' is unknown"),
        ({"path": "somewhere"}, "None is unknown"),
    ],
)
def test_references_that_say_too_little_are_refused(
    reference: dict[str, Any], message: str
) -> None:
    with pytest.raises(BackboneError, match=message):
        load_backbone(reference)
