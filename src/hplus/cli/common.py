"""What the commands share: options, reading texts, the model, colours."""

from __future__ import annotations

import gzip
import json
import os
import sys
import zlib
from collections.abc import Iterable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hplus.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console

    from hplus.model import HPlus
    from hplus.units.select import Budget

Model = Annotated[
    str,
    typer.Option("--model", metavar="PATH|NAME", help="Checkpoint folder or built-in name."),
]
Device = Annotated[
    str | None,
    typer.Option("--device", help="A torch device (cpu, cuda:0); without it no torch is used."),
]
TermsFile = Annotated[
    Path | None,
    typer.Option("--terms", metavar="FILE", help="Terms to keep whole, one a line, gz allowed."),
]
Json = Annotated[bool, typer.Option("--json", help="JSON for machines.")]
BudgetCount = Annotated[
    int | None, typer.Option("--budget", min=1, help="Units kept of a document, at most.")
]


class Policy(StrEnum):
    """What becomes of the units beyond the budget."""

    drop = "drop"
    merge = "merge"


BudgetPolicy = Annotated[
    Policy | None,
    typer.Option("--policy", help="Units beyond the budget are dropped or merged into the rest."),
]
Width = Annotated[int | None, typer.Option("--width", min=1, help="Width of the unit vectors.")]

# From unimportant to important: readable on dark and on light ground.
_SHADES = ("grey50", "default", "cyan", "bold cyan", "bold magenta")


def load(model: str, device: str | None, terms: Path | None, **settings: Any) -> HPlus:
    """The model; imported here, so that `--help` stays quick."""
    from hplus.model import HPlus

    return HPlus(model, device=device, terms=terms, **settings)


def console() -> Console:
    """Standard output for people; into a pipe or file, lines may be long."""
    from rich.console import Console

    wide = None if sys.stdout.isatty() or "COLUMNS" in os.environ else 200
    return Console(highlight=False, markup=False, soft_wrap=True, width=wide)


def shade(weight: float, largest: float) -> str:
    """The style for a weight beside the largest one on screen."""
    share = weight / largest if largest > 0 else 0.0
    return _SHADES[min(int(share * len(_SHADES)), len(_SHADES) - 1)]


def bar(share: float, width: int = 20) -> str:
    """A share of 0 to 1 as a bar."""
    return "█" * round(max(0.0, min(share, 1.0)) * width)


def budget_of(count: int | None, policy: Policy | None) -> Budget | int | None:
    """What `--budget` and `--policy` ask for together."""
    from hplus.units.select import Budget

    if policy is None:
        return count
    if count is None:
        raise InputError(f"--policy {policy.value} needs a --budget")
    return Budget(count, policy=policy.value)


def read_texts(source: str) -> Iterator[str]:
    """Texts of a file (gz allowed) or of standard input (`-`): a line each; of a .jsonl file, its
    `text` fields, after the `title` where there is one."""
    if source == "-":
        if sys.stdin is None:
            raise InputError("standard input is closed")
        yield from _decoded(sys.stdin.buffer, "standard input")
        return
    path = Path(source)
    rows = ".jsonl" in path.suffixes
    try:
        with path.open("rb") as file:
            zipped = file.peek(2)[:2] == b"\x1f\x8b"
            lines = _decoded(gzip.GzipFile(fileobj=file) if zipped else file, source)
            for number, line in enumerate(lines, start=1):
                if not rows:
                    yield line
                elif line.strip():
                    yield _from_json(line, source, number)
    except FileNotFoundError:
        raise InputError(f"{source} is missing; give a file of texts, or - for input") from None
    except IsADirectoryError:
        raise InputError(f"{source} is a folder; give a file of texts, a line each") from None
    except (EOFError, zlib.error) as error:
        raise InputError(f"{source} is damaged: {error}") from None


def _decoded(lines: Iterable[bytes], name: str) -> Iterator[str]:
    for number, line in enumerate(lines, start=1):
        try:
            text = line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise InputError(f"{name}:{number} is not UTF-8 ({error.reason})") from None
        yield text.rstrip("\r\n")


def _from_json(line: str, name: str, number: int) -> str:
    try:
        row = json.loads(line)
        title, text = row.get("title") or "", row["text"]
    except (ValueError, KeyError, TypeError, AttributeError):
        title, text = "", None
    if not isinstance(text, str) or not isinstance(title, str):
        raise InputError(f'{name}:{number}: a JSON object with a "text" is expected')
    return f"{title} {text}".strip()
