"""`hplus score`: a query against documents by every view, explained on request."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hplus import DEFAULT_MODEL
from hplus.cli.common import (
    BudgetCount,
    BudgetPolicy,
    Device,
    Json,
    Model,
    TermsFile,
    Width,
    budget_of,
    console,
    load,
    print_json,
    read_texts,
)
from hplus.cli.explanation import Html, print_explanation, write_page
from hplus.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console

    from hplus.types import Scores

EXAMPLE = (
    'Example: hplus score "type 2 diabetes" "Metformin treats type 2 diabetes." '
    '"Insulin treats type 1 diabetes." --explain'
)


def score(
    query: Annotated[str, typer.Argument(help="What is looked for.")],
    documents: Annotated[
        list[str],
        typer.Argument(metavar="DOCUMENT…", help="Texts; - reads one per line from input."),
    ],
    explain: Annotated[
        bool, typer.Option("--explain", help="Show which phrases matched and what each gave.")
    ] = False,
    model: Model = DEFAULT_MODEL,
    device: Device = None,
    terms: TermsFile = None,
    budget: BudgetCount = None,
    policy: BudgetPolicy = None,
    width: Width = None,
    html: Html = None,
    json_: Json = False,
) -> None:
    """Score a query against documents: global, phrase, lexical, fused."""
    if not query.strip():
        raise InputError("the query is empty")
    texts = [text for item in documents for text in (read_texts("-") if item == "-" else [item])]
    if not texts:
        raise InputError("no documents: standard input was empty")
    scores = load(model, device, terms).score(
        query,
        texts,
        budget=budget_of(budget, policy),
        width=width,
        explain=explain or html is not None,
    )
    if html is not None and scores.explanations is not None:
        ranked = enumerate(scores.ranking().tolist(), start=1)
        whys = [(str(rank), texts[i], scores.explanations[i]) for rank, i in ranked]
        write_page(html, query, whys)
    if json_:
        print_json(_as_json(query, scores, explained=explain))
        return
    out = console()
    print_table(texts, scores, out)
    if explain and scores.explanations is not None:
        for rank, i in enumerate(scores.ranking().tolist(), start=1):
            print_explanation(query, texts[i], scores.explanations[i], f"{rank}", out)


def _as_json(query: str, scores: Scores, *, explained: bool) -> dict[str, Any]:
    columns = {
        "global": scores.global_,
        "phrase": scores.phrase,
        "phrase_raw": scores.phrase_raw,
        "lexical": scores.lexical,
        "lexical_raw": scores.lexical_raw,
        "fused": scores.fused,
    }
    documents: list[dict[str, Any]] = []
    for i in range(len(scores)):
        row: dict[str, Any] = {"index": i}
        row |= {name: float(values[i]) for name, values in columns.items() if values is not None}
        if explained and scores.explanations is not None:
            row["explanation"] = asdict(scores.explanations[i])
        documents.append(row)
    return {"query": query, "documents": documents}


def print_table(texts: list[str], scores: Scores, out: Console) -> None:
    """Documents ranked, with the score of every view."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold", expand=out.is_terminal)
    for name in ("", "fused", "global", "phrase", "lexical"):
        table.add_column(name, justify="right", no_wrap=True, min_width=6 if name else 2)
    table.add_column("document", no_wrap=True, overflow="ellipsis", ratio=1)
    for rank, i in enumerate(scores.ranking().tolist(), start=1):
        views = (scores.fused, scores.global_, scores.phrase, scores.lexical)
        shown = ["–" if view is None else f"{view[i]:.3f}" for view in views]
        table.add_row(str(rank), *shown, " ".join(texts[i].split())[:200])
    out.print(table, soft_wrap=False)
