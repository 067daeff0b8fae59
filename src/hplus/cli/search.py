"""`hplus search`: an index asked once, again and again, or with a whole set of queries."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from enum import StrEnum
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hplus.cli.common import BudgetCount, Json, Width, console
from hplus.cli.index import Folder
from hplus.cli.score import COLOURS, marked, print_explanation
from hplus.errors import HPlusError, InputError

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console
    from rich.text import Text

    from hplus.index.index import Index
    from hplus.search.searcher import Hit, Results

EXAMPLE = 'Example: hplus search notes.hplus "type 2 diabetes" -k 3 --explain'
# Characters of a document that are shown of a hit.
SNIPPET = 300


class View(StrEnum):
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
    view: Annotated[View, typer.Option(help="Which view ranks.")] = View.hybrid,
    where: Annotated[
        str | None, typer.Option(help="Filter on metadata: 'year >= 2020 and not tag = \"x\"'.")
    ] = None,
    budget: BudgetCount = None,
    width: Width = None,
    exact: Annotated[bool, typer.Option("--exact", help="Scan all units, however many.")] = False,
    explain: Annotated[
        bool, typer.Option("--explain", help="Show which phrases matched and what each gave.")
    ] = False,
    json_: Json = False,
    queries: Annotated[
        Path | None,
        typer.Option(metavar="FILE.jsonl", help='Many queries: {"_id", "text"} a line.'),
    ] = None,
    trec: Annotated[
        Path | None, typer.Option(metavar="OUT", help="Where a TREC run of --queries goes.")
    ] = None,
) -> None:
    """Search an index by phrases, meaning and exact terms; phrases that matched are coloured."""
    from hplus.index.index import Index

    if (queries is None) != (trec is None) or (queries is not None and query is not None):
        raise InputError("--queries FILE.jsonl and --trec OUT go together, and without a QUERY")
    with Index.open(folder) as opened:

        def ask(text: str) -> Results:
            if not text.strip():
                raise InputError("the query is empty")
            return opened.search(
                text,
                k=k,
                view=view.value,
                where=where,
                budget=budget,
                width=width,
                exact=exact,
                explain=trec is None and (explain or not json_),
                threads=opened.model.threads,
            )

        if queries is not None and trec is not None:
            _run(opened, ask, queries, trec)
        elif query is not None:
            found = ask(query)
            _show(query, found, explain=explain, json_=json_)
            if not found:
                raise typer.Exit(1)
        else:
            _prompt(opened, ask, explain=explain, json_=json_)


def _prompt(opened: Index, ask: Callable[[str], Results], *, explain: bool, json_: bool) -> None:
    """One query a line until the input ends; the model stays loaded, a mistake ends nothing."""
    person = sys.stdin.isatty()
    if person:
        import contextlib

        with contextlib.suppress(ImportError):
            import readline  # noqa: F401  # arrows and history at the prompt
        print(f"{len(opened):,} documents; a query a line, Ctrl-D ends", file=sys.stderr)
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
            _show(line, ask(line), explain=explain, json_=json_)
        except HPlusError as error:
            print(f"error: {error}", file=sys.stderr)


def _run(opened: Index, ask: Callable[[str], Results], queries: Path, trec: Path) -> None:
    """A whole set of queries as a TREC run; the file appears when it is complete."""
    from hplus.index.sources import read
    from hplus.progress import show_progress

    rows = list(read(queries))
    draft = trec.with_name(f".{trec.name}.part")
    with draft.open("w", encoding="utf-8") as out, show_progress("searching", len(rows)) as bar:
        for row in rows:
            for rank, hit in enumerate(ask(row.text), start=1):
                if any(map(str.isspace, row.id + hit.id)):
                    raise InputError(f"a TREC run has no ids with blanks: {row.id!r}, {hit.id!r}")
                out.write(f"{row.id} Q0 {hit.id} {rank} {hit.score:.6f} hplus\n")
            bar.advance(1)
    draft.replace(trec)
    print(f"{trec}: {len(rows):,} queries over {len(opened):,} documents", file=sys.stderr)


def _show(query: str, found: Results, *, explain: bool, json_: bool) -> None:
    if json_:
        print(json.dumps(as_json(query, found, explain=explain), ensure_ascii=False))
        return
    out = console()
    if not found:
        print("nothing found", file=sys.stderr)
    for rank, hit in enumerate(found, start=1):
        print_hit(query, rank, hit, out, explain=explain)
    paths = ", ".join(f"{branch} {path}" for branch, path in found.paths.items())
    noun = "candidate" if found.candidates == 1 else "candidates"
    out.print(f"{found.candidates:,} {noun}; {paths}", style="grey50")


def as_json(query: str, found: Results, *, explain: bool) -> dict[str, Any]:
    """What `--json` prints."""
    hits = []
    for hit in found:
        row = asdict(hit)
        if not explain:
            del row["explanation"]
        hits.append(row)
    return {"query": query, "hits": hits, "paths": found.paths, "candidates": found.candidates}


def print_hit(query: str, rank: int, hit: Hit, out: Console, *, explain: bool) -> None:
    """One hit: its score by view, and the part of the text where the heaviest phrases matched."""
    from rich.text import Text

    if explain and hit.explanation is not None:
        print_explanation(query, hit.text, hit.explanation, f"{rank}  {hit.id}", out)
        out.print()
        return
    views = "  ".join(f"{view} {score:.3f}" for view, score in hit.views.items())
    out.print(
        Text.assemble((f"{rank:>2}  ", "bold"), (hit.id, "bold"), f"  {hit.score:.3f}  ").append(
            views, style="grey50"
        )
    )
    out.print(Text("    ").append_text(_snippet(hit)))


def _snippet(hit: Hit) -> Text:
    """The text around the phrase that gave most, matches coloured."""
    from rich.text import Text

    matches = [] if hit.explanation is None else hit.explanation.phrase
    falling = sorted(matches, key=lambda match: -match.contribution)
    # One colour a query unit; of two that matched the same phrase the heavier one shows.
    colours = dict(zip(map(id, falling), cycle(COLOURS), strict=False))
    strong = [match for match in falling if match.contribution >= 0.25 * falling[0].contribution]
    marks = [
        (span, colours[id(match)]) for match in reversed(strong) for span in match.document_spans
    ]
    line = marked(hit.text, marks)
    first = strong[0].document_spans[0].start if strong and strong[0].document_spans else 0
    start = max(0, min(first - SNIPPET // 3, len(line) - SNIPPET))
    while start > 0 and not line.plain[start - 1].isspace():
        start -= 1
    piece = line[start : start + SNIPPET]
    before = "… " if start > 0 else ""
    after = " …" if start + SNIPPET < len(line) else ""
    return Text(before).append_text(piece).append(after)
