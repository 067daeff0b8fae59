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
    source = str(reference.get("path") or reference.get("hub") or "")
    if not source:
        raise BackboneError(f"backbone reference {dict(reference)!r} names neither path nor hub")
    _check_hashes(reference)
    if kind == "bert" and device is None:
        return BertNumpy.from_folder(Path(source), adapter)
    if kind == "qwen3":
        from hplus.backbones import qwen3

        return qwen3.load(source, device=device or "cpu", adapter=adapter)
    if kind in ("bert", "transformers"):
        from hplus.backbones import transformers_

        return transformers_.load(source, kind=kind, device=device or "cpu", adapter=adapter)
    raise BackboneError(
        f"backbone kind {kind!r} is unknown; known: mini, bert, transformers, qwen3"
    )


def reference_of_folder(folder: Path) -> dict[str, Any]:
    """A bare encoder folder as a reference: its architecture decides who serves it."""
    config = read_config(folder)
    kinds = {"bert": "bert", "qwen3": "qwen3"}
    return {"kind": kinds.get(str(config.get("model_type")), "transformers"), "path": str(folder)}


def _check_hashes(reference: Mapping[str, Any]) -> None:
    for name, expected in reference.get("files", {}).items():
        path = Path(reference["path"]) / name
        found = sha256(path)
        if found != expected:
            raise BackboneError(
                f"{path} has SHA-256 {found[:16]}…, but the checkpoint was made with "
                f"{expected[:16]}…; put the original file back or train heads for the new one"
            )
