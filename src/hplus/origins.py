"""Where every byte of a model came from: package, checkpoint folder, encoder folder or hub."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from hplus.backbones import mini
from hplus.backbones.export import place_of
from hplus.backbones.files import sha256
from hplus.checkpoint import Checkpoint
from hplus.installed import distribution_of, folder_of

_TOKENIZER = ("tokenizer", "vocab", "merges", "spiece", "sentencepiece")


@dataclass(frozen=True)
class Origin:
    """One file of a model. A hub id stands for all of its files: no size, and its commit as hash.

    part: encoder, tokenizer, heads, idf or adapter. file: its path in `place`, which is a package
    with its version, a folder, or the hub.
    """

    part: str
    file: str
    size: int | None
    sha256: str | None
    place: str


def origins(checkpoint: Checkpoint) -> list[Origin]:
    """Every file that was read: the encoder's, the tokenizer's, then the checkpoint's own."""
    installed = folder_of(checkpoint.source)
    root = installed or Path(checkpoint.source)
    own = _package(distribution_of(checkpoint.source)) if installed else str(root)
    return [*_encoder(checkpoint, root, own), *_heads(checkpoint, root, own)]


def _encoder(checkpoint: Checkpoint, root: Path, own: str) -> list[Origin]:
    reference = checkpoint.backbone.reference
    folder = place_of(reference)
    if folder is None:
        hub_id = str(reference["hub"])
        return [Origin("encoder, tokenizer", hub_id, None, reference.get("commit"), "hub")]
    if "path" not in reference:
        place, base = _package(mini.DISTRIBUTION), folder
    elif folder.is_relative_to(root):
        place, base = own, root
    else:
        place, base = str(folder), folder
    found = []
    for name, digest in reference["files"].items():
        part = "tokenizer" if name.startswith(_TOKENIZER) else "encoder"
        path = folder / name
        file = path.relative_to(base).as_posix()
        found.append(Origin(part, file, path.stat().st_size, digest, place))
    return sorted(found, key=lambda origin: origin.part)


def _heads(checkpoint: Checkpoint, root: Path, place: str) -> list[Origin]:
    found = []
    for name, digest in checkpoint.files.items():
        path = root / name
        if path.is_file() and sha256(path) == digest:
            found.append(Origin(path.stem, name, path.stat().st_size, digest, place))
        else:
            found.append(Origin(path.stem, name, None, digest, "fitted, not saved"))
    return found


def _package(name: str) -> str:
    try:
        return f"package {name} {version(name)}"
    except PackageNotFoundError:
        return f"package {name}"
