"""What commands that measure on a set have in common."""

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
    from hplus.units.terms import Terms

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="A BEIR folder, plain or gz.")]
Split = Annotated[str, typer.Option("--split", help="Whose judgements count.")]
TermsFile = Annotated[
    Path | None, typer.Option("--terms", help="One term a line, for boundaries with terminology.")
]
BaselinesFolder = Annotated[
    Path | None,
    typer.Option("--baselines", help="Weights of baselines (docs/baselines.md), for shared pools."),
]
Limit = Annotated[
    int, typer.Option("--limit", min=0, help="So many queries of a set at most; 0: all.")
]


def read_set(folder: Path, split: str) -> RetrievalSet:
    from hplus.evaluate.data import read_beir

    if not folder.is_dir():
        raise InputError(f"{folder} is no folder; a BEIR folder is expected")
    return read_beir(folder, split)


def read_terms(path: Path | None) -> Terms | None:
    from hplus.units.terms import Terms

    return Terms.read(path) if path else None


@contextmanager
def states_folder(cache: Path | None) -> Iterator[Path]:
    """The folder given, or one that is gone afterwards."""
    if cache is not None:
        yield cache
        return
    with tempfile.TemporaryDirectory() as temporary:
        yield Path(temporary)
