"""`hplus-lab run`, `report`, `plot`, `protocol`: whole tables, and what they measure."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hplus.cli.common import Device, console
from hplus.cli.sets import Limit
from hplus.errors import InputError
from hplus_lab.cli.options import BaselinesFolder, TermsFile, read_terms

if TYPE_CHECKING:
    from hplus_lab.cell import Cell
    from hplus_lab.clock import Times
    from hplus_lab.protocol import Protocol

PROTOCOL_EXAMPLE = "Example: hplus-lab protocol broad-deployed"
RUN_EXAMPLE = "Example: hplus-lab run table.toml --out results --plots"
REPORT_EXAMPLE = "Example: hplus-lab report results"
PLOT_EXAMPLE = "Example: hplus-lab plot results --out plots"

Folder = Annotated[Path, typer.Argument(metavar="RESULTS", help="What `hplus-lab run` wrote.")]


def protocol(
    name: Annotated[str, typer.Argument(metavar="[NAME]", help="Its name; without one, all.")] = "",
) -> None:
    """Print a protocol as its own specification, or list all of them."""
    from hplus_lab.protocols import load, names

    if name:
        print(load(name), end="")
        return
    for each in names():
        console().print(f"{each:20} {load(each).question}")


def run(
    config: Annotated[
        Path, typer.Argument(metavar="CONFIG.toml", help="Systems, sets, protocols.")
    ],
    out: Annotated[Path, typer.Option("--out", help="Folder for the results.")] = Path("results"),
    cache: Annotated[Path, typer.Option("--cache", help="Token states and finished cells.")] = Path(
        "states"
    ),
    data: Annotated[
        Path | None, typer.Option("--data", help="Folder of the sets, else as in the config.")
    ] = None,
    terms: TermsFile = None,
    baselines: BaselinesFolder = None,
    limit: Limit = 0,
    plots: Annotated[bool, typer.Option("--plots", help="Draw plots too.")] = False,
    device: Device = None,
) -> None:
    """Run a whole table; what is finished is not run again."""
    from dataclasses import replace

    from hplus_lab.config import read_config
    from hplus_lab.experiment import Inputs
    from hplus_lab.measure import run_config
    from hplus_lab.plots import plot_results
    from hplus_lab.report import write_pages
    from hplus_lab.results import Findings, write_results
    from hplus_lab.summary import summarise

    wanted = read_config(config)
    wanted = replace(wanted, limit=limit or wanted.limit)
    where = data or (config.parent / wanted.data if wanted.data else None)
    if where is None or not where.is_dir():
        raise InputError(
            f"{where or config}: no folder of sets; give --data DIR or `data` in {config}"
        )
    listed = terms or (config.parent / wanted.terms if wanted.terms else None)
    measured: dict[Protocol, list[Cell]] = {}
    times: dict[str, dict[str, dict[str, Times]]] = {}
    inputs = Inputs(read_terms(listed), baselines=baselines)
    for own, system, cells, spent in run_config(wanted, where, cache, inputs, _note, device):
        measured.setdefault(own, []).extend(cells)
        times.setdefault(own.name, {})[system.name] = spent
    tasks = [name.split(":")[0] for name in wanted.sets]
    summaries = [
        summarise(own, cells, wanted.seen, tasks=tasks, languages=wanted.languages)
        for own, cells in measured.items()
    ]
    write_results(out, Findings(wanted.name, summaries, times, wanted.seen, wanted.languages))
    write_pages(out)
    if plots:
        plot_results(out, out / "plots")
    console().print(str(out / "report.md"), style="bold")


def report(folder: Folder) -> None:
    """Write report.md and times.md again from summary.json and times.json."""
    from hplus_lab.report import write_pages

    write_pages(folder)
    console().print(str(folder / "report.md"), style="bold")


def plot(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="RESULTS|BUDGET.json",
            help="What `hplus-lab run` wrote, or a file of `hplus evaluate budget --out`.",
        ),
    ],
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder for the SVG files; RESULTS/plots.")
    ] = None,
) -> None:
    """Draw curves, gains, and quality against bytes."""
    from hplus_lab.plots import plot_budgets, plot_results

    if source.suffix == ".json":
        found = [plot_budgets(source, out or source.parent)]
    else:
        found = plot_results(source, out or source / "plots")
    for path in found:
        console().print(str(path))


def _note(line: str) -> None:
    if sys.stderr.isatty():
        typer.echo(line, err=True)
