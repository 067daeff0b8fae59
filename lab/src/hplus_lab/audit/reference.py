"""What the units of a text are held against.

A *boundary* is the place, in characters, at which a unit begins; the beginning of the text is
none. Only boundaries *where they count* are compared: anywhere in an exhaustive reference; in a
partial one, inside and at the edges of the marked spans. A boundary inside a token is one that no
reference has, so it always counts against a system.

Of reference units that nest or cross, the longest counts; all terms count, nested ones too. Terms
of one token are left out, since any partition of tokens keeps them.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass
from operator import itemgetter
from typing import Literal

from hplus.errors import InputError
from hplus.teach.spelling import quantities
from hplus.types import Span
from hplus.units.words import HAN
from hplus_lab.audit.items import ANNOTATORS, Item, Marks, audit_tokens

Annotator = Literal["A", "B", "union"]

FLAGS = (
    "over_segmentation",
    "modifier_detachment",
    "numeric_separation",
    "abbreviation_fragmentation",
)
"""Kinds of error that a wrong boundary can make."""

# A capital with another capital or a digit after it; then "-2", "-α", "-DR", any number of times.
_CORE = r"(?=[A-Za-z0-9]*[A-Z][A-Za-z0-9]*[A-Z0-9])[A-Za-z0-9]+(?:\.\d+)?"
_ABBREVIATION = re.compile(
    rf"(?<![A-Za-z0-9]){_CORE}(?:[-‐‑–](?:\d+[A-Za-z]?|[α-ω]|[A-Za-z]\d*|{_CORE})(?![A-Za-z0-9]))*"
)

_HAN = re.compile(f"[{HAN}]")


@dataclass(frozen=True)
class Reference:
    """The marks of one text, ready to be counted against.

    tokens of the audit; units, in order, and those of several tokens; terms of several tokens;
    boundaries; `counted[p]`, whether a boundary at character p counts; gaps, the number of token
    gaps at which it does; `errors[p]`, bit i set if a wrong boundary there is an error FLAGS[i].
    """

    tokens: tuple[Span, ...]
    units: tuple[Span, ...]
    multi: frozenset[Span]
    terms: tuple[Span, ...]
    boundaries: frozenset[int]
    counted: bytes
    gaps: int
    errors: bytes


def reference_of(item: Item, annotator: Annotator = "A", *, seen: int | None = None) -> Reference:
    """The reference of an item up to the character `seen`, where a model's window may have ended.

    "union" has every boundary and every term that either annotator marked.
    """
    chosen = _chosen(item, annotator)
    tokens = audit_tokens(item.text)
    if seen is not None:
        tokens = [token for token in tokens if token.end <= seen]
    starts = [token.start for token in tokens]
    end = tokens[-1].end if tokens else 0
    marked = [_widened(tokens, marks.units) for marks in chosen]
    if item.partial:
        units = outermost(span for spans in marked for span in spans if span.end <= end)
        # From where a unit begins to where the token after it does, both included.
        after = [[*starts, end][bisect_left(starts, unit.end)] for unit in units]
        zones = [Span(unit.start, place + 1) for unit, place in zip(units, after, strict=True)]
        boundaries = {unit.start for unit in units}.union(after).intersection(starts[1:])
    else:
        boundaries = set().union(*(boundaries_of(tokens, outermost(units)) for units in marked))
        units = _between(tokens, boundaries)
        zones = [Span(0, end)]
    counted = bytearray(len(item.text) + 1)
    for zone in zones:
        counted[slice(*zone)] = b"\1" * (zone.end - zone.start)
    multi = frozenset(unit for unit in units if token_count(tokens, unit) > 1)
    found = {term for marks in chosen for term in _widened(tokens, marks.terms)}
    terms = sorted(term for term in found if term.end <= end and token_count(tokens, term) > 1)
    heads = [Span(term.start, _head(item.text, tokens, term) + 1) for term in terms]
    return Reference(
        tuple(tokens),
        tuple(units),
        multi,
        tuple(terms),
        frozenset(boundaries),
        bytes(counted),
        sum(counted[start] for start in starts[1:]),
        _errors(item.text, multi, heads),
    )


def boundaries_of(tokens: Sequence[Span], units: Iterable[Span]) -> set[int]:
    """Where units begin if every token that none of them covers stands alone; no overlaps.

    >>> sorted(boundaries_of([Span(0, 5), Span(6, 12), Span(13, 19)], [Span(6, 19)]))
    [6]
    """
    boundaries = {token.start for token in tokens[1:]}
    for unit in units:
        boundaries -= set(range(unit.start + 1, unit.end))
    return boundaries


def outermost(spans: Iterable[Span]) -> list[Span]:
    """Spans without overlap, in order: of those that nest or cross, the longest; then the first.

    >>> outermost([Span(0, 5), Span(0, 12), Span(10, 19), Span(20, 22)])
    [Span(start=0, end=12), Span(start=20, end=22)]
    """
    kept: list[Span] = []
    for span in sorted(set(spans), key=lambda span: (span.start - span.end, span.start)):
        if all(span.end <= other.start or other.end <= span.start for other in kept):
            kept.append(span)
    return sorted(kept)


def token_count(tokens: Sequence[Span], span: Span) -> int:
    """How many tokens a span touches."""
    first, last = _touched(tokens, span)
    return last - first


def abbreviations(text: str) -> list[Span]:
    """Words of capitals, or of capitals mixed with small letters and digits.

    >>> text = "COX-2, HbA1c and mRNA in anti-TNF therapy"
    >>> [text[a:b] for a, b in abbreviations(text)]
    ['COX-2', 'HbA1c', 'mRNA', 'TNF']
    """
    return [Span(*match.span()) for match in _ABBREVIATION.finditer(text)]


def _chosen(item: Item, annotator: Annotator) -> list[Marks]:
    if annotator not in (*ANNOTATORS, "union"):
        raise InputError(f'expected reference "A", "B" or "union", got {annotator!r}')
    wanted = ANNOTATORS if annotator == "union" else (annotator,)
    absent = [name for name in wanted if name not in item.marks]
    if absent:
        raise InputError(
            f"reference {annotator} needs the marks of annotator {absent[0]}, but item {item.id!r} "
            f"has only those of {' and '.join(item.marks)}"
        )
    return [item.marks[name] for name in wanted]


def _touched(tokens: Sequence[Span], span: Span) -> tuple[int, int]:
    """The tokens that a span touches: the first, and one past the last."""
    first = bisect_right(tokens, span.start, key=itemgetter(1))
    return first, bisect_left(tokens, span.end, key=itemgetter(0))


def _widened(tokens: Sequence[Span], spans: Iterable[Span]) -> list[Span]:
    """The spans widened to the tokens they touch; those beyond the last token stay as they are."""
    widened = []
    for span in spans:
        first, last = _touched(tokens, span)
        known = first < last and tokens[-1].end >= span.end
        widened.append(Span(tokens[first].start, tokens[last - 1].end) if known else span)
    return widened


def _between(tokens: Sequence[Span], boundaries: Set[int]) -> list[Span]:
    """The tokens as units that begin at the boundaries."""
    units: list[Span] = []
    for token in tokens:
        if units and token.start not in boundaries:
            units[-1] = Span(units[-1].start, token.end)
        else:
            units.append(token)
    return units


def _errors(text: str, multi: Iterable[Span], heads: Iterable[Span]) -> bytes:
    """The kinds of error that a wrong boundary at each character makes, as bits; often several.

    Over-segmentation splits a unit of several tokens; modifier detachment splits a term at or
    before its head, so that the head's unit leaves out what modifies it; numeric separation parts
    a number from its unit of measure; abbreviation fragmentation splits an abbreviation.
    """
    errors = bytearray(len(text) + 1)
    # A letter next to a number makes it part of a name to `quantities`, but Chinese leaves no
    # space between a number and the words around it.
    numbers = quantities(_HAN.sub("。", text))
    for kind, spans in enumerate((multi, heads, numbers, abbreviations(text))):
        for start, end in spans:
            for inside in range(start + 1, end):
                errors[inside] |= 1 << kind
    return bytes(errors)


def _head(text: str, tokens: Sequence[Span], term: Span) -> int:
    """Where the last word of a term begins; brackets and signs after it are not words."""
    first, last = _touched(tokens, term)
    named = [row for row in range(first, last) if text[tokens[row].start].isalnum()]
    return tokens[named[-1] if named else last - 1].start
