"""`hplus serve`: indexes over HTTP, with a page to search and see why."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from hplus.cli.search import OtherModel
from hplus.errors import InputError

EXAMPLE = "Example: hplus serve notes.hplus --port 8000"


class LogOption(StrEnum):
    """How requests are logged."""

    text = "text"
    json = "json"


def serve(
    folders: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="INDEX…", help="Folders of indexes, or addresses; each is served by its name."
        ),
    ] = None,
    host: Annotated[
        str, typer.Option(help="Where to listen; other machines get in with keys only.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 8000,
    api_key_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Keys of clients: lines `read KEY` or `write KEY`."),
    ] = None,
    read_only: Annotated[bool, typer.Option("--read-only", help="Refuse all changes.")] = False,
    cors_origin: Annotated[
        list[str] | None,
        typer.Option(metavar="URL", help="A site whose pages may call the service; repeatable."),
    ] = None,
    log: Annotated[
        LogOption | None, typer.Option(help="A line for each request on standard error.")
    ] = None,
    log_queries: Annotated[
        bool, typer.Option("--log-queries", help="Put queries into these lines.")
    ] = False,
    model: OtherModel = None,
    demo: Annotated[
        bool, typer.Option("--demo", help="Serve the demo corpus, from a temporary index.")
    ] = False,
) -> None:
    """Serve indexes over HTTP: an API, and a page that shows why a document was found."""
    from hplus.serve.run import serve as run

    # After the line above, which says what to install if something is missing.
    from hplus.serve.guard import Rules  # isort: skip
    from hplus.serve.keys import Keys
    from hplus.serve.limits import Limits

    if not folders and not demo:
        raise InputError("no index given; try: hplus serve notes.hplus, or hplus serve --demo")
    rules = Rules(
        Limits(),
        keys=None if api_key_file is None else Keys.read(api_key_file),
        read_only=read_only,
        origins=tuple(cors_origin or ()),
        log_queries=log_queries,
    )
    with ExitStack() as stack:
        places = list(folders or [])
        if demo:
            places.append(str(_demo_index(stack)))
        run(
            places,
            rules,
            host=host,
            port=port,
            model=model,
            log=None if log is None else log.value,
            started=lambda address: print(f"serving on {address}", file=sys.stderr, flush=True),
        )


def _demo_index(stack: ExitStack) -> Path:
    """The demo corpus indexed in a folder that goes with the service."""
    import tempfile

    from hplus.evaluate.data import demo_folder
    from hplus.index import Index
    from hplus.model import HPlus

    folder = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "demo.hplus"
    with Index.create(folder, HPlus()) as made:
        made.add(demo_folder("en"), progress=True)
    return folder
