"""Runs in TREC format, plain or gz: `query Q0 document rank score tag`, one document per line.

Only the score counts; the rank is written for people and ignored when reading, as in trec_eval. A
query for which nothing was found has no line, so it is missing from what is read back.
"""

from __future__ import annotations

import math
import re
from pathlib import Path

from hplus.errors import InputError
from hplus.evaluate.metrics import Run, ranking_of
from hplus.files import numbered_lines, writing

# A field ends at C's white space, as in trec_eval; an ideographic space may be part of an id.
_FIELD = re.compile(r"[^ \t\n\r\v\f]+")


def read_run(path: Path) -> dict[str, dict[str, float]]:
    """Query -> document -> score in the order of the file."""
    run: dict[str, dict[str, float]] = {}
    for number, line in numbered_lines(path):
        query, document, score = _parsed(line, f"{path}:{number}")
        scores = run.setdefault(query, {})
        if document in scores:
            raise InputError(f"{path}:{number}: repeats document {document!r} for query {query!r}")
        scores[document] = score
    return run


def write_run(path: Path, run: Run, tag: str) -> None:
    """Write a run, gz if the name ends in .gz; the file appears when it is complete.

    Queries in the order of the run; documents by falling score, ties by id ascending, ranks from
    1; scores with every digit, so that reading gives back the same numbers.
    """
    _check(tag, "the tag")
    path.parent.mkdir(parents=True, exist_ok=True)
    with writing(path) as file:
        for query, scores in run.items():
            _check(query, "a query's id")
            for rank, document in enumerate(ranking_of(run, query), start=1):
                _check(document, f"the id of a document of query {query!r}")
                line = f"{query} Q0 {document} {rank} {float(scores[document])!r} {tag}\n"
                file.write(line.encode())


def _parsed(line: str, place: str) -> tuple[str, str, float]:
    """Query, document and score of one line."""
    fields = _FIELD.findall(line)
    if len(fields) != 6:
        raise InputError(
            f"{place}: expected 6 fields (query Q0 document rank score tag), got {len(fields)}"
        )
    query, _, document, rank, given, _ = fields
    try:
        int(rank)
        score = float(given)
    except ValueError:
        raise InputError(
            f"{place}: expected numbers, got the rank {rank!r} and the score {given!r}"
        ) from None
    if not math.isfinite(score):
        raise InputError(f"{place}: expected a finite score, got {given!r}")
    return query, document, score


def _check(word: str, what: str) -> None:
    """Whether this can be a field of a line."""
    if not _FIELD.fullmatch(word):
        raise InputError(
            f"{what} is {word!r}; a field of a TREC run is not empty and has no white space"
        )
    try:
        word.encode()
    except UnicodeEncodeError as error:
        raise InputError(
            f"{what} is {word!r}, which cannot be encoded as UTF-8: {error}"
        ) from error
