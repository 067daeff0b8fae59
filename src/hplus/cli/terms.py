"""`hplus terms check`: what a terminology list changes."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from hplus import DEFAULT_MODEL
from hplus.cli.common import Device, Json, Model, console, load, print_json, read_texts
from hplus.errors import InputError
from hplus.units.terms import Terms

app = typer.Typer(help="Work with terminology lists.", no_args_is_help=True)
EXAMPLE = "Example: hplus terms check terms.txt texts.txt"
SHOWN = 20


@app.command("check", epilog=EXAMPLE)
def check(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Terms, one per line, gz allowed.")],
    texts: Annotated[
        str,
        typer.Argument(metavar="TEXTS", help="One text per line, .jsonl with a text field, or -."),
    ],
    model: Model = DEFAULT_MODEL,
    device: Device = None,
    json_: Json = False,
) -> None:
    """Show which units a terminology list changes and how often each term occurs."""
    from hplus.terms_check import check_terms

    terms = Terms.read(file)
    lines = list(read_texts(texts))
    if not lines:
        raise InputError(f"{texts} has no texts")
    found = check_terms(load(model, device, None), terms, lines)
    occurrences, changes = found.occurrences, found.changes
    if json_:
        for term, count in occurrences.most_common():
            row = {"term": term, "count": count, "changed": dict(changes[term])}
            print_json(row)
    else:
        _print(len(terms), len(lines), found.changed_texts, occurrences, changes)
    if not occurrences:
        raise typer.Exit(1)


def _print(
    terms: int,
    texts: int,
    changed_texts: int,
    occurrences: Counter[str],
    changes: dict[str, Counter[str]],
) -> None:
    from rich.table import Table
    from rich.text import Text

    out = console()
    total = sum(change.total() for change in changes.values())
    out.print(
        f"{len(occurrences):,} of {terms:,} terms occur, {occurrences.total():,} times in "
        f"{texts:,} texts; units change {total:,} times in {changed_texts:,} texts"
    )
    if not occurrences:
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("times", justify="right")
    table.add_column("changed", justify="right")
    table.add_column("term", style="cyan")
    table.add_column("most frequent unit before")
    for term, count in occurrences.most_common(SHOWN):
        own = changes[term]
        before = own.most_common(1)[0][0] if own else "the same unit"
        table.add_row(str(count), str(own.total()), Text(term), Text(before))
    out.print(table, soft_wrap=False)
    if len(occurrences) > SHOWN:
        out.print(f"and {len(occurrences) - SHOWN:,} more; --json lists all")
