"""Checkpoints: a folder of JSON and safetensors, checked file by file, never unpickled.

    config.json          format version, recipe, backbone reference + hashes, hashes of the files
    heads.safetensors    crf.{weight, bias, transitions, start, end[, hidden, hidden_bias]},
                         importance.{weight, bias}
    idf.safetensors      idf f32[V]
    adapter.safetensors  LoRA under peft's names, merged at load
    projection.safetensors  training only; the laboratory reads it (`read_projection`)
    README.md            model card

The fingerprint is a SHA-256 over the backbone's hashes, every file that changes an encoding and
the settings that do: two models of one fingerprint give the same units, vectors and weights.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy

from hplus.backbones import Backbone
from hplus.backbones.encode import capacity
from hplus.backbones.files import sha256
from hplus.backbones.load import load_backbone, reference_of_folder, reference_of_hub
from hplus.errors import BackboneError, BudgetError, CheckpointError, InputError
from hplus.heads.crf import CRF
from hplus.heads.importance import Idf, ImportanceHead
from hplus.recipe import Recipe
from hplus.types import F32
from hplus.units import controls

FORMAT = 1
# Raised when code that cuts, pools or weighs changes what it gives for the same weights.
RULES = 2
BUILT_IN = Path(__file__).parent / "checkpoints"
_TENSOR_FILES = ("heads.safetensors", "idf.safetensors", "adapter.safetensors")
_CRF_TENSORS = ("weight", "bias", "transitions", "start", "end")
_HIDDEN_TENSORS = ("hidden", "hidden_bias")


@dataclass(frozen=True)
class Checkpoint:
    """A loaded checkpoint: backbone, heads and recipe, and its provenance."""

    backbone: Backbone
    recipe: Recipe
    crf: CRF | None
    head: ImportanceHead | None
    idf: Idf | None
    adapter: Mapping[str, F32] | None
    """LoRA tensors under peft's names, as in the file; already merged into the backbone."""
    adapter_scale: float
    files: Mapping[str, str]
    """SHA-256 of every tensor file that was read."""
    source: str
    """What to pass to load it again."""
    notes: Mapping[str, Any]
    """What the config says about data, licences and the training command."""


def load(source: str | os.PathLike[str], *, device: str | None = None) -> Checkpoint:
    """A checkpoint folder, the name of a built-in one ("mini"), or a bare encoder folder.

    A bare encoder has no heads: units are content-word runs, every token counts the same until
    `HPlus.fit_idf` is called.
    """
    folder = _find(source)
    if folder is None:
        hub_id = os.fspath(source)
        return _bare(load_backbone(reference_of_hub(hub_id), device=device), hub_id)
    config = _read_config(folder)
    if "format" not in config:
        backbone = load_backbone(reference_of_folder(folder), device=device)
        return _bare(backbone, str(folder.resolve()))
    return _load_folder(folder, config, device)


def fingerprint(checkpoint: Checkpoint, terms: str | None = None) -> str:
    """SHA-256 (hex) of all that decides an encoding; `terms` is a term list's fingerprint."""
    recipe = checkpoint.recipe
    reference = checkpoint.backbone.reference
    identity = {
        "format": FORMAT,
        "rules": RULES,
        "backbone": reference.get("files") or {k: reference.get(k) for k in ("hub", "commit")},
        "files": dict(checkpoint.files),
        "units": recipe.units,
        "importance": recipe.importance,
        "layer": recipe.layer,
        "window": recipe.window,
        "long": recipe.long,
        "terms": terms,
    }
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()


def with_idf(checkpoint: Checkpoint, idf: Idf) -> Checkpoint:
    """The same checkpoint with another idf table, and with its hash in the fingerprint."""
    data = safetensors.numpy.save({"idf": idf.table})
    files = {**checkpoint.files, "idf.safetensors": hashlib.sha256(data).hexdigest()}
    recipe = replace(checkpoint.recipe, importance="idf")
    return replace(checkpoint, idf=idf, files=files, recipe=recipe)


def save(
    folder: str | os.PathLike[str],
    *,
    reference: Mapping[str, Any],
    recipe: Recipe,
    crf: CRF | None = None,
    head: ImportanceHead | None = None,
    idf: Idf | None = None,
    adapter: Mapping[str, F32] | None = None,
    adapter_scale: float = 1.0,
    notes: Mapping[str, Any] | None = None,
    card: str = "",
) -> Path:
    """Write a checkpoint beside its place and rename it there, so that no half of it is seen."""
    target = Path(folder)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise CheckpointError(f"{target} exists and is not empty; choose another folder")
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        files = {}
        for name, tensors in _tensor_files(crf, head, idf, adapter).items():
            (draft / name).write_bytes(safetensors.numpy.save(tensors))
            files[name] = sha256(draft / name)
        config = {"format": FORMAT, **recipe.to_config(), "backbone": dict(reference)}
        config |= {"files": files, "notes": dict(notes or {})}
        if adapter:
            config["adapter"] = {"scale": adapter_scale}
        text = json.dumps(config, indent=2, ensure_ascii=False) + "\n"
        (draft / "config.json").write_text(text, "utf-8")
        (draft / "README.md").write_text(card or f"# {recipe.name}\n\nSaved by hplus.\n", "utf-8")
        for path in draft.iterdir():
            _sync(path)
        if target.exists():
            target.rmdir()
        draft.chmod(0o755)
        draft.rename(target)
        _sync(target.parent)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise
    return target


def read_projection(source: str | os.PathLike[str]) -> tuple[F32, F32] | None:
    """W_T and b_T of eq:token_projection, where training has left them beside the heads.

    No encoding depends on them: they are not in the fingerprint.
    """
    folder, digest = _find(source), projection_digest(source)
    if folder is None or digest is None:
        return None
    tensors = _read_tensors(folder / "projection.safetensors", digest, or_f16=True)
    return tensors["project.weight"], tensors["project.bias"]


def projection_digest(source: str | os.PathLike[str]) -> str | None:
    """Which token projection lies beside the heads, if any does."""
    folder = _find(source)
    return None if folder is None else _read_config(folder).get("projection")


def _find(source: str | os.PathLike[str]) -> Path | None:
    path = Path(source)
    # A bare name is a built-in one first: a folder of that name is ./name.
    if isinstance(source, str) and re.fullmatch(r"[\w-]+", source):
        built_in = BUILT_IN / source
        if built_in.is_dir():
            return built_in
    if os.fspath(source) and path.is_dir():
        return path
    # Only something spelled like a hub id may ever reach the network.
    if isinstance(source, str) and re.fullmatch(r"[\w-][\w.-]*/[\w.-]+", source):
        return None
    names = ", ".join(sorted(folder.name for folder in BUILT_IN.iterdir() if folder.is_dir()))
    raise CheckpointError(
        f"{str(source)!r} is neither a folder nor a built-in checkpoint ({names})"
    )


def _name(folder: Path) -> str:
    """What loads it again: a built-in one goes by its name, on any machine."""
    return folder.name if folder.parent == BUILT_IN else str(folder.resolve())


def _read_config(folder: Path) -> dict[str, Any]:
    path = folder / "config.json"
    try:
        config = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise CheckpointError(f"{path} is missing; not a checkpoint, not an encoder") from None
    except ValueError as error:
        raise CheckpointError(f"{path} is not JSON: {error}") from error
    if not isinstance(config, dict):
        raise CheckpointError(f"{path} holds a {type(config).__name__}, expected an object")
    return config


def _load_folder(folder: Path, config: dict[str, Any], device: str | None) -> Checkpoint:
    path = folder / "config.json"
    if type(config["format"]) is not int or config["format"] != FORMAT:
        raise CheckpointError(
            f"{path} has format {config['format']!r}, this hplus reads {FORMAT}; "
            "update hplus or save the checkpoint again"
        )
    try:
        recipe = Recipe.from_config(config)
        if recipe.units != "crf":
            controls.rule(recipe.units)
        reference = dict(config["backbone"])
        files = dict(config.get("files", {}))
        notes = dict(config.get("notes", {}))
        scale = float(config.get("adapter", {}).get("scale", 1.0))
    except (InputError, TypeError, ValueError, KeyError, AttributeError) as error:
        raise CheckpointError(f"{path} has a wrong setting: {error}") from error
    unknown = sorted(set(files) - set(_TENSOR_FILES))
    if unknown:
        raise CheckpointError(f"{path} names unknown files {unknown}; known: {_TENSOR_FILES}")
    tensors = {name: _read_tensors(folder / name, digest) for name, digest in files.items()}

    adapter = tensors.get("adapter.safetensors")
    merged = None if adapter is None else _from_peft(adapter, scale)
    try:
        if "path" in reference:  # a relative one is meant from the checkpoint's folder
            reference["path"] = str(folder / reference["path"])
        backbone = load_backbone(reference, device=device, adapter=merged)
    except (BackboneError, TypeError) as error:
        raise CheckpointError(f"{path}: {error}") from error

    heads = tensors.get("heads.safetensors", {})
    crf = _crf(heads, backbone.dim, folder)
    head = _importance_head(heads, backbone.dim, folder)
    idf = _idf(tensors.get("idf.safetensors", {}), backbone.tokenizer.vocabulary, folder)
    loaded = Checkpoint(
        backbone, recipe, crf, head, idf, adapter, scale, files, _name(folder), notes
    )
    check(loaded, str(path))
    return loaded


def _bare(backbone: Backbone, source: str) -> Checkpoint:
    recipe = Recipe(name=Path(source).name, window=min(256, backbone.limit))
    return Checkpoint(backbone, recipe, None, None, None, None, 1.0, {}, source, {})


def check(checkpoint: Checkpoint, place: str) -> None:
    """Settings may only ask for what is there: trained heads, widths and windows that fit."""
    recipe, backbone = checkpoint.recipe, checkpoint.backbone
    needs = (
        ("units", "crf", recipe.units, checkpoint.crf, "crf"),
        ("importance", "head", recipe.importance, checkpoint.head, "importance"),
    )
    for setting, value, chosen, part, trained in needs:
        if chosen == value and (part is None or trained not in recipe.trained):
            raise CheckpointError(
                f"{place} asks for {setting} = {value!r}, but "
                + ("heads.safetensors lacks it" if part is None else "does not list it as trained")
                + f"; train it, or set {setting} to a rule that needs no training"
            )
    if recipe.importance == "idf" and checkpoint.idf is None:
        raise CheckpointError(f"{place} asks for importance = 'idf', but there is no idf table")
    for name, width in (("global", recipe.global_width), ("phrase", recipe.phrase_width)):
        if width is not None and width > backbone.dim:
            raise BudgetError(f"{place}: {name} width {width}, but states have {backbone.dim}")
    if recipe.layer is not None and recipe.layer > backbone.depth:
        raise CheckpointError(
            f"{place}: the heads read layer {recipe.layer}, but the backbone has {backbone.depth}"
        )
    capacity(backbone, recipe.window)


def _read_tensors(path: Path, digest: str, *, or_f16: bool = False) -> dict[str, F32]:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise CheckpointError(f"{path} is missing, but config.json lists it") from None
    found = hashlib.sha256(data).hexdigest()
    if found != digest:
        raise CheckpointError(
            f"{path} has SHA-256 {found[:16]}…, config.json says {str(digest)[:16]}…; "
            "the file was changed or cut: copy the checkpoint again"
        )
    try:
        tensors = safetensors.numpy.load(data)
    except (safetensors.SafetensorError, ValueError, TypeError, KeyError) as error:
        raise CheckpointError(f"{path} is not a sound safetensors file: {error}") from error
    for name, tensor in tensors.items():
        known = tensor.dtype == np.float32 or (or_f16 and tensor.dtype == np.float16)
        if not known or not np.isfinite(tensor).all():
            wanted = "float32 or float16" if or_f16 else "float32"
            raise CheckpointError(f"{path}: tensor {name} must hold finite {wanted} numbers")
    return {name: tensor.astype(np.float32, copy=False) for name, tensor in tensors.items()}


def _crf(heads: Mapping[str, F32], dim: int, folder: Path) -> CRF | None:
    named = {name: heads.get(f"crf.{name}") for name in (*_CRF_TENSORS, *_HIDDEN_TENSORS)}
    if all(tensor is None for tensor in named.values()):
        return None
    shapes: dict[str, tuple[int, ...]] = {"weight": (3, dim), "transitions": (3, 3)}
    of_layer = [tensor for name in _HIDDEN_TENSORS if (tensor := named[name]) is not None]
    if not of_layer:
        named = {name: named[name] for name in _CRF_TENSORS}
    else:
        h = of_layer[0].shape[-1] if of_layer[0].ndim else 0
        shapes |= {"weight": (3, h), "hidden": (3, dim, h), "hidden_bias": (h,)}
    parts: dict[str, F32] = {}
    for name, tensor in named.items():
        expected = shapes.get(name, (3,))
        parts[name] = _shaped(tensor, expected, f"crf.{name}", folder / "heads.safetensors")
    return CRF(**parts)


def _importance_head(heads: Mapping[str, F32], dim: int, folder: Path) -> ImportanceHead | None:
    if "importance.weight" not in heads:
        return None
    path = folder / "heads.safetensors"
    weight = _shaped(heads["importance.weight"], (dim,), "importance.weight", path)
    bias = _shaped(heads.get("importance.bias"), (1,), "importance.bias", path)
    return ImportanceHead(weight, float(bias[0]))


def _idf(tensors: Mapping[str, F32], vocabulary: int, folder: Path) -> Idf | None:
    if not tensors:
        return None
    path = folder / "idf.safetensors"
    table = _shaped(tensors.get("idf"), (vocabulary,), "idf", path)
    try:
        return Idf(table)
    except InputError as error:
        raise CheckpointError(f"{path}: {error}") from error


def _shaped(tensor: F32 | None, shape: tuple[int, ...], name: str, path: Path) -> F32:
    if tensor is None or tensor.shape != shape:
        found = "is missing" if tensor is None else f"has shape {tensor.shape}"
        raise CheckpointError(f"{path}: tensor {name} {found}, expected shape {shape}")
    return tensor


def _from_peft(tensors: Mapping[str, F32], scale: float) -> dict[str, F32]:
    """peft's `base_model.model.<layer>.lora_A.weight` -> `<layer>.weight.lora_A`, B scaled."""
    named = {}
    for name, tensor in tensors.items():
        layer, _, part = name.removeprefix("base_model.model.").rpartition(".lora_")
        side = part.removesuffix(".weight")
        if side not in ("A", "B") or not layer:
            raise CheckpointError(f"adapter.safetensors: {name} is not a LoRA tensor of peft's")
        named[f"{layer}.weight.lora_{side}"] = tensor * np.float32(scale if side == "B" else 1)
    return named


def _tensor_files(
    crf: CRF | None,
    head: ImportanceHead | None,
    idf: Idf | None,
    adapter: Mapping[str, F32] | None,
) -> dict[str, dict[str, F32]]:
    heads: dict[str, F32] = {}
    if crf is not None:
        names = _CRF_TENSORS if crf.hidden is None else (*_CRF_TENSORS, *_HIDDEN_TENSORS)
        heads |= {f"crf.{name}": getattr(crf, name) for name in names}
    if head is not None:
        heads["importance.weight"] = head.weight
        heads["importance.bias"] = np.array([head.bias], np.float32)
    files = {
        "heads.safetensors": heads,
        "idf.safetensors": {} if idf is None else {"idf": idf.table},
        "adapter.safetensors": dict(adapter or {}),
    }
    return {name: tensors for name, tensors in files.items() if tensors}


def _sync(path: Path) -> None:
    """Put what was written on the disk; folders can be opened for that on POSIX only."""
    if path.is_dir() and os.name != "posix":
        return
    descriptor = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
