"""`hplus evaluate budget`: how small an index may be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hplus.cli.common import Json, Model, console
from hplus.cli.sets import Folder, Limit, Split, read_set, states_folder
from hplus.cli.teach import Cache

if TYPE_CHECKING:
    from hplus.evaluate.budget import Setting

EXAMPLE = "Example: hplus evaluate budget scifact --cache states --limit 100"


def budget(
    folder: Folder,
    split: Split = "test",
    model: Model = "mini",
    units: Annotated[
        str | None, typer.Option("--units", help="A rule in place of the model's cut: runs, words…")
    ] = None,
    importance: Annotated[
        str | None, typer.Option("--importance", help="head, idf or uniform, not the model's own.")
    ] = None,
    cache: Cache = None,
    limit: Limit = 300,
    json_: Json = False,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", metavar="NAME", help="Write NAME.json, NAME.md and its plot as well."
        ),
    ] = None,
) -> None:
    """Quality against bytes a document over budgets, widths and formats; and what to take.

    Beside it token pooling: as many vectors, made by clustering a document's tokens.
    """
    from hplus.evaluate.beir import Bench
    from hplus.evaluate.budget import BUDGETS, WIDTHS, efficient, recommend, settings
    from hplus.evaluate.budget_report import facts
    from hplus.evaluate.plots import require_matplotlib
    from hplus.evaluate.results import data_hash
    from hplus.evaluate.run import sample
    from hplus.index.segment import FORMATS
    from hplus.model import HPlus
    from hplus.progress import show_progress

    if out is not None:  # what cannot be written is told before minutes of measuring
        require_matplotlib()
        (out.parent / "plots").mkdir(parents=True, exist_ok=True)
    data = sample(read_set(folder, split), limit, 13)
    changed = {"units": units, "importance": importance}
    hplus = HPlus(model, long="cut", **{key: value for key, value in changed.items() if value})
    with states_folder(cache) as states:
        bench = Bench(hplus, data, states)
        total = (len(BUDGETS) + 1) * len({*(w for w in WIDTHS if w < hplus.dim), hplus.dim})
        with show_progress("settings", total * len(FORMATS)) as shown:
            found = efficient(list(settings(bench, advance=shown.advance)))
    about: dict[str, Any] = {
        "set": folder.name,
        "split": split,
        "queries": len(data.queries),
        "data_hash": data_hash(data),
        "model": hplus.recipe.name,
        "fingerprint": hplus.fingerprint,
        "units": hplus.recipe.units,
        "importance": hplus.recipe.importance,
    }
    if json_ or out is not None:
        measured = facts(found)
        place = [setting is recommend(found) for setting in found].index(True)
        table = {**about, "settings": measured, "recommended": measured[place]}
    if out is not None:
        _write(out, about, found, table)
    if json_:
        print(json.dumps(table))
        return
    _print_settings(f"{folder.name} {split}", found)


def _write(out: Path, about: dict[str, Any], found: list[Setting], table: dict[str, Any]) -> None:
    """NAME.json and NAME.md, the plot in a folder beside them."""
    from hplus.evaluate.budget_report import page, picture
    from hplus.evaluate.page import markdown

    plot, plots = picture(out.name, found, table["settings"]), out.parent / "plots"
    (plots / f"{plot.name}.svg").write_text(plot.svg, "utf-8")
    (plots / f"{plot.name}.png").write_bytes(plot.png)
    text = json.dumps(table, ensure_ascii=False, indent=1) + "\n"
    out.with_name(f"{out.name}.json").write_text(text, "utf-8")
    out.with_name(f"{out.name}.md").write_text(markdown([*page(about, found), plot]), "utf-8")


def _print_settings(title: str, found: list[Setting]) -> None:
    from rich.table import Table

    from hplus.evaluate.budget import recommend
    from hplus.evaluate.budget_report import COLUMNS, advice, row

    taken = recommend(found)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for place, column in enumerate([title, *COLUMNS[1:]]):
        table.add_column(column, justify="right" if place else "left")
    for setting in found:
        if setting.efficient:
            table.add_row(*row(setting), style="bold cyan" if str(setting) == str(taken) else "")
    out = console()
    out.print(table, soft_wrap=False)
    out.print(
        f"nDCG@10. Of {len(found)} settings, those whose hybrid no smaller one equals; "
        "token pooling: as many vectors of clustered tokens.",
        style="grey50",
    )
    out.print(
        f"{advice(found)}\n"
        f"  hplus index SOURCE INDEX --budget {taken.budget} --width {taken.width} "
        f"--format {taken.format}"
    )
