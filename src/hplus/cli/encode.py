"""`hplus encode`: texts to a file of arrays."""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from hplus import DEFAULT_MODEL
from hplus.cli.common import (
    BudgetCount,
    BudgetPolicy,
    Device,
    Model,
    TermsFile,
    Width,
    Workers,
    budget_of,
    console,
    load,
    read_texts,
    what_is_kept,
)
from hplus.errors import InputError

EXAMPLE = "Example: hplus encode texts.txt texts.npz --budget 16 --width 128"


class SideOption(StrEnum):
    """Queries and documents have different prompts and budgets."""

    query = "query"
    document = "document"


def encode(
    source: Annotated[
        str, typer.Argument(metavar="TEXTS|-", help="A text a line, or .jsonl with a text field.")
    ],
    target: Annotated[Path, typer.Argument(metavar="FILE", help="To write: .npz or .safetensors.")],
    as_: Annotated[
        SideOption, typer.Option("--as", help="Encode as queries or as documents.")
    ] = SideOption.document,
    model: Model = DEFAULT_MODEL,
    device: Device = None,
    terms: TermsFile = None,
    budget: BudgetCount = None,
    policy: BudgetPolicy = None,
    width: Width = None,
    workers: Workers = 1,
) -> None:
    """Encode texts in the three views and write the arrays."""
    from hplus.encoded_file import check_suffix, write_encoded

    check_suffix(target)
    if not target.parent.is_dir():
        raise InputError(f"{target.parent} is not a folder; create it first")
    texts = list(read_texts(source))
    if not texts:
        raise InputError(f"{source} has no texts")
    wanted = budget_of(budget, policy)
    hplus = load(model, device, terms)
    query = as_ is SideOption.query
    usual = hplus.recipe.query_budget if query else hplus.recipe.document_budget
    spent = replace(usual, count=wanted, share=None) if isinstance(wanted, int) else wanted or usual
    if query:
        encoded = hplus.encode_query(texts, budget=wanted, width=width)
    else:
        encoded = hplus.encode_document(
            texts, budget=wanted, width=width, workers=workers, progress=True
        )
    write_encoded(target, encoded, fingerprint=hplus.fingerprint)
    coverage = encoded.coverage
    total = float(coverage.importance.sum())
    kept = float(coverage.kept.sum()) / total if total else 1.0
    console().print(
        f"{target}: {len(encoded):,} texts, {len(encoded.units.weights):,} units, "
        f"{spent}; {what_is_kept(spent, kept)}; "
        f"{int((coverage.windows > 1).sum()):,} texts stitched, "
        f"{int((coverage.cut > 0).sum()):,} cut"
    )
