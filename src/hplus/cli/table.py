"""`hplus evaluate run`, `report`, `protocol`: whole tables, and what they measure."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hplus.cli.common import Device, console
from hplus.cli.sets import BaselinesFolder, Limit, TermsFile, read_terms
from hplus.errors import InputError

if TYPE_CHECKING:
    from hplus.evaluate.results import Cell

PROTOCOL_EXAMPLE = "Example: hplus evaluate protocol broad-deployed"
RUN_EXAMPLE = "Example: hplus evaluate run table.toml"
REPORT_EXAMPLE = "Example: hplus evaluate report results"


def protocol(
    name: Annotated[str, typer.Argument(metavar="[NAME]", help="Its name; without one, all.")] = "",
) -> None:
    """Print a protocol as its own specification, or list all of them."""
    from hplus.evaluate.protocol import load, names

    if name:
        print(load(name), end="")
        return
    for each in names():
        console().print(f"{each:20} {load(each).question}")


def run(
    config: Annotated[
        Path, typer.Argument(metavar="CONFIG.toml", help="Systems, sets, protocols.")
    ],
    out: Annotated[
        Path, typer.Option("--out", help="Folder for tables, plots and the report.")
    ] = Path("results"),
    cache: Annotated[Path, typer.Option("--cache", help="Token states and finished cells.")] = Path(
        "states"
    ),
    data: Annotated[
        Path | None, typer.Option("--data", help="Where the sets lie, else as in the config.")
    ] = None,
    terms: TermsFile = None,
    baselines: BaselinesFolder = None,
    limit: Limit = 0,
    cells: Annotated[
        bool, typer.Option(help="Keep every query's numbers too, for `report`.")
    ] = True,
    device: Device = None,
) -> None:
    """Run a whole table; what is finished is not run again."""
    from dataclasses import replace

    from hplus.evaluate.config import read_config
    from hplus.evaluate.plots import require_matplotlib
    from hplus.evaluate.report import write_report
    from hplus.evaluate.run import run_config

    wanted = read_config(config)
    wanted = replace(wanted, limit=limit or wanted.limit)
    where = data or (config.parent / wanted.data if wanted.data else None)
    if where is None or not where.is_dir():
        raise InputError(f"{where or config} has no sets: give --data DIR or `data` in {config}")
    listed = terms or (config.parent / wanted.terms if wanted.terms else None)
    require_matplotlib()
    groups: dict[Any, dict[str, list[Cell]]] = {}
    times: dict[str, Any] = {}
    found = run_config(
        wanted,
        where,
        cache,
        read_terms(listed),
        lambda line: typer.echo(line, err=True) if sys.stderr.isatty() else None,
        baselines,
        device,
    )
    for measured, system, own, spent in found:
        groups.setdefault(measured, {})[system.name] = own
        times.setdefault(measured.name, {})[system.name] = spent
    write_report(
        out,
        wanted.name,
        list(groups.items()),
        times,
        wanted.seen,
        tasks=[name.split(":")[0] for name in wanted.sets],
        languages=wanted.languages,
        cells=cells,
    )
    console().print(str(out / "report.html"), style="bold")


def report(
    folder: Annotated[
        Path, typer.Argument(metavar="[FOLDER]", help="What `evaluate run` wrote.")
    ] = Path("results"),
) -> None:
    """Write the pages of a finished run again from its numbers."""
    from hplus.evaluate.report import rewrite

    rewrite(folder)
    console().print(str(folder / "report.html"), style="bold")
