"""`hplus score`: a query against documents by every view, explained on request."""

from __future__ import annotations

from dataclasses import asdict
from itertools import cycle
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hplus.cli.common import (
    BudgetCount,
    BudgetPolicy,
    Device,
    Json,
    Model,
    TermsFile,
    Width,
    bar,
    budget_of,
    console,
    load,
    print_json,
    read_texts,
)
from hplus.errors import InputError
from hplus.terminal import visible

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from hplus.types import Explanation, Scores, Span

EXAMPLE = (
    'Example: hplus score "type 2 diabetes" "Metformin treats type 2 diabetes." '
    '"Insulin treats type 1 diabetes." --explain'
)
# One colour for each query unit and what it matched.
COLOURS = ("cyan", "magenta", "green", "yellow", "blue", "red")
# Query units below this share of the query's weight are shown together.
LEAST_SHARE = 0.03


def score(
    query: Annotated[str, typer.Argument(help="What is looked for.")],
    documents: Annotated[
        list[str],
        typer.Argument(metavar="DOCUMENT…", help="Texts; - reads one per line from input."),
    ],
    explain: Annotated[
        bool, typer.Option("--explain", help="Show which phrases matched and what each gave.")
    ] = False,
    model: Model = "mini",
    device: Device = None,
    terms: TermsFile = None,
    budget: BudgetCount = None,
    policy: BudgetPolicy = None,
    width: Width = None,
    json_: Json = False,
) -> None:
    """Score a query against documents: global, phrase, lexical, fused."""
    if not query.strip():
        raise InputError("the query is empty")
    texts = [text for item in documents for text in (read_texts("-") if item == "-" else [item])]
    if not texts:
        raise InputError("no documents: standard input was empty")
    scores = load(model, device, terms).score(
        query, texts, budget=budget_of(budget, policy), width=width, explain=explain
    )
    if json_:
        print_json(_as_json(query, scores))
        return
    out = console()
    print_table(texts, scores, out)
    if scores.explanations is not None:
        for rank, i in enumerate(scores.ranking().tolist(), start=1):
            print_explanation(query, texts[i], scores.explanations[i], f"{rank}", out)


def _as_json(query: str, scores: Scores) -> dict[str, Any]:
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
        if scores.explanations is not None:
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


def print_explanation(
    query: str, text: str, explanation: Explanation, label: str, out: Console
) -> None:
    """Query and document with matching phrases in one colour, then what each unit gave."""
    from rich.text import Text

    shares = " + ".join(f"{view} {share:.3f}" for view, share in explanation.shares.items())
    out.print()
    out.print(Text.assemble((label, "bold"), f"  fused {explanation.fused:.3f} = {shares}"))
    # Function words weigh next to nothing: one line for all of them keeps the rest readable.
    least = LEAST_SHARE * sum(match.weight for match in explanation.phrase)
    matches = [match for match in explanation.phrase if match.weight >= least]
    light = [match for match in explanation.phrase if match.weight < least]
    coloured = list(zip(matches, cycle(COLOURS), strict=False))

    query_marks = [(span, colour) for match, colour in coloured for span in match.spans]
    out.print(Text("query     ").append_text(marked(query, query_marks)))
    # A document phrase that several units matched has the colour of the one that gave most.
    rising = sorted(coloured, key=lambda pair: pair[0].contribution)
    marks = [(span, colour) for match, colour in rising for span in match.document_spans]
    out.print(Text("document  ").append_text(marked(text, marks)))
    total = explanation.phrase_raw or 1.0
    for match, colour in coloured:
        line = Text(f"  {match.contribution:7.2f}  ")
        line.append(f"{bar(match.contribution / total, 12):<12} ", style=colour)
        line.append(" ".join(match.text.split()), style=colour)
        line.append(f"  {match.similarity:.2f} → ", style="grey50")
        line.append(" ".join(match.document_text.split()) or "nothing", style=colour)
        out.print(line)
    if light:
        names = ", ".join(" ".join(match.text.split()) for match in light)
        given = sum(match.contribution for match in light)
        out.print(Text(f"  {given:7.2f}  {'':<12} {names}", style="grey50"))
    if explanation.lexical:
        best = sorted(explanation.lexical, key=lambda term: -term.contribution)[:8]
        words = ", ".join(f"{term.token} {term.contribution:.1f}" for term in best)
        out.print(Text(f"  exact     {words}", style="grey50"))
    if explanation.dropped:
        lost = ", ".join(" ".join(unit.text.split()) for unit in explanation.dropped[:8])
        more = f" and {len(explanation.dropped) - 8} more" if len(explanation.dropped) > 8 else ""
        out.print(Text(f"  dropped   {lost}{more}", style="grey50"))


def marked(text: str, marks: list[tuple[Span, str]]) -> Text:
    """A text on one line with these spans in colour."""
    from rich.text import Text

    line = Text(visible(text))  # rich would leave some characters out, and move the spans
    for span, colour in marks:
        line.stylize(f"bold {colour}", span.start, span.end)
    return Text(" ").join(line.split()) if "\n" in text else line
