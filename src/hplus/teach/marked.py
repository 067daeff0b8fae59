"""Texts to be labelled, with the spans that are marked in them, if any.

A row of a .jsonl file is `{"text": …, "spans": [[start, end, type], …]}`; or
`{"text": …, "segments": ["type 2 diabetes", …]}`, from a teacher that copies strings out of the
text; or a training pair `{"query": …, "positive": …}`, which is two texts; or a text alone. Any
other file has one text per line. Files may be gz.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hplus.errors import InputError
from hplus.files import numbered_lines
from hplus.teach.align import find_segments
from hplus.types import Span


@dataclass(frozen=True)
class Marked:
    """A text and its marked spans (start, end, type); `lost` segments were not found in it."""

    text: str
    spans: tuple[tuple[int, int, str], ...] = ()
    lost: int = 0


def read_marked(path: Path) -> Iterator[Marked]:
    """The rows of a file; an error names the file and line of a bad one."""
    rows = ".jsonl" in path.suffixes
    for number, line in numbered_lines(path):
        if not line.strip():
            continue
        if not rows:
            yield Marked(line.strip())
            continue
        row = _parsed(path, number, line)
        try:
            if isinstance(row, dict) and "text" not in row and "positive" in row:
                yield from (_marked({"text": row.get(side)}) for side in ("query", "positive"))
            else:
                yield _marked(row)
        except InputError as error:
            raise InputError(f"{path}:{number}: {error}") from None


def read_rows(path: Path, *needed: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """JSON objects of a .jsonl file with their line numbers; `needed` fields must be strings."""
    for number, line in numbered_lines(path):
        if not line.strip():
            continue
        row = _parsed(path, number, line)
        absent = [k for k in needed if not isinstance(row, dict) or not isinstance(row.get(k), str)]
        if absent:
            raise InputError(f"{path}:{number} lacks {' and '.join(absent)}")
        yield number, row


def _parsed(path: Path, number: int, line: str) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}:{number} is not JSON: {error}") from None


def _marked(row: Any) -> Marked:
    if not isinstance(row, dict) or not isinstance(row.get("text"), str):
        raise InputError('expected a JSON object with a "text"')
    text = row["text"]
    if "segments" in row:
        segments = row["segments"]
        if not isinstance(segments, list) or not all(isinstance(s, str) for s in segments):
            raise InputError('"segments" must be a list of strings')
        found, lost = find_segments(text, segments)
        return Marked(text, tuple((*span, "segment") for span in found), lost)
    spans = row.get("spans", [])
    if not isinstance(spans, list):
        raise InputError('"spans" must be a list')
    return Marked(text, tuple(_span(text, span) for span in spans))


def _span(text: str, span: Any) -> tuple[int, int, str]:
    match span:
        case [start, end, str(kind)] if type(start) is type(end) is int and 0 <= start < end <= len(
            text
        ):
            return (*Span(start, end), kind)
    raise InputError(
        f"expected spans [start, end, type] with 0 <= start < end <= {len(text)}, "
        f"got {json.dumps(span)}"
    )
