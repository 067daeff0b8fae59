"""Models that are found by name: those of this package, and those in packages of their own.

A package `hplus_NAME` with a folder NAME, which is a checkpoint, is the model NAME. It is found
without being imported: it holds data alone.
"""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

BUILT_IN = Path(__file__).parent / "checkpoints"
OTHERS = {"mini2": "pip install ./models/mini2", "zh": "pip install ./models/zh"}
"""Models in packages of their own, and what installs each from a copy of the repository."""


def folder_of(name: str) -> Path | None:
    """The checkpoint of a model, or None if no model of that name is installed.

    >>> folder_of("mini").name, folder_of("maxi")
    ('mini', None)
    """
    if not re.fullmatch(r"[\w-]+", name):
        return None
    own = BUILT_IN / name
    if own.is_dir():
        return own
    package = f"hplus_{name}"
    spec = importlib.util.find_spec(package) if package.isidentifier() else None
    for place in (spec and spec.submodule_search_locations) or ():
        if (Path(place) / name / "config.json").is_file():
            return Path(place) / name
    return None


def distribution_of(name: str) -> str:
    """The distribution that brings an installed model."""
    return "hplus" if (BUILT_IN / name).is_dir() else f"hplus-{name}"


def names() -> list[str]:
    """Every model that `folder_of` finds."""
    own = [folder.name for folder in BUILT_IN.iterdir() if folder.is_dir()]
    return sorted([*own, *(name for name in OTHERS if folder_of(name))])


def remedy(name: str) -> str | None:
    """What to do about a model that has a package, which is not installed; None for any other.

    >>> remedy("mini") is None
    True
    """
    if name not in OTHERS or folder_of(name):
        return None
    return (
        f"the model {name} is in a package of its own, which is not installed: "
        f"{OTHERS[name]}, in a copy of hplus' repository"
    )
