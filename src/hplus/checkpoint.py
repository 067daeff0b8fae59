"""Checkpoints: a folder of JSON and safetensors, checked file by file, never unpickled.

    config.json          format version, recipe, backbone reference + hashes, hashes of the files
    heads.safetensors    CRF and importance head (`heads/files.py`)
    idf.safetensors      idf table
    adapter.safetensors  LoRA under peft's names, merged at load
    mean.safetensors     mean of the unit vectors, taken off before they become codes
    encoder/             the encoder and its tokenizer, where the checkpoint carries its own
    README.md            model card

A path in the config is relative to the folder and stays inside it, or absolute: an encoder
elsewhere on this machine. A folder that carries its encoder can be moved, copied and zipped.

The fingerprint is a SHA-256 over the backbone's hashes, every file that changes an encoding and
the settings that do: two models of one fingerprint give the same units, vectors and weights. The
mean changes none of them, only how finely an index rounds: an index keeps its own copy.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import safetensors.numpy

from hplus.arguments import as_path
from hplus.backbones import Backbone
from hplus.backbones.encode import capacity
from hplus.backbones.export import Form, export_encoder
from hplus.backbones.files import sha256
from hplus.backbones.load import HUB_ID, load_backbone, reference_of_folder, reference_of_hub
from hplus.backbones.published import published_settings
from hplus.errors import BackboneError, BudgetError, CheckpointError, InputError
from hplus.files import read_object, sync
from hplus.heads.crf import CRF
from hplus.heads.files import (
    head_tensors,
    read_crf,
    read_idf,
    read_importance,
    read_lexical,
    read_mean,
    read_tensors,
)
from hplus.heads.importance import Idf, ImportanceHead
from hplus.heads.lexical import LexicalHead
from hplus.installed import folder_of, names, remedy
from hplus.recipe import Recipe, Side
from hplus.types import F32
from hplus.units import patterns, rules

FORMAT = 1
# Raised when code that divides, pools or weighs gives something else for the same weights.
RULES = 2
ENCODER = "encoder"
# Folders of other machines, on Windows: reading one is a network call.
_SHARES = ("\\\\", "//")
MEAN = "mean.safetensors"
_TENSOR_FILES = ("heads.safetensors", "idf.safetensors", "adapter.safetensors", MEAN)
# Settings that joined the recipe later: a fingerprint has them only where they differ from these.
_SINCE = ("pooling", "mean_over", "attention", "query_prompt", "document_prompt", "lexical")


@dataclass(frozen=True)
class Checkpoint:
    """A loaded checkpoint: backbone, heads and recipe, and its provenance."""

    backbone: Backbone
    recipe: Recipe
    crf: CRF | None = None
    head: ImportanceHead | None = None
    idf: Idf | None = None
    adapter: Mapping[str, F32] | None = None
    """LoRA tensors under peft's names, as in the file; already merged into the backbone."""
    adapter_scale: float = 1.0
    files: Mapping[str, str] = field(default_factory=dict)
    """SHA-256 of every tensor file that was read."""
    source: str = ""
    """What to pass to load it again."""
    notes: Mapping[str, Any] = field(default_factory=dict)
    """What the config says about data, licences and the training command."""
    lexical: LexicalHead | None = None
    mean: F32 | None = None
    """The mean of the unit vectors of open texts, f32[d]; its first columns serve a smaller
    width."""

    @property
    def name(self) -> str:
        """A built-in checkpoint's name, a hub id, or the name of the folder; see `locate`."""
        path = Path(self.source)
        return path.name if path.is_absolute() else self.source


def load(
    source: str | os.PathLike[str],
    *,
    device: str | None = None,
    offline: bool = False,
    settings: Mapping[str, Any] | None = None,
) -> Checkpoint:
    """A checkpoint folder, an installed one by name ("small", "zh"), a bare encoder folder, or a
    hub id.

    A bare encoder has no heads: units are content-word runs, every token counts the same until
    `HPlus.fit_idf` is called; pooling and prompts are those its authors publish with it.
    offline: take a hub id from the hub's cache only. The encoder that a checkpoint folder names
    always comes from there: only a hub id that the user gives may reach the network.
    settings: fields of the recipe to replace.
    """
    settings = settings or {}
    folder = _find(source)
    if folder is None:
        hub_id = os.fspath(source)
        return _bare(reference_of_hub(hub_id, offline), hub_id, device, settings, offline)
    config = _read_config(folder)
    if "format" not in config:
        return _bare(reference_of_folder(folder), str(folder.resolve()), device, settings, True)
    return _load_folder(folder, config, device, settings)


def locate(name: str, *folders: Path) -> str:
    """What to load for a `Checkpoint.name`: a built-in name or hub id as it is, a folder's name
    in the first of `folders` that has it."""
    local = not name.startswith(_SHARES)
    if (local and Path(name).is_absolute()) or folder_of(name) or HUB_ID.fullmatch(name):
        return name
    if Path(name).name == name and name not in ("", ".."):
        for folder in folders:
            if (folder / name / "config.json").is_file():
                return str((folder / name).resolve())
    if missing := remedy(name):
        raise CheckpointError(missing)
    places = ", ".join(map(str, folders))
    raise CheckpointError(f"no model {name!r} in {places or 'the package'}; say where it is")


def fingerprint(checkpoint: Checkpoint, terms: str | None = None) -> str:
    """SHA-256 (hex) of all that decides an encoding; `terms` is a term list's fingerprint."""
    recipe = checkpoint.recipe
    reference = checkpoint.backbone.reference
    identity = {
        "format": FORMAT,
        "rules": RULES,
        "backbone": reference.get("files") or {k: reference.get(k) for k in ("hub", "commit")},
        "files": {name: digest for name, digest in checkpoint.files.items() if name != MEAN},
        "units": recipe.units,
        "importance": recipe.importance,
        "layer": recipe.layer,
        "window": recipe.window,
        "long": recipe.long,
        "terms": terms,
    }
    if recipe.patterns and recipe.units == "crf":
        identity["patterns"] = patterns.version()
    return hashlib.sha256(
        json.dumps(identity | reading_settings(recipe), sort_keys=True).encode()
    ).hexdigest()


def reading_settings(recipe: Recipe) -> dict[str, str]:
    """Pooling, attention and prompts where they are not the recipe's defaults."""
    usual = Recipe()
    return {
        name: getattr(recipe, name)
        for name in _SINCE
        if getattr(recipe, name) != getattr(usual, name)
    }


def with_idf(checkpoint: Checkpoint, idf: Idf) -> Checkpoint:
    """The same checkpoint with another idf table, and with its hash in the fingerprint."""
    data = safetensors.numpy.save({"idf": idf.table})
    files = {**checkpoint.files, "idf.safetensors": hashlib.sha256(data).hexdigest()}
    recipe = replace(checkpoint.recipe, importance="idf")
    return replace(checkpoint, idf=idf, files=files, recipe=recipe)


def save(
    folder: str | os.PathLike[str],
    checkpoint: Checkpoint,
    *,
    include_encoder: bool = False,
    form: Form | None = None,
    card: str = "",
) -> Path:
    """Write a checkpoint beside its place and rename it there, so that it appears all at once.

    include_encoder: put the encoder, any adapter merged, and its tokenizer into the folder; else
    the config says where they are. form: how to write that encoder, None as it is.
    """
    target = as_path("folder", folder)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise CheckpointError(f"{target} exists and is not empty; choose another folder")
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        _write(draft, checkpoint, include_encoder, form)
        about = card or f"# {checkpoint.recipe.name}\n\nSaved by hplus.\n"
        (draft / "README.md").write_text(about, "utf-8")
        for path in (*draft.rglob("*"), draft):
            sync(path)
        if target.exists():
            target.rmdir()
        draft.chmod(0o755)
        draft.rename(target)
        sync(target.parent)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise
    return target


def _write(folder: Path, checkpoint: Checkpoint, include_encoder: bool, form: Form | None) -> None:
    adapter, scale = checkpoint.adapter, checkpoint.adapter_scale
    reference = dict(checkpoint.backbone.reference)
    if include_encoder:
        merged = None if adapter is None else _from_peft(adapter, scale)
        reference = export_encoder(checkpoint.backbone, folder / ENCODER, merged, form)
        reference["path"] = ENCODER
        adapter = None
    contents = {
        "heads.safetensors": head_tensors(checkpoint.crf, checkpoint.head, checkpoint.lexical),
        "idf.safetensors": {} if checkpoint.idf is None else {"idf": checkpoint.idf.table},
        "adapter.safetensors": dict(adapter or {}),
        MEAN: {} if checkpoint.mean is None else {"mean": checkpoint.mean},
    }
    files = {}
    for name, tensors in contents.items():
        if tensors:
            (folder / name).write_bytes(safetensors.numpy.save(tensors))
            files[name] = sha256(folder / name)
    config = {"format": FORMAT, **checkpoint.recipe.to_config(), "backbone": reference}
    config |= {"files": files, "notes": dict(checkpoint.notes)}
    if adapter:
        config["adapter"] = {"scale": scale}
    text = json.dumps(config, indent=2, ensure_ascii=False) + "\n"
    (folder / "config.json").write_text(text, "utf-8")


def _find(source: str | os.PathLike[str]) -> Path | None:
    path = as_path("source", source)
    # A bare name is a built-in one first: a folder of that name is ./name.
    if isinstance(source, str) and (installed := folder_of(source)):
        return installed
    if os.fspath(source) and path.is_dir():
        return path
    if isinstance(source, str) and HUB_ID.fullmatch(source):
        return None
    if missing := remedy(str(source)):
        raise CheckpointError(missing)
    raise CheckpointError(
        f"{str(source)!r} is neither a folder nor a built-in checkpoint ({', '.join(names())})"
    )


def _name(folder: Path) -> str:
    """What loads it again: an installed checkpoint by its name, on any machine."""
    return folder.name if folder_of(folder.name) == folder else str(folder.resolve())


def _read_config(folder: Path) -> dict[str, Any]:
    path = folder / "config.json"
    try:
        return read_object(path, CheckpointError)
    except FileNotFoundError:
        raise CheckpointError(
            f"{path} is missing; expected a checkpoint or an encoder folder"
        ) from None


def _load_folder(
    folder: Path, config: dict[str, Any], device: str | None, settings: Mapping[str, Any]
) -> Checkpoint:
    path = folder / "config.json"
    if type(config["format"]) is not int or config["format"] != FORMAT:
        raise CheckpointError(
            f"{path} has format {config['format']!r}, this hplus reads {FORMAT}; "
            "update hplus or save the checkpoint again"
        )
    try:
        recipe = Recipe.from_config(config)
        if recipe.units != "crf":
            rules.rule(recipe.units)
        reference = dict(config["backbone"])
        files = dict(config.get("files", {}))
        notes = dict(config.get("notes", {}))
        scale = float(config.get("adapter", {}).get("scale", 1.0))
    except (InputError, TypeError, ValueError, KeyError, AttributeError) as error:
        raise CheckpointError(f"{path} has a wrong setting: {error}") from error
    unknown = sorted(set(files) - set(_TENSOR_FILES))
    if unknown:
        raise CheckpointError(f"{path} names unknown files {unknown}; known: {_TENSOR_FILES}")
    recipe = _changed(recipe, settings)
    tensors = {name: read_tensors(folder / name, digest) for name, digest in files.items()}

    adapter = tensors.get("adapter.safetensors")
    merged = None if adapter is None else _from_peft(adapter, scale)
    try:
        if "path" in reference:
            reference["path"] = _resolved(folder, reference["path"])
        backbone = load_backbone(
            reference, device=device, adapter=merged, attention=recipe.attention, offline=True
        )
    except (BackboneError, TypeError, ValueError, OSError) as error:
        raise CheckpointError(f"{path}: {error}") from error

    heads = tensors.get("heads.safetensors", {})
    crf = read_crf(heads, backbone.dim, folder)
    head = read_importance(heads, backbone.dim, folder)
    vocabulary = backbone.tokenizer.vocabulary
    idf = read_idf(tensors.get("idf.safetensors", {}), vocabulary, folder)
    lexical = read_lexical(heads, backbone.dim, vocabulary, folder)
    mean = read_mean(tensors.get(MEAN, {}), backbone.dim, folder)
    loaded = Checkpoint(
        backbone, recipe, crf, head, idf, adapter, scale, files, _name(folder), notes, lexical, mean
    )
    check(loaded, loaded.source if settings else str(path))
    return loaded


def _resolved(folder: Path, recorded: str) -> str:
    """Where an encoder is: inside the checkpoint's folder, or at an absolute path."""
    if str(recorded).startswith(_SHARES):
        raise BackboneError(f"expected an encoder on this machine, got {recorded!r}")
    place = folder / recorded
    if place.is_absolute() and Path(recorded).is_absolute():
        if not place.is_dir():
            raise BackboneError(
                f"the encoder was at {recorded} when this was saved, and is not on this machine; "
                "copy it there, or save again with include_encoder=True"
            )
        return str(place)
    if ".." in Path(recorded).parts or not place.resolve().is_relative_to(folder.resolve()):
        raise BackboneError(
            f"expected the encoder's path inside {folder} or absolute, got {recorded!r}, which "
            f"leads to {place.resolve()}"
        )
    return str(place)


def _bare(
    reference: dict[str, Any],
    source: str,
    device: str | None,
    settings: Mapping[str, Any],
    offline: bool,
) -> Checkpoint:
    place = str(reference.get("path") or reference["hub"])
    published = published_settings(place, reference["kind"], settings, offline=offline)
    try:
        recipe = Recipe(name=Path(source).name, **published)
    except InputError as error:
        raise BackboneError(f"{place}: {error}") from error
    recipe = _changed(recipe, settings)
    backbone = load_backbone(reference, device=device, attention=recipe.attention, offline=offline)
    if "window" not in settings:
        recipe = replace(recipe, window=min(recipe.window, backbone.limit))
    bare = Checkpoint(backbone, recipe, source=source)
    check(bare, source)
    return bare


def _changed(recipe: Recipe, settings: Mapping[str, Any]) -> Recipe:
    """A recipe with the user's settings in place of its own."""
    known = sorted(set(recipe.__dataclass_fields__) - {"name", "trained"})
    unknown = sorted(set(settings) - set(known))
    if unknown:
        raise InputError(f"unknown settings {unknown}; known: {', '.join(known)}")
    changed = replace(recipe, **settings)
    if changed.units != "crf":
        rules.rule(changed.units)  # an unknown name fails here, not at the first text
    return changed


def check(checkpoint: Checkpoint, place: str) -> None:
    """Refuse settings that the parts cannot serve: heads not trained, widths, windows, layers."""
    recipe, backbone = checkpoint.recipe, checkpoint.backbone
    needs = (
        ("units", "crf", recipe.units, checkpoint.crf, "crf", "runs"),
        ("importance", "head", recipe.importance, checkpoint.head, "importance", "uniform"),
        ("lexical", "head", recipe.lexical, checkpoint.lexical, "lexical", "importance"),
    )
    for setting, value, chosen, part, trained, untrained in needs:
        if chosen == value and (part is None or trained not in recipe.trained):
            raise CheckpointError(
                f"{place} has {setting} = {value!r}, but "
                + ("heads.safetensors lacks it" if part is None else "does not list it as trained")
                + f'; train it, or put "{setting}": "{untrained}" into config.json'
            )
    if recipe.importance == "idf" and checkpoint.idf is None:
        raise CheckpointError(f"{place} has importance = 'idf', but there is no idf table")
    for name, width in (("global", recipe.global_width), ("phrase", recipe.phrase_width)):
        if width is not None and width > backbone.dim:
            raise BudgetError(
                f"{place}: expected a {name} width of at most {backbone.dim}, got {width}"
            )
    if recipe.layer is not None and recipe.layer > backbone.depth:
        raise CheckpointError(
            f"{place}: the heads read layer {recipe.layer}, but the backbone has {backbone.depth}"
        )
    for side in get_args(Side):
        capacity(backbone, recipe.reading(side))


def _from_peft(tensors: Mapping[str, F32], scale: float) -> dict[str, F32]:
    """peft's `base_model.model.<layer>.lora_A.weight` -> `<layer>.weight.lora_A`, B scaled."""
    named = {}
    for name, tensor in tensors.items():
        layer, _, part = name.removeprefix("base_model.model.").rpartition(".lora_")
        side = part.removesuffix(".weight")
        if side not in ("A", "B") or not layer:
            raise CheckpointError(f"adapter.safetensors: {name} is not one of peft's LoRA tensors")
        named[f"{layer}.weight.lora_{side}"] = tensor * np.float32(scale if side == "B" else 1)
    return named
