"""How an encoder's authors use it: pooling and prompts, from the files of sentence-transformers.

    1_Pooling/config.json               pooling_mode_cls_token, pooling_mode_mean_tokens, …
    config_sentence_transformers.json   prompts by name, default_prompt_name

An encoder without these files is pooled by the mean and gets no prompt.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path
from typing import Any

from hplus.errors import BackboneError
from hplus.files import read_object

_MODES = {
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_cls_token": "cls",
    "pooling_mode_lasttoken": "last",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len",
    "pooling_mode_weightedmean_tokens": "weightedmean",
}
# The names under which sentence-transformers looks for the prompt of each side, the first first.
_PROMPTS = {"query": ("query",), "document": ("document", "passage", "corpus")}


def published_settings(
    source: str, kind: str, chosen: Collection[str] = (), *, offline: bool = True
) -> dict[str, Any]:
    """Fields of a recipe that the encoder's own files decide.

    source: a folder or a hub id. kind: of the backbone. chosen: fields that the user has decided,
    which are left out.
    """
    find = _in_folder if Path(source).is_dir() else partial(_on_hub, offline=offline)
    settings = _pooling(find, source, kind, chosen) | _prompts(find, source)
    return {name: value for name, value in settings.items() if name not in chosen}


def _pooling(
    find: Callable[[str, str], Path | None], source: str, kind: str, chosen: Collection[str]
) -> dict[str, Any]:
    path = find(source, "1_Pooling/config.json")
    if path is None:
        return {}
    config = read_object(path, BackboneError)
    modes = [name for key, name in _MODES.items() if config.get(key)]
    if "pooling_mode" in config:  # as newer versions write it
        modes = [str(config["pooling_mode"]).replace("lasttoken", "last")]
    # A decoder pooled at its last token was trained to read from left to right.
    causal = {"attention": "causal"} if kind == "qwen3" and modes == ["last"] else {}
    if "pooling" in chosen:
        return causal
    if len(modes) != 1 or modes[0] not in ("mean", "cls", "last"):
        raise BackboneError(
            f"{path}: expected mean, cls or last-token pooling, got {' + '.join(modes) or 'none'}; "
            "choose one with pooling=…"
        )
    if modes == ["mean"] and not config.get("include_prompt", True) and "mean_over" not in chosen:
        raise BackboneError(
            f"{path}: include_prompt = false is not supported; choose mean_over='all' or 'text'"
        )
    return {"pooling": modes[0], **causal}


def _prompts(find: Callable[[str, str], Path | None], source: str) -> dict[str, Any]:
    path = find(source, "config_sentence_transformers.json")
    if path is None:
        return {}
    config = read_object(path, BackboneError)
    prompts = config.get("prompts") or {}
    if not isinstance(prompts, dict):
        raise BackboneError(f"{path}: expected prompts by name, got {prompts!r}")
    settings = {}
    for side, names in _PROMPTS.items():
        name = next((n for n in names if n in prompts), config.get("default_prompt_name"))
        settings[f"{side}_prompt"] = prompts.get(name) or ""
    return settings


def _in_folder(folder: str, name: str) -> Path | None:
    path = Path(folder) / name
    return path if path.exists() else None


def _on_hub(hub_id: str, name: str, *, offline: bool) -> Path | None:
    from hplus.backbones import transformers_

    return transformers_.hub_file(hub_id, name, offline=offline)
