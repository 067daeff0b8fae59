"""`hplus search`: one query, a prompt for many, or a whole file of queries."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hplus.cli.common import BudgetCount, Json, Place, Width, console, open_index, print_json
from hplus.cli.explanation import Html, coloured, print_explanation, write_html
from hplus.cli.prompt import Asked, prompt
from hplus.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console

    from hplus.any_index import AnyIndex
    from hplus.search.results import Results
    from hplus.types import Hit, Search

EXAMPLE = 'Example: hplus search notes.hplus "type 2 diabetes" -k 3 --explain'
MORE_LIKE_EXAMPLE = "Example: hplus more-like notes.hplus doc-17"


class ViewOption(StrEnum):
    """Which view ranks."""

    hybrid = "hybrid"
    global_ = "global"
    phrase = "phrase"
    lexical = "lexical"


K = Annotated[int, typer.Option("-k", min=1, help="Hits, at most.")]
RankedBy = Annotated[ViewOption, typer.Option("--view", help="Which view ranks.")]
Where = Annotated[
    str | None,
    typer.Option("--where", help="Filter on metadata: 'year >= 2020 and not tag = \"x\"'."),
]
From = Annotated[int, typer.Option("--from", min=0, help="Hits to leave out at the top.")]
MinScore = Annotated[
    float | None, typer.Option("--min-score", help="Leave out hits that score less.")
]
GroupBy = Annotated[
    str | None,
    typer.Option(
        "--group-by", metavar="FIELD", help="Only the best hit of each value of a metadata field."
    ),
]
Explain = Annotated[
    bool, typer.Option("--explain", help="Show which phrases matched and what each gave.")
]
OtherModel = Annotated[
    str | None,
    typer.Option("--model", metavar="PATH|NAME", help="Where the index's model is now."),
]


def search(
    folder: Place,
    query: Annotated[
        str | None, typer.Argument(help="What is looked for; without it, a prompt.")
    ] = None,
    k: K = 10,
    view: RankedBy = ViewOption.hybrid,
    where: Where = None,
    budget: BudgetCount = None,
    query_budget: Annotated[
        int | None, typer.Option("--query-budget", min=1, help="Units used of the query, at most.")
    ] = None,
    width: Width = None,
    from_: From = 0,
    min_score: MinScore = None,
    group_by: GroupBy = None,
    model: OtherModel = None,
    alpha: Annotated[
        list[str] | None,
        typer.Option(metavar="VIEW=WEIGHT", help="Weight of a view: phrase=1; repeatable."),
    ] = None,
    pool: Annotated[int, typer.Option(min=1, help="Candidates of each branch.")] = 1000,
    exact: Annotated[bool, typer.Option("--exact", help="Scan all units, however many.")] = False,
    explain: Explain = False,
    html: Html = None,
    json_: Json = False,
    queries: Annotated[
        Path | None,
        typer.Option(metavar="FILE.jsonl", help='Many queries: {"_id", "text"} per line.'),
    ] = None,
    trec: Annotated[
        Path | None, typer.Option(metavar="OUT", help="Where a TREC run of --queries goes.")
    ] = None,
) -> None:
    """Search an index by phrases, meaning and exact words; phrases that matched are coloured."""
    from hplus.types import Search

    if queries is not None and query is not None:
        raise InputError("--queries FILE.jsonl goes without a QUERY")
    if trec is not None and queries is None:
        raise InputError("--trec OUT needs --queries FILE.jsonl")
    if html is not None and query is None:
        raise InputError("--html FILE needs a QUERY")
    with open_index(folder, model) as opened:
        request = Search(
            query or "",
            view=view.value,
            k=k,
            where=where,
            budget=budget,
            query_budget=query_budget,
            width=width,
            alphas=_alphas(alpha) if alpha else None,
            pool=pool,
            exact=exact,
            explain=trec is None and (explain or not json_ or html is not None),
            from_=from_,
            min_score=min_score,
            group_by=group_by,
            threads=opened.model.threads,
        )
        if queries is not None:
            _answer_all(opened, request, queries, trec, explain=explain, json_=json_)
        elif query is not None:
            _finish(_ask(opened, request, query), html, explain=explain, json_=json_)
        else:
            prompt(
                opened,
                Asked(request, explain),
                lambda found, explained: _show(found, explain=explained, json_=json_),
            )


def more_like(
    folder: Place,
    id_: Annotated[str, typer.Argument(metavar="ID", help="The id of a document of the index.")],
    k: K = 10,
    view: RankedBy = ViewOption.hybrid,
    where: Where = None,
    from_: From = 0,
    min_score: MinScore = None,
    group_by: GroupBy = None,
    model: OtherModel = None,
    explain: Explain = False,
    html: Html = None,
    json_: Json = False,
) -> None:
    """Find the documents most like one of the index; its stored vectors are the query."""
    with open_index(folder, model) as opened:
        found = opened.more_like(
            id_,
            view=view.value,
            k=k,
            where=where,
            explain=explain or not json_ or html is not None,
            from_=from_,
            min_score=min_score,
            group_by=group_by,
        )
        _finish(found, html, explain=explain, json_=json_)


def _alphas(given: list[str]) -> dict[str, float]:
    """`phrase=1` and the like as weights of views."""
    alphas = {}
    for item in given:
        view, _, weight = item.partition("=")
        try:
            alphas[view] = float(weight)
        except ValueError:
            raise InputError(f"--alpha {item}: expected VIEW=WEIGHT, such as phrase=1") from None
    return alphas


def _ask(opened: AnyIndex, request: Search, text: str) -> Results:
    if not text.strip():
        raise InputError("the query is empty")
    return opened.search(replace(request, query=text))


def _answer_all(
    opened: AnyIndex,
    request: Search,
    queries: Path,
    trec: Path | None,
    *,
    explain: bool,
    json_: bool,
) -> None:
    """A whole set of queries: a TREC run, which appears when it is complete, and a line of JSON or
    a list of hits for each."""
    from hplus.files import writing
    from hplus.progress import show_progress
    from hplus.sources.read import read
    from hplus.texts import steps_of

    rows = list(read(queries))
    for row in rows:
        if not row.text.strip():
            raise InputError(f"{queries}: the query {row.id} is empty")
    run = nullcontext(None) if trec is None else writing(trec)
    with run as out, show_progress("searching", len(rows)) as bar:
        for step in steps_of(rows, lambda row: len(row.text)):
            answers = opened.search([replace(request, query=row.text) for row in step])
            for row, found in zip(step, answers, strict=True):
                if out is not None:
                    out.write(_run_of(row.id, found).encode())
                if json_:
                    print_json({"id": row.id, **found.as_json()})
                elif out is None:
                    console().print(f"{row.id}  {found.query}", style="bold")
                    _show(found, explain=explain, json_=False)
            bar.advance(len(step))
    if trec is not None:
        print(f"{trec}: {len(rows):,} queries over {len(opened):,} documents", file=sys.stderr)


def _run_of(query_id: str, found: Results) -> str:
    """The lines of one query in a TREC run."""
    lines = []
    for rank, hit in enumerate(found, start=found.from_ + 1):
        if any(map(str.isspace, query_id + hit.id)):
            raise InputError(f"a TREC run has no ids with blanks: {query_id!r}, {hit.id!r}")
        lines.append(f"{query_id} Q0 {hit.id} {rank} {hit.score:.6f} hplus\n")
    return "".join(lines)


def _finish(found: Results, html: Path | None, *, explain: bool, json_: bool) -> None:
    """Show the results of a command, write them as a page if asked for; exit 1 without hits."""
    if html is not None:
        write_html(html, found.as_html(), len(found))
    if json_ and not explain:
        found = replace(found, hits=[replace(hit, explanation=None) for hit in found])
    _show(found, explain=explain, json_=json_)
    if not found:
        raise typer.Exit(1)


def _show(found: Results, *, explain: bool, json_: bool) -> None:
    if json_:
        print_json(found.as_json())
        return
    out = console()
    if not found:
        print("nothing found", file=sys.stderr)
    if found.hint:
        print(found.hint, file=sys.stderr)
    for rank, hit in enumerate(found, start=found.from_ + 1):
        print_hit(found.query, rank, hit, out, explain=explain)
    if explain:
        out.print()
    out.print(found.summary(), style="grey50")


def print_hit(query: str, rank: int, hit: Hit, out: Console, *, explain: bool) -> None:
    """One hit: its score by view, and the part of the text where the heaviest phrases matched."""
    from rich.text import Text

    from hplus.search.snippets import snippet

    if explain and hit.explanation is not None:
        print_explanation(query, hit.text, hit.explanation, f"{rank}  {hit.id}", out)
        return
    views = "  ".join(f"{view} {score:.3f}" for view, score in hit.views.items())
    head = Text.assemble((f"{rank:>2}  ", "bold"), (hit.id, "bold"), f"  {hit.score:.3f}  ")
    out.print(head.append(views, style="grey50"))
    out.print(Text("    ").append_text(coloured(snippet(hit))))
