"""From a reference in a checkpoint, or a folder, to a running backbone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hplus.backbones import Backbone, mini
from hplus.backbones.bert_numpy import BertNumpy
from hplus.backbones.files import read_config, sha256
from hplus.errors import BackboneError
from hplus.types import F32


def load_backbone(
    reference: Mapping[str, Any],
    *,
    device: str | None = None,
    adapter: Mapping[str, F32] | None = None,
) -> Backbone:
    """The encoder that `reference` names, its files checked against the recorded hashes.

    device=None serves BERT in numpy and everything else by torch on the CPU; a torch device
    ("cpu", "cuda:0") asks for torch.
    """
    kind = reference.get("kind")
    if kind == "mini":
        if device is None:
            return mini.load(adapter)
        from hplus.backbones import transformers_

        backbone = transformers_.load(str(mini.verified_folder()), device=device, adapter=adapter)
        backbone.reference = dict(mini.REFERENCE)
        return backbone
    source = reference.get("path") or reference.get("hub")
    if not isinstance(source, str) or not isinstance(reference.get("files", {}), Mapping):
        raise BackboneError(f"backbone reference {dict(reference)!r} names neither path nor hub")
    if "path" in reference:
        _check_hashes(Path(source), reference.get("files", {}))
    if kind == "bert" and device is None:
        return BertNumpy.from_folder(Path(source), adapter)
    place: dict[str, Any] = {
        "device": device or "cpu",
        "adapter": adapter,
        "revision": reference.get("commit"),
    }
    if kind == "qwen3":
        from hplus.backbones import qwen3

        return qwen3.load(source, **place)
    if kind in ("bert", "transformers"):
        from hplus.backbones import transformers_

        return transformers_.load(source, kind=kind, **place)
    raise BackboneError(
        f"backbone kind {kind!r} is unknown; known: mini, bert, transformers, qwen3"
    )


def reference_of_hub(hub_id: str) -> dict[str, Any]:
    """A hub id as a reference; its config, fetched because the user named it, decides."""
    from hplus.backbones import transformers_

    kind = "qwen3" if transformers_.model_type(hub_id) == "qwen3" else "transformers"
    return {"kind": kind, "hub": hub_id}


def reference_of_folder(folder: Path) -> dict[str, Any]:
    """A bare encoder folder as a reference: its architecture decides who serves it."""
    config = read_config(folder)
    kinds = {"bert": "bert", "qwen3": "qwen3"}
    return {"kind": kinds.get(str(config.get("model_type")), "transformers"), "path": str(folder)}


def _check_hashes(folder: Path, files: Mapping[str, str]) -> None:
    for name, expected in files.items():
        found = sha256(folder / name)
        if found != expected:
            raise BackboneError(
                f"{folder / name} has SHA-256 {found[:16]}…, but the checkpoint was made with "
                f"{str(expected)[:16]}…; put the original file back or train heads for the new one"
            )
