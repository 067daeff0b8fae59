"""What filters look at, beside a point's metadata.

Qdrant's own view of a payload differs from ours: it does not look into lists on the way to a field,
knows no order of texts, and compares an integer with integers only. So a point carries `fields`,
the values of every path with lists taken apart and numbers as floats; `folded`, its texts after
case folding; and `names`, the paths that have a value.

Qdrant keeps a payload as JSON and reads its numbers with two roundings, so that one float in some,
of those with 16 digits or more, comes back as its neighbour. A document with such a number, or with
an integer that no float equals, is `rough`: filters on it are decided by us.
"""

from __future__ import annotations

import hashlib
import re
from decimal import Decimal
from typing import Any

_PLAIN = re.compile(r"[A-Za-z0-9_-]+")


def key(path: tuple[str, ...]) -> str:
    """The name under which the values of a path are kept; it needs no escaping.

    >>> key(("authors", "name"))
    'authors.name'
    """
    if all(_PLAIN.fullmatch(step) for step in path):
        return ".".join(path)
    return "#" + hashlib.sha256("\0".join(path).encode()).hexdigest()[:32]


def payload_of(metadata: dict[str, Any]) -> dict[str, Any]:
    """What filters look at: see above. rough: whether a number had to be left out."""
    values: dict[tuple[str, ...], list[Any]] = {}
    _collect(metadata, (), values)
    fields: dict[str, list[Any]] = {}
    folded: dict[str, list[str]] = {}
    found: dict[str, Any] = {
        "names": [key(path) for path in values],
        "fields": fields,
        "folded": folded,
    }
    for path, own in values.items():
        name = key(path)
        texts = [value.casefold() for value in own if isinstance(value, str)]
        if texts:
            folded[name] = texts
        for value in own:
            if isinstance(value, (str, bool)):
                fields.setdefault(name, []).append(value)
            elif isinstance(value, (int, float)):
                number = _as_kept(value)
                if number is None:
                    found["rough"] = True
                else:
                    fields.setdefault(name, []).append(number)
    return found


def _collect(held: Any, path: tuple[str, ...], values: dict[tuple[str, ...], list[Any]]) -> None:
    if isinstance(held, list):
        for element in held:
            _collect(element, path, values)
        return
    if held is not None and path:
        values.setdefault(path, []).append(held)
    if isinstance(held, dict):
        for step, inner in held.items():
            if step:  # no filter can name the others
                _collect(inner, (*path, step), values)


def as_float(number: float) -> float | None:
    """The float that equals a number; None if there is none."""
    try:
        rounded = float(number)
    except OverflowError:
        return None
    return rounded if rounded == number else None


def as_read(written: str) -> float:
    """The float that Qdrant makes of a number in JSON: its digits, rounded, times or divided by a
    power of ten, rounded again.

    >>> as_read("123456789.12345679"), as_read("2020.5")
    (123456789.1234568, 2020.5)
    """
    sign, digits, exponent = Decimal(written).as_tuple()
    number, power = float(int("".join(map(str, digits)))), int(exponent)
    if power < -308:
        number, power = number / 1e308, power + 308
    ten = float(f"1e{abs(power)}")
    number = number * ten if power >= 0 else number / ten
    return -number if sign else number


def _as_kept(number: float) -> float | None:
    """A number as a float that Qdrant gives back; None if there is none."""
    equal = as_float(number)
    return equal if equal is not None and as_read(repr(equal)) == equal else None
