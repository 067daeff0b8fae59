"""`hplus evaluate budget`: how small an index may be."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

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
    cache: Cache = None,
    limit: Limit = 300,
    json_: Json = False,
) -> None:
    """Quality against bytes a document over budgets, widths and formats; and what to take.

    Beside it token pooling: as many vectors, made by clustering a document's tokens.
    """
    from hplus.evaluate.beir import Bench
    from hplus.evaluate.budget import BUDGETS, WIDTHS, efficient, recommend, settings
    from hplus.evaluate.results import data_hash
    from hplus.evaluate.run import sample
    from hplus.index.segment import FORMATS
    from hplus.model import HPlus
    from hplus.progress import show_progress

    data = sample(read_set(folder, split), limit, 13)
    hplus = HPlus(model, long="cut")
    with states_folder(cache) as states:
        bench = Bench(hplus, data, states)
        total = (len(BUDGETS) + 1) * len({*(w for w in WIDTHS if w < hplus.dim), hplus.dim})
        with show_progress("settings", total * len(FORMATS)) as shown:
            found = efficient(list(settings(bench, advance=shown.advance)))
    taken = recommend(found)
    if json_:
        print(json.dumps({"set": folder.name, "split": split, "queries": len(data.queries),
                          "data_hash": data_hash(data), "model": hplus.recipe.name,
                          "fingerprint": hplus.fingerprint,
                          "settings": _facts(found),
                          "recommended": _facts([taken])[0]}))  # fmt: skip
        return
    _print_settings(f"{folder.name} {split}", found, taken)


def _facts(found: list[Setting]) -> list[dict[str, Any]]:
    """What is printed for machines; means with their 95 % intervals over queries."""
    from hplus.evaluate.resampling import intervals

    spreads = {
        view: list(intervals({str(s): {"": getattr(s, view)} for s in found}).values())
        for view in ("phrase", "hybrid", "pooled")
    }
    return [
        {
            "budget": setting.budget,
            "width": setting.width,
            "format": setting.format,
            "vectors": setting.vectors,
            "bytes": setting.bytes,
            **{view: asdict(spread[row]) for view, spread in spreads.items()},
            "efficient": setting.efficient,
        }
        for row, setting in enumerate(found)
    ]


def _print_settings(title: str, found: list[Setting], taken: Setting) -> None:
    from rich.table import Table

    from hplus.evaluate.budget import best_of
    from hplus.evaluate.statistics import paired_difference

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in (title, "bytes a document", "token pooling", "phrase", "hybrid"):
        table.add_column(column, justify="left" if column == title else "right")
    for setting in found:
        if setting.efficient:
            table.add_row(
                str(setting),
                f"{setting.bytes:,.0f}",
                f"{100 * setting.pooled.mean():.1f}",
                f"{100 * setting.phrase.mean():.1f}",
                f"{100 * setting.hybrid.mean():.1f}",
                style="bold cyan" if str(setting) == str(taken) else "",
            )
    out = console()
    out.print(table, soft_wrap=False)
    out.print(
        f"nDCG@10. Of {len(found)} settings, those whose hybrid no smaller one equals; "
        "token pooling: as many vectors of clustered tokens.",
        style="grey50",
    )
    behind = paired_difference({"": taken.hybrid}, {"": best_of(found).hybrid})
    low, high = 100 * behind.low, 100 * behind.high
    out.print(
        f"Take {taken}: the smallest within a point of the best "
        f"({100 * behind.mean:+.1f}, 95 % {low:+.1f} to {high:+.1f}).\n"
        f"  hplus index SOURCE INDEX --budget {taken.budget} --width {taken.width} "
        f"--format {taken.format}"
    )
