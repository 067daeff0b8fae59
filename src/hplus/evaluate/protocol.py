"""Protocols: what exactly was measured, frozen in one TOML file each.

Numbers of two protocols are never compared: a result names its protocol and the hash of its text,
and `results.py` refuses others. A protocol prints as its own specification, which parses back.
"""

from __future__ import annotations

import hashlib
import tomllib
from dataclasses import dataclass, fields
from importlib import resources
from pathlib import Path
from typing import Any

from hplus.errors import InputError
from hplus.evaluate.statistics import RESAMPLES
from hplus.index.segment import FORMATS, Format
from hplus.units import controls

KINDS = (
    "views",
    "widths",
    "pool-sizes",
    "shared-pool",
    "full-corpus",
    "exact-count",
    "ablations",
    "projection",
    "fusion",
    "budgets",
)
# Groupings beside the rules of units/controls.py: see `Protocol` and `exact.py`.
GROUPINGS = ("model", "random", "histogram", "shuffled", "chunks", "pooled")
# What binds the number of units, where it is not what a text has.
COUNTS = {
    "exact-count": "exact",
    "ablations": "exact",
    "projection": "exact",
    "budgets": "budget",
}
MACROS = ("all", "sensitivity", "english", "chinese", "non-cjk")
_FOLDER = resources.files("hplus") / "evaluate" / "protocols"


@dataclass(frozen=True)
class Contrast:
    """ours - theirs, two lines of a result; `{B}` stands for each of `budgets` in turn.

    p values are corrected within a family, for all its contrasts.
    """

    ours: str
    theirs: str
    family: str = "main"
    budgets: tuple[int, ...] = ()


@dataclass(frozen=True)
class Protocol:
    """All that may change a number; see docs/protocols.md for each word.

    kind: which of the experiments of `experiments.py`. boundaries: "model" (the checkpoint's own:
    the CRF, or its rule) or "model+terms" (terminology overrides, refused without terms).
    gate_width: columns of the global vectors that choose the candidates. pools: their number K.
    sources: whose candidates a shared pool unites: "global" (the model's own) and baselines.
    rankers: baselines that rank it besides.
    widths: columns of local vectors. counts: "natural", "exact" (eq:exact_count) or "budget".
    sides: which side a budget binds, "joint" or "document". groupings: rules of units/controls.py,
    "model", "histogram", "shuffled", "chunks" and "pooled" (token pooling); those that are random
    run with every seed and are averaged query by query. contrasts: the Holm families. resamples:
    of the bootstrap. grid: weights tried on dev data, on so many queries of a set (dev_sample).
    sample: queries at most, drawn by the first seed.
    """

    name: str
    question: str
    kind: str
    paper: str = ""
    boundaries: str = "model"
    gate_width: int = 128
    pools: tuple[int, ...] = (1_000,)
    sources: tuple[str, ...] = ()
    rankers: tuple[str, ...] = ()
    widths: tuple[int, ...] = (128,)
    counts: str = "natural"
    budgets: tuple[int, ...] = ()
    shares: tuple[float, ...] = ()
    sides: tuple[str, ...] = ()
    groupings: tuple[str, ...] = ()
    seeds: tuple[int, ...] = (13, 42, 2027, 3407, 9001)
    contrasts: tuple[Contrast, ...] = ()
    macros: tuple[str, ...] = MACROS
    text: str = "title text"
    window: int = 256
    format: Format = "f32"
    metric: str = "ndcg@10"
    resamples: int = RESAMPLES
    grid: tuple[float, ...] = ()
    dev_sample: int = 0
    sample: int = 0

    def __str__(self) -> str:
        lines = [f"{f.name} = {_toml(getattr(self, f.name))}" for f in fields(self)[:-1]]
        lines = [line for line in lines if not line.startswith("contrasts")]
        lines.append(f"sample = {self.sample}")
        for contrast in self.contrasts:
            lines += ["", "[[contrasts]]", f"ours = {_toml(contrast.ours)}"]
            lines += [f"theirs = {_toml(contrast.theirs)}", f"family = {_toml(contrast.family)}"]
            lines += [f"budgets = {_toml(contrast.budgets)}"] if contrast.budgets else []
        return "\n".join(lines) + "\n"

    @property
    def hash(self) -> str:
        """Of the specification: two protocols are one if and only if these are equal."""
        return hashlib.sha256(str(self).encode()).hexdigest()

    def families(self) -> list[Contrast]:
        """The contrasts with every budget filled in."""
        return [
            Contrast(c.ours.replace("{B}", str(b)), c.theirs.replace("{B}", str(b)), c.family)
            for c in self.contrasts
            for b in ((c.budgets or self.budgets) if "{B}" in c.ours + c.theirs else (0,))
        ]


def names() -> list[str]:
    """The protocols that come with the package."""
    return sorted(file.name[:-5] for file in _FOLDER.iterdir() if file.name.endswith(".toml"))


def load(name: str) -> Protocol:
    """A protocol by its name, or from a TOML file by its path.

    >>> load("broad-deployed").boundaries
    'model+terms'
    """
    if name in names():
        return parse((_FOLDER / f"{name}.toml").read_text(encoding="utf-8"), f"protocol {name}")
    if not name.endswith(".toml"):
        raise InputError(f"protocol {name!r} asked; known: {', '.join(names())}, or a .toml file")
    path = Path(name)
    if not path.is_file():
        raise InputError(f"{path} is no file; known protocols: {', '.join(names())}")
    return parse(path.read_text(encoding="utf-8"), str(path))


def parse(text: str, where: str) -> Protocol:
    """A protocol from its specification; `where` is named in complaints."""
    try:
        table: dict[str, Any] = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{where} is not TOML: {error}") from None
    known = {f.name: f for f in fields(Protocol)}
    unknown = sorted(set(table) - set(known))
    if unknown:
        raise InputError(f"{where}: unknown {unknown[0]!r}; known: {', '.join(known)}")
    missing = [name for name in ("name", "question", "kind") if name not in table]
    if missing:
        raise InputError(f"{where} lacks {missing[0]!r}")
    for key, value in table.items():
        expected = known[key].default
        if key == "contrasts":
            table[key] = tuple(_contrast(item, where) for item in _list(value, key, where))
        elif isinstance(expected, tuple):
            table[key] = tuple(_list(value, key, where))
        elif type(value) is not (int if isinstance(expected, int) else str):
            raise InputError(f"{where}: {key} = {value!r} is of the wrong type")
    protocol = Protocol(**table)
    allowed = {
        "kind": KINDS,
        "boundaries": ("model", "model+terms"),
        "counts": (COUNTS.get(protocol.kind, "natural"),),
        "text": ("title text",),
        "format": FORMATS,
        "metric": ("ndcg@10",),
    }
    for key, values in allowed.items():
        if getattr(protocol, key) not in values:
            raise InputError(
                f"{where}: {key} = {getattr(protocol, key)!r}; known: {', '.join(values)}"
            )
    _check_fit(protocol, where)
    return protocol


# What a kind of protocol cannot do without, beside pools, widths and seeds.
_NEEDED = {
    "exact-count": ["budgets", "sides", "groupings"],
    "ablations": ["budgets"],
    "projection": ["budgets", "groupings"],
    "fusion": ["grid"],
    "shared-pool": ["sources"],
}


def _check_fit(protocol: Protocol, where: str) -> None:
    """What was stated can be measured."""
    for key in ["pools", "widths", "seeds", *_NEEDED.get(protocol.kind, [])]:
        if not getattr(protocol, key):
            raise InputError(f"{where}: {key} is empty")
    for side in protocol.sides:
        if side not in ("joint", "document"):
            raise InputError(f"{where}: sides has {side!r}; known: joint, document")
    if protocol.gate_width < 1 or protocol.window < 1 or protocol.sample < 0:
        raise InputError(f"{where}: gate_width and window are 1 or more, sample 0 or more")
    for key in ("pools", "widths", "budgets", "seeds"):
        wrong = [x for x in getattr(protocol, key) if type(x) is not int or x < 1]
        if wrong:
            raise InputError(f"{where}: {key} has {wrong[0]!r}; numbers of 1 or more are expected")
    for key, kind in (("pools", "pool-sizes"), ("widths", "widths")):
        if len(getattr(protocol, key)) > 1 and protocol.kind != kind:
            raise InputError(f"{where}: {protocol.kind} measures one of {key}, not several")
    if protocol.kind == "ablations" and len(protocol.budgets) > 1:
        raise InputError(f"{where}: ablations measures one of budgets, not several")
    for key, kinds, only in (
        ("groupings", ("ablations",), ("model", "tokens")),
        ("sides", ("ablations", "projection"), ("joint",)),
    ):
        if protocol.kind in kinds and getattr(protocol, key) != only:
            raise InputError(f"{where}: {key} of {protocol.kind} are {', '.join(only)}")
    if protocol.kind == "projection" and not {*GROUPINGS[1:]}.isdisjoint(protocol.groupings):
        raise InputError(f"{where}: projection has no groupings but the model's and fixed rules")
    if protocol.resamples != RESAMPLES:
        raise InputError(f"{where}: resamples = {protocol.resamples}; {RESAMPLES} is expected")
    strange = [name for name in protocol.macros if name not in MACROS]
    if strange:
        raise InputError(f"{where}: macros has {strange[0]!r}; known: {', '.join(MACROS)}")
    for weight in protocol.grid:
        if not (isinstance(weight, float | int) and weight > 0):
            raise InputError(f"{where}: grid has {weight!r}; weights above 0 are expected")
    if list(protocol.budgets) != sorted(set(protocol.budgets)):
        raise InputError(f"{where}: budgets ascend, each stated once")
    for share in protocol.shares:
        if not (isinstance(share, float | int) and 0 < share <= 1):
            raise InputError(f"{where}: shares has {share!r}; one lies above 0 and up to 1")
    for key in ("sources", "rankers"):
        if getattr(protocol, key) and protocol.kind != "shared-pool":
            raise InputError(f"{where}: {key} are of shared pools, this is {protocol.kind}")
    for name in protocol.groupings:
        if name not in GROUPINGS:
            try:
                controls.rule(name)
            except InputError as error:
                raise InputError(f"{where}: groupings: {error}") from None
    if protocol.groupings and set(protocol.groupings) <= {"chunks", "pooled"}:
        raise InputError(f"{where}: chunks and pooled take their counts from other groupings")


def _contrast(item: Any, where: str) -> Contrast:
    known = set(Contrast.__dataclass_fields__)
    if not isinstance(item, dict) or not {"ours", "theirs"} <= set(item) <= known:
        raise InputError(f"{where}: a contrast has `ours` and `theirs`, this one is {item!r}")
    budgets = tuple(_list(item.get("budgets", []), "budgets", where))
    return Contrast(item["ours"], item["theirs"], item.get("family", "main"), budgets)


def _list(value: Any, key: str, where: str) -> list[Any]:
    if not isinstance(value, list):
        raise InputError(f"{where}: {key} = {value!r}; a list is expected")
    return value


def _toml(value: Any) -> str:
    if isinstance(value, tuple):
        return "[" + ", ".join(_toml(item) for item in value) + "]"
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return str(value)
