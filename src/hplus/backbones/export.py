"""An encoder put into a checkpoint's folder, so that the folder can be moved.

    encoder/config.json, model.safetensors, tokenizer.json, …

Files are copied as they are where they lie in a folder, so that their hashes, and the model's
fingerprint, stay. An encoder with an adapter, or from the hub, is written anew in float32, with the
adapter merged. A BERT can be written in another form: int8, or with its states rotated.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import safetensors.numpy

from hplus.backbones import Backbone, mini
from hplus.backbones.bert import FLOAT32_FILE, INT8_FILE, weights_file
from hplus.backbones.files import (
    ROTATION,
    check_hashes,
    encoder_files,
    folder_reference,
    read_weights,
)
from hplus.backbones.int8 import quantise
from hplus.errors import BackboneError
from hplus.types import F32

Precision = Literal["int8", "float32"]


@dataclass(frozen=True)
class Form:
    """How a BERT is written. rotation: f32[d, d], applied to the last states (`rotation.py`)."""

    precision: Precision = "int8"
    rotation: F32 | None = None


def place_of(reference: Mapping[str, Any]) -> Path | None:
    """The folder an encoder was read from; None for one from the hub."""
    if "path" in reference:
        return Path(reference["path"])
    return mini.folder() if reference.get("kind") == "mini" else None


def export_encoder(
    backbone: Backbone,
    folder: Path,
    adapter: Mapping[str, F32] | None = None,
    form: Form | None = None,
) -> dict[str, Any]:
    """Write a backbone's files into a new folder; returns the reference to it, hashes included.

    `adapter` is the one the backbone was loaded with. form: None keeps the one it has.
    """
    folder.mkdir()
    place = place_of(backbone.reference)
    if form is not None:
        return _export_bert(backbone, folder, adapter, form)
    if place is not None and not adapter:
        for file in encoder_files(place):
            shutil.copyfile(file, folder / file.name)
        check_hashes(folder, backbone.reference["files"])
        return {**backbone.reference, "path": str(folder.resolve())}
    kind = backbone.reference["kind"]
    model = getattr(backbone, "model", None)
    if model is not None:
        # A pooling layer that the weights lack is made up at random, and no state depends on it.
        named = model.state_dict().items()
        states = {name: tensor for name, tensor in named if not name.startswith("pooler.")}
        model.save_pretrained(folder, state_dict=states)
    elif place is not None:
        check_hashes(place, backbone.reference["files"])
        shutil.copyfile(place / "config.json", folder / "config.json")
        weights = read_weights(place / "model.safetensors", adapter)
        safetensors.numpy.save_file(weights, folder / "model.safetensors")
    backbone.tokenizer.inner.save(str(folder / "tokenizer.json"))
    return folder_reference("bert" if kind == "mini" else kind, folder)


def _export_bert(
    backbone: Backbone, folder: Path, adapter: Mapping[str, F32] | None, form: Form
) -> dict[str, Any]:
    """A BERT's weights in the given form, its config and its tokenizer."""
    model, place = getattr(backbone, "model", None), place_of(backbone.reference)
    if model is not None:
        if model.config.model_type != "bert":
            raise BackboneError(
                f"expected a BERT, got {model.config.model_type!r}; other encoders run in torch, "
                "and a checkpoint carries them as they are"
            )
        weights = {name: tensor.float().numpy() for name, tensor in model.state_dict().items()}
        model.config.save_pretrained(folder)
    elif place is not None:
        check_hashes(place, backbone.reference["files"])
        file = weights_file(place)
        if file.name == INT8_FILE:
            raise BackboneError(f"{file}: expected float32 weights to convert, got int8")
        weights = read_weights(file, adapter)
        shutil.copyfile(place / "config.json", folder / "config.json")
    weights = {name: t for name, t in weights.items() if not name.startswith("pooler.")}
    if form.rotation is not None:
        weights[ROTATION] = form.rotation
    if form.precision == "int8":
        weights = quantise(weights)
    name = INT8_FILE if form.precision == "int8" else FLOAT32_FILE
    (folder / name).write_bytes(safetensors.numpy.save(weights))
    backbone.tokenizer.inner.save(str(folder / "tokenizer.json"))
    return folder_reference("bert", folder)
