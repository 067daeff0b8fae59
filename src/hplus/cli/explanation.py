"""Explanations on a terminal, wrapped at word ends, and as a page of HTML."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hplus.cli.common import bar
from hplus.terminal import visible

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from hplus.search.snippets import Snippet
    from hplus.types import Explanation

# One colour for each query unit and what it matched.
COLOURS = ("cyan", "magenta", "green", "yellow", "blue", "red")
# Columns before a text, of a bar, and of a text at least, however narrow the terminal.
LABEL = 10
BAR = 12
LEAST = 20

Html = Annotated[
    Path | None,
    typer.Option("--html", metavar="FILE", help="Write the explanations as a page of HTML."),
]


def print_explanation(
    query: str, text: str, explanation: Explanation, label: str, out: Console
) -> None:
    """Query and document with matching phrases in one colour, then what each unit gave."""
    from rich.text import Text

    from hplus.search.explained import readable
    from hplus.search.snippets import excerpt

    found = readable(explanation, text)
    out.print()
    _print_wrapped(Text(f"{visible(label)}  ", style="bold"), Text(f"fused {found.sum}"), out)
    for name, whole, spans in (
        ("query", query, [line.spans for line in found.lines]),
        ("document", text, [line.document_spans for line in found.lines]),
    ):
        _print_wrapped(Text(f"{name:<{LABEL}}"), coloured(excerpt(whole, spans)), out)
    most = max((line.thousandths for line in found.lines), default=0) or 1
    for rank, line in enumerate(found.lines):
        colour = COLOURS[rank % len(COLOURS)]
        first = Text(f"{found.shown(line.thousandths):>7}  ")
        first.append(f"{bar(line.thousandths / most, BAR):<{BAR}} ", style=colour)
        shown = Text(line.text, style=colour)
        shown.append(f"  {line.similarity:.2f} → ", style="grey50")
        shown.append(line.found or "nothing", style=colour)
        _print_wrapped(first, shown, out)
    names, own = found.light
    if names:
        first = Text(f"{found.shown(own):>7}  {'':<{BAR}} ", style="grey50")
        _print_wrapped(first, Text(", ".join(names), style="grey50"), out)
    for name, what in (("exact", found.exact), ("dropped", found.left_out)):
        if what:
            first = Text(f"{name:<{LABEL}}", style="grey50")
            _print_wrapped(first, Text(what, style="grey50"), out)


def _print_wrapped(first: Text, text: Text, out: Console) -> None:
    """A text of any length after `first`, its other lines under its beginning."""
    from rich.text import Text

    before = first
    for line in text.wrap(out, max(LEAST, out.width - first.cell_len)):
        line.rstrip()
        out.print(Text.assemble(before, line))
        before = Text(" " * first.cell_len)


def coloured(shown: Snippet) -> Text:
    """A snippet with its marks in the colours of their ranks."""
    from rich.text import Text

    line = Text(visible(shown.text))  # rich would leave some characters out, and move the marks
    for mark in shown.marks:
        line.stylize(f"bold {COLOURS[mark.rank % len(COLOURS)]}", mark.start, mark.end)
    return line


def write_page(path: Path, query: str, whys: Iterable[tuple[str, str, Explanation]]) -> None:
    """A page of explanations, each with its label and its document's text."""
    from hplus.search.page import explanation, page

    parts = [explanation(query, text, why, rank) for rank, text, why in whys]
    write_html(path, page(query, parts), len(parts))


def write_html(path: Path, page: str, documents: int) -> None:
    """The file appears when it is complete."""
    from hplus.files import writing

    with writing(path) as out:
        out.write(page.encode("utf-8", "backslashreplace"))
    noun = "document" if documents == 1 else "documents"
    print(f"{path}: {documents:,} {noun} explained", file=sys.stderr)
