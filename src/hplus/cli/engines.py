"""`hplus push`, `pull`, `diff`: whole indexes to and from an engine elsewhere."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import asdict
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hplus.cli.common import Folder, Json, console, no_address, print_json
from hplus.errors import InputError

if TYPE_CHECKING:
    from hplus.any_index import AnyIndex

PUSH_EXAMPLE = "Example: hplus push notes.hplus qdrant://localhost:6334/notes"
PULL_EXAMPLE = "Example: hplus pull qdrant://localhost:6334/notes copy.hplus"
DIFF_EXAMPLE = "Example: hplus diff notes.hplus qdrant://localhost:6334/notes"

Url = Annotated[
    str,
    typer.Argument(
        metavar="URL", help="qdrant://host:port/name or postgresql://…/database?schema=name."
    ),
]


class StoredOption(StrEnum):
    """How a new collection keeps vectors."""

    f32 = "f32"
    f16 = "f16"


class CodesOption(StrEnum):
    """What a new collection is scanned by before exact scores."""

    none = "none"
    int8 = "int8"


def push(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="INDEX",
            help="The folder of the index, or of its shards.",
            callback=no_address,
        ),
    ],
    url: Url,
    encoded: Annotated[
        bool, typer.Option("--encoded", help="INDEX is a folder of shards, made by hplus bulk.")
    ] = False,
    model: Annotated[
        str | None,
        typer.Option(metavar="PATH|NAME", help="Where the model of the shards is now."),
    ] = None,
    terms: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The terms that the shards were encoded with."),
    ] = None,
    workers: Annotated[int, typer.Option(min=1, help="Threads that send.")] = 2,
    sync: Annotated[
        bool, typer.Option("--sync", help="Delete what the index does not have.")
    ] = False,
    stored: Annotated[
        StoredOption | None, typer.Option(help="How a new collection keeps vectors; f32.")
    ] = None,
    codes: Annotated[
        CodesOption | None,
        typer.Option(help="int8: a new collection scans 8-bit codes, then scores exactly."),
    ] = None,
    shards: Annotated[int | None, typer.Option(min=1, help="Of a new collection.")] = None,
    replicas: Annotated[int | None, typer.Option(min=1, help="Of each of its shards.")] = None,
    json_: Json = False,
) -> None:
    """Send an index to an engine; what is there already is not sent again."""
    from hplus.bulk.folder import read_manifest
    from hplus.engines import transfer
    from hplus.index import Index
    from hplus.progress import show_progress

    given = {"stored": stored, "codes": codes, "shards": shards, "replicas": replicas}
    options = {name: getattr(v, "value", v) for name, v in given.items() if v is not None}
    if (model or terms) and not encoded:
        raise InputError("--model and --terms are of shards, an index knows its own; add --encoded")
    with ExitStack() as stack:
        if encoded:
            if sync:
                raise InputError("--sync compares with an index; leave it out with --encoded")
            total = read_manifest(folder).job.rows
            store = transfer.open_or_create_for_shards(url, folder, model, terms, options)
            send = partial(transfer.push_shards, folder)
        else:
            index = stack.enter_context(Index.open(folder))
            total = len(index)
            store = transfer.open_or_create(url, index, options)
            send = partial(transfer.push, index, sync=sync)
        stack.callback(store.close)
        with show_progress("pushing", total) as shown:
            done = send(store, workers=workers, advance=shown.advance)
        count, place = store.count(), store.place
    if json_:
        print_json({"collection": place, "documents": count, **asdict(done)})
        return
    deleted = f", {done.deleted:,} deleted" if sync else ""
    console().print(
        f"{place}: {done.moved:,} sent, {done.unchanged:,} there already{deleted}; "
        f"{count:,} documents"
    )


def pull(
    url: Url,
    out: Annotated[
        Path,
        typer.Argument(metavar="OUT", help="The folder of the index to make.", callback=no_address),
    ],
    json_: Json = False,
) -> None:
    """Fetch a collection as an index on this machine; one that was begun is completed."""
    from hplus.engines import open_store, transfer
    from hplus.progress import show_progress

    store = open_store(url)
    try:
        with show_progress("pulling", store.count()) as shown:
            index, done = transfer.pull(store, out, advance=shown.advance)
        with index:
            count = len(index)
    finally:
        store.close()
    if json_:
        print_json({"index": str(out), "documents": count, **asdict(done)})
        return
    console().print(
        f"{out}: {done.moved:,} fetched, {done.unchanged:,} there already; {count:,} documents"
    )


def diff(folder: Folder, url: Url, json_: Json = False) -> None:
    """Compare an index with a collection; exit code 1 if they differ."""
    from hplus.engines import open_store, transfer
    from hplus.index import Index
    from hplus.progress import show_progress

    with Index.open(folder) as index:
        store = open_store(url)
        try:
            transfer.check_same_settings(index.settings, store)
            with show_progress("comparing", len(index)) as shown:
                found = transfer.diff(index, store, advance=shown.advance)
            place = store.place
        finally:
            store.close()
    if json_:
        print_json(asdict(found))
    else:
        out = console()
        for what, ids in (
            (f"only in {folder}", found.only_here),
            (f"only in {place}", found.only_there),
            ("with another text", found.texts),
            ("with other metadata", found.metadata),
            ("with another encoding", found.encodings),
        ):
            if ids:
                more = " …" if len(ids) > transfer.SHOWN else ""
                out.print(f"{len(ids):,} {what}: {', '.join(ids[: transfer.SHOWN])}{more}")
        out.print(f"{found.same:,} documents are the same")
    if found:
        raise typer.Exit(1)


def print_check(opened: AnyIndex, *, json_: bool) -> None:
    """`hplus verify` of a collection."""
    found = opened.verify()  # type: ignore[attr-defined]
    if json_:
        print_json(asdict(found))
    else:
        out = console()
        for problem in found.problems:
            out.print(f"damaged: {problem}", style="red")
        state = "damaged" if found.problems else "sound"
        out.print(
            f"{opened.place}: {state}; {found.documents:,} documents, {found.sampled:,} of them "
            f"compared, scores within {found.difference:.1e} of ours"
        )
    if found.problems:
        raise typer.Exit(3)


def print_stats(opened: AnyIndex, *, json_: bool) -> None:
    """`hplus stats` of a collection."""
    found, settings = opened.stats(), opened.settings
    if json_:
        print_json({**asdict(found), "figures": dict(found.figures)})
        return
    out = console()
    out.print(f"{opened.place}: {found.documents:,} documents, server {found.version}")
    out.print(f"budget: {settings.budget}, width {settings.width}")
    out.print(", ".join(f"{name} {value}" for name, value in found.figures.items()))
