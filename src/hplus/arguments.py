"""What a caller may hand over: wrong types and impossible values end in one sentence each."""

from __future__ import annotations

import operator
import os
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from hplus.errors import InputError

MOST = 2**31 - 1
"""The largest count: what arrays and kernels number with."""


def whole(
    name: str, value: Any, least: int = 1, error: type[InputError] = InputError, most: int = MOST
) -> int:
    """A whole number as an int, also if it is one of numpy's.

    >>> import numpy
    >>> whole("k", numpy.int64(3))
    3
    """
    try:
        number = -1 if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = -1
    if not least <= number <= most:
        upper = f"{least} to {most:,}" if number > most else f"{least} or more"
        raise error(f"expected {name} to be a whole number of {upper}, got {value!r:.100}")
    return number


def chosen(name: str, value: Any, known: Collection[str]) -> str:
    """One of these words."""
    if not isinstance(value, str) or value not in known:
        raise InputError(f"expected {name} to be one of {', '.join(known)}, got {value!r:.100}")
    return value


def as_path(name: str, value: Any) -> Path:
    """The path of a file or folder that could exist."""
    try:
        os.fsencode(value)
        path = Path(value)
    except (TypeError, UnicodeError):
        raise InputError(f"expected {name} to be a path, got {value!r:.100}") from None
    if "\0" in str(path):
        raise InputError(f"expected {name} to be a path, got one with a NUL: {value!r:.100}")
    return path


def as_ids(ids: Any) -> list[str]:
    """Ids of documents; every one of them is text that a document can have."""
    if isinstance(ids, str):
        raise InputError("expected a list of ids, got a single text; put it in brackets")
    if isinstance(ids, (bytes, Mapping)) or not isinstance(ids, Iterable):
        raise InputError(f"expected a list of ids, got {type(ids).__name__}")
    found = list(ids)
    for place, id_ in enumerate(found):
        if not isinstance(id_, str):
            raise InputError(f"ids[{place}] is {type(id_).__name__}, expected str")
        if not is_id(id_):
            raise InputError(f"ids[{place}] is {id_!r:.100}, which is not Unicode text")
    return found


def is_id(id_: Any) -> bool:
    """Whether a document could have this id."""
    if not isinstance(id_, str):
        return False
    try:
        id_.encode()
    except UnicodeEncodeError:
        return False
    return True
