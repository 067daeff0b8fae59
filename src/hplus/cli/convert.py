"""`hplus convert`: any BERT-like encoder as a small, fast, portable checkpoint."""

from __future__ import annotations

from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hplus.cli.common import Json, console, plain_table, print_json, read_texts
from hplus.cli.sets import Cache, Split, read_set, states_folder

if TYPE_CHECKING:
    from hplus.model import HPlus

EXAMPLE = "Example: hplus convert bert-folder small --rotate texts.txt.gz"
# Texts of the demo corpora that the copy is proved on.
PROOF_TEXTS = 60
# Texts read for a rotation before a sample of them is taken.
MOST_TEXTS = 50_000


def convert(
    encoder: Annotated[
        str, typer.Argument(metavar="ENCODER", help="A folder, a checkpoint, or a hub id.")
    ],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The new checkpoint folder.")],
    int8: Annotated[
        bool, typer.Option("--int8/--float32", help="Precision of the encoder's weights.")
    ] = True,
    rotate: Annotated[
        str | None,
        typer.Option(
            "--rotate",
            metavar="FILE",
            help="Texts (.txt, .jsonl, gz); the states are turned onto their principal axes, so "
            "that smaller widths lose less.",
        ),
    ] = None,
    folder: Annotated[
        Path | None, typer.Option("--set", metavar="DIR", help="A BEIR folder to measure both on.")
    ] = None,
    split: Split = "dev",
    cache: Cache = None,
    name: Annotated[str | None, typer.Option("--name", help="Of the checkpoint.")] = None,
    json_: Json = False,
) -> None:
    """Make an encoder small and fast, and prove the copy.

    Units are content-word runs until heads are trained (hplus train heads).
    """
    from hplus.convert import convert, prove
    from hplus.evaluate.data import demo_folder, read_beir
    from hplus.model import HPlus

    original = HPlus(encoder, device="cpu")  # torch: the reference the copy is held against
    texts = None if rotate is None else list(islice(read_texts(rotate), MOST_TEXTS))
    rotation = convert(
        original, out, precision="int8" if int8 else "float32", rotate=texts, name=name or out.name
    )
    copy = HPlus(out)
    sample = [read_beir(demo_folder(language)).documents for language in ("en", "zh")]
    proof = prove(original, copy, [t for s in sample for t in s[:PROOF_TEXTS]], rotation)
    figures: dict[str, Any] = {"out": str(out), "fingerprint": copy.fingerprint, **asdict(proof)}
    if folder is not None:
        with states_folder(cache) as states:
            figures["ndcg10"] = _measured(original, copy, folder, split, states)
    if json_:
        print_json(figures)
        return
    _print(figures, copy)


def _measured(
    original: HPlus, copy: HPlus, folder: Path, split: str, states: Path
) -> dict[str, dict[str, float]]:
    """nDCG@10 of the original and of the copy, and their difference with its interval."""
    from hplus.evaluate.bench import evaluate
    from hplus.evaluate.statistics import interval

    data = read_set(folder, split)
    before, after = (evaluate(model, data, states).ndcg10 for model in (original, copy))
    rows = {}
    for view in before:
        spread = interval({folder.name: after[view] - before[view]})
        rows[view] = {
            "original": float(before[view].mean()),
            "copy": float(after[view].mean()),
            "difference": spread.mean,
            "low": spread.low,
            "high": spread.high,
        }
    return rows


def _print(figures: dict[str, Any], copy: HPlus) -> None:
    out = console()
    backbone = copy.checkpoint.backbone
    out.print(f"{figures['out']}: {backbone.device}, {figures['size'] / 1e6:.1f} MB")
    out.print(
        f"states      cosine with torch {figures['mean']:.4f} on average, "
        f"{figures['hundredth']:.4f} at the lowest hundredth, {figures['lowest']:.4f} at least"
    )
    out.print(f"global      cosine with torch {figures['global_']:.4f} on average")
    faster = figures["speed"] / figures["original_speed"]
    out.print(
        f"speed       {figures['speed']:,.0f} tokens a second on one core, "
        f"{faster:.1f} times torch in float32"
    )
    if "ndcg10" in figures:
        table = plain_table("nDCG@10", "original", "copy", "difference", "95 % interval")
        for view, row in figures["ndcg10"].items():
            low, high = 100 * row["low"], 100 * row["high"]
            table.add_row(
                view,
                f"{100 * row['original']:.1f}",
                f"{100 * row['copy']:.1f}",
                f"{100 * row['difference']:+.2f}",
                f"{low:+.2f} to {high:+.2f}",
            )
        out.print(table, soft_wrap=False)
