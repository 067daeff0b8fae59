"""`hplus evaluate audit`: do units end where people end them?"""

from __future__ import annotations

import json
import tempfile
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hplus.cli.common import Device, Json, Model, TermsFile, console
from hplus.cli.teach import Cache
from hplus.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

EXAMPLE = "Example: hplus evaluate audit audit.jsonl --reference union --json"


class ReferenceOption(StrEnum):
    """Whose marks count."""

    A = "A"
    B = "B"
    union = "union"


def audit(
    sets: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE|DIR…",
            help="Audit files, or corpora of marked spans (a file, or a folder of splits).",
        ),
    ],
    split: Annotated[str, typer.Option("--split", help="Which file of a folder.")] = "test",
    model: Model = "mini",
    terms: TermsFile = None,
    teacher: Annotated[
        Path | None,
        typer.Option("--teacher", metavar="FILE", help="Labels of `hplus teach labels`."),
    ] = None,
    reference: Annotated[
        ReferenceOption,
        typer.Option("--reference", help="Annotator A or B, or what either marked."),
    ] = ReferenceOption.A,
    gains: Annotated[
        Path | None,
        typer.Option(
            "--gains",
            metavar="FILE",
            help="Gains by query: JSON, or a cell of a run.",
        ),
    ] = None,
    limit: Annotated[
        int | None, typer.Option("--limit", min=1, help="Items of each set, at most.")
    ] = None,
    cache: Cache = None,
    device: Device = None,
    json_: Json = False,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="NAME", help="Write NAME.json and NAME.md as well."),
    ] = None,
) -> None:
    """Boundary F1, span F1 and term recall of the CRF's units and of their controls."""
    from hplus.evaluate.audit import audit as audit_items
    from hplus.evaluate.audit_file import read_gains, read_items
    from hplus.evaluate.audit_report import markdown, summarise
    from hplus.model import HPlus
    from hplus.teach.corpus import source_name
    from hplus.teach.label_file import read_labels
    from hplus.units.terms import Terms

    # All files before the first encoding: a mistake should not cost minutes.
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
    read = {path: read_items(path, split)[:limit] for path in sets}
    term_list = Terms.read(terms) if terms else None
    known_gains = read_gains(gains) if gains else None
    labels = read_labels(teacher) if teacher else None
    taught = (
        {own.text: own.units for source in labels.values() for own in source} if labels else None
    )
    hplus = HPlus(model, device=device, long="cut")
    console_ = console()
    summaries = []
    with tempfile.TemporaryDirectory() as temporary:
        for path, items in read.items():
            name = path.name if path.is_dir() else source_name(path)
            try:
                found = audit_items(
                    hplus,
                    items,
                    cache or Path(temporary),
                    reference=reference.value,
                    terms=term_list,
                    teacher=taught,
                    gains=known_gains,
                    name=name,
                )
            except InputError as error:
                raise InputError(f"{path}: {error}") from None
            summary = summarise(
                found,
                set=name,
                split=split if path.is_dir() else None,
                gold="partial" if items[0].partial else "exhaustive",
                reference=reference.value,
                model=hplus.recipe.name,
                fingerprint=hplus.fingerprint,
                terms=term_list.fingerprint if term_list else None,
            )
            summaries.append(summary)
            if json_:
                print(json.dumps(summary, ensure_ascii=False))
            else:
                console_.print(end="\n" if len(summaries) > 1 else "")
                _print(summary, console_)
    if out is not None:
        text = json.dumps(summaries, ensure_ascii=False, indent=1) + "\n"
        out.with_name(f"{out.name}.json").write_text(text, "utf-8")
        out.with_name(f"{out.name}.md").write_text(markdown(summaries), "utf-8")


def _print(summary: dict[str, Any], out: Console) -> None:
    from hplus.evaluate.audit_report import COLUMNS, FLAG_COLUMNS, flag_table, notes, table

    out.print(" ".join(filter(None, (summary["set"], summary["split"]))), style="bold")
    _print_table(COLUMNS, table(summary), out)
    out.print()
    _print_table(FLAG_COLUMNS, flag_table(summary), out)
    out.print()
    for line in notes(summary):
        out.print(line, style="grey50")


def _print_table(columns: Sequence[str], lines: Sequence[Sequence[str]], out: Console) -> None:
    from rich.table import Table

    shown = Table(box=None, pad_edge=False, header_style="bold")
    for number, column in enumerate(columns):
        shown.add_column(column, justify="right" if number else "left")
    for line in lines:
        shown.add_row(*line, style="bold cyan" if line[0] == "crf" else "")
    out.print(shown, soft_wrap=False)
