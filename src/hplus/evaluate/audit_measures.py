"""How far units agree with what people marked, text by text.

A *boundary* is the place, in characters, at which a unit begins; the beginning of the text is
none. Only boundaries *where they count* are compared: anywhere in an exhaustive reference, and in
a partial one inside and at the edges of the marked spans. A cut inside a token is a boundary that
no reference has, so that it always counts against a system.

Reference units that nest or cross count by the longest; all terms count, nested ones too. A term
is *recalled* when it lies whole inside one unit, however large: a text that is one unit recalls
them all, so term recall says nothing without boundary F1 beside it. Terms of one token are left
out, since any partition of tokens keeps them.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass
from operator import itemgetter
from typing import Literal, NamedTuple

import numpy as np

from hplus.errors import InputError
from hplus.evaluate.audit_file import ANNOTATORS, Item, Marks, audit_tokens
from hplus.teach.rules import quantities
from hplus.types import F64, Span
from hplus.units.words import HAN

Annotator = Literal["A", "B", "union"]

# A capital with another capital or a digit after it; then "-2", "-α", "-DR", as often as there is.
_CORE = r"(?=[A-Za-z0-9]*[A-Z][A-Za-z0-9]*[A-Z0-9])[A-Za-z0-9]+(?:\.\d+)?"
_ABBREVIATION = re.compile(
    rf"(?<![A-Za-z0-9]){_CORE}(?:[-‐‑–](?:\d+[A-Za-z]?|[α-ω]|[A-Za-z]\d*|{_CORE})(?![A-Za-z0-9]))*"
)

_HAN = re.compile(f"[{HAN}]")


@dataclass(frozen=True)
class Reference:
    """What the units of one text are held against.

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


class ItemCounts(NamedTuple):
    """What is counted of one text: boundaries, units, units of several tokens, terms, errors."""

    boundaries: int
    predicted: int
    hits: int
    units: int
    predicted_units: int
    exact: int
    multi: int
    predicted_multi: int
    exact_multi: int
    terms: int
    whole: int
    over_segmentation: bool
    modifier_detachment: bool
    numeric_separation: bool
    abbreviation_fragmentation: bool


FLAGS = ItemCounts._fields[-4:]


@dataclass(frozen=True)
class Agreement:
    """Two annotators over the items both marked: means over items, exact span F1 over all units.

    kappa leaves out the `undefined` items, at whose gaps both say the same one thing throughout;
    boundary_f1 leaves out items of one token.
    """

    items: int
    kappa: float
    undefined: int
    boundary_f1: float
    exact_f1: float
    boundaries: tuple[float, float]


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
    marked = [_whole_tokens(tokens, marks.units) for marks in chosen]
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
    for place in range(starts[0] + 1 if starts else 0):
        counted[place] = 0
    multi = frozenset(unit for unit in units if _length(tokens, unit) > 1)
    found = {term for marks in chosen for term in _whole_tokens(tokens, marks.terms)}
    terms = sorted(term for term in found if term.end <= end and _length(tokens, term) > 1)
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


def count(reference: Reference, units: Sequence[Span]) -> ItemCounts:
    """Counts a system's units, which come in order without overlap; those that meet no reference
    unit are neither right nor wrong."""
    predicted = {unit.start for unit in units[1:] if reference.counted[unit.start]}
    meeting = [unit for unit in units if _meets(reference.units, unit)]
    exact = set(meeting).intersection(reference.units)
    predicted_multi = [unit for unit in meeting if _length(reference.tokens, unit) > 1]
    errors = 0
    for boundary in predicted - reference.boundaries:
        errors |= reference.errors[boundary]
    return ItemCounts(
        len(reference.boundaries),
        len(predicted),
        len(predicted & reference.boundaries),
        len(reference.units),
        len(meeting),
        len(exact),
        len(reference.multi),
        len(predicted_multi),
        len(exact & reference.multi),
        len(reference.terms),
        sum(_is_whole(units, term) for term in reference.terms),
        *(bool(errors >> kind & 1) for kind in range(len(FLAGS))),
    )


def f1(reference: int, predicted: int, hits: int) -> float:
    """2 hits / (reference + predicted), the harmonic mean of precision and recall; 1 where
    neither has anything.

    >>> f1(4, 2, 1) == f1(2, 4, 1) == 1 / 3
    True
    """
    return 2 * hits / (reference + predicted) if reference + predicted else 1.0


def total(counts: Sequence[ItemCounts]) -> ItemCounts:
    """The sums over all items; of the flags, how many items have each."""
    return ItemCounts(*np.sum(np.array(counts, np.int64), axis=0).tolist())


def boundary_f1(references: Sequence[Reference], counts: Sequence[ItemCounts]) -> F64:
    """Boundary F1 of each item, f64[n]; nan where no gap counts, whatever the system."""
    return np.array(
        [
            f1(own.boundaries, own.predicted, own.hits) if reference.gaps else np.nan
            for reference, own in zip(references, counts, strict=True)
        ]
    )


def cohens_kappa(a: Set[int], b: Set[int], gaps: int) -> float | None:
    """Agreement beyond chance about which of `gaps` gaps are boundaries.

    (observed - expected) / (1 - expected), expected from how often each says boundary; undefined
    (None) where both say boundary everywhere, or nowhere.

    >>> cohens_kappa({1, 2}, {2, 3}, 4), cohens_kappa(set(), set(), 4)
    (0.0, None)
    """
    # All times gaps squared, in integers, so that "undefined" does not hang on rounding.
    observed = gaps * (len(a & b) + gaps - len(a | b))
    expected = len(a) * len(b) + (gaps - len(a)) * (gaps - len(b))
    return None if expected == gaps**2 else (observed - expected) / (gaps**2 - expected)


def agreement(items: Sequence[Item]) -> Agreement | None:
    """How far A and B agree on the units of the items that both marked; None if there are none."""
    pairs = [
        (reference_of(item, "A"), reference_of(item, "B"))
        for item in items
        if set(ANNOTATORS) <= item.marks.keys()
    ]
    if not pairs:
        return None
    kappas = [cohens_kappa(a.boundaries, b.boundaries, a.gaps) for a, b in pairs]
    defined = [kappa for kappa in kappas if kappa is not None]
    counts = [count(a, b.units) for a, b in pairs]
    values = boundary_f1([a for a, _ in pairs], counts)
    values = values[~np.isnan(values)]
    every = total(counts)
    return Agreement(
        items=len(pairs),
        kappa=float(np.mean(defined)) if defined else float("nan"),
        undefined=len(kappas) - len(defined),
        boundary_f1=float(values.mean()) if len(values) else float("nan"),
        exact_f1=f1(every.units, every.predicted_units, every.exact),
        boundaries=(every.boundaries / len(pairs), every.predicted / len(pairs)),
    )


def boundaries_of(tokens: Sequence[Span], units: Iterable[Span]) -> set[int]:
    """Where units without overlap begin if what they leave uncovered stands alone, by tokens.

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


def abbreviations(text: str) -> list[Span]:
    """Words of capitals, or of capitals mixed with small letters and digits.

    >>> text = "COX-2, HbA1c and mRNA in anti-TNF therapy"
    >>> [text[a:b] for a, b in abbreviations(text)]
    ['COX-2', 'HbA1c', 'mRNA', 'TNF']
    """
    return [Span(*match.span()) for match in _ABBREVIATION.finditer(text)]


def _chosen(item: Item, annotator: Annotator) -> list[Marks]:
    if annotator not in (*ANNOTATORS, "union"):
        raise InputError(f'reference must be "A", "B" or "union", not {annotator!r}')
    wanted = ANNOTATORS if annotator == "union" else (annotator,)
    absent = [name for name in wanted if name not in item.marks]
    if absent:
        raise InputError(
            f"reference {annotator} asked, but item {item.id!r} has no marks of annotator "
            f"{absent[0]}; it has those of {' and '.join(item.marks)}"
        )
    return [item.marks[name] for name in wanted]


def _rows(tokens: Sequence[Span], span: Span) -> tuple[int, int]:
    """The tokens that a span touches: first and one past the last."""
    first = bisect_right(tokens, span.start, key=itemgetter(1))
    return first, bisect_left(tokens, span.end, key=itemgetter(0))


def _length(tokens: Sequence[Span], span: Span) -> int:
    first, last = _rows(tokens, span)
    return last - first


def _whole_tokens(tokens: Sequence[Span], spans: Iterable[Span]) -> list[Span]:
    """The spans, widened to the tokens they touch; those beyond all tokens stay as they are."""
    whole = []
    for span in spans:
        first, last = _rows(tokens, span)
        known = first < last and tokens[-1].end >= span.end
        whole.append(Span(tokens[first].start, tokens[last - 1].end) if known else span)
    return whole


def _between(tokens: Sequence[Span], boundaries: Set[int]) -> list[Span]:
    """The tokens as units that begin at the boundaries."""
    units: list[Span] = []
    for token in tokens:
        if units and token.start not in boundaries:
            units[-1] = Span(units[-1].start, token.end)
        else:
            units.append(token)
    return units


def _meets(units: Sequence[Span], span: Span) -> bool:
    first, last = _rows(units, span)
    return first < last


def _is_whole(units: Sequence[Span], span: Span) -> bool:
    """Whether one unit contains the span."""
    row = bisect_right(units, span.start, key=itemgetter(0)) - 1
    return row >= 0 and span.end <= units[row].end


def _errors(text: str, multi: Iterable[Span], heads: Iterable[Span]) -> bytes:
    """The kinds of error that a wrong boundary at each character makes, as bits; often several.

    Over-segmentation cuts a unit of several tokens; modifier detachment cuts a term at or before
    its head, so that the head's unit leaves out what modifies it; numeric separation cuts a
    number from its unit of measure; abbreviation fragmentation cuts an abbreviation.
    """
    errors = bytearray(len(text) + 1)
    # To the rule, a letter beside a number makes a name; but Chinese leaves no space there.
    numbers = quantities(_HAN.sub("。", text))
    for kind, spans in enumerate((multi, heads, numbers, abbreviations(text))):
        for start, end in spans:
            for inside in range(start + 1, end):
                errors[inside] |= 1 << kind
    return bytes(errors)


def _head(text: str, tokens: Sequence[Span], term: Span) -> int:
    """Where the last word of a term begins; brackets and signs after it are no words."""
    first, last = _rows(tokens, term)
    named = [row for row in range(first, last) if text[tokens[row].start].isalnum()]
    return tokens[named[-1] if named else last - 1].start
