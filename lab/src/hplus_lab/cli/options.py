"""Options that several commands of the laboratory share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hplus.units.terms import Terms

TermsFile = Annotated[
    Path | None, typer.Option("--terms", help="One term a line, for boundaries with terminology.")
]
BaselinesFolder = Annotated[
    Path | None,
    typer.Option("--baselines", help="Weights of baselines (docs/baselines.md), for shared pools."),
]


def read_terms(path: Path | None) -> Terms | None:
    return Terms.read(path) if path else None
