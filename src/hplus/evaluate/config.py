"""What `hplus evaluate run` reads: a table of protocols, systems and sets.

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

Mistakes are told here, before anything is encoded.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hplus.errors import InputError
from hplus.evaluate import macros
from hplus.evaluate.protocol import load
from hplus.model import HPlus


@dataclass(frozen=True)
class System:
    """A model by its name in tables; settings: what is changed of its recipe."""

    name: str
    model: str = "mini"
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
    """What `hplus evaluate run` reads."""

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
    """Of sets that `macros.TASKS` does not know: "en", "zh" …"""


def read_config(path: Path) -> Config:
    """A config, with complaints that name the file."""
    try:
        table: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not TOML: {error}") from None
    known = set(Config.__dataclass_fields__)
    unknown = sorted(set(table) - known)
    if unknown:
        raise InputError(f"{path}: unknown {unknown[0]!r}; known: {', '.join(sorted(known))}")
    for key in ("name", "protocols", "systems", "sets"):
        if not table.get(key):
            raise InputError(f"{path} lacks {key!r}")
    _check_types(table, path)
    systems: list[System] = []
    for item in table.pop("systems"):
        if not isinstance(item, dict) or not isinstance(item.get("name"), str):
            raise InputError(f"{path}: a system has a name, this one is {item!r}")
        if not isinstance(item.get("model", ""), str):
            raise InputError(f"{path}: the model of {item['name']} is {item['model']!r}, no text")
        if any(item["name"] == other.name for other in systems):
            raise InputError(f"{path}: two systems are called {item['name']!r}")
        settings = {k: v for k, v in item.items() if k not in ("name", "model")}
        if "long" in settings:
            raise InputError(f"{path}: protocols cut long texts; leave `long` out")
        systems.append(System(item["name"], item.get("model", "mini"), settings))
    lists: dict[str, Any] = {
        key: tuple(table[key]) for key in ("protocols", "sets", "dev", "seen") if key in table
    }
    for name in lists["protocols"]:
        load(name)  # an unknown one fails here, not after an hour
    for name in (*lists["sets"], *lists.get("dev", ())):
        if name.count(":") != 1:
            raise InputError(f"{path}: set {name!r}; FOLDER:SPLIT is expected")
    try:
        tasks = [name.split(":")[0] for name in lists["sets"]]
        macros.groups(tasks, lists.get("seen", ()), languages=table.get("languages"))
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    return Config(**{**table, **lists, "systems": tuple(systems)})


def _check_types(table: dict[str, Any], path: Path) -> None:
    for key, value in table.items():
        if key == "limit":
            right, expected = type(value) is int and value >= 0, "a number of 0 or more"
        elif key == "languages":
            right = isinstance(value, dict) and all(isinstance(v, str) for v in value.values())
            expected = 'a table of languages, as in mine = "en"'
        elif key in ("name", "data", "terms"):
            right, expected = isinstance(value, str), "a text"
        else:
            right, expected = isinstance(value, list), "a list"
            if right and key != "systems":
                right, expected = all(isinstance(v, str) for v in value), "a list of texts"
        if not right:
            raise InputError(f"{path}: {key} = {value!r}; {expected} is expected")
