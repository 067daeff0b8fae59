"""What people marked: audit files, and corpora of marked spans read as audits.

A line of an audit file is what one annotator made of one text (docs/audit-format.md):

    {"id": "q1", "text": "acute kidney injury", "annotator": "A", "units": [[0, 19]], "terms": []}

Offsets are characters. Units are in reading order and do not overlap; whatever none of them covers
stands alone, token by token, as in a partition by BIO tags. A *token* of the audit is a word of
`words`, Han text character by character: no model, tokenizer or dictionary decides what two people
agreed on.

A corpus of marked spans is an audit by one annotator. One that marks noun phrases (types NP…) is
exhaustive; any other is *partial*: it marks terms of its own types and leaves the rest open.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from hplus.errors import InputError
from hplus.teach.marked import read_marked, read_rows
from hplus.types import Span
from hplus.units.words import words

ANNOTATORS = ("A", "B")

DETERMINERS: frozenset[str] = frozenset(
    """
    a an the this that these those its their our his her my your
    some any each every all both no such another
    """.split()  # noqa: SIM905 - easier to read than quoted words
)

_FIRST_WORD = re.compile(r"([A-Za-z]+)\s+(?=\S)")


@dataclass(frozen=True)
class Marks:
    """What one annotator marked in a text: units in reading order, and terms, which may nest.

    In a corpus of marked spans units may nest too; `reference.outermost` chooses among them.
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
                    f"item {item.id!r} of annotator {annotator} is already in line {earlier}"
                )
            known = items.get(item.id, item)
            for field in ("text", "query_id"):
                if getattr(known, field) != getattr(item, field):
                    raise InputError(
                        f"item {item.id!r} has a different {field} in line "
                        f"{min(n for (name, _), n in lines.items() if name == item.id)}"
                    )
        except InputError as error:
            raise InputError(f"{path}:{number}: {error}") from None
        items[item.id] = replace(item, marks={**known.marks, **item.marks})
    if not items:
        raise InputError(f"{path} has no items")
    return list(items.values())


def read_corpus(path: Path) -> list[Item]:
    """Marked spans as an audit by annotator A: they are units and terms at once.

    Leading determiners are stripped and pronouns (NP-PRP) left out.
    """
    rows = list(read_marked(path))
    if not rows:
        raise InputError(f"{path} has no items")
    partial = not any(kind.startswith("NP") for row in rows for *_, kind in row.spans)
    items = []
    for number, row in enumerate(rows, start=1):
        kept = {
            strip_determiner(row.text, Span(start, end))
            for start, end, kind in row.spans
            if kind != "NP-PRP"
        }
        spans = tuple(sorted(kept))
        items.append(Item(str(number), row.text, {"A": Marks(spans, spans)}, partial=partial))
    return items


def strip_determiner(text: str, span: Span) -> Span:
    """The span without the determiners and possessive pronouns it begins with.

    A span of nothing else stays as it is. Words in capitals are read as names: "NO synthase",
    "ALL cells" and, inside a sentence, "A beta" are left alone.

    >>> strip_determiner("All the lung tumours", Span(0, 20))
    Span(start=8, end=20)
    """
    start, end = span
    while (match := _FIRST_WORD.match(text, start, end)) and _is_determiner(text, *match.span(1)):
        start = match.end()
    return Span(start, end)


def _is_determiner(text: str, start: int, end: int) -> bool:
    word = text[start:end]
    if word == "A":
        return text[:start].rstrip()[-1:] in ("", ".", "!", "?", ":")
    return word[0].lower() + word[1:] in DETERMINERS


def _item(row: dict[str, Any]) -> Item:
    text, annotator, query_id = row["text"], row["annotator"], row.get("query_id")
    if not row["id"]:
        raise InputError('"id" is empty')
    if annotator not in ANNOTATORS:
        raise InputError(f'expected annotator "A" or "B", got {annotator!r}')
    if query_id is not None and not isinstance(query_id, str):
        raise InputError(f'expected a string as "query_id", got {json.dumps(query_id)}')
    tokens = audit_tokens(text)
    if not tokens:
        raise InputError('"text" is blank')
    units, terms = (_spans(row, name, tokens) for name in ("units", "terms"))
    for before, after in pairwise(units):
        if after.start < before.end:
            raise InputError(
                f"unit {list(after)} follows {list(before)}; units must be in reading order "
                "and must not overlap"
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
                    f"expected [start, end] with start < end within {len(row['text'])} "
                    f"characters, got {name[:-1]} {json.dumps(pair)}"
                )
        if span.start not in starts or span.end not in ends:
            raise InputError(_off_the_edges(row["text"], name, span, tokens))
        spans.append(span)
    return tuple(spans)


def _off_the_edges(text: str, name: str, span: Span, tokens: list[Span]) -> str:
    """The message for a span that begins or ends elsewhere than the tokens it touches."""
    touched = [token for token in tokens if token.start < span.end and span.start < token.end]
    if not touched or span.start < 0 or span.end > len(text):
        return f"{name[:-1]} {list(span)} is outside the {len(text)} characters of the text"
    whole = [touched[0].start, touched[-1].end]
    return (
        f"{name[:-1]} {list(span)} {text[slice(*span)]!r} begins or ends inside a token or at "
        f"white space; the tokens it touches are {whole} {text[slice(*whole)]!r}"
    )
