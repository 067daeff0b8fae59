"""Reading a backbone's files: hashed, checked, never unpickled."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy

from hplus.errors import BackboneError
from hplus.files import check_regular, read_object
from hplus.types import F32

# Besides the weights, what decides tokens and states.
_TEXT_FILES = (
    "config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "vocab.txt",
    "vocab.json",
    "merges.txt",
    "spiece.model",
    "sentencepiece.bpe.model",
)
ROTATION = "rotation"
"""Tensor f32[d, d] among a BERT's weights: turns its last states (`rotation.py`)."""
# Read with them, and decided by them.
_COMPANIONS = (
    "model.safetensors.index.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "tokenizer.model",
)


def sha256(path: Path) -> str:
    """Hex SHA-256 of a file; read once per process while size and time stay the same."""
    try:
        check_regular(path, BackboneError)
        status = path.stat()
    except FileNotFoundError:
        raise BackboneError(f"{path} is missing") from None
    return _sha256(path, status.st_size, status.st_mtime_ns)


@cache
def _sha256(path: Path, _size: int, _mtime: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_weights(path: Path, adapter: Mapping[str, F32] | None = None) -> dict[str, Any]:
    """The tensors of a safetensors file: float32, with an adapter merged in, and int8.

    Names are those of the bare encoder, like the adapter's: a leading "bert." is removed.
    """
    try:
        check_regular(path, BackboneError)
        with safetensors.safe_open(path, framework="numpy") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except FileNotFoundError:
        raise BackboneError(f"{path} is missing; weights must be safetensors") from None
    except TypeError as error:
        raise BackboneError(
            f"{path} holds numbers that numpy lacks ({error}); use torch with device='cpu'"
        ) from error
    except (safetensors.SafetensorError, ValueError, OSError) as error:
        raise BackboneError(
            f"{path} is not a sound safetensors file ({error}); fetch or install it again"
        ) from error
    weights = {
        name.removeprefix("bert."): tensor
        if tensor.dtype == np.int8
        else tensor.astype(np.float32, copy=False)
        for name, tensor in tensors.items()
        if tensor.dtype == np.int8 or np.issubdtype(tensor.dtype, np.floating)
    }
    return merge_adapter(weights, adapter) if adapter else weights


def read_rotation(path: Path) -> F32 | None:
    """The tensor "rotation" of a safetensors file, if it has one."""
    if not path.is_file():
        return None
    with safetensors.safe_open(path, framework="numpy") as file:
        if ROTATION not in file.keys():  # noqa: SIM118
            return None
        rotation: F32 = file.get_tensor(ROTATION)
        return rotation


def merge_adapter(weights: dict[str, F32], adapter: Mapping[str, F32]) -> dict[str, F32]:
    """LoRA: W + B A for every `<W>.lora_A`, `<W>.lora_B` of the adapter, scale already in B."""
    merged = dict(weights)
    targets = (name.removesuffix(".lora_A").removesuffix(".lora_B") for name in adapter)
    for target in dict.fromkeys(targets):
        a, b = adapter.get(f"{target}.lora_A"), adapter.get(f"{target}.lora_B")
        weight = weights.get(target)
        if (
            weight is None
            or a is None
            or b is None
            or (b.shape[0], *a.shape[1:]) != weight.shape
            or a.shape[:1] != b.shape[1:]
        ):
            raise BackboneError(
                f"the adapter for {target} does not fit the backbone "
                f"({'no such weight' if weight is None else f'the weight is {weight.shape}'})"
            )
        merged[target] = weight + b @ a
    return merged


def read_config(folder: Path) -> dict[str, Any]:
    """`config.json` of an encoder folder."""
    try:
        return read_object(folder / "config.json", BackboneError)
    except FileNotFoundError:
        raise BackboneError(
            f"{folder} has no config.json: neither a checkpoint nor an encoder folder"
        ) from None


def folder_reference(kind: str, folder: Path) -> dict[str, Any]:
    """What a checkpoint records of a backbone folder: kind, place and hashes."""
    return {
        "kind": kind,
        "path": str(folder.resolve()),
        "files": {file.name: sha256(file) for file in _files(folder, _TEXT_FILES)},
    }


def encoder_files(folder: Path) -> list[Path]:
    """Every file that loading an encoder folder may read."""
    return _files(folder, (*_TEXT_FILES, *_COMPANIONS))


def _files(folder: Path, names: tuple[str, ...]) -> list[Path]:
    files = [*sorted(folder.glob("*.safetensors")), *(folder / name for name in names)]
    return [file for file in files if file.exists()]


def check_hashes(folder: Path, files: Mapping[str, str]) -> None:
    """Refuse a folder whose files are not those that were recorded."""
    for name, expected in files.items():
        if Path(name).name != name or name in ("", ".."):
            raise BackboneError(f"expected the name of a file in {folder}, got {name!r}")
        found = sha256(folder / name)
        if found != expected:
            raise BackboneError(
                f"{folder / name} has SHA-256 {found[:16]}…, but the checkpoint was made with "
                f"{str(expected)[:16]}…; restore the original file or train heads for the new one"
            )
