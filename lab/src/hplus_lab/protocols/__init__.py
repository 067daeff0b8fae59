"""The protocols that come with the package, and how any protocol is read from its TOML.

A file may begin with `inherits = "NAME"` and state only what differs from that protocol; its
printed specification, and so its hash, has everything.
"""

from __future__ import annotations

import tomllib
from dataclasses import fields
from importlib import resources
from pathlib import Path
from typing import Any

from hplus.errors import InputError
from hplus.evaluate.statistics import RESAMPLES
from hplus.storage.segment import FORMATS
from hplus.units import rules
from hplus_lab.equal_counts import MADE_TO_COUNT, RANDOM
from hplus_lab.kinds import KINDS
from hplus_lab.protocol import MACROS, METRICS, Contrast, Protocol

_FOLDER = resources.files("hplus_lab") / "protocols"


def names() -> list[str]:
    """The protocols that come with the package."""
    return sorted(file.name[:-5] for file in _FOLDER.iterdir() if file.name.endswith(".toml"))


def load(name: str) -> Protocol:
    """A protocol by its name, or from a TOML file by its path.

    >>> load("broad-deployed").boundaries
    'model+terms'
    """
    if name in names():
        return parse(_text(name), f"protocol {name}")
    if not name.endswith(".toml"):
        raise InputError(f"unknown protocol {name!r}; known: {', '.join(names())}, or a .toml file")
    path = Path(name)
    if not path.is_file():
        raise InputError(f"{path} is not a file; known protocols: {', '.join(names())}")
    return parse(path.read_text(encoding="utf-8"), str(path))


def parse(text: str, where: str) -> Protocol:
    """A protocol from its specification; `where` is named in complaints."""
    table = _read(text, where)
    known = {f.name: f for f in fields(Protocol)}
    unknown = sorted(set(table) - set(known))
    if unknown:
        raise InputError(f"{where}: unknown key {unknown[0]!r}; known: {', '.join(known)}")
    missing = [name for name in ("name", "question", "kind") if name not in table]
    if missing:
        raise InputError(f"{where} lacks {missing[0]!r}")
    for key, value in table.items():
        default = known[key].default
        if key == "contrasts":
            table[key] = tuple(_contrast(item, where) for item in _list(value, key, where))
        elif isinstance(default, tuple):
            table[key] = tuple(_list(value, key, where))
        elif type(value) is not (int if isinstance(default, int) else str):
            raise InputError(f"{where}: {key} = {value!r} has the wrong type")
    protocol = Protocol(**table)
    if protocol.kind not in KINDS:
        raise InputError(f"{where}: kind = {protocol.kind!r}; known: {', '.join(KINDS)}")
    for complaint in _complaints(protocol):
        raise InputError(f"{where}: {complaint}")
    return protocol


def _complaints(protocol: Protocol) -> list[str]:
    """Why it cannot be measured."""
    kind = KINDS[protocol.kind]
    allowed = {
        "boundaries": ("model", "model+terms"),
        "counts": (kind.counts,),
        "text": ("title text",),
        # Rows of int4 are spread over their columns; the laboratory's scorers spread no queries.
        "format": tuple(format for format in FORMATS if format != "int4"),
        "metric": tuple(METRICS),
        "resamples": (RESAMPLES,),
    }
    found = [
        f"{key} = {getattr(protocol, key)!r}; known: {', '.join(map(str, values))}"
        for key, values in allowed.items()
        if getattr(protocol, key) not in values
    ]
    found += [
        f"{key} is empty"
        for key in ("pools", "widths", "seeds", *kind.states)
        if not getattr(protocol, key)
    ]
    found += [
        f"{protocol.kind} measures one of {key}, not several"
        for key in ("pools", "widths")
        if len(getattr(protocol, key)) > 1 and key not in kind.several
    ]
    found += [
        f"{key} are not for {protocol.kind}, which reads no other systems"
        for key, needed in (
            ("sources", "sources" in kind.states),
            ("rankers", "baselines" in kind.uses),
        )
        if getattr(protocol, key) and not needed
    ]
    if protocol.gate_width < 1 or protocol.window < 1 or protocol.sample < 0:
        found.append("expected gate_width and window of 1 or more, sample of 0 or more")
    for key, right, expected in (
        ("pools", _is_count, "numbers of 1 or more"),
        ("widths", _is_count, "numbers of 1 or more"),
        ("budgets", _is_count, "numbers of 1 or more"),
        ("seeds", _is_count, "numbers of 1 or more"),
        ("grid", _is_positive, "weights above 0"),
        ("shares", lambda x: _is_positive(x) and x <= 1, "shares above 0 and up to 1"),
        ("sides", lambda x: x in ("joint", "document"), "joint or document"),
        ("macros", lambda x: x in MACROS, f"one of {', '.join(MACROS)}"),
    ):
        wrong = [value for value in getattr(protocol, key) if not right(value)]
        found += [f"{key}: expected {expected}, got {wrong[0]!r}"] if wrong else []
    if not found and list(protocol.budgets) != sorted(set(protocol.budgets)):
        found.append("budgets must ascend, each stated once")
    for name in protocol.groupings:
        if name not in ("model", *RANDOM, *MADE_TO_COUNT):
            try:
                rules.rule(name)
            except InputError as error:
                found.append(f"groupings: {error}")
    try:
        kind.paper(protocol.paper, False) if protocol.paper else None
    except (InputError, KeyError, StopIteration):
        found.append(f"paper: {protocol.paper!r} has no figures for {protocol.kind}")
    return found + kind.check(protocol)


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 1


def _is_positive(value: Any) -> bool:
    return isinstance(value, float | int) and value > 0


def _text(name: str) -> str:
    return (_FOLDER / f"{name}.toml").read_text(encoding="utf-8")


def _read(text: str, where: str) -> dict[str, Any]:
    try:
        table: dict[str, Any] = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{where} is not TOML: {error}") from None
    if "inherits" not in table:
        return table
    parent = table.pop("inherits")
    if parent not in names():
        raise InputError(f"{where}: inherits = {parent!r}; known: {', '.join(names())}")
    return {**_read(_text(parent), parent), **table}


def _contrast(item: Any, where: str) -> Contrast:
    known = set(Contrast.__dataclass_fields__)
    if not isinstance(item, dict) or not {"ours", "theirs"} <= set(item) <= known:
        raise InputError(f"{where}: expected a contrast with `ours` and `theirs`, got {item!r}")
    budgets = tuple(_list(item.get("budgets", []), "budgets", where))
    return Contrast(item["ours"], item["theirs"], item.get("family", "main"), budgets)


def _list(value: Any, key: str, where: str) -> list[Any]:
    if not isinstance(value, list):
        raise InputError(f"{where}: {key}: expected a list, got {value!r}")
    return value
