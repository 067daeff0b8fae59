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
from hplus.files import writing
from hplus.types import Coverage, Encoded, Lexical, Units

FORMAT = "hplus-encoded-1"
# The parts of an `Encoded`, and the prefix of their arrays' names in a file.
_PARTS: tuple[tuple[str, type[Any], str], ...] = (
    ("units", Units, ""),
    ("lexical", Lexical, "lexical_"),
    ("dropped", Units, "dropped_"),
    ("coverage", Coverage, "coverage_"),
)


def write_encoded(path: str | os.PathLike[str], encoded: Encoded, *, fingerprint: str) -> None:
    """Write all arrays of an encoding and the model's fingerprint, whole or not at all."""
    target = Path(path)
    check_suffix(target)
    arrays = arrays_of(encoded)
    about = {"format": FORMAT, "fingerprint": fingerprint}
    with writing(target) as file:
        if target.suffix == ".npz":
            np.savez(file, **{**{key: np.array(text) for key, text in about.items()}, **arrays})
        else:
            whole = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
            file.write(safetensors.numpy.save(whole, metadata=about))


def read_encoded(path: str | os.PathLike[str]) -> tuple[Encoded, str]:
    """An encoding and the fingerprint of the model that made it."""
    source = Path(path)
    check_suffix(source)
    try:
        if source.suffix == ".npz":
            # np.load would leave its own file open if the archive is damaged.
            with source.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
                arrays: dict[str, Any] = dict(file)
            about = {key: str(arrays.pop(key)) for key in ("format", "fingerprint")}
        else:
            with safetensors.safe_open(source, framework="numpy") as file:
                about = file.metadata() or {}
                arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        if about["format"] != FORMAT:
            raise InputError(f"{source} has format {about['format']!r}, expected {FORMAT!r}")
        return encoded_of(arrays), about["fingerprint"]
    except FileNotFoundError:
        raise InputError(f"{source} is missing") from None
    except InputError:
        raise
    except Exception as error:  # a damaged archive makes zipfile and zlib raise anything
        raise InputError(f"{source} is not a valid encoding: {error}") from error


def arrays_of(encoded: Encoded) -> dict[str, Any]:
    """All arrays of an encoding by their names in a file."""
    arrays: dict[str, Any] = {"global_": encoded.global_}
    for part, kind, prefix in _PARTS:
        held = getattr(encoded, part)
        arrays |= {f"{prefix}{f.name}": getattr(held, f.name) for f in fields(kind)}
    del arrays["dropped_vectors"]  # dropped units have lost theirs: no columns
    return arrays


def encoded_of(arrays: dict[str, Any]) -> Encoded:
    """The encoding whose arrays these are: all of them, and no others."""
    rest = dict(arrays)
    rest["dropped_vectors"] = np.empty((len(rest["dropped_weights"]), 0), np.float32)
    parts: dict[str, Any] = {
        part: kind(**{f.name: rest.pop(f"{prefix}{f.name}") for f in fields(kind)})
        for part, kind, prefix in _PARTS
    }
    return Encoded(**rest, **parts)


def check_suffix(path: Path) -> None:
    """Only the two kinds of file that hold nothing but arrays."""
    if path.suffix not in (".npz", ".safetensors"):
        raise InputError(f"{path}: expected an .npz or .safetensors file")
