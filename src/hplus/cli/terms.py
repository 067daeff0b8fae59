"""`hplus terms check`: what a terminology list changes."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from hplus.cli.common import Json, Model, console, load, read_texts
from hplus.errors import InputError

app = typer.Typer(help="Work with terminology lists.", no_args_is_help=True)
EXAMPLE = "Example: hplus terms check terms.txt texts.txt"
SHOWN = 20


@dataclass(frozen=True)
class Change:
    """A term in a text whose units it changed: what stood there before."""

    term: str
    before: str


@app.command("check", epilog=EXAMPLE)
def check(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Terms, one a line, gz allowed.")],
    texts: Annotated[
        str, typer.Argument(metavar="TEXTS", help="A text a line, .jsonl with a text field, or -.")
    ],
    model: Model = "mini",
    json_: Json = False,
) -> None:
    """Show which units a terminology list changes and how often each term occurs."""
    plain = load(model, None, None)
    with_terms = load(model, None, file)
    terms = with_terms.terms
    lines = list(read_texts(texts))
    if terms is None or not lines:
        raise InputError(f"{texts} has no texts")
    occurrences: Counter[str] = Counter()
    changes: Counter[Change] = Counter()
    changed_texts = 0
    for text, units in zip(lines, plain.segment(lines), strict=True):
        so_far = changes.total()
        borders = {(unit.start, unit.end) for unit in units}
        for start, end, term in terms.find(text):
            occurrences[terms.patterns[term]] += 1
            if (start, end) not in borders:
                cut = [u for u in units if u.start < end and start < u.end]
                changes[Change(terms.patterns[term], " │ ".join(u.text for u in cut))] += 1
        changed_texts += changes.total() > so_far
    if json_:
        for name, count in occurrences.most_common():
            units_before = {c.before: n for c, n in changes.items() if c.term == name}
            row = {"term": name, "count": count, "changed": units_before}
            print(json.dumps(row, ensure_ascii=False))
    else:
        _print(len(terms), len(lines), changed_texts, occurrences, changes)
    if not occurrences:
        raise typer.Exit(1)


def _print(
    terms: int, texts: int, changed_texts: int, occurrences: Counter[str], changes: Counter[Change]
) -> None:
    from rich.table import Table

    out = console()
    out.print(
        f"{len(occurrences):,} of {terms:,} terms occur, {occurrences.total():,} times in "
        f"{texts:,} texts; units change {changes.total():,} times in {changed_texts:,} texts"
    )
    if not occurrences:
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("times", justify="right")
    table.add_column("changed", justify="right")
    table.add_column("term", style="cyan")
    table.add_column("stood there before, most often")
    for term, count in occurrences.most_common(SHOWN):
        own = Counter({c.before: n for c, n in changes.items() if c.term == term})
        before = own.most_common(1)[0][0] if own else "the same unit"
        table.add_row(str(count), str(own.total()), term, before)
    out.print(table, soft_wrap=False)
    if len(occurrences) > SHOWN:
        out.print(f"and {len(occurrences) - SHOWN:,} more; --json lists all")
