"""An encoder put into a checkpoint's folder, so that the folder can be moved.

    encoder/config.json, model.safetensors, tokenizer.json, …

Files are copied as they are where they lie in a folder, so that their hashes, and the model's
fingerprint, stay. An encoder with an adapter, or from the hub, is written anew in float32, with the
adapter merged. Other forms of the same weights (int8) belong beside model.safetensors.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors.numpy

from hplus.backbones import Backbone, mini
from hplus.backbones.files import check_hashes, encoder_files, folder_reference, read_weights
from hplus.types import F32


def place_of(reference: Mapping[str, Any]) -> Path | None:
    """The folder an encoder was read from; None for one from the hub."""
    if "path" in reference:
        return Path(reference["path"])
    return mini.folder() if reference.get("kind") == "mini" else None


def export_encoder(
    backbone: Backbone, folder: Path, adapter: Mapping[str, F32] | None = None
) -> dict[str, Any]:
    """Write a backbone's files into a new folder; returns the reference to it, hashes included.

    `adapter` is the one the backbone was loaded with.
    """
    folder.mkdir()
    place = place_of(backbone.reference)
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
