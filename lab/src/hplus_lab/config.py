"""What `hplus-lab run` reads: a table of protocols, systems and sets.

    name = "baseline"
    data = "../shared/data/eval"        # or --data
    protocols = ["broad-deployed", "dimensional"]
    sets = ["scifact:test", "nfcorpus:test"]
    dev = ["nfcorpus:dev"]              # for what is tuned
    terms = "terms.txt"                 # or --terms
    seen = ["medicalqa"]                # sets whose data the checkpoint has seen

    [[systems]]
    name = "hplus-mini"
    model = "mini"

    [[systems]]
    name = "frozen"
    model = "mini"
    units = "runs"
    importance = "idf"

Mistakes are reported here, before anything is encoded.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hplus import DEFAULT_MODEL
from hplus.errors import InputError
from hplus.model import HPlus
from hplus_lab import macros
from hplus_lab.protocols import load


@dataclass(frozen=True)
class System:
    """A model by its name in tables; settings: what is changed of its recipe."""

    name: str
    model: str = DEFAULT_MODEL
    settings: dict[str, Any] = field(default_factory=dict)

    def load(self, window: int, device: str | None = None) -> HPlus:
        """The model, texts cut at its window or a smaller one."""
        settings = {**self.settings, "long": "cut"} | ({"device": device} if device else {})
        model = HPlus(self.model, **settings)
        if model.recipe.window <= window:
            return model
        return HPlus(self.model, **{**settings, "window": window})


@dataclass(frozen=True)
class Config:
    """The table; limit: queries of a set at most, 0 for all. languages: of sets that `macros`
    does not know, as "en"."""

    name: str
    protocols: tuple[str, ...]
    systems: tuple[System, ...]
    sets: tuple[str, ...]
    dev: tuple[str, ...] = ()
    seen: tuple[str, ...] = ()
    data: str = ""
    terms: str = ""
    limit: int = 0
    languages: dict[str, str] = field(default_factory=dict)


def read_config(path: Path) -> Config:
    """A config, with complaints that name the file."""
    try:
        table: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not TOML: {error}") from None
    try:
        return _config(table)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


_LINES = {
    "name": 'name = "mine"',
    "protocols": 'protocols = ["full-corpus"]',
    "systems": 'systems = [{name = "mini", model = "mini"}]',
    "sets": 'sets = ["scifact:test"]',
}


def _config(table: dict[str, Any]) -> Config:
    known = set(Config.__dataclass_fields__)
    unknown = sorted(set(table) - known)
    if unknown:
        raise InputError(f"unknown key {unknown[0]!r}; known: {', '.join(sorted(known))}")
    for key in ("name", "protocols", "systems", "sets"):
        if not table.get(key):
            raise InputError(f"{key!r} is missing; add a line such as: {_LINES[key]}")
    for key, value in table.items():
        if complaint := _wrong(key, value):
            raise InputError(f"{key}: expected {complaint}, got {value!r}")
    lists: dict[str, Any] = {
        key: tuple(table[key]) for key in ("protocols", "sets", "dev", "seen") if key in table
    }
    for name in lists["protocols"]:
        load(name)  # an unknown one fails here, not after an hour
    for name in (*lists["sets"], *lists.get("dev", ())):
        if name.count(":") != 1:
            raise InputError(f"expected a set as FOLDER:SPLIT, got {name!r}")
    tasks = [name.split(":")[0] for name in lists["sets"]]
    macros.groups(tasks, lists.get("seen", ()), languages=table.get("languages"))
    return Config(**{**table, **lists, "systems": _systems(table["systems"])})


def _systems(items: list[Any]) -> tuple[System, ...]:
    systems: list[System] = []
    for item in items:
        if not isinstance(item, dict) or not isinstance(item.get("name"), str):
            raise InputError(f"expected a system with a name, got {item!r}")
        settings = dict(item)
        name, model = settings.pop("name"), settings.pop("model", DEFAULT_MODEL)
        if not isinstance(model, str):
            raise InputError(f"the model of {name}: expected a string, got {model!r}")
        if any(name == other.name for other in systems):
            raise InputError(f"two systems are called {name!r}")
        if "long" in settings:
            raise InputError("protocols cut long texts; leave `long` out")
        systems.append(System(name, model, settings))
    return tuple(systems)


def _wrong(key: str, value: Any) -> str:
    """What was expected, where the value is something else."""
    if key == "limit":
        right, expected = type(value) is int and value >= 0, "a number of 0 or more"
    elif key == "languages":
        right = isinstance(value, dict) and all(isinstance(v, str) for v in value.values())
        expected = 'a table of languages, as in mine = "en"'
    elif key in ("name", "data", "terms"):
        right, expected = isinstance(value, str), "a string"
    elif key == "systems":
        right, expected = isinstance(value, list), "a list of tables"
    else:
        right = isinstance(value, list) and all(isinstance(v, str) for v in value)
        expected = "a list of strings"
    return "" if right else expected
