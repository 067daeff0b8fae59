"""`hplus-lab units`: are the constructions right that people care about?"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Annotated

import typer

from hplus import DEFAULT_MODEL
from hplus.cli.common import Device, Json, Model, TermsFile, console, plain_table, print_json

EXAMPLE = "Example: hplus-lab units experiments/segmentation/dev.txt --wrong"


def units(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="Lines marked with ⟦, ⟧ and │, in families.")
    ],
    model: Model = DEFAULT_MODEL,
    terms: TermsFile = None,
    wrong: Annotated[
        bool, typer.Option("--wrong", help="Show what is wrong, unit by unit.")
    ] = False,
    device: Device = None,
    json_: Json = False,
) -> None:
    """How many marked lines a model divides right, family by family."""
    from hplus.model import HPlus
    from hplus.types import Span
    from hplus_lab.audit.marked_lines import is_right, read_lines

    lines = read_lines(file)
    hplus = HPlus(model, device=device, terms=terms)
    counts: dict[str, list[bool]] = defaultdict(list)
    failures = []
    for line, found in zip(lines, hplus.segment([line.text for line in lines]), strict=True):
        right = is_right(line, [Span(unit.start, unit.end) for unit in found])
        counts[line.family].append(right)
        if not right:
            failures.append((line.family, " │ ".join(unit.text for unit in found)))
    if json_:
        for family, judged in counts.items():
            print_json({"family": family, "right": sum(judged), "lines": len(judged)})
        return
    table = plain_table("family", "right", "lines")
    for family, judged in counts.items():
        table.add_row(family, str(sum(judged)), str(len(judged)))
    table.add_row("all", str(len(lines) - len(failures)), str(len(lines)), style="bold")
    out = console()
    out.print(table, soft_wrap=False)
    if wrong:
        for family, shown in failures:
            out.print(f"{family}: {shown}", style="grey50", markup=False, highlight=False)
