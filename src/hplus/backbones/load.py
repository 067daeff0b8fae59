"""From a reference in a checkpoint, or a folder, to a running backbone."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hplus.backbones import Attention, Backbone, mini
from hplus.backbones.bert import Bert
from hplus.backbones.files import check_hashes, encoder_files, read_config
from hplus.errors import BackboneError
from hplus.files import check_regular
from hplus.types import F32

HUB_ID = re.compile(r"[\w-][\w.-]*/[\w.-]+")
"""Only something spelled like this may ever reach the network."""


def load_backbone(
    reference: Mapping[str, Any],
    *,
    device: str | None = None,
    adapter: Mapping[str, F32] | None = None,
    attention: Attention = "bidirectional",
    offline: bool = True,
) -> Backbone:
    """The encoder that `reference` names, its files checked against the recorded hashes.

    device=None serves BERT in onnxruntime and everything else through torch on the CPU; a torch
    device ("cpu", "cuda:0") means torch. attention="causal" is for Qwen3 only. offline: a hub id
    comes from the hub's cache or not at all.
    """
    kind = reference.get("kind")
    if attention == "causal" and kind != "qwen3":
        raise BackboneError(f"attention='causal' is for Qwen3 only, got a {kind} encoder")
    if kind == "mini":
        return _load_mini(reference, device, adapter)
    source = reference.get("path") or reference.get("hub")
    if not isinstance(source, str) or not isinstance(reference.get("files", {}), Mapping):
        raise BackboneError(f"backbone reference {dict(reference)!r} names neither path nor hub")
    if "path" in reference:
        for file in encoder_files(Path(source)):
            check_regular(file, BackboneError)
        check_hashes(Path(source), reference.get("files", {}))
    elif not HUB_ID.fullmatch(source):
        raise BackboneError(f"expected a hub id such as owner/name, got {source!r}")
    if kind == "bert" and device is None:
        return Bert.from_folder(Path(source), adapter)
    place: dict[str, Any] = {
        "device": device or "cpu",
        "adapter": adapter,
        "revision": reference.get("commit"),
        "offline": offline,
    }
    if kind == "qwen3":
        from hplus.backbones import qwen3

        return qwen3.load(source, attention=attention, **place)
    if kind in ("bert", "transformers"):
        from hplus.backbones import transformers_

        return transformers_.load(source, kind=kind, **place)
    raise BackboneError(
        f"backbone kind {kind!r} is unknown; known: mini, bert, transformers, qwen3"
    )


def reference_of_hub(hub_id: str, offline: bool = False) -> dict[str, Any]:
    """A hub id as a reference; its config, fetched because the user named it, decides the kind."""
    from hplus.backbones import transformers_

    kind = "qwen3" if transformers_.model_type(hub_id, offline) == "qwen3" else "transformers"
    return {"kind": kind, "hub": hub_id}


def reference_of_folder(folder: Path) -> dict[str, Any]:
    """A bare encoder folder as a reference: its architecture decides which backbone loads it."""
    config = read_config(folder)
    kinds = {"bert": "bert", "qwen3": "qwen3"}
    return {"kind": kinds.get(str(config.get("model_type")), "transformers"), "path": str(folder)}


def _load_mini(
    reference: Mapping[str, Any], device: str | None, adapter: Mapping[str, F32] | None
) -> Backbone:
    carried = Path(reference["path"]) if "path" in reference else None
    if device is None:
        return mini.load(adapter, carried)
    from hplus.backbones import transformers_

    place = str(mini.verified_folder(carried))
    backbone = transformers_.load(place, device=device, adapter=adapter)
    backbone.reference = mini.reference(carried)
    return backbone
