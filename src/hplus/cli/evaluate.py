"""`hplus evaluate`: how well a model ranks, and what that costs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hplus import DEFAULT_MODEL
from hplus.cli.common import (
    BudgetCount,
    BudgetPolicy,
    Device,
    Json,
    Model,
    Width,
    budget_of,
    console,
    plain_table,
    print_json,
)
from hplus.cli.sets import Cache, Folder, Limit, Split, read_set, states_folder
from hplus.errors import InputError

if TYPE_CHECKING:
    from hplus.evaluate.bench import Result
    from hplus.evaluate.data import RetrievalSet

app = typer.Typer(help="Measure a model on a judged set.", no_args_is_help=True)
EXAMPLE = "Example: hplus evaluate beir scifact --split test --cache states --json"
TREC_EXAMPLE = "Example: hplus evaluate trec run.trec scifact --split test"


@app.command("beir", epilog=EXAMPLE)
def beir(
    folder: Folder,
    split: Split = "test",
    model: Model = DEFAULT_MODEL,
    budget: BudgetCount = None,
    policy: BudgetPolicy = None,
    width: Width = None,
    cache: Cache = None,
    limit: Limit = 0,
    runs: Annotated[
        Path | None, typer.Option("--runs", help="Folder for a TREC run of each view.")
    ] = None,
    device: Device = None,
    json_: Json = False,
) -> None:
    """nDCG@10 of every view over the model's own global top 1,000, with 95 % intervals."""
    from dataclasses import replace

    from hplus.evaluate.bench import POOL, evaluate
    from hplus.evaluate.data import data_hash, sample
    from hplus.evaluate.statistics import interval
    from hplus.model import HPlus

    data = sample(read_set(folder, split), limit, 13)
    settings: dict[str, Any] = {"phrase_width": width} if width else {}
    hplus = HPlus(model, device=device, long="cut", **settings)
    wanted = budget_of(budget, policy)
    if isinstance(wanted, int):  # a count alone keeps the checkpoint's policy
        wanted = replace(hplus.recipe.document_budget, count=wanted, share=None)
    if wanted is not None:
        recipe = replace(hplus.recipe, document_budget=wanted)
        hplus.checkpoint = replace(hplus.checkpoint, recipe=recipe)
    with states_folder(cache) as states:
        try:
            result = evaluate(hplus, data, states)
        except InputError as error:
            raise InputError(f"{folder}: {error}") from None
    if runs is not None:
        _write_runs(runs, data, result, hplus.recipe.name)
    rows: dict[str, dict[str, float]] = {}
    for view, values in result.ndcg10.items():
        spread = interval({folder.name: values})
        rows[view] = {"ndcg10": spread.mean, "low": spread.low, "high": spread.high}
        if view in result.vectors:
            rows[view]["vectors"] = result.vectors[view]
    if json_:
        print_json(
            {
                "set": folder.name,
                "split": split,
                "documents": len(data.documents),
                "queries": len(data.queries),
                "pool": POOL,
                "data_hash": data_hash(data),
                "model": hplus.recipe.name,
                "fingerprint": hplus.fingerprint,
                "budget": str(hplus.recipe.document_budget),
                "width": hplus.recipe.phrase_width or hplus.dim,
                "views": rows,
            }
        )
        return
    print_rows(f"{folder.name} {split}", len(data.queries), rows)


@app.command("trec", epilog=TREC_EXAMPLE)
def trec(
    run_file: Annotated[Path, typer.Argument(metavar="RUN", help="A TREC run, plain or gz.")],
    folder: Folder,
    split: Split = "test",
    measures: Annotated[
        str, typer.Option("--measures", help="Separated by commas.")
    ] = "ndcg@10,ndcg-linear@10,recall@100,mrr@10,map",
    json_: Json = False,
) -> None:
    """Measure any run on a set; judged queries that it lacks count as zero and are listed."""
    from hplus.evaluate.metrics import measure
    from hplus.evaluate.runs import read_run
    from hplus.evaluate.statistics import interval

    data = read_set(folder, split)
    names = [name.strip() for name in measures.split(",")]
    found = measure(read_run(run_file), data.judgements, names)
    rows: dict[str, dict[str, float]] = {}
    for name, values in found.values.items():
        spread = interval({folder.name: values})
        rows[name] = {"mean": spread.mean, "low": spread.low, "high": spread.high}
    if json_:
        print_json({"run": run_file.name, "set": folder.name, "split": split,
                          "queries": len(data.judgements), "missing": found.missing,
                          "measures": rows})  # fmt: skip
        return
    for name, row in rows.items():
        spread_text = f"{100 * row['low']:.1f} to {100 * row['high']:.1f}"
        console().print(f"{name:16} {100 * row['mean']:6.2f}  {spread_text}")
    if found.missing:
        shown = ", ".join(found.missing[:5]) + (" …" if len(found.missing) > 5 else "")
        console().print(f"{len(found.missing)} judged queries are missing: {shown}", style="yellow")


def _write_runs(folder: Path, data: RetrievalSet, result: Result, tag: str) -> None:
    """A TREC run of each view over the pools of candidates."""
    from hplus.evaluate.runs import write_run

    folder.mkdir(parents=True, exist_ok=True)
    for view, scores in result.scores.items():
        run = {
            name: {data.document_ids[i]: float(s) for i, s in zip(pool, own, strict=True)}
            for name, pool, own in zip(data.query_ids, result.pools.tolist(), scores, strict=True)
        }
        write_run(folder / f"{view}.trec", run, f"{tag}-{view}")


def print_rows(
    title: str,
    queries: int,
    rows: dict[str, dict[str, float]],
    measure: str = "nDCG@10",
    key: str = "ndcg10",
) -> None:
    """Lines with their intervals, the best one highlighted; key: of the measure in a row."""
    out = console()
    table = plain_table(title, measure, "95 % interval", "vectors per document")
    best = max(row[key] for row in rows.values())
    for view, row in rows.items():
        table.add_row(
            view,
            f"{100 * row[key]:.1f}",
            f"{100 * row['low']:.1f} to {100 * row['high']:.1f}",
            f"{row['vectors']:.1f}" if "vectors" in row else "",
            style="bold cyan" if row[key] == best else "",
        )
    out.print(table, soft_wrap=False)
    out.print(f"{queries:,} queries", style="grey50")
