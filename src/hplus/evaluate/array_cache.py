"""One array a file, under the hash of what it was made from: made once, read by every protocol."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
import numpy.typing as npt
import safetensors
from safetensors.numpy import save_file

from hplus.errors import InputError

Array = TypeVar("Array", bound=npt.NDArray[Any])


def made_once(
    folder: Path, made_from: Iterable[npt.NDArray[Any] | bytes], make: Callable[[], Array]
) -> Array:
    """The array that `make` gives, from the folder where it has been made before.

    Two runs may want the same one at once: each writes a draft of its own.
    """
    named = hashlib.sha256()
    for part in made_from:
        data = part if isinstance(part, bytes) else np.ascontiguousarray(part).data
        named.update(memoryview(data).nbytes.to_bytes(8, "little"))
        named.update(data)
    path = folder / f"{named.hexdigest()[:24]}.safetensors"
    if path.exists():
        return cast("Array", _read(path))  # its name says what `make` would have given
    found = make()
    folder.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(f".{os.getpid()}.draft")
    save_file({"array": found}, draft, {"sha256": _checksum(found)})
    draft.replace(path)
    return found


def _read(path: Path) -> npt.NDArray[Any]:
    try:
        with safetensors.safe_open(path, framework="numpy") as file:
            found: npt.NDArray[Any] = file.get_tensor("array")
            written = (file.metadata() or {}).get("sha256")
    except (OSError, safetensors.SafetensorError) as error:
        raise InputError(f"{path} is damaged ({error}); delete it") from None
    if _checksum(found) != written:
        raise InputError(f"{path} is damaged (its checksum differs); delete it")
    return found


def _checksum(array: npt.NDArray[Any]) -> str:
    return hashlib.sha256(np.ascontiguousarray(array).data).hexdigest()
