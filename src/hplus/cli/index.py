"""`hplus index`, `delete`, `compact`, `verify`, `stats`: make, change and examine an index."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hplus.cli.common import (
    BudgetCount,
    BudgetPolicy,
    Device,
    Json,
    Model,
    TermsFile,
    Width,
    Workers,
    bar,
    budget_of,
    console,
    load,
    plain_table,
)
from hplus.errors import InputError

if TYPE_CHECKING:
    from hplus.index import Index
    from hplus.storage.stats import Stats
    from hplus.storage.writer import Report

INDEX_EXAMPLE = "Example: hplus index notes.jsonl notes.hplus"
DELETE_EXAMPLE = "Example: hplus delete notes.hplus doc-17"
COMPACT_EXAMPLE = "Example: hplus compact notes.hplus --budget 16"
VERIFY_EXAMPLE = "Example: hplus verify notes.hplus"
STATS_EXAMPLE = "Example: hplus stats notes.hplus"

Folder = Annotated[Path, typer.Argument(metavar="INDEX", help="The folder of the index.")]


class Format(StrEnum):
    """How vectors are stored."""

    int8 = "int8"
    f16 = "f16"
    f32 = "f32"


class OnError(StrEnum):
    """What to do about a bad row of the source."""

    stop = "stop"
    skip = "skip"


def index(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="JSONL, CSV, TSV or Parquet file, BEIR folder, tree of .txt and .md files, or -.",
        ),
    ],
    folder: Folder,
    on_error: Annotated[
        OnError, typer.Option("--on-error", help="Stop at a bad row, or skip it.")
    ] = OnError.stop,
    model: Model = "mini",
    device: Device = None,
    terms: TermsFile = None,
    budget: BudgetCount = None,
    policy: BudgetPolicy = None,
    width: Width = None,
    global_width: Annotated[
        int | None, typer.Option("--global-width", min=1, help="Width of the global vectors.")
    ] = None,
    format_: Annotated[
        Format, typer.Option("--format", help="How vectors are stored.")
    ] = Format.int8,
    workers: Workers = 1,
    json_: Json = False,
) -> None:
    """Index documents, or bring an index up to date; after an interruption, run it again.

    Unchanged documents cost nothing, changed ones are replaced.
    """
    from hplus.index import Index
    from hplus.storage.snapshot import CATALOGUE

    if source != "-" and not Path(source).exists():  # before an empty index is created
        raise InputError(f"{source} is missing; give a file, a folder, or - for input")
    hplus = load(model, device, terms)
    if (folder / CATALOGUE).exists():
        given = (budget, policy, width, global_width)
        if any(option is not None for option in given):
            raise InputError(f"{folder} exists: its budget and widths are fixed; see hplus compact")
        made = Index.open(folder, model=hplus)
    else:
        made = Index.create(
            folder,
            hplus,
            budget=budget_of(budget, policy),
            width=width,
            global_width=global_width,
            format=format_.value,
        )
    with made as opened:
        report = opened.update(
            source,
            on_error=on_error.value,
            report=lambda message: print(f"skipped: {message}", file=sys.stderr),
            workers=workers,
            progress=True,
        )
        if opened.stats().segments > 8:
            opened.compact(progress=True)
        if json_:
            print(json.dumps(asdict(report) | {"documents": len(opened)}))
            return
        _print_report(report, opened)


def _print_report(report: Report, made: Index) -> None:
    out = console()
    changes = f"{report.added:,} added, {report.updated:,} replaced, {report.unchanged:,} unchanged"
    out.print(f"{made.path}: {changes}; {_counted(len(made), 'document')}")
    if not report.tokens:
        return
    lost = report.cut_tokens / (report.tokens + report.cut_tokens)
    out.print(
        f"texts: {report.tokens:,} tokens read; {report.stitched_texts:,} longer than one window "
        f"were stitched, {report.cut_texts:,} were cut ({lost:.1%} of the tokens)",
    )
    share = report.kept / report.importance if report.importance else 1.0
    out.print(f"budget: {made.settings.budget}; {share:.1%} of the importance kept")


def delete(
    folder: Folder,
    ids: Annotated[
        list[str], typer.Argument(metavar="ID…", help="Documents; - reads one id per line.")
    ],
) -> None:
    """Delete documents by id; exit code 1 if the index lacks one of them."""
    from hplus.index import Index

    wanted = [line.strip() for line in sys.stdin if line.strip()] if ids == ["-"] else ids
    with Index.open(folder) as opened:
        missing = [id_ for id_ in wanted if id_ not in opened]
        count = opened.delete(wanted)
    console().print(f"{folder}: {count:,} deleted")
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        print(f"not in the index: {missing[0]}{more}", file=sys.stderr)
        raise typer.Exit(1)


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
            f"{folder}: {_counted(after.documents, 'document')} in "
            f"{_counted(after.segments, 'segment')}, "
            f"{_size(before)} → {_size(_total(after))}; budget: {opened.settings.budget}, "
            f"width {opened.settings.width}"
        )


def verify(folder: Folder, json_: Json = False) -> None:
    """Check everything: checksums, rows against arrays, recall of the approximate path.

    Exit code 3 if something is damaged.
    """
    from hplus.index import Index

    with Index.open(folder) as opened:
        found = opened.verify(progress=True)
        fingerprint = opened.settings.fingerprint
    if json_:
        print(json.dumps(asdict(found) | {"fingerprint": fingerprint}))
    else:
        out = console()
        for problem in found.problems:
            out.print(f"damaged: {problem}", style="red")
        state = "damaged" if found.problems else "sound"
        out.print(
            f"{folder}: {state}; {_counted(found.documents, 'document')}, "
            f"{_counted(found.segments, 'segment')}, "
            f"{_size(found.bytes)}, made by model {fingerprint[:12]}"
        )
        exact = "every search is exact"
        recall = exact if found.recall is None else f"recall@10 {found.recall:.3f} of exact search"
        out.print(f"search: {recall}")
    if found.problems:
        raise typer.Exit(3)


def stats(folder: Folder, json_: Json = False) -> None:
    """Documents, units, bytes by part, and what a smaller budget or width would save."""
    from hplus.index import Index

    with Index.open(folder) as opened:
        found, settings = opened.stats(), opened.settings
    if json_:
        smaller = [
            {"budget": budget, "width": width, "bytes": size}
            for (budget, width), size in found.smaller.items()
        ]
        print(json.dumps(asdict(found) | {"smaller": smaller}))
        return
    from rich.table import Table

    out = console()
    n = max(1, found.documents)
    out.print(
        f"{folder}: {_counted(found.documents, 'document')}, {found.deleted:,} deleted, "
        f"{found.units:,} units ({found.units / n:.1f} per document), "
        f"{_counted(found.segments, 'segment')}"
    )
    share = found.kept / found.importance if found.importance else 1.0
    out.print(
        f"budget: {settings.budget}, width {settings.width}, {settings.format}; "
        f"{share:.1%} of the importance kept\n"
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


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


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
