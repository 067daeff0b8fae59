"""`hplus teach negatives`, `hplus teach scores`: what a student of two-stage training reads."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hplus.cli.common import Json, console, print_json
from hplus.cli.sets import Cache, states_folder
from hplus.cli.teach import ApartFrom, Seed

if TYPE_CHECKING:
    from hplus.teach.groups import Bad

NEGATIVES_EXAMPLE = (
    "Example: hplus teach negatives pairs.jsonl --from bm25 --teacher tokens:mini "
    "--out groups.jsonl.gz"
)
SCORES_EXAMPLE = (
    "Example: hplus teach scores groups.jsonl.gz --teacher 0.7*tokens:mini --teacher 0.3*bm25 "
    "--out scored.jsonl.gz"
)
Teachers = Annotated[
    list[str] | None,
    typer.Option(
        "--teacher",
        metavar="[WEIGHT*]KIND[:MODEL]",
        help="bm25, tokens:MODEL, global:MODEL or cross:FOLDER; repeatable, an ensemble.",
    ),
]


def negatives(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="PAIRS…", help='.jsonl of {"query", "positive"}, gz allowed.'),
    ],
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="Where the groups go.")],
    sources: Annotated[
        list[str] | None,
        typer.Option(
            "--from",
            metavar="SOURCE",
            help="Candidates: bm25, global:MODEL, index:FOLDER; repeatable. Default: bm25.",
        ),
    ] = None,
    teacher: Teachers = None,
    count: Annotated[int, typer.Option("--count", min=1, help="Negatives of each query.")] = 8,
    margin: Annotated[
        float,
        typer.Option(
            "--margin",
            min=0,
            max=1,
            help="How far below the positive a negative scores, as a share of the range.",
        ),
    ] = 0.1,
    sample: Annotated[
        int | None, typer.Option("--sample", min=1, help="Pairs of each file, at most.")
    ] = None,
    apart_from: ApartFrom = None,
    cache: Cache = None,
    seed: Seed = 13,
    json_: Json = False,
) -> None:
    """Find negatives for pairs, spread over a teacher's scores (BM25's unless one is named)."""
    import numpy as np

    from hplus.evaluate.data import texts_of
    from hplus.teach.duplicates import collect
    from hplus.teach.groups import read_groups, write_groups
    from hplus.teach.negatives import find_negatives
    from hplus.teach.scorers import Teacher

    teachers = [Teacher.parse(spelled) for spelled in teacher or ["bm25"]]
    against = collect(t for f in apart_from for t in texts_of(f)) if apart_from else None
    groups = []
    counts: dict[str, int] = {}
    for file in files:
        own, bad = read_groups([file])
        if sample is not None and sample < len(own):
            chosen = np.random.default_rng([seed, len(own)]).permutation(len(own))[:sample]
            own = [own[i] for i in np.sort(chosen)]
        groups += own
        counts = _reported(bad, counts)
    if against is not None:
        from hplus.teach.duplicates import near_duplicates

        near = near_duplicates([g.query for g in groups], against)
        near |= near_duplicates([g.documents[0] for g in groups], against)
        counts["near duplicates of evaluation texts"] = int(near.sum())
        groups = [group for group, drop in zip(groups, near, strict=True) if not drop]
    with states_folder(cache) as states:
        made, dropped = find_negatives(
            groups,
            count=count,
            sources=sources or ["bm25"],
            teachers=teachers,
            cache=states,
            apart_from=against,
            margin=margin,
            seed=seed,
        )
    written = write_groups(out, made)
    _print(json_, written, "groups", out, counts | dropped)


def scores(
    files: Annotated[
        list[Path], typer.Argument(metavar="GROUPS…", help="From `hplus teach negatives`.")
    ],
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="Where they go, scored.")],
    teacher: Teachers = None,
    sharpness: Annotated[
        float,
        typer.Option(
            "--sharpness", min=0.01, help="Mean standard deviation of the logits in a group."
        ),
    ] = 2.0,
    cache: Cache = None,
    json_: Json = False,
) -> None:
    """Give every document of a group a teacher's logit (BM25's unless one is named)."""
    import numpy as np

    from hplus.teach.groups import read_groups, with_scores, write_groups
    from hplus.teach.scorers import Teacher, teach_scores

    teachers = [Teacher.parse(spelled) for spelled in teacher or ["bm25"]]
    groups, bad = read_groups(files)
    documents = sorted({text for group in groups for text in group.documents})
    number = {text: i for i, text in enumerate(documents)}
    members = [np.array([number[text] for text in group.documents]) for group in groups]
    with states_folder(cache) as states:
        found = teach_scores(
            teachers,
            [group.query for group in groups],
            documents,
            members,
            states,
            sharpness=sharpness,
        )
    scored = [with_scores(group, own) for group, own in zip(groups, found, strict=True)]
    written = write_groups(out, scored)
    first = float(np.mean([own.argmax() == 0 for own in found]))
    counts = _reported(bad, {})
    counts["percent of the positives come first by the teacher"] = round(100 * first)
    _print(json_, written, "scored groups", out, counts)


def _reported(bad: Bad, counts: Mapping[str, int]) -> dict[str, int]:
    for place in bad.places:
        typer.echo(f"left out: {place}", err=True)
    return {kind: counts.get(kind, 0) + bad.kinds.get(kind, 0) for kind in [*counts, *bad.kinds]}


def _print(json_: bool, written: int, what: str, out: Path, counts: Mapping[str, int]) -> None:
    figures = {kind: number for kind, number in counts.items() if number}
    if json_:
        print_json({"written": written, "file": str(out), **figures})
        return
    screen = console()
    screen.print(f"{written:,} {what}: {out}")
    for kind, number in figures.items():
        screen.print(f"{number:,} {kind}", style="grey50")
