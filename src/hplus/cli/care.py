"""`hplus compact`, `verify`, `stats`: look after an index."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from hplus.cli.common import (
    BudgetCount,
    Folder,
    Json,
    Place,
    Width,
    bar,
    console,
    counted,
    open_index,
    plain_table,
    print_json,
    what_is_kept,
)

if TYPE_CHECKING:
    from hplus.storage.stats import Stats

COMPACT_EXAMPLE = "Example: hplus compact notes.hplus --budget 16"
VERIFY_EXAMPLE = "Example: hplus verify notes.hplus"
STATS_EXAMPLE = "Example: hplus stats notes.hplus"


def compact(
    folder: Folder,
    budget: BudgetCount = None,
    width: Width = None,
    global_width: Annotated[
        int | None, typer.Option("--global-width", min=1, help="Width of the global vectors.")
    ] = None,
) -> None:
    """Merge segments, free the space of deleted documents; optionally shrink budget or width.

    Nothing is encoded again.
    """
    from hplus.index import Index

    with Index.open(folder) as opened:
        before = _total(opened.stats())
        opened.compact(budget=budget, width=width, global_width=global_width, progress=True)
        after = opened.stats()
        console().print(
            f"{folder}: {counted(after.documents, 'document')} in "
            f"{counted(after.segments, 'segment')}, "
            f"{_size(before)} → {_size(_total(after))}; budget: {opened.settings.budget}, "
            f"width {opened.settings.width}"
        )


def verify(folder: Place, json_: Json = False) -> None:
    """Check everything: checksums, rows against arrays, recall of the approximate path.

    Exit code 3 if something is damaged.
    """
    from hplus.cli.engines import print_check
    from hplus.index import Index

    with open_index(folder) as opened:
        if not isinstance(opened, Index):
            print_check(opened, json_=json_)
            return
        found = opened.verify(progress=True)
        fingerprint = opened.settings.fingerprint
    if json_:
        print_json(asdict(found) | {"fingerprint": fingerprint})
    else:
        out = console()
        for problem in found.problems:
            out.print(f"damaged: {problem}", style="red")
        for name in found.unnamed:
            out.print(f"left over: segments/{name}, which the next change removes")
        state = "damaged" if found.problems else "sound"
        out.print(
            f"{folder}: {state}; {counted(found.documents, 'document')}, "
            f"{counted(found.segments, 'segment')}, "
            f"{_size(found.bytes)}, made by model {fingerprint[:12]}"
        )
        exact = "every search is exact"
        recall = exact if found.recall is None else f"recall@10 {found.recall:.3f} of exact search"
        out.print(f"search: {recall}")
    if found.problems:
        raise typer.Exit(3)


def stats(folder: Place, json_: Json = False) -> None:
    """Documents, units, bytes by part, and what a smaller budget or width would save."""
    from hplus.cli.engines import print_stats
    from hplus.index import Index

    with open_index(folder) as opened:
        if not isinstance(opened, Index):
            print_stats(opened, json_=json_)
            return
        found, settings = opened.stats(), opened.settings
    if json_:
        smaller = [
            {"budget": budget, "width": width, "bytes": size}
            for (budget, width), size in found.smaller.items()
        ]
        print_json(asdict(found) | {"smaller": smaller})
        return
    from rich.table import Table

    out = console()
    n = max(1, found.documents)
    whole = settings.passages is None
    divided = "" if whole else f" in {counted(found.passages, 'passage')}"
    out.print(
        f"{folder}: {counted(found.documents, 'document')}{divided}, {found.deleted:,} deleted, "
        f"{found.units:,} units ({found.units / n:.1f} per document), "
        f"{counted(found.segments, 'segment')}"
    )
    share = found.kept / found.importance if found.importance else 1.0
    out.print(
        f"budget: {settings.budget}, width {settings.width}, {settings.format}; "
        f"{what_is_kept(settings.budget, share)}\n"
    )
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("part", "bytes", "per document", ""):
        table.add_column(column, justify="left" if column in ("part", "") else "right")
    total = _total(found) + found.catalogue
    for part, size in (*found.bytes.items(), ("texts", found.catalogue)):
        table.add_row(part, _size(size), f"{size / n:,.0f}", bar(size / max(1, total)))
    table.add_row("all", _size(total), f"{total / n:,.0f}")
    out.print(table)
    if len(found.smaller) > 1:
        out.print("\nunit vectors at a smaller budget (rows) and width, bytes per document:")
        out.print(_smaller(found, n))


def _smaller(found: Stats, documents: int) -> object:
    widths = sorted({width for _, width in found.smaller})
    table = plain_table("budget", *map(str, widths), left=0)
    for budget in sorted({budget for budget, _ in found.smaller}):
        cells = (found.smaller[budget, width] / documents for width in widths)
        table.add_row(str(budget), *(f"{size:,.0f}" for size in cells))
    return table


def _total(found: Stats) -> int:
    return sum(found.bytes.values())


def _size(count: float) -> str:
    if count < 1000:
        return f"{count:.0f} B"
    for unit in ("kB", "MB"):
        count /= 1000
        if count < 1000:
            return f"{count:.1f} {unit}"
    return f"{count / 1000:.1f} GB"
