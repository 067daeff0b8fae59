"""Runs in TREC format, plain or gz: `query Q0 document rank score tag`, one document a line.

The score is what is read; the rank is written for people and not used, as in trec_eval. A query
for which nothing was found has no line, so it comes back as missing.
"""

from __future__ import annotations

import gzip
import math
import re
import zlib
from collections.abc import Iterator
from pathlib import Path

from hplus.errors import InputError
from hplus.evaluate.metrics import Run, ranking_of

# A field ends at the blanks of C, as for trec_eval; an ideographic space may be part of an id.
_FIELD = re.compile(r"[^ \t\n\r\v\f]+")


def read_run(path: Path) -> dict[str, dict[str, float]]:
    """Query -> document -> score in the order of the file; gz if its name ends so."""
    run: dict[str, dict[str, float]] = {}
    for number, line in enumerate(_lines(path), start=1):
        query, document, score = _parsed(line, f"{path}:{number}")
        scores = run.setdefault(query, {})
        if document in scores:
            raise InputError(f"{path}:{number} repeats document {document!r} for query {query!r}")
        scores[document] = score
    return run


def write_run(path: Path, run: Run, tag: str) -> None:
    """Write a run, gz if the name ends so; the file appears when it is complete.

    Queries in the order of the run; documents by falling score, ties by id ascending, ranks from
    1; scores with every digit, so that what is read back is what was written.
    """
    _check(tag, "the tag")
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.draft")
    try:
        with draft.open("wb") as raw:
            # No file name and no time in the header: the same run gives the same bytes.
            zipped = gzip.GzipFile("", "wb", fileobj=raw, mtime=0) if path.suffix == ".gz" else None
            for query, scores in run.items():
                _check(query, "a query's id")
                for rank, document in enumerate(ranking_of(run, query), start=1):
                    _check(document, f"the id of a document of query {query!r}")
                    line = f"{query} Q0 {document} {rank} {float(scores[document])!r} {tag}\n"
                    (zipped or raw).write(line.encode())
            if zipped:
                zipped.close()
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def _parsed(line: bytes, place: str) -> tuple[str, str, float]:
    """Query, document and score of one line."""
    try:
        fields = [field.decode() for field in line.split()]
    except UnicodeDecodeError as error:
        raise InputError(f"{place} is not UTF-8: {error}") from error
    if len(fields) != 6:
        raise InputError(
            f"{place} has {len(fields)} fields; 6 are expected: query Q0 document rank score tag"
        )
    query, _, document, rank, given, _ = fields
    try:
        int(rank)
        score = float(given)
    except ValueError:
        raise InputError(
            f"{place} has the rank {rank!r} and the score {given!r}; two numbers are expected"
        ) from None
    if not math.isfinite(score):
        raise InputError(f"{place} has the score {given!r}; a ranking needs numbers")
    return query, document, score


def _check(word: str, what: str) -> None:
    """Whether this can be a field of a line."""
    if not _FIELD.fullmatch(word):
        raise InputError(f"{what} is {word!r}; a TREC run has no empty fields and no blanks in one")
    try:
        word.encode()
    except UnicodeEncodeError as error:
        raise InputError(f"{what} is {word!r}, which has no UTF-8: {error}") from error


def _lines(path: Path) -> Iterator[bytes]:
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as lines:
            yield from lines
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path} cannot be read: {error}") from error
