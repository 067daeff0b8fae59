"""`hplus evaluate budget`: how small an index can be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hplus import DEFAULT_MODEL
from hplus.cli.common import Json, Model, console, plain_table, print_json
from hplus.cli.sets import Cache, Folder, Limit, Split, read_set, states_folder
from hplus.files import write_text

if TYPE_CHECKING:
    from hplus.evaluate.budget import Setting

EXAMPLE = "Example: hplus evaluate budget scifact --cache states --limit 100"


def budget(
    folder: Folder,
    split: Split = "test",
    model: Model = DEFAULT_MODEL,
    units: Annotated[
        str | None,
        typer.Option("--units", help="A rule in place of the model's units: runs, words…"),
    ] = None,
    importance: Annotated[
        str | None,
        typer.Option("--importance", help="head, idf or uniform in place of the model's."),
    ] = None,
    cache: Cache = None,
    limit: Limit = 300,
    json_: Json = False,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="NAME", help="Also write NAME.json and NAME.md."),
    ] = None,
) -> None:
    """Quality against bytes per document over budgets, widths and formats; and which to choose.

    Token pooling is shown for comparison: as many vectors, made by clustering a document's tokens.
    """
    from hplus.evaluate.bench import Bench
    from hplus.evaluate.budget import BUDGETS, WIDTHS, efficient, recommend, settings
    from hplus.evaluate.budget_report import facts
    from hplus.evaluate.data import data_hash, sample
    from hplus.model import HPlus
    from hplus.progress import show_progress
    from hplus.storage.segment import FORMATS

    if out is not None:  # a folder that cannot be written fails now, not after minutes of measuring
        out.parent.mkdir(parents=True, exist_ok=True)
    data = sample(read_set(folder, split), limit, 13)
    changed: dict[str, Any] = {"units": units, "importance": importance}
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
        print_json(table)
        return
    _print_settings(f"{folder.name} {split}", found)


def _write(out: Path, about: dict[str, Any], found: list[Setting], table: dict[str, Any]) -> None:
    from hplus.evaluate.budget_report import markdown

    text = json.dumps(table, ensure_ascii=False, indent=1) + "\n"
    write_text(out.with_name(f"{out.name}.json"), text)
    write_text(out.with_name(f"{out.name}.md"), markdown(about, found))


def _print_settings(title: str, found: list[Setting]) -> None:
    from hplus.evaluate.budget import recommend
    from hplus.evaluate.budget_report import COLUMNS, advice, row

    taken = recommend(found)
    table = plain_table(title, *COLUMNS[1:])
    for setting in found:
        if setting.efficient:
            table.add_row(*row(setting), style="bold cyan" if str(setting) == str(taken) else "")
    out = console()
    out.print(table, soft_wrap=False)
    out.print(
        f"nDCG@10. Of {len(found)} settings, those whose hybrid score no smaller one reaches; "
        "token pooling: as many vectors of clustered tokens.",
        style="grey50",
    )
    out.print(
        f"{advice(found)}\n"
        f"  hplus index SOURCE INDEX --budget {taken.budget} --width {taken.width} "
        f"--format {taken.format}"
    )
