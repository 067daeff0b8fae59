"""`hplus bulk`: a corpus encoded in shards, by one machine or by many."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hplus import DEFAULT_MODEL
from hplus.cli.common import (
    BudgetCount,
    BudgetPolicy,
    Delimiter,
    Device,
    Format,
    FormatOption,
    IdColumn,
    Json,
    Model,
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
    load,
    print_json,
    print_skipped,
)
from hplus.errors import InputError

if TYPE_CHECKING:
    from hplus.bulk.folder import Manifest

EXAMPLE = "Example: hplus bulk notes.jsonl encoded --shards 2"


def bulk(
    source: Annotated[
        str,
        typer.Argument(metavar="SOURCE", help="A file or folder of documents, as hplus index has."),
    ],
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder of the shards.")],
    shards: Annotated[
        int | None,
        typer.Option("--shards", min=1, help="Files to make; of 10,000 documents by default."),
    ] = None,
    shard: Annotated[
        str | None,
        typer.Option("--shard", metavar="I/N", help="Only shard I of N, counted from 1."),
    ] = None,
    workers: Workers = 1,
    ray: Annotated[
        str | None,
        typer.Option(
            "--ray", metavar="ADDRESS", help="By Ray actors: local, auto, or a cluster's address."
        ),
    ] = None,
    status: Annotated[
        bool, typer.Option("--status", help="Say which shards are missing; encode nothing.")
    ] = False,
    text: TextColumns = None,
    title: TitleColumn = None,
    id_: IdColumn = None,
    delimiter: Delimiter = None,
    on_error: OnError = OnErrorOption.stop,
    model: Model = DEFAULT_MODEL,
    device: Device = None,
    terms: TermsFile = None,
    budget: BudgetCount = None,
    policy: BudgetPolicy = None,
    width: Width = None,
    format_: Format = None,
    passages: Passages = None,
    json_: Json = False,
) -> None:
    """Encode documents into a folder of shards, for hplus index --encoded; what is there is kept.

    Any number of machines may do so at once on a shared disk. Exit code 1 if --status finds some
    missing.
    """
    from hplus.bulk.folder import read_manifest

    only = None
    if shard is not None:
        number, count = _shard(shard)
        if shards not in (None, count):
            raise InputError(f"--shard {shard} is one of {count:,}, but --shards is {shards:,}")
        shards, only = count, [number]
    if ray is not None and (only or device):
        raise InputError("--ray shares out all shards among CPUs; leave out --shard and --device")
    if status:
        found = read_manifest(folder)
        _print(found, json_=json_)
        raise typer.Exit(1 if found.missing else 0)

    from hplus.bulk.encode import encode_shards
    from hplus.bulk.job import job_of

    columns, wanted = columns_of(text, title, id_, delimiter), budget_of(budget, policy)
    hplus = load(model, device, terms)
    job = job_of(
        hplus,
        source,
        shards=shards,
        budget=wanted,
        width=width,
        format=(format_ or FormatOption.int8).value,
        passages=passages,
        columns=columns,
        on_error=on_error.value,
    )
    if ray is None:
        found = encode_shards(
            hplus,
            job,
            source,
            folder,
            only=only,
            workers=workers,
            progress=True,
            skipped=print_skipped,
            report=lambda message: print(message, file=sys.stderr),
        )
    else:
        from hplus.bulk.ray_ import encode_with_ray

        found = encode_with_ray(
            hplus, job, source, folder, actors=workers, address=ray, progress=True
        )
    _print(found, json_=json_)


def _shard(text: str) -> tuple[int, int]:
    """Which shard of how many."""
    parts = re.fullmatch(r"(\d{1,5})/(\d{1,5})", text)
    number, count = (int(part) for part in parts.groups()) if parts else (0, 0)
    if not 1 <= number <= count:
        raise InputError(f"expected --shard as I/N, such as 3/64, counted from 1, got {text}")
    return number, count


def _print(found: Manifest, *, json_: bool) -> None:
    job, missing = found.job, found.missing
    if json_:
        print_json({"shards": job.shards, "done": list(found.done), "missing": list(missing)})
        return
    lacking = ", ".join(map(str, missing[:10])) + (" …" if len(missing) > 10 else "")
    state = f"missing: {lacking}" if missing else "complete"
    console().print(
        f"{found.folder}: {len(found.done):,} of {job.shards:,} shards of {job.rows:,} documents, "
        f"{job.budget}, width {job.width}, {job.format}; {state}"
    )
