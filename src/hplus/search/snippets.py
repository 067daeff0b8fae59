"""The part of a document worth showing of a hit, and where its phrases matched."""

from __future__ import annotations

from dataclasses import dataclass

from hplus.types import Hit, UnitMatch

# Characters that are shown of a document.
SIZE = 300
# Matches that contribute less than this share of the best one are not marked.
LEAST_SHARE = 0.25


@dataclass(frozen=True)
class Mark:
    """Characters start:end of a snippet; rank 0 is the query unit that contributed most."""

    start: int
    end: int
    rank: int


@dataclass(frozen=True)
class Snippet:
    """One line of a document, with an ellipsis where text was left out.

    marks: where query units matched; of two on the same characters the heavier one comes last, so
    that it is drawn on top.
    """

    text: str
    marks: list[Mark]


def snippet(hit: Hit, size: int = SIZE) -> Snippet:
    """The text around the phrase that contributed most; without an explanation, its beginning."""
    line = hit.text.replace("\n", " ").replace("\r", " ")
    strong = strongest(hit)
    first = strong[0].document_spans[0].start if strong and strong[0].document_spans else 0
    start = max(0, min(first - size // 3, len(line) - size))
    blank = line.find(" ", start - 1, start + size // 3) if start else -1
    start = blank + 1 or start  # at a word, where there are blanks, and never after the match
    end = min(start + size, len(line))
    before, after = "… " if start else "", " …" if end < len(line) else ""
    shift = len(before) - start
    marks = [
        Mark(max(span.start, start) + shift, min(span.end, end) + shift, rank)
        for rank, match in reversed(list(enumerate(strong)))
        for span in match.document_spans
        if span.start < end and span.end > start
    ]
    return Snippet(before + line[start:end] + after, marks)


def strongest(hit: Hit) -> list[UnitMatch]:
    """The matches worth marking, heaviest first."""
    matches = [] if hit.explanation is None else hit.explanation.phrase
    falling = sorted(matches, key=lambda match: -match.contribution)
    return [m for m in falling if m.contribution >= LEAST_SHARE * falling[0].contribution]
