"""`hplus evaluate`: how well a model ranks, by which protocol, at what cost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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
from hplus.cli.sets import (
    BaselinesFolder,
    Folder,
    Limit,
    Split,
    TermsFile,
    read_set,
    read_terms,
    states_folder,
)
from hplus.cli.teach import Cache
from hplus.errors import InputError

if TYPE_CHECKING:
    from hplus.evaluate.beir import Result
    from hplus.evaluate.data import RetrievalSet

app = typer.Typer(help="Measure a model.", no_args_is_help=True)
EXAMPLE = "Example: hplus evaluate beir scifact --split test --cache states --json"
TREC_EXAMPLE = "Example: hplus evaluate trec run.trec scifact --split test"


@app.command("beir", epilog=EXAMPLE)
def beir(
    folder: Folder,
    split: Split = "test",
    protocol: Annotated[
        str,
        typer.Option(
            "--protocol", help="A frozen protocol (`hplus evaluate protocol` lists them)."
        ),
    ] = "",
    model: Model = "mini",
    terms: TermsFile = None,
    dev: Annotated[
        list[str] | None,
        typer.Option("--dev", help="DIR:SPLIT to tune on, where the protocol tunes; repeatable."),
    ] = None,
    budget: BudgetCount = None,
    policy: BudgetPolicy = None,
    width: Width = None,
    cache: Cache = None,
    baselines: BaselinesFolder = None,
    limit: Limit = 0,
    runs: Annotated[
        Path | None, typer.Option("--runs", help="Folder for a TREC run of each view.")
    ] = None,
    times: Annotated[
        Path | None, typer.Option("--times", help="JSON file for a protocol's times.")
    ] = None,
    device: Device = None,
    json_: Json = False,
) -> None:
    """nDCG@10 with 95 % intervals: every view over the own global top 1,000, or by a protocol."""
    data = read_set(folder, split)
    if protocol:
        if budget is not None or policy is not None or width is not None:
            raise InputError("a protocol fixes budget and width; leave --budget and --width out")
        if runs is not None:
            raise InputError("--runs goes without --protocol: one run a view, not one a line")
        _by_protocol(
            folder,
            split,
            data,
            protocol,
            model,
            dev or [],
            cache,
            times,
            json_,
            terms=read_terms(terms),
            baselines=baselines,
            limit=limit,
            device=device,
        )
        return
    for option, given in {
        "--terms": terms, "--dev": dev, "--baselines": baselines, "--times": times
    }.items():  # fmt: skip
        if given:
            raise InputError(f"{option} goes with --protocol NAME")
    if limit:
        from hplus.evaluate.run import sample

        data = sample(data, limit, 13)
    _steer(folder, split, data, model, budget_of(budget, policy), width, cache, runs, device, json_)


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
    """Measure anybody's run on a set; judged queries that it lacks count zero and are named."""
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
        print(json.dumps({"run": run_file.name, "set": folder.name, "split": split,
                          "queries": len(data.judgements), "missing": found.missing,
                          "measures": rows}))  # fmt: skip
        return
    for name, row in rows.items():
        spread_text = f"{100 * row['low']:.1f} to {100 * row['high']:.1f}"
        console().print(f"{name:16} {100 * row['mean']:6.2f}  {spread_text}")
    if found.missing:
        shown = ", ".join(found.missing[:5]) + (" …" if len(found.missing) > 5 else "")
        console().print(f"{len(found.missing)} judged queries are missing: {shown}", style="yellow")


def _by_protocol(
    folder: Path,
    split: str,
    data: RetrievalSet,
    name: str,
    model: str,
    dev: list[str],
    cache: Path | None,
    times_file: Path | None,
    json_: bool,
    **options: Any,
) -> None:
    from hplus.evaluate.config import System
    from hplus.evaluate.protocol import load
    from hplus.evaluate.results import contrasts, macro, write_json
    from hplus.evaluate.run import measure

    protocol = load(name)
    if times_file is not None and not times_file.parent.is_dir():
        raise InputError(f"--times {times_file}: {times_file.parent} is no folder")
    for option, given, used in (
        ("--terms", options["terms"], protocol.boundaries == "model+terms"),
        ("--dev", dev, protocol.kind == "fusion"),
        ("--baselines", options["baselines"], protocol.kind == "shared-pool"),
    ):
        if given and not used:
            raise InputError(f"protocol {protocol.name} does not use {option}; leave it out")
    tuned: list[tuple[str, RetrievalSet]] = []
    for item in dev:
        where, _, part = item.rpartition(":")
        if not where:
            raise InputError(f"--dev {item}: DIR:SPLIT is expected")
        tuned.append((item, read_set(Path(where), part)))
    with states_folder(cache) as states:
        cell, times = measure(
            System(model, model),
            protocol,
            folder.name,
            data,
            states,
            split=split,
            dev=lambda: tuned,
            **options,
        )
    if times_file is not None:
        write_json(times_file, times)
    rows: dict[str, dict[str, Any]] = {}
    for line in cell.lines.values():
        spread = macro([cell], line.name)
        rows[line.name] = {"ndcg10": spread.mean, "low": spread.low, "high": spread.high}
        if line.cost is not None:
            rows[line.name] |= vars(line.cost)
        rows[line.name] |= line.facts
    family = contrasts([cell], protocol.families())
    if json_:
        print(json.dumps({
            "protocol": protocol.name, "protocol_hash": protocol.hash, "set": folder.name,
            "split": split, "documents": cell.documents, "queries": len(cell.query_ids),
            "model": cell.system, "fingerprint": cell.fingerprint, "terms": cell.terms,
            "data_hash": cell.data_hash, "pool_hash": cell.pool_hash, "lines": rows,
            "contrasts": [
                {"ours": c.ours, "theirs": c.theirs, **vars(d), "p_holm": p} for c, d, p in family
            ],
        }))  # fmt: skip
        return
    _print(f"{folder.name} {split}, {protocol.name}", len(cell.query_ids), rows)
    for contrast, found, corrected in family:
        style = "bold" if corrected < 0.05 else "grey50"
        console().print(
            f"{contrast.ours} - {contrast.theirs}: {100 * found.mean:+.2f} "
            f"({100 * found.low:+.2f} to {100 * found.high:+.2f}), p {corrected:.4f} after Holm",
            style=style,
        )


def _steer(
    folder: Path,
    split: str,
    data: RetrievalSet,
    model: str,
    wanted: Any,
    width: int | None,
    cache: Path | None,
    runs: Path | None,
    device: str | None,
    json_: bool,
) -> None:
    from dataclasses import replace

    from hplus.evaluate.beir import POOL, evaluate
    from hplus.evaluate.results import data_hash
    from hplus.evaluate.statistics import interval
    from hplus.model import HPlus

    settings: dict[str, Any] = {"phrase_width": width} if width else {}
    hplus = HPlus(model, device=device, long="cut", **settings)
    if isinstance(wanted, int):  # a count alone keeps the policy of the checkpoint
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
        print(
            json.dumps(
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
        )
        return
    _print(f"{folder.name} {split}", len(data.queries), rows)


def _write_runs(folder: Path, data: RetrievalSet, result: Result, tag: str) -> None:
    """A TREC run of each view over the pools."""
    from hplus.evaluate.runs import write_run

    folder.mkdir(parents=True, exist_ok=True)
    for view, scores in result.scores.items():
        run = {
            name: {data.document_ids[i]: float(s) for i, s in zip(pool, own, strict=True)}
            for name, pool, own in zip(data.query_ids, result.pools.tolist(), scores, strict=True)
        }
        write_run(folder / f"{view}.trec", run, f"{tag}-{view}")


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
    if any(row.get("degenerate") for row in rows.values()):
        out.print("The pool holds most of the corpus: it gates little.", style="yellow")
