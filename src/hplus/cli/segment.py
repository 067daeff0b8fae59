"""`hplus segment`: the units of a text, coloured by weight."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from hplus import DEFAULT_MODEL
from hplus.cli.common import (
    Device,
    Json,
    Model,
    TermsFile,
    console,
    load,
    print_json,
    read_texts,
    shade,
)
from hplus.cli.encode import SideOption
from hplus.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console

    from hplus.types import Unit

EXAMPLE = 'Example: hplus segment "Metformin lowers HbA1c in type 2 diabetes"'
# Texts read ahead from a pipe: enough to encode well, few enough to answer soon.
BATCH = 64


def segment(
    text: Annotated[
        str | None,
        typer.Argument(
            metavar="TEXT|-",
            help="A text (after -- if it begins with a dash); - reads one per line from input.",
        ),
    ] = None,
    as_: Annotated[
        SideOption, typer.Option("--as", help="Read as a query or as a document.")
    ] = SideOption.document,
    model: Model = DEFAULT_MODEL,
    device: Device = None,
    terms: TermsFile = None,
    json_: Json = False,
) -> None:
    """Divide a text into units and show how much each weighs."""
    if text is None and sys.stdin is not None and sys.stdin.isatty():
        raise InputError('no text given; try: hplus segment "type 2 diabetes"')
    hplus = load(model, device, terms)
    out = console()
    single = text not in (None, "-")
    batch: list[str] = []
    for line in [text] if text is not None and single else read_texts("-"):
        batch.append(line)
        if len(batch) == BATCH:
            _show(batch, hplus.segment(batch, side=as_.value), json_, single, out)
            batch = []
    _show(batch, hplus.segment(batch, side=as_.value), json_, single, out)


def _show(
    texts: list[str], segmented: list[list[Unit]], json_: bool, single: bool, out: Console
) -> None:
    for text, units in zip(texts, segmented, strict=True):
        if json_:
            print_json({"text": text, "units": [vars(u) for u in units]})
            continue
        print_units(units, out)
        if single and out.is_terminal:
            _print_weights(units, out)


def print_units(units: list[Unit], out: Console) -> None:
    from rich.text import Text

    largest = max((unit.weight for unit in units), default=0.0)
    line = Text()
    for i, unit in enumerate(units):
        line.append(" │ " if i else "", style="grey50")
        line.append(" ".join(unit.text.split()), style=shade(unit.weight, largest))
    out.print(line)


def _print_weights(units: list[Unit], out: Console) -> None:
    from rich.text import Text

    from hplus.cli.common import bar

    largest = max((unit.weight for unit in units), default=0.0)
    out.print()
    for unit in sorted(units, key=lambda unit: -unit.weight):
        style = shade(unit.weight, largest)
        line = Text(f"{unit.weight:7.2f}  ")
        line.append(f"{bar(unit.weight / largest, 16):<16}  ", style=style)
        out.print(line.append(" ".join(unit.text.split()), style=style))
