"""`hplus teach labels`: supervision for the CRF, from spans, terms, rules, a chunker or an LLM."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hplus.cli import teach_llm
from hplus.cli.common import Json, console, plain_table, print_json
from hplus.cli.sets import Cache, states_folder
from hplus.errors import InputError

if TYPE_CHECKING:
    from hplus.teach.corpus import Source

app = typer.Typer(help="Make labels for training.", no_args_is_help=True)
EXAMPLE = "Example: hplus teach labels notes.txt --terms terms.txt --out labels.jsonl.gz --report"


class LengthOption(StrEnum):
    """How long units are."""

    minimal = "minimal"
    noun_phrase = "noun-phrase"


ApartFrom = Annotated[
    list[Path] | None,
    typer.Option(
        "--apart-from", metavar="DIR", help="BEIR folder whose near duplicates are left out."
    ),
]
Patterns = Annotated[
    bool,
    typer.Option("--patterns/--no-patterns", help="Settle units by the patterns of spelling."),
]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Decides samples and shuffles.")]


@app.command("labels", epilog=EXAMPLE)
def labels(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE…",
            help="Texts, one per line, or .jsonl with text and spans or segments; gz allowed.",
        ),
    ],
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="Where the labels go.")],
    terms: Annotated[
        list[Path] | None,
        typer.Option(
            "--terms", metavar="FILE", help="Terms, one per line, gz allowed; repeatable."
        ),
    ] = None,
    units: Annotated[
        LengthOption, typer.Option("--units", help="How long units are.")
    ] = LengthOption.noun_phrase,
    chunker: Annotated[
        str | None,
        typer.Option(
            "--chunker",
            help="Checkpoint whose CRF finds noun phrases, or none; chunker unless a language "
            "model is the teacher.",
        ),
    ] = None,
    sample: Annotated[
        int | None, typer.Option("--sample", min=1, help="Texts of each file, at most.")
    ] = None,
    apart_from: ApartFrom = None,
    patterns: Patterns = True,
    cache: Cache = None,
    device: Annotated[str | None, typer.Option("--device", help="A torch device.")] = None,
    seed: Seed = 13,
    report: Annotated[bool, typer.Option("--report", help="Figures beside the paper's.")] = False,
    json_: Json = False,
    llm: teach_llm.Url = None,
    llm_model: teach_llm.Model = None,
    llm_parameters: teach_llm.Parameters = None,
    llm_answers: teach_llm.AnswersFile = None,
    llm_concurrency: teach_llm.Concurrency = 8,
    llm_timeout: teach_llm.Timeout = 300.0,
    llm_budget: teach_llm.Limit = None,
    llm_price: teach_llm.Prices = None,
    batch_file: teach_llm.BatchFile = None,
) -> None:
    """Label texts with the units a CRF is to learn."""
    from hplus.evaluate.data import texts_of
    from hplus.model import HPlus
    from hplus.teach.corpus import label_source, read_source
    from hplus.teach.duplicates import collect
    from hplus.teach.label_file import statistics, write_labels
    from hplus.teach.labels import multiword_terms
    from hplus.units.terms import Terms, read_terms

    missing = [file for file in files if not file.is_file()]
    if missing:
        raise InputError(f"{missing[0]} is missing or not a file; give files of texts")
    listed = multiword_terms(term for file in terms or [] for term in read_terms(file))
    known = Terms(listed) if listed else None
    teacher = teach_llm.Llm(
        url=llm,
        model=llm_model,
        parameters=llm_parameters,
        answers=llm_answers,
        concurrency=llm_concurrency,
        timeout=llm_timeout,
        budget=llm_budget,
        price=llm_price,
        batch_file=batch_file,
    )
    chunker = chunker or ("none" if teacher.is_wanted else "chunker")
    wants_chunker = units == LengthOption.noun_phrase and chunker != "none"
    cutter = HPlus(chunker, device=device) if wants_chunker else None
    against = collect(t for f in apart_from for t in texts_of(f)) if apart_from else None
    texts = [read_source(file, apart_from=against, sample=sample, seed=seed) for file in files]
    if teacher.is_wanted:
        marked = teach_llm.mark_sources(teacher, texts, out)
        if marked is None:
            return
        texts = marked
    with states_folder(cache) as states:
        sources = [
            label_source(
                source,
                terms=known,
                chunker=cutter,
                length=units.value,
                patterns=patterns,
                cache=states,
            )
            for source in texts
        ]
    count = write_labels(out, ((s.name, item) for s in sources for item in s.labels))
    if not (json_ or report):
        print(f"{count:,} texts labelled: {out}")
        if teacher.is_wanted:
            _print_dropped(sources)
        return
    tokenizer = (cutter or HPlus()).checkpoint.backbone.tokenizer
    rows: list[dict[str, Any]] = [
        {
            "source": source.name,
            **statistics(source.labels, tokenizer.tokens([item.text for item in source.labels])),
            "dropped": source.dropped,
        }
        for source in sources
    ]
    if json_:
        for row in rows:
            print_json(row)
    else:
        _print(rows, sources)


def _print(rows: list[dict[str, Any]], sources: list[Source]) -> None:
    from hplus.teach.label_file import PAPER
    from hplus.teach.labels import LAYERS

    out = console()
    figures = ("several words", "multi-token", "median", "mean")
    table = plain_table("source", "texts", "units", *LAYERS, *figures)
    for row in rows:
        table.add_row(
            row["source"],
            *(f"{row[key]:,}" for key in ("texts", "units", *LAYERS)),
            f"{row['share of several words']:.0%}",
            f"{row['multi-token segments']:,}",
            f"{row['median tokens']:g}",
            f"{row['mean tokens']:.2f}",
        )
    blank = [""] * (3 + len(LAYERS))
    table.add_row(
        "the paper's teacher",
        *blank,
        f"{PAPER['multi-token segments']:,}",
        str(PAPER["median tokens"]),
        str(PAPER["mean tokens"]),
        style="cyan",
    )
    out.print(table, soft_wrap=False)
    _print_dropped(sources)


def _print_dropped(sources: list[Source]) -> None:
    out = console()
    for source in sources:
        for what, number in source.dropped.items():
            out.print(f"{source.name}: {number:,} {what}", style="grey50")
