"""`hplus-lab baselines`: other people's retrievers, listed or measured on a set."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from hplus.cli.common import print_json
from hplus.cli.sets import Cache, Limit, Split, read_set
from hplus.errors import InputError

EXAMPLE = "Example: hplus-lab baselines bm25 scifact --limit 20"


def baselines(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="A baseline; without one, all are listed.")
    ] = None,
    folder: Annotated[
        Path | None, typer.Argument(metavar="DIR", help="A BEIR folder, plain or gz.")
    ] = None,
    split: Split = "test",
    weights: Annotated[
        Path | None,
        typer.Option("--baselines", metavar="DIR", help="Weights (docs/baselines.md)."),
    ] = None,
    tokens: Annotated[
        int | None,
        typer.Option("--tokens", min=1, help="Cut texts here instead of where the card says."),
    ] = None,
    limit: Limit = 0,
    cache: Cache = None,
    threads: Annotated[int, typer.Option("--threads", min=1, help="Threads to encode with.")] = 1,
) -> None:
    """List all baselines and what each lacks, or measure one: a JSON line of nDCG@10 and cost."""
    from hplus_lab.baselines import BASELINES, available, cut_at, named

    if name is None:
        for row in BASELINES.values():
            lacks = available(row, folder=weights).missing.removeprefix(f"{row.name} ")
            print(f"{row.name:34} {row.kind:14} {row.width:5}  {lacks or 'ready'}")
        return
    if folder is None:
        raise InputError(f"expected a BEIR folder to measure {name} on")
    from hplus_lab.baselines.measure import measure

    baseline = named(name)
    if tokens is not None:
        baseline = cut_at(baseline, tokens)
    data = read_set(folder, split)
    if limit:
        data = replace(data, queries=data.queries[:limit], query_ids=data.query_ids[:limit])
    line = measure(baseline, data, folder=weights, cache=cache, threads=threads)
    print_json({"set": folder.name, "split": split, **line})
