"""Texts with marked units, written as a person would draw them: "acute | kidney injury"."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

from hplus.types import Span
from hplus_lab.audit import Item, Marks

AUDIT = Path(__file__).parent / "audit" / "audit.jsonl"
"""Ten texts marked by two annotators."""


def spans_of(text: str, *parts: str) -> tuple[Span, ...]:
    """Where the parts stand, each after the one before."""
    spans, cursor = [], 0
    for part in parts:
        start = text.index(part, cursor)
        cursor = start + len(part)
        spans.append(Span(start, cursor))
    return tuple(spans)


def split_at(marked: str) -> tuple[str, tuple[Span, ...]]:
    """ "acute | kidney injury" -> the text and its units; "Hb|A1c" cuts inside a word."""
    pieces = re.split(r"( ?)\|( ?)", marked)
    parts = pieces[::3]
    text = "".join(p if i % 3 == 0 else " " if p else "" for i, p in enumerate(pieces[:-1]))
    text = re.sub(r" +", " ", text + pieces[-1]) if len(pieces) > 1 else marked
    return text, spans_of(text, *parts)


def item_of(marked: str, *terms: str, partial: bool = False) -> Item:
    text, units = split_at(marked)
    own = tuple(span for term in terms for span in spans_of(text, term))
    return Item("1", text, {"A": Marks(units, own)}, partial=partial)


def two(a: str, b: str, number: int = 1) -> Item:
    text, units = split_at(a)
    same, other = split_at(b)
    assert text == same
    return Item(str(number), text, {"A": Marks(units, ()), "B": Marks(other, ())})


def write_corpus(folder: Path, rows: list[dict[str, Any]]) -> Path:
    folder.mkdir(exist_ok=True)
    data = "\n".join(json.dumps(row) for row in rows).encode()
    (folder / "test.jsonl.gz").write_bytes(gzip.compress(data))
    return folder
