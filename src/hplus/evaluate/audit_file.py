"""What people marked: files of the boundary audit, and corpora of marked spans read as audits.

A line of an audit file is what one annotator made of one text (docs/audit-format.md):

    {"id": "q1", "text": "acute kidney injury", "annotator": "A", "units": [[0, 19]], "terms": []}

Offsets are characters. Units come in reading order without overlap, and what none of them covers
stands alone, token by token, as it does in a partition by BIO tags. A *token* of the audit is a
word of `words`, Han text character by character: no model, tokenizer or dictionary decides what
two people agreed on.

A corpus of marked spans is an audit by one annotator. One that marks noun phrases (types NP…) is
exhaustive, any other is *partial*: it marks terms of its own types and leaves the rest open.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from hplus.errors import InputError
from hplus.evaluate import results
from hplus.evaluate.spans import strip_determiner
from hplus.teach.sources import read_marked, read_rows
from hplus.types import Span
from hplus.units.words import words

ANNOTATORS = ("A", "B")


@dataclass(frozen=True)
class Marks:
    """What one annotator marked in a text: units in reading order, and terms, which may nest.

    Of a partial item the units may nest too; what counts of them is `audit_measures.outermost`.
    """

    units: tuple[Span, ...]
    terms: tuple[Span, ...]


@dataclass(frozen=True)
class Item:
    """A text of the audit with the marks of each annotator, "A", "B" or both."""

    id: str
    text: str
    marks: Mapping[str, Marks]
    query_id: str | None = None
    partial: bool = False


def audit_tokens(text: str) -> list[Span]:
    """The tokens between which boundaries are counted.

    >>> text = "5 mg治疗"
    >>> [text[a:b] for a, b in audit_tokens(text)]
    ['5', 'mg', '治', '疗']
    """
    return words(text, han="characters")


def read_items(path: Path, split: str = "test") -> list[Item]:
    """The items of an audit file, of a file of marked spans, or of a corpus folder's split."""
    if path.is_dir():
        found = [path / f"{split}.jsonl.gz", path / f"{split}.jsonl"]
        file = next((name for name in found if name.exists()), None)
        if file is None:
            raise InputError(
                f"{path} has neither {split}.jsonl.gz nor {split}.jsonl; "
                "give a folder of marked spans and one of its splits"
            )
        return read_corpus(file)
    first = next(read_rows(path, "text"), None)
    if first is None:
        raise InputError(f"{path} has no items")
    return read_corpus(path) if "spans" in first[1] else read_audit(path)


def read_audit(path: Path) -> list[Item]:
    """The items of an audit file in the order of their first lines; gz allowed."""
    items: dict[str, Item] = {}
    lines: dict[tuple[str, str], int] = {}
    for number, row in read_rows(path, "id", "text", "annotator"):
        try:
            item = _item(row)
            (annotator,) = item.marks
            earlier = lines.setdefault((item.id, annotator), number)
            if earlier != number:
                raise InputError(
                    f"item {item.id!r} of annotator {annotator} stands in line {earlier} already"
                )
            known = items.get(item.id, item)
            for field in ("text", "query_id"):
                if getattr(known, field) != getattr(item, field):
                    raise InputError(
                        f"item {item.id!r} has another {field} here than in line "
                        f"{min(n for (name, _), n in lines.items() if name == item.id)}"
                    )
        except InputError as error:
            raise InputError(f"{path}:{number}: {error}") from None
        items[item.id] = replace(item, marks={**known.marks, **item.marks})
    if not items:
        raise InputError(f"{path} has no items")
    return list(items.values())


def read_corpus(path: Path) -> list[Item]:
    """Marked spans as an audit by annotator A, whose terms are the spans themselves.

    Leading determiners are cut off; pronouns (NP-PRP) are no units.
    """
    rows = list(read_marked(path))
    if not rows:
        raise InputError(f"{path} has no items")
    partial = not any(kind.startswith("NP") for row in rows for *_, kind in row.spans)
    items = []
    for number, row in enumerate(rows, start=1):
        kept = {
            Span(*strip_determiner(row.text, start, end))
            for start, end, kind in row.spans
            if kind != "NP-PRP"
        }
        spans = tuple(sorted(kept))
        items.append(Item(str(number), row.text, {"A": Marks(spans, spans)}, partial=partial))
    return items


def read_gains(path: Path) -> dict[str, float]:
    """What a query gains by Phrase over Token: {query id or text: number}, or a cell of a run."""
    try:
        gains = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not JSON: {error}") from None
    if not isinstance(gains, dict) or not gains:
        raise InputError(f"{path}: a JSON object is expected, a number for each query")
    if isinstance(gains.get("lines"), dict):
        return _gains_of_cell(path)
    for query, gain in gains.items():
        if type(gain) not in (int, float) or not math.isfinite(gain):
            raise InputError(
                f"{path}: the gain of {query[:40]!r} is {json.dumps(gain)}; a number is expected"
            )
    return {query: float(gain) for query, gain in gains.items()}


def _gains_of_cell(path: Path) -> dict[str, float]:
    cell = results.read(path)
    lacking = [name for name in ("phrase", "token") if name not in cell.lines]
    if lacking:
        raise InputError(
            f"{path} is a cell of {cell.protocol} without a line {lacking[0]!r}; one of "
            "broad-deployed has phrase and token"
        )
    gained = cell.lines["phrase"].values - cell.lines["token"].values
    return dict(zip(cell.query_ids, gained.tolist(), strict=True))


def _item(row: dict[str, Any]) -> Item:
    text, annotator, query_id = row["text"], row["annotator"], row.get("query_id")
    if not row["id"]:
        raise InputError('"id" is empty')
    if annotator not in ANNOTATORS:
        raise InputError(f'annotator {annotator!r} is unknown; "A" or "B" is expected')
    if query_id is not None and not isinstance(query_id, str):
        raise InputError(f'"query_id" is {json.dumps(query_id)}; a string is expected')
    tokens = audit_tokens(text)
    if not tokens:
        raise InputError('"text" is blank')
    units, terms = (_spans(row, name, tokens) for name in ("units", "terms"))
    for before, after in pairwise(units):
        if after.start < before.end:
            raise InputError(
                f"unit {list(after)} follows {list(before)}; units come in reading order "
                "without overlap"
            )
    marks = Marks(units, tuple(sorted(set(terms))))
    return Item(row["id"], text, {annotator: marks}, query_id)


def _spans(row: dict[str, Any], name: str, tokens: list[Span]) -> tuple[Span, ...]:
    listed = row.get(name)
    if not isinstance(listed, list):
        raise InputError(f'"{name}" must be a list of [start, end]')
    starts = {token.start for token in tokens}
    ends = {token.end for token in tokens}
    spans = []
    for pair in listed:
        match pair:
            case [start, end] if type(start) is type(end) is int and start < end:
                span = Span(start, end)
            case _:
                raise InputError(
                    f"{name[:-1]} {json.dumps(pair)} is wrong; [start, end] with start < end "
                    f"within {len(row['text'])} characters is expected"
                )
        if span.start not in starts or span.end not in ends:
            raise InputError(_at_no_edge(row["text"], name, span, tokens))
        spans.append(span)
    return tuple(spans)


def _at_no_edge(text: str, name: str, span: Span, tokens: list[Span]) -> str:
    """Where a span should have begun and ended: with the tokens that it touches."""
    touched = [token for token in tokens if token.start < span.end and span.start < token.end]
    if not touched or span.start < 0 or span.end > len(text):
        return f"{name[:-1]} {list(span)} is no part of the {len(text)} characters of the text"
    whole = [touched[0].start, touched[-1].end]
    return (
        f"{name[:-1]} {list(span)} {text[slice(*span)]!r} begins or ends inside a token or at a "
        f"blank; the tokens it touches are {whole} {text[slice(*whole)]!r}"
    )
