"""`hplus search`: one query, a prompt for many, or a whole file of queries."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hplus.cli.common import BudgetCount, Json, Width, console
from hplus.cli.index import Folder
from hplus.cli.score import COLOURS, print_explanation
from hplus.errors import HPlusError, InputError

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console

    from hplus.index import Index
    from hplus.search.results import Results
    from hplus.types import Hit

EXAMPLE = 'Example: hplus search notes.hplus "type 2 diabetes" -k 3 --explain'


class ViewOption(StrEnum):
    """Which view ranks."""

    hybrid = "hybrid"
    global_ = "global"
    phrase = "phrase"
    lexical = "lexical"


def search(
    folder: Folder,
    query: Annotated[
        str | None, typer.Argument(help="What is looked for; without it, a prompt.")
    ] = None,
    k: Annotated[int, typer.Option("-k", min=1, help="Hits, at most.")] = 10,
    view: Annotated[ViewOption, typer.Option(help="Which view ranks.")] = ViewOption.hybrid,
    where: Annotated[
        str | None, typer.Option(help="Filter on metadata: 'year >= 2020 and not tag = \"x\"'.")
    ] = None,
    budget: BudgetCount = None,
    query_budget: Annotated[
        int | None, typer.Option("--query-budget", min=1, help="Units used of the query, at most.")
    ] = None,
    width: Width = None,
    from_: Annotated[int, typer.Option("--from", min=0, help="Hits to leave out at the top.")] = 0,
    min_score: Annotated[
        float | None, typer.Option("--min-score", help="Leave out hits that score less.")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option("--model", metavar="PATH|NAME", help="Where the index's model is now."),
    ] = None,
    alpha: Annotated[
        list[str] | None,
        typer.Option(metavar="VIEW=WEIGHT", help="Weight of a view: phrase=1; repeatable."),
    ] = None,
    pool: Annotated[int, typer.Option(min=1, help="Candidates of each branch.")] = 1000,
    exact: Annotated[bool, typer.Option("--exact", help="Scan all units, however many.")] = False,
    explain: Annotated[
        bool, typer.Option("--explain", help="Show which phrases matched and what each gave.")
    ] = False,
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
    from hplus.index import Index
    from hplus.types import Search

    if (queries is None) != (trec is None) or (queries is not None and query is not None):
        raise InputError("--queries FILE.jsonl and --trec OUT go together, and without a QUERY")
    with Index.open(folder, model=model) as opened:
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
            explain=trec is None and (explain or not json_),
            from_=from_,
            min_score=min_score,
            threads=opened.model.threads,
        )

        def ask(text: str) -> Results:
            if not text.strip():
                raise InputError("the query is empty")
            return opened.search(replace(request, query=text))

        if queries is not None and trec is not None:
            _run(opened, ask, queries, trec)
        elif query is not None:
            found = ask(query)
            _show(found, explain=explain, json_=json_)
            if not found:
                raise typer.Exit(1)
        else:
            _prompt(opened, ask, explain=explain, json_=json_)


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


def _prompt(opened: Index, ask: Callable[[str], Results], *, explain: bool, json_: bool) -> None:
    """One query per line until the input ends; the model stays loaded, a mistake ends nothing."""
    person = sys.stdin.isatty()
    if person:
        import contextlib

        with contextlib.suppress(ImportError):
            import readline  # noqa: F401  # arrows and history at the prompt
        print(f"{len(opened):,} documents; one query per line, Ctrl-D ends", file=sys.stderr)
    while True:
        try:
            line = input("query> " if person else "")
        except (EOFError, KeyboardInterrupt):
            if person:
                print(file=sys.stderr)
            return
        if not line.strip():
            continue
        try:
            _show(ask(line), explain=explain, json_=json_)
        except HPlusError as error:
            print(f"error: {error}", file=sys.stderr)


def _run(opened: Index, ask: Callable[[str], Results], queries: Path, trec: Path) -> None:
    """A whole set of queries as a TREC run; the file appears when it is complete."""
    from hplus.files import writing
    from hplus.progress import show_progress
    from hplus.sources.read import read

    rows = list(read(queries))
    with writing(trec) as out, show_progress("searching", len(rows)) as bar:
        for row in rows:
            found = ask(row.text)
            for rank, hit in enumerate(found, start=found.from_ + 1):
                if any(map(str.isspace, row.id + hit.id)):
                    raise InputError(f"a TREC run has no ids with blanks: {row.id!r}, {hit.id!r}")
                out.write(f"{row.id} Q0 {hit.id} {rank} {hit.score:.6f} hplus\n".encode())
            bar.advance(1)
    print(f"{trec}: {len(rows):,} queries over {len(opened):,} documents", file=sys.stderr)


def _show(found: Results, *, explain: bool, json_: bool) -> None:
    if json_:
        print(json.dumps(found.as_json(), ensure_ascii=False))
        return
    out = console()
    if not found:
        print("nothing found", file=sys.stderr)
    for rank, hit in enumerate(found, start=found.from_ + 1):
        print_hit(found.query, rank, hit, out, explain=explain)
    out.print(found.summary(), style="grey50")


def print_hit(query: str, rank: int, hit: Hit, out: Console, *, explain: bool) -> None:
    """One hit: its score by view, and the part of the text where the heaviest phrases matched."""
    from rich.text import Text

    from hplus.search.snippets import snippet

    if explain and hit.explanation is not None:
        print_explanation(query, hit.text, hit.explanation, f"{rank}  {hit.id}", out)
        out.print()
        return
    views = "  ".join(f"{view} {score:.3f}" for view, score in hit.views.items())
    head = Text.assemble((f"{rank:>2}  ", "bold"), (hit.id, "bold"), f"  {hit.score:.3f}  ")
    out.print(head.append(views, style="grey50"))
    shown = snippet(hit)
    line = Text(shown.text)
    for mark in shown.marks:
        line.stylize(f"bold {COLOURS[mark.rank % len(COLOURS)]}", mark.start, mark.end)
    out.print(Text("    ").append_text(line))
