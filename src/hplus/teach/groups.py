"""Training data on disk: a query, its positive, its negatives, and what a teacher says of them.

One query per line, gz allowed:

    {"source": "…", "query": "…", "positive": "…", "negatives": ["…", …],
     "scores": [t of the positive, of each negative, …],
     "query_units": [[start, end], …], "positive_units": [[start, end], …]}

Only the query and the positive are needed. `scores` are the teacher's logits t(q, d) of
eq:teacher_distribution; units are in characters, as in a file of labels, so a file serves any
tokenizer. A bad row is never used: it is named by file and line and counted, and a file that is
bad as a whole is refused.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from hplus.errors import InputError
from hplus.files import numbered_lines, writing
from hplus.teach.corpus import source_name
from hplus.teach.duplicates import Collection, near_duplicates
from hplus.types import Span

MOST_BAD = 0.02
"""The share of bad rows above which the data as a whole is refused."""
SHOWN = 5
"""Bad rows of each kind that are named one by one; the others are counted."""
NEAR = "near duplicate of an evaluation text"


@dataclass(frozen=True)
class Group:
    """A query with its documents, the positive first; scores and units where they are known.

    place: the file and line it was read from.
    """

    source: str
    query: str
    documents: tuple[str, ...]
    scores: tuple[float, ...] | None = None
    query_units: tuple[Span, ...] | None = None
    positive_units: tuple[Span, ...] | None = None
    place: str = field(default="", compare=False)


@dataclass
class Bad:
    """Rows that cannot be used: how many of each kind, and where the first of them are."""

    rows: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    places: list[str] = field(default_factory=list)

    def add(self, place: str, kind: str, detail: str = "") -> None:
        """Count a row and keep its place."""
        self.kinds[kind] += 1
        if self.kinds[kind] <= SHOWN:
            self.places.append(f"{place}: {kind}{f' ({detail})' if detail else ''}")

    @property
    def count(self) -> int:
        """How many rows are bad."""
        return self.kinds.total()

    def require_few(self, most: float = MOST_BAD) -> None:
        """Raise if more than this share of the rows is bad; near duplicates may be any number."""
        count = self.count - self.kinds[NEAR]
        if count > most * self.rows:
            raise InputError(
                f"{count:,} of {self.rows:,} rows are bad, more than {most:.0%}: "
                + "; ".join(self.places)
            )


class _BadRowError(Exception):
    """(kind, detail) of what is wrong with a row."""


def read_groups(
    files: Sequence[Path], *, apart_from: Collection | None = None, scored: bool = False
) -> tuple[list[Group], Bad]:
    """The rows that can be used, all of them in memory, and an account of those that cannot."""
    bad = Bad()
    return list(stream_groups(files, bad, apart_from=apart_from, scored=scored)), bad


def stream_groups(
    files: Sequence[Path], bad: Bad, *, apart_from: Collection | None = None, scored: bool = False
) -> Iterator[Group]:
    """The rows that can be used, one by one; those that cannot are added to `bad`.

    apart_from: texts that training must not repeat; a row whose query or positive nearly does is
    left out and counted, whatever their number. scored: a row without scores is bad.
    """
    used = 0
    for file in files:
        for number, line in numbered_lines(file):
            if not line.strip():
                continue
            bad.rows += 1
            place = f"{file}:{number}"
            try:
                group = _group(line, source_name(file), place, scored)
            except _BadRowError as error:
                bad.add(place, *error.args)
                continue
            pair = [group.query, group.documents[0]]
            if apart_from is not None and near_duplicates(pair, apart_from).any():
                bad.add(place, NEAR)
                continue
            used += 1
            yield group
    bad.require_few()
    if not used:
        named = ", ".join(map(str, files))
        raise InputError(f"{named}: no row can be used" + "".join(f"; {p}" for p in bad.places))


def write_groups(path: Path, groups: Iterable[Group]) -> int:
    """Write rows, gz if the name ends in .gz; returns their number."""
    path.parent.mkdir(parents=True, exist_ok=True)
    count = 0
    with writing(path) as file:
        for group in groups:
            file.write((json.dumps(_row(group)) + "\n").encode())
            count += 1
    return count


def with_scores(group: Group, scores: Iterable[float]) -> Group:
    """The same group with a teacher's logits, rounded to what they are worth."""
    return replace(group, scores=tuple(round(float(score), 4) for score in scores))


def _row(group: Group) -> dict[str, Any]:
    positive, *negatives = group.documents
    row: dict[str, Any] = {"source": group.source, "query": group.query, "positive": positive}
    if negatives:
        row["negatives"] = negatives
    for name in ("scores", "query_units", "positive_units"):
        value = getattr(group, name)
        if value is not None:
            row[name] = value
    return row


def _group(line: str, source: str, place: str, scored: bool) -> Group:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise _BadRowError("not JSON", str(error)) from None
    if not isinstance(row, dict):
        raise _BadRowError("not a JSON object")
    query, positive = (_text(row, name) for name in ("query", "positive"))
    negatives = row.get("negatives", [])
    if not isinstance(negatives, list) or not all(isinstance(n, str) for n in negatives):
        raise _BadRowError("negatives are not a list of texts")
    documents = (positive, *negatives)
    if not all(text.strip() for text in negatives):
        raise _BadRowError("empty negative")
    if len(set(documents)) < len(documents):
        raise _BadRowError("a document occurs twice in the group")
    given = row.get("source", source)
    return Group(
        given if isinstance(given, str) else source,
        query,
        documents,
        _scores(row.get("scores"), len(documents), scored),
        query_units=_units(row.get("query_units"), query, "query"),
        positive_units=_units(row.get("positive_units"), positive, "positive"),
        place=place,
    )


def _text(row: dict[str, Any], name: str) -> str:
    text = row.get(name)
    if not isinstance(text, str):
        raise _BadRowError(f"lacks a {name}" if text is None else f"its {name} is not text")
    if not text.strip():
        raise _BadRowError(f"empty {name}")
    return text


def _scores(found: Any, documents: int, needed: bool) -> tuple[float, ...] | None:
    if found is None:
        if needed:
            raise _BadRowError("lacks scores", "hplus teach scores makes them")
        return None
    if not isinstance(found, list) or len(found) != documents:
        length = len(found) if isinstance(found, list) else type(found).__name__
        raise _BadRowError("scores do not fit", f"expected {documents}, got {length}")
    for score in found:
        if type(score) not in (int, float) or not math.isfinite(score):
            raise _BadRowError("a score is not a finite number", str(score))
    return tuple(map(float, found))


def _units(found: Any, text: str, side: str) -> tuple[Span, ...] | None:
    if found is None:
        return None
    units, free = [], 0
    for unit in found if isinstance(found, list) else [found]:
        match unit:
            case [start, end, *_] if type(start) is type(end) is int and (
                free <= start < end <= len(text)
            ):
                units.append(Span(start, end))
                free = end
            case _:
                raise _BadRowError(
                    f"units of the {side} do not fit",
                    f"expected [start, end] in order within {len(text)}, got {json.dumps(unit)}",
                )
    return tuple(units)
