"""`hplus get`, `export`, `delete`: documents of an index, by id or by a filter."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from hplus.cli.common import (
    Folder,
    Json,
    Place,
    console,
    counted,
    ids_of,
    open_index,
    print_json,
    report_missing,
)
from hplus.errors import InputError
from hplus.terminal import escaped

if TYPE_CHECKING:
    from hplus.sources.document import Document

GET_EXAMPLE = "Example: hplus get notes.hplus doc-17"
EXPORT_EXAMPLE = "Example: hplus export notes.hplus copy.jsonl"
DELETE_EXAMPLE = "Example: hplus delete notes.hplus doc-17"


def get(
    folder: Place,
    ids: Annotated[
        list[str], typer.Argument(metavar="ID…", help="Documents; - reads one id per line.")
    ],
    json_: Json = False,
) -> None:
    """Show documents: metadata and text; exit code 1 if the index lacks one of them."""
    from hplus.storage.export import as_json

    wanted = ids_of(ids)
    with open_index(folder) as opened:
        found = opened.get(wanted)
    shown = [document for document in found if document is not None]
    for i, document in enumerate(shown):
        if json_:
            print_json(as_json(document))
        else:
            _print(document, first=i == 0)
    report_missing([id_ for id_, one in zip(wanted, found, strict=True) if one is None])


def _print(document: Document, *, first: bool) -> None:
    out = console()
    if not first:
        out.print()
    out.print(document.id, style="bold")
    for name, value in document.metadata.items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        out.print(f"{name}: {text}", style="dim")
    out.print(document.text)


def export(
    folder: Folder,
    target: Annotated[
        str, typer.Argument(metavar="FILE", help="To write: .jsonl, .jsonl.gz, .parquet, or -.")
    ],
    vectors: Annotated[
        bool,
        typer.Option("--vectors", help="With global vectors, and units: vector, weight, spans."),
    ] = False,
) -> None:
    """Write all documents to a file, which can be indexed again, or as JSON lines to -."""
    from hplus.index import Index

    with Index.open(folder) as opened:
        if target == "-":
            opened.export(lambda line: print(escaped(line)), vectors=vectors)
            return
        count = opened.export(target, vectors=vectors, progress=True)
    console().print(f"{target}: {count:,} document{'s' * (count != 1)}")


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
                    f"{counted(count, 'document')} would be deleted, and nobody can answer here; "
                    "add --yes"
                )
            if not typer.confirm(f"delete {counted(count, 'document')} of {place}?", err=True):
                count = 0
        deleted = opened.delete(where=where) if count else 0
    console().print(f"{place}: {deleted:,} deleted")
    if not deleted:
        raise typer.Exit(1)
