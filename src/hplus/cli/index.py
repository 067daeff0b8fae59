"""`hplus index`: make an index, or bring it up to date."""

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
    TermsFile,
    TextColumns,
    TitleColumn,
    Width,
    Workers,
    budget_of,
    columns_of,
    console,
    counted,
    load,
    print_json,
    print_skipped,
    what_is_kept,
)
from hplus.errors import InputError

if TYPE_CHECKING:
    from hplus.index import Index
    from hplus.storage.writer import Report
    from hplus.units.select import Budget

EXAMPLE = "Example: hplus index notes.jsonl notes.hplus"

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
        question = f"delete {counted(count, 'document')} of {folder} that {source} does not have?"
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
                f"interrupted: {counted(len(opened) - before, 'new document')} kept, {folder} has "
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
    from hplus.sources.folders import counted as counted_files
    from hplus.sources.folders import unreadable
    from hplus.sources.pages import INSTALL

    out = console()
    changes = [f"{report.added:,} added", f"{report.updated:,} replaced"]
    if report.metadata_changed:
        changes.append(f"{report.metadata_changed:,} with new metadata")
    changes.append(f"{report.unchanged:,} unchanged")
    if report.skipped:
        changes.append(f"{counted(report.skipped, 'row')} skipped")
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
        absent = f"{counted(report.absent, 'document')} of the index {verb} not in {source}"
        out.print(f"{absent}; {hint}")
    if report.other_files:
        remedy = f"; {INSTALL}" if unreadable(report.other_files) else ""
        out.print(f"other files, not indexed: {counted_files(report.other_files)}{remedy}")
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
    documents = counted(len(made), "document")
    if made.settings.passages is None:
        return documents
    return f"{documents} in {counted(made.stats().passages, 'passage')}"
