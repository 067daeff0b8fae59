"""What was once made and need not be made again: a file under the hash of what it was made from.

    CACHE/scores/<hash>.safetensors   scores of all tokens, which no system changes
    CACHE/cells/<name>-<hash>.json    lines of one protocol, system and set (`cell.py`)
    CACHE/cells/<name>-<hash>.times   their times, which depend on the machine
    CACHE/baselines/<hash>/           vectors of other systems (`baselines/`)
    CACHE/<hash>/                     token states of one set (`hplus.states_file`)

Since the hash covers everything that could change the content, a file that is there is right: it is
never compared or renewed. Files are written beside their place and renamed, so that one that is
there is whole, and two runs may share a cache.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
import numpy.typing as npt
import safetensors
from safetensors.numpy import save

from hplus.errors import InputError
from hplus.files import writing

Array = TypeVar("Array", bound=npt.NDArray[Any])


def hash_of(made_from: Iterable[npt.NDArray[Any] | bytes | str]) -> str:
    """Of the parts in their order, lengths included; 24 hexadecimal digits."""
    digest = hashlib.sha256()
    for part in made_from:
        text = part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part
        data = memoryview(text if isinstance(text, bytes) else np.ascontiguousarray(text).data)
        digest.update(data.nbytes.to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()[:24]


def array_made_once(
    folder: Path, made_from: Iterable[npt.NDArray[Any] | bytes | str], make: Callable[[], Array]
) -> Array:
    """The array that `make` gives, from the folder if it has been made before."""
    path = folder / f"{hash_of(made_from)}.safetensors"
    if path.exists():
        return cast("Array", _read_array(path))
    found = make()
    sha256 = hashlib.sha256(np.ascontiguousarray(found).data).hexdigest()
    write(path, save({"array": found}, {"sha256": sha256}))
    return found


def write_json(path: Path, table: Mapping[str, Any]) -> None:
    """One line of JSON."""
    write(path, json.dumps(table, ensure_ascii=False).encode())


def write(path: Path, content: bytes) -> None:
    """In one step, with the folders that lead there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with writing(path) as file:
        file.write(content)


def _read_array(path: Path) -> npt.NDArray[Any]:
    try:
        with safetensors.safe_open(path, framework="numpy") as file:
            found: npt.NDArray[Any] = file.get_tensor("array")
            written = (file.metadata() or {}).get("sha256")
    except (OSError, safetensors.SafetensorError) as error:
        raise InputError(f"{path} is damaged ({error}); delete it") from None
    if hashlib.sha256(np.ascontiguousarray(found).data).hexdigest() != written:
        raise InputError(f"{path} is damaged (its checksum differs); delete it")
    return found
