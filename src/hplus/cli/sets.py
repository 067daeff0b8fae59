"""What the commands that read a judged set or encode many texts share."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hplus.errors import InputError

if TYPE_CHECKING:
    from hplus.evaluate.data import RetrievalSet

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="A BEIR folder, plain or gz.")]
Split = Annotated[str, typer.Option("--split", help="The split whose judgements are used.")]
Cache = Annotated[
    Path | None,
    typer.Option("--cache", metavar="DIR", help="Keep encoded texts here for the next run."),
]
Limit = Annotated[
    int, typer.Option("--limit", min=0, help="Use at most this many queries; 0: all.")
]


def read_set(folder: Path, split: str) -> RetrievalSet:
    """The set in a folder."""
    from hplus.evaluate.data import read_beir

    if not folder.is_dir():
        raise InputError(f"{folder} is not a folder; expected a BEIR folder")
    return read_beir(folder, split)


@contextmanager
def states_folder(cache: Path | None) -> Iterator[Path]:
    """The folder for cached states, or a temporary one."""
    if cache is not None:
        yield cache
        return
    with tempfile.TemporaryDirectory() as temporary:
        yield Path(temporary)
