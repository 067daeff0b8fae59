"""Encodings on disk: one .npz or .safetensors file of plain arrays, never pickled."""

from __future__ import annotations

import os
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy

from hplus.errors import InputError
from hplus.types import Coverage, Encoded

FORMAT = "hplus-encoded-1"


def write_encoded(path: str | os.PathLike[str], encoded: Encoded, *, fingerprint: str) -> None:
    """Write all arrays of an encoding; coverage under `coverage_…`, the model's fingerprint too.

    The file appears whole or not at all.
    """
    target = Path(path)
    check_suffix(target)
    arrays = {f.name: getattr(encoded, f.name) for f in fields(Encoded) if f.name != "coverage"}
    arrays |= {f"coverage_{f.name}": getattr(encoded.coverage, f.name) for f in fields(Coverage)}
    draft = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        if target.suffix == ".npz":
            with draft.open("wb") as file:
                np.savez(file, format=np.array(FORMAT), fingerprint=np.array(fingerprint), **arrays)
        else:
            whole = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
            about = {"format": FORMAT, "fingerprint": fingerprint}
            draft.write_bytes(safetensors.numpy.save(whole, metadata=about))
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)


def read_encoded(path: str | os.PathLike[str]) -> tuple[Encoded, str]:
    """An encoding and the fingerprint of the model that made it."""
    source = Path(path)
    check_suffix(source)
    try:
        if source.suffix == ".npz":
            # np.load leaves a file that it opened itself open when the archive is damaged.
            with source.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
                arrays: dict[str, Any] = dict(file)
            about = {key: str(arrays.pop(key)) for key in ("format", "fingerprint")}
        else:
            with safetensors.safe_open(source, framework="numpy") as file:
                about = file.metadata() or {}
                arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        if about["format"] != FORMAT:
            raise InputError(f"{source} has format {about['format']!r}, expected {FORMAT!r}")
        coverage = {f.name: arrays.pop(f"coverage_{f.name}") for f in fields(Coverage)}
        return Encoded(**arrays, coverage=Coverage(**coverage)), about["fingerprint"]
    except FileNotFoundError:
        raise InputError(f"{source} is missing") from None
    except InputError:
        raise
    except Exception as error:  # a damaged archive makes zipfile and zlib raise anything
        raise InputError(f"{source} is not a sound encoding: {error}") from error


def check_suffix(path: Path) -> None:
    """Only the two kinds of file that hold nothing but arrays."""
    if path.suffix not in (".npz", ".safetensors"):
        raise InputError(f"{path}: encodings are .npz or .safetensors files")
