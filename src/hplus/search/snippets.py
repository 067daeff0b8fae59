"""The part of a document worth showing of a hit, and where its phrases matched."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from hplus.types import Hit, Span, UnitMatch
from hplus.units.words import words

# Characters that are shown of a document.
SIZE = 300
# Matches that contribute less than this share of the best one are not marked.
LEAST_SHARE = 0.25
_BLANK = re.compile(r"\s")


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
    """The text around the phrase that contributed most; without an explanation, its beginning, or
    that of the passage that was found."""
    line = hit.text.replace("\n", " ").replace("\r", " ")
    strong = strongest(hit)
    if strong and strong[0].document_spans:
        first = likest_first(strong[0].text, hit.text, strong[0].document_spans)[0].start
        start = max(0, min(first - size // 3, len(line) - size))
    else:
        start = 0 if hit.passage is None else hit.passage.start
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


def likest_first(unit: str, text: str, spans: Sequence[Span]) -> list[Span]:
    """The pieces of a document's unit, those first that share the most words with a query's unit.

    >>> likest_first("heart failure", "stroke or heart failure", [Span(0, 6), Span(10, 23)])
    [Span(start=10, end=23), Span(start=0, end=6)]
    """
    asked = _words(unit)
    return sorted(spans, key=lambda span: -len(asked & _words(text[span.start : span.end])))


def likest(unit: str, text: str, spans: Sequence[Span]) -> Sequence[Span]:
    """The pieces that share a word with a query's unit; if none does, all of them.

    >>> likest("heart failure", "stroke or heart failure", [Span(10, 23), Span(0, 6)])
    [Span(start=10, end=23)]
    """
    asked = _words(unit)
    return [span for span in spans if asked & _words(text[span.start : span.end])] or spans


def excerpt(text: str, marked: Sequence[Sequence[Span]], size: int = SIZE) -> Snippet:
    """The parts of a text round its marks, at word ends; the spans of rank 0 matter most.

    A text that is short enough is shown whole. Of a longer one, every rank has its first span
    shown as far as there is room, with as much before and after it as then fits.
    """
    line = _BLANK.sub(" ", text)
    firsts = [spans[0] for spans in marked if spans]
    parts = [Span(0, min(size, len(line)))]
    if len(line) > size and firsts:
        for context in (size // 2, size // 3, size // 4, size // 6, size // 10):
            parts = _parts(line, firsts, context)
            if sum(end - start for start, end in parts) <= size:
                break
        while len(firsts) > 1 and sum(end - start for start, end in parts) > size:
            firsts.pop()
            parts = _parts(line, firsts, size // 10)
        parts = [Span(start, min(end, start + size)) for start, end in parts]
    elif len(line) > size:
        parts = [Span(0, max(line.rfind(" ", size // 2, size), 0) or size)]
    shown, marks = "", []
    for start, end in parts:
        shown += ("… " if start and not shown else " … " if shown else "") + line[start:end]
        shift = len(shown) - end
        marks += [
            Mark(max(a, start) + shift, min(b, end) + shift, rank)
            for rank, spans in enumerate(marked)
            for a, b in spans
            if a < end and b > start
        ]
    marks.sort(key=lambda mark: -mark.rank)
    return Snippet(shown + (" …" if parts[-1].end < len(line) else ""), marks)


def _parts(line: str, spans: Sequence[Span], context: int) -> list[Span]:
    """Spans with so much of the text before and after them, from word to word; those that touch are
    one."""
    parts: list[Span] = []
    for start, end in sorted(spans):
        first, last = max(0, start - context), min(len(line), end + context)
        if first and (blank := line.find(" ", first, start)) >= 0:
            first = blank + 1
        if last < len(line) and (blank := line.rfind(" ", end, last)) >= 0:
            last = blank
        if parts and first <= parts[-1].end + 3:
            parts[-1] = Span(parts[-1].start, max(last, parts[-1].end))
        else:
            parts.append(Span(first, last))
    return parts


def _words(text: str) -> set[str]:
    return {text[start:end].casefold() for start, end in words(text, han="characters")}


def strongest(hit: Hit) -> list[UnitMatch]:
    """The matches worth marking, heaviest first."""
    matches = [] if hit.explanation is None else hit.explanation.phrase
    falling = sorted(matches, key=lambda match: -match.contribution)
    return [m for m in falling if m.contribution >= LEAST_SHARE * falling[0].contribution]
