"""What the commands share: options, reading texts, the model, colours."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hplus.errors import InputError
from hplus.files import numbered, numbered_lines
from hplus.terminal import escaped, screen

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from hplus.model import HPlus
    from hplus.sources.columns import Columns
    from hplus.units.select import Budget

Model = Annotated[
    str,
    typer.Option("--model", metavar="PATH|NAME", help="Checkpoint folder or built-in name."),
]
Device = Annotated[
    str | None,
    typer.Option("--device", help="A torch device (cpu, cuda:0); without it torch is not used."),
]
TermsFile = Annotated[
    Path | None,
    typer.Option("--terms", metavar="FILE", help="Terms to keep whole, one per line; gz allowed."),
]
Json = Annotated[bool, typer.Option("--json", help="JSON for machines.")]
BudgetCount = Annotated[
    int | None, typer.Option("--budget", min=1, help="Units kept per document, at most.")
]
Workers = Annotated[
    int, typer.Option("--workers", min=1, help="Processes that share the encoding.")
]
TextColumns = Annotated[
    list[str] | None,
    typer.Option("--text", metavar="COLUMN", help="The text; several are joined."),
]
TitleColumn = Annotated[
    str | None, typer.Option("--title", metavar="COLUMN", help="Put before the text.")
]
IdColumn = Annotated[
    str | None, typer.Option("--id", metavar="COLUMN", help="What documents are known by.")
]
Delimiter = Annotated[
    str | None,
    typer.Option("--delimiter", metavar="D", help="Between columns; the header tells."),
]
Passages = Annotated[
    int | None,
    typer.Option(
        "--passages", min=1, metavar="TOKENS", help="Cut long texts into passages this long."
    ),
]


class OnErrorOption(StrEnum):
    """What to do about a bad row of the source."""

    stop = "stop"
    skip = "skip"


OnError = Annotated[
    OnErrorOption, typer.Option("--on-error", help="Stop at a bad row, or skip it.")
]


class FormatOption(StrEnum):
    """How vectors are stored."""

    int4 = "int4"
    int8 = "int8"
    f16 = "f16"
    f32 = "f32"


Format = Annotated[
    FormatOption | None,
    typer.Option(
        "--format",
        help="How vectors are stored, int8 by default; int4 halves those of units and is searched "
        "at its whole width.",
    ),
]


def no_address(folder: Path) -> Path:
    """A path, which is no address that lost a slash."""
    if re.match(r"(qdrant|postgres|postgresql):/", str(folder)):
        raise InputError(
            "expected the folder of an index, got an address; hplus push sends an index to an "
            "engine, hplus pull fetches it"
        )
    return folder


Folder = Annotated[
    Path,
    typer.Argument(metavar="INDEX", help="The folder of the index.", callback=no_address),
]
Place = Annotated[
    str, typer.Argument(metavar="INDEX", help="The folder of the index, or its address.")
]


class PolicyOption(StrEnum):
    """What happens to the units beyond the budget."""

    drop = "drop"
    merge = "merge"


BudgetPolicy = Annotated[
    PolicyOption | None,
    typer.Option("--policy", help="Units beyond the budget are dropped or merged into the rest."),
]
Width = Annotated[int | None, typer.Option("--width", min=1, help="Width of the unit vectors.")]

# From unimportant to important: readable on dark and on light backgrounds.
_SHADES = ("grey50", "default", "cyan", "bold cyan", "bold magenta")


def load(model: str, device: str | None, terms: Path | None, **settings: Any) -> HPlus:
    """The model; imported only now, so that `--help` is quick."""
    from hplus.model import HPlus

    return HPlus(model, device=device, terms=terms, **settings)


def console() -> Console:
    """Standard output for people; lines may be long in a pipe or file."""
    wide = None if sys.stdout.isatty() or "COLUMNS" in os.environ else 200
    return screen(soft_wrap=True, width=wide)


def print_json(value: object) -> None:
    """One line of JSON for machines; what would command a terminal is escaped."""
    print(escaped(json.dumps(value, ensure_ascii=False)))


def ids_of(given: list[str]) -> list[str]:
    """The ids that were typed; - reads one per line from standard input."""
    if given != ["-"]:
        return given
    if sys.stdin is None:
        raise InputError("standard input is closed")
    return [line.strip() for line in sys.stdin if line.strip()]


def report_missing(ids: list[str]) -> None:
    """Exit with 1 if the index lacks documents that were asked for."""
    if ids:
        more = f" and {len(ids) - 1} more" if len(ids) > 1 else ""
        print(f"not in the index: {ids[0]}{more}", file=sys.stderr)
        raise typer.Exit(1)


def plain_table(*columns: str, left: int = 1) -> Table:
    """A table without lines; the first `left` columns hold words, the others figures."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for place, column in enumerate(columns):
        table.add_column(column, justify="left" if place < left else "right")
    return table


def shade(weight: float, largest: float) -> str:
    """The style of a weight relative to the largest one on screen."""
    share = weight / largest if largest > 0 else 0.0
    return _SHADES[min(int(share * len(_SHADES)), len(_SHADES) - 1)]


def bar(share: float, width: int = 20) -> str:
    """A share of 0 to 1 as a bar."""
    return "█" * round(max(0.0, min(share, 1.0)) * width)


def budget_of(count: int | None, policy: PolicyOption | None) -> Budget | int | None:
    """The budget that `--budget` and `--policy` describe together."""
    from hplus.units.select import Budget

    if policy is None:
        return count
    if count is None:
        raise InputError(f"--policy {policy.value} needs a --budget")
    return Budget(count, policy=policy.value)


def columns_of(
    text: list[str] | None, title: str | None, id_: str | None, delimiter: str | None
) -> Columns | None:
    """The columns that the options name; None if they name none."""
    from hplus.sources.columns import DEFAULT, Columns

    if not (text or title or id_ or delimiter):
        return None
    return Columns(tuple(text or DEFAULT.texts), title, id_, delimiter)


def print_skipped(message: str) -> None:
    """A bad row that was left out."""
    print(f"skipped: {message}", file=sys.stderr)


def what_is_kept(budget: Budget, share: float) -> str:
    """What became of units beyond a budget: merging keeps their importance, not their detail."""
    if budget.count is None and budget.share is None:
        return "every unit kept"
    if budget.policy == "drop":
        return f"{share:.1%} of the importance kept, the rest dropped"
    return "no unit dropped, those beyond it averaged into others"


def read_texts(source: str) -> Iterator[str]:
    """Texts of a file (gz allowed) or of standard input (`-`): one per line; of a .jsonl file, the
    `text` of each row, after its `title` if it has one."""
    if source == "-":
        if sys.stdin is None:
            raise InputError("standard input is closed")
        for _, line in numbered(sys.stdin.buffer, "standard input"):
            yield line
        return
    rows = ".jsonl" in Path(source).suffixes
    for number, line in numbered_lines(Path(source)):
        if not rows:
            yield line
        elif line.strip():
            yield _from_json(line, source, number)


def _from_json(line: str, name: str, number: int) -> str:
    try:
        row = json.loads(line)
        title, text = row.get("title") or "", row["text"]
    except (ValueError, KeyError, TypeError, AttributeError):
        title, text = "", None
    if not isinstance(text, str) or not isinstance(title, str):
        raise InputError(f'{name}:{number}: expected a JSON object with a "text"')
    return f"{title} {text}".strip()


def open_index(place: str, model: str | None = None) -> Any:
    """The index in a folder or at an address."""
    from hplus import index

    return index.open_index(place, model)


def counted(count: int, noun: str) -> str:
    """A number with its noun.

    >>> counted(1, "document"), counted(2_000, "document")
    ('1 document', '2,000 documents')
    """
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
