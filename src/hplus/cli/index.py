"""`hplus index`, `delete`, `compact`, `verify`, `stats`: make, change and examine an index."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hplus import DEFAULT_MODEL
from hplus.cli.common import (
    BudgetCount,
    BudgetPolicy,
    Delimiter,
    Device,
    Folder,
    Format,
    FormatOption,
    IdColumn,
    Json,
    OnError,
    OnErrorOption,
    Passages,
    Place,
    TermsFile,
    TextColumns,
    TitleColumn,
    Width,
    Workers,
    bar,
    budget_of,
    columns_of,
    console,
    ids_of,
    load,
    open_index,
    plain_table,
    print_json,
    print_skipped,
    report_missing,
    what_is_kept,
)
from hplus.errors import InputError

if TYPE_CHECKING:
    from hplus.index import Index
    from hplus.storage.stats import Stats
    from hplus.storage.writer import Report
    from hplus.units.select import Budget

INDEX_EXAMPLE = "Example: hplus index notes.jsonl notes.hplus"
DELETE_EXAMPLE = "Example: hplus delete notes.hplus doc-17"
COMPACT_EXAMPLE = "Example: hplus compact notes.hplus --budget 16"
VERIFY_EXAMPLE = "Example: hplus verify notes.hplus"
STATS_EXAMPLE = "Example: hplus stats notes.hplus"

# What comes with the package, where nothing else has that name.
IndexModel = Annotated[
    str | None,
    typer.Option(
        "--model",
        metavar="PATH|NAME",
        help=f"Checkpoint folder or built-in name; {DEFAULT_MODEL}, or what made the index.",
    ),
]
DEMOS = ("demo-en", "demo-zh")


def index(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="JSONL, CSV, TSV or Parquet file, BEIR folder, tree of .txt, .md, .html and .pdf "
            "files, or -.",
        ),
    ],
    folder: Folder,
    text: TextColumns = None,
    title: TitleColumn = None,
    id_: IdColumn = None,
    delimiter: Delimiter = None,
    on_error: OnError = OnErrorOption.stop,
    model: IndexModel = None,
    device: Device = None,
    terms: TermsFile = None,
    budget: BudgetCount = None,
    policy: BudgetPolicy = None,
    width: Width = None,
    global_width: Annotated[
        int | None, typer.Option("--global-width", min=1, help="Width of the global vectors.")
    ] = None,
    format_: Format = None,
    passages: Passages = None,
    workers: Workers = 1,
    encoded: Annotated[
        bool, typer.Option("--encoded", help="SOURCE is a folder of shards, made by hplus bulk.")
    ] = False,
    sync: Annotated[
        bool, typer.Option("--sync", help="Delete what the source no longer has; asks first.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="With --sync: do not ask.")] = False,
    json_: Json = False,
) -> None:
    """Index documents, or bring an index up to date; after an interruption, run it again.

    Unchanged documents cost nothing, changed ones are replaced.
    """
    from hplus.bulk.folder import check_complete, check_model, model_of, read_manifest
    from hplus.index import Index
    from hplus.storage.create import New
    from hplus.storage.snapshot import CATALOGUE

    if source in DEMOS and not Path(source).exists():
        from hplus.evaluate.data import demo_folder

        source = str(demo_folder(source.removeprefix("demo-")))
    if source != "-" and not Path(source).exists():  # before an empty index is created
        raise InputError(f"{source} is missing; give a file, a folder, or - for input")
    if yes and not sync:
        raise InputError("--yes answers the question of --sync; give both, or neither")
    if sync and not yes and (source == "-" or sys.stdin is None or not sys.stdin.isatty()):
        raise InputError("--sync asks before it deletes, and nobody can answer here; add --yes")
    wanted = budget_of(budget, policy)
    columns = columns_of(text, title, id_, delimiter)
    shards = None
    if encoded:
        if columns or sync or workers > 1 or on_error is OnErrorOption.skip:
            raise InputError(
                "--encoded takes documents as hplus bulk has read and encoded them; leave out "
                "--text, --title, --id, --delimiter, --on-error, --workers and --sync"
            )
        shards = read_manifest(source)
        check_complete(shards)
    new = None if (folder / CATALOGUE).exists() else New(folder)
    # An index knows its model and its terms; who names others means them.
    own = new is None and model is None and device is None and terms is None
    usual = DEFAULT_MODEL if shards is None else model_of(shards, folder)
    hplus = None if own else load(model or usual, device, terms)
    if shards is not None and hplus is not None:
        check_model(shards, hplus.fingerprint)
    if new is None or hplus is None:
        made = Index.open(folder, model=hplus)
        _check_settings(made, wanted, width, global_width, format_, passages)
    else:
        if shards is not None:  # a new index has what they have, unless it is to have less
            wanted, width = wanted or shards.job.budget, width or shards.job.width
            passages = passages or shards.job.passages
            format_ = format_ or FormatOption(shards.job.format)
        made = Index.create(
            folder,
            hplus,
            budget=wanted,
            width=width,
            global_width=global_width,
            format=(format_ or FormatOption.int8).value,
            passages=passages,
        )

    def delete_absent(count: int) -> bool:
        question = f"delete {_counted(count, 'document')} of {folder} that {source} does not have?"
        return sync and (yes or typer.confirm(question, err=True))

    with new or nullcontext(), made as opened:
        before = len(opened)
        try:
            if shards is not None:
                report = opened.add_shards(source, progress=True)
            else:
                report = opened.update(
                    source,
                    on_error=on_error.value,
                    report=print_skipped,
                    workers=workers,
                    progress=True,
                    columns=columns,
                    sync=delete_absent,
                )
        except KeyboardInterrupt:
            print(
                f"interrupted: {_counted(len(opened) - before, 'new document')} kept, {folder} has "
                f"{len(opened):,}; run the same command again to continue",
                file=sys.stderr,
            )
            raise typer.Exit(130) from None
        if opened.stats().segments > 8:
            opened.compact(progress=True)
        if json_:
            print_json(asdict(report) | {"documents": len(opened)})
            return
        _print_report(report, opened, source, sync=sync)


def _check_settings(
    made: Index,
    budget: Budget | int | None,
    width: int | None,
    global_width: int | None,
    format_: FormatOption | None,
    passages: int | None,
) -> None:
    """Refuse options that contradict the index."""
    kept = made.settings
    if isinstance(budget, int):
        budget = replace(made.model.recipe.document_budget, count=budget, share=None)
    options = {
        "--budget": (budget, kept.budget),
        "--width": (width, kept.width),
        "--global-width": (global_width, kept.global_width),
        "--format": (format_ and format_.value, kept.format),
        "--passages": (passages, kept.passages or "no passages"),
    }
    for option, (wanted, has) in options.items():
        if wanted is not None and wanted != has:
            raise InputError(
                f"{option}: {wanted} requested, but {made.path} has {has}; leave the option out, "
                "index into a new folder, or see hplus compact"
            )


def _print_report(report: Report, made: Index, source: str, *, sync: bool) -> None:
    from hplus.sources.folders import counted, unreadable
    from hplus.sources.pages import INSTALL

    out = console()
    changes = [f"{report.added:,} added", f"{report.updated:,} replaced"]
    if report.metadata_changed:
        changes.append(f"{report.metadata_changed:,} with new metadata")
    changes.append(f"{report.unchanged:,} unchanged")
    if report.skipped:
        changes.append(f"{_counted(report.skipped, 'row')} skipped")
    if report.deleted:
        changes.append(f"{report.deleted:,} deleted")
    out.print(f"{made.path}: {', '.join(changes)}; {_documents(made)}")
    if report.absent > report.deleted:
        if not sync:
            hint = "--sync deletes what the source does not have"
        elif report.skipped:
            hint = "nothing was deleted, because rows were skipped"
        elif unreadable(report.other_files):
            hint = "nothing was deleted, because files could not be read"
        else:
            hint = "nothing was deleted"
        verb = "is" if report.absent == 1 else "are"
        absent = f"{_counted(report.absent, 'document')} of the index {verb} not in {source}"
        out.print(f"{absent}; {hint}")
    if report.other_files:
        remedy = f"; {INSTALL}" if unreadable(report.other_files) else ""
        out.print(f"other files, not indexed: {counted(report.other_files)}{remedy}")
    if not report.tokens:
        return
    unknown = f" ({report.unknown / report.tokens:.1%} unknown)" if report.unknown else ""
    lost = report.cut_tokens / (report.tokens + report.cut_tokens)
    out.print(
        f"texts: {report.tokens:,} tokens read{unknown}; "
        f"{report.stitched_texts:,} longer than one window were stitched, "
        f"{report.cut_texts:,} were cut ({lost:.1%} of the tokens)",
    )
    share = report.kept / report.importance if report.importance else 1.0
    out.print(f"budget: {made.settings.budget}; {what_is_kept(made.settings.budget, share)}")


def _documents(made: Index) -> str:
    """How many documents there are, and passages, if they are divided."""
    counted = _counted(len(made), "document")
    if made.settings.passages is None:
        return counted
    return f"{counted} in {_counted(made.stats().passages, 'passage')}"


def delete(
    folder: Place,
    ids: Annotated[
        list[str] | None,
        typer.Argument(metavar="ID…", help="Documents; - reads one id per line."),
    ] = None,
    where: Annotated[
        str | None,
        typer.Option("--where", metavar="FILTER", help="Those that pass a filter; asks first."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="With --where: do not ask.")] = False,
) -> None:
    """Delete documents by id or by a filter; exit code 1 if the index lacks one, or none passes."""
    if bool(ids) == (where is not None):
        raise InputError("give the ids of the documents to delete, or a filter with --where")
    if yes and where is None:
        raise InputError("--yes answers the question of --where; give both, or neither")
    if where is not None:
        _delete_where(folder, where, yes=yes)
        return
    wanted = ids_of(ids or [])
    with open_index(folder) as opened:
        missing = [id_ for id_ in wanted if id_ not in opened]
        count = opened.delete(wanted)
        place = opened.place
    console().print(f"{place}: {count:,} deleted")
    report_missing(missing)


def _delete_where(folder: str, where: str, *, yes: bool) -> None:
    with open_index(folder) as opened:
        count, place = opened.count(where), opened.place
        if count and not yes:
            if sys.stdin is None or not sys.stdin.isatty():
                raise InputError(
                    f"{_counted(count, 'document')} would be deleted, and nobody can answer here; "
                    "add --yes"
                )
            if not typer.confirm(f"delete {_counted(count, 'document')} of {place}?", err=True):
                count = 0
        deleted = opened.delete(where=where) if count else 0
    console().print(f"{place}: {deleted:,} deleted")
    if not deleted:
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
            f"{folder}: {state}; {_counted(found.documents, 'document')}, "
            f"{_counted(found.segments, 'segment')}, "
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
    divided = "" if whole else f" in {_counted(found.passages, 'passage')}"
    out.print(
        f"{folder}: {_counted(found.documents, 'document')}{divided}, {found.deleted:,} deleted, "
        f"{found.units:,} units ({found.units / n:.1f} per document), "
        f"{_counted(found.segments, 'segment')}"
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
