"""`hplus-lab audit`: do units end where people end them?"""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from hplus import DEFAULT_MODEL
from hplus.cli.common import Device, Json, Model, TermsFile, console, plain_table, print_json
from hplus.cli.sets import Cache, states_folder
from hplus.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import Console

    from hplus.model import HPlus
    from hplus.types import Span
    from hplus.units.terms import Terms
    from hplus_lab.audit.items import Item
    from hplus_lab.audit.reference import Annotator

EXAMPLE = "Example: hplus-lab audit audit.jsonl --reference union --json"


class ReferenceOption(StrEnum):
    """Whose marks count."""

    A = "A"
    B = "B"
    union = "union"


class Sources(NamedTuple):
    """What an audit can draw on besides the model, each optional."""

    terms: Terms | None
    teacher: Mapping[str, Sequence[Span]] | None
    gains: Mapping[str, float] | None


def audit(
    sets: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE|DIR…",
            help="Audit files, or corpora of marked spans (a file, or a folder of splits).",
        ),
    ],
    split: Annotated[str, typer.Option("--split", help="Which file of a folder.")] = "test",
    model: Model = DEFAULT_MODEL,
    terms: TermsFile = None,
    teacher: Annotated[
        Path | None,
        typer.Option("--teacher", metavar="FILE", help="Labels of `hplus teach labels`."),
    ] = None,
    reference: Annotated[
        ReferenceOption,
        typer.Option("--reference", help="Annotator A or B, or the union of both."),
    ] = ReferenceOption.A,
    gains: Annotated[
        Path | None,
        typer.Option("--gains", metavar="FILE", help="Gains by query: JSON, or a cell of a run."),
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
    from hplus.model import HPlus
    from hplus.teach.label_file import read_labels
    from hplus.units.terms import Terms
    from hplus_lab.audit.gains import read_gains
    from hplus_lab.audit.items import read_items
    from hplus_lab.audit.report import markdown

    # Every file is read before the first encoding: a mistake should not cost minutes.
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
    read = {path: read_items(path, split)[:limit] for path in sets}
    sources = Sources(
        Terms.read(terms) if terms else None,
        {own.text: own.units for labels in read_labels(teacher).values() for own in labels}
        if teacher
        else None,
        read_gains(gains) if gains else None,
    )
    hplus = HPlus(model, device=device, long="cut")
    summaries = []
    with states_folder(cache) as states:
        for path, items in read.items():
            summary = _summary(path, split, items, hplus, reference.value, sources, states)
            summaries.append(summary)
            if json_:
                print_json(summary)
            else:
                _print(summary, first=len(summaries) == 1)
    if out is not None:
        text = json.dumps(summaries, ensure_ascii=False, indent=1) + "\n"
        out.with_name(f"{out.name}.json").write_text(text, "utf-8")
        out.with_name(f"{out.name}.md").write_text(markdown(summaries), "utf-8")


def _summary(
    path: Path,
    split: str,
    items: list[Item],
    model: HPlus,
    reference: Annotator,
    sources: Sources,
    states: Path,
) -> dict[str, Any]:
    from hplus.teach.corpus import source_name
    from hplus_lab.audit.compare import compare
    from hplus_lab.audit.gains import gain_correlation
    from hplus_lab.audit.report import summarise

    terms, teacher, gains = sources
    name = path.name if path.is_dir() else source_name(path)
    try:
        found = compare(
            model, items, states, reference=reference, terms=terms, teacher=teacher, name=name
        )
        values = found.rows["crf"].boundary_f1
        correlation = gain_correlation(items, values, gains) if gains else None
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    return summarise(
        found,
        correlation,
        set=name,
        split=split if path.is_dir() else None,
        gold="partial" if items[0].partial else "exhaustive",
        reference=reference,
        model=model.recipe.name,
        fingerprint=model.fingerprint,
        terms=terms.fingerprint if terms else None,
    )


def _print(summary: dict[str, Any], *, first: bool) -> None:
    from hplus_lab.audit.report import COLUMNS, FLAG_COLUMNS, flag_table, notes, table

    out = console()
    if not first:
        out.print()
    out.print(" ".join(filter(None, (summary["set"], summary["split"]))), style="bold")
    _print_table(COLUMNS, table(summary), out)
    out.print()
    _print_table(FLAG_COLUMNS, flag_table(summary), out)
    out.print()
    for line in notes(summary):
        out.print(line, style="grey50")


def _print_table(columns: Sequence[str], lines: Sequence[Sequence[str]], out: Console) -> None:
    shown = plain_table(*columns)
    for line in lines:
        shown.add_row(*line, style="bold cyan" if line[0] == "crf" else "")
    out.print(shown, soft_wrap=False)
