"""`hplus evaluate beir`: how well each view ranks a set."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer

from hplus.cli.common import (
    BudgetCount,
    BudgetPolicy,
    Device,
    Json,
    Model,
    Width,
    budget_of,
    console,
)
from hplus.cli.teach import Cache
from hplus.errors import InputError

app = typer.Typer(help="Measure a model.", no_args_is_help=True)
EXAMPLE = "Example: hplus evaluate beir scifact --split test --cache states --json"


@app.command("beir", epilog=EXAMPLE)
def beir(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A BEIR folder, plain or gz.")],
    split: Annotated[str, typer.Option("--split", help="Whose judgements count.")] = "test",
    model: Model = "mini",
    budget: BudgetCount = None,
    policy: BudgetPolicy = None,
    width: Width = None,
    cache: Cache = None,
    device: Device = None,
    json_: Json = False,
) -> None:
    """nDCG@10 of every view over the model's own global top 1,000, with 95 % intervals."""
    from dataclasses import replace

    from hplus.evaluate.beir import POOL, evaluate
    from hplus.evaluate.data import read_beir
    from hplus.evaluate.statistics import interval
    from hplus.model import HPlus

    if not folder.is_dir():
        raise InputError(f"{folder} is no folder; a BEIR folder is expected")
    data = read_beir(folder, split)
    settings: dict[str, Any] = {"phrase_width": width} if width else {}
    hplus = HPlus(model, device=device, long="cut", **settings)
    wanted = budget_of(budget, policy)
    if isinstance(wanted, int):  # a count alone keeps the policy of the checkpoint
        wanted = replace(hplus.recipe.document_budget, count=wanted, share=None)
    if wanted is not None:
        recipe = replace(hplus.recipe, document_budget=wanted)
        hplus.checkpoint = replace(hplus.checkpoint, recipe=recipe)
    with tempfile.TemporaryDirectory() as temporary:
        try:
            result = evaluate(hplus, data, cache or Path(temporary))
        except InputError as error:
            raise InputError(f"{folder}: {error}") from None
    rows: dict[str, dict[str, float]] = {}
    for view, values in result.ndcg10.items():
        spread = interval({folder.name: values})
        rows[view] = {"ndcg10": spread.mean, "low": spread.low, "high": spread.high}
        if view in result.vectors:
            rows[view]["vectors"] = result.vectors[view]
    if json_:
        print(
            json.dumps(
                {
                    "set": folder.name,
                    "split": split,
                    "documents": len(data.documents),
                    "queries": len(data.queries),
                    "pool": POOL,
                    "model": hplus.recipe.name,
                    "fingerprint": hplus.fingerprint,
                    "budget": str(hplus.recipe.document_budget),
                    "width": hplus.recipe.phrase_width or hplus.dim,
                    "views": rows,
                }
            )
        )
        return
    _print(f"{folder.name} {split}", len(data.queries), rows)


def _print(title: str, queries: int, rows: dict[str, dict[str, float]]) -> None:
    from rich.table import Table

    out = console()
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in (title, "nDCG@10", "95 % interval", "vectors a document"):
        table.add_column(column, justify="left" if column == title else "right")
    best = max(row["ndcg10"] for row in rows.values())
    for view, row in rows.items():
        table.add_row(
            view,
            f"{100 * row['ndcg10']:.1f}",
            f"{100 * row['low']:.1f} to {100 * row['high']:.1f}",
            f"{row['vectors']:.1f}" if "vectors" in row else "",
            style="bold cyan" if row["ndcg10"] == best else "",
        )
    out.print(table, soft_wrap=False)
    out.print(f"{queries:,} queries", style="grey50")
