"""Units that spelling decides better than a tagger: variants, chemical names, ions, doses …

What a pattern of the table (`pattern_table`) matches is never divided. It may be part of a longer
unit ("H. pylori" of "H. pylori infection"), unless the pattern says that a unit begins or ends at
its edge, as a dose does after its drug. Beside the table stands a list of fixed expressions with
function words ("shortness of breath", made by `experiments/make_expressions.py`), which are never
divided either.

The same patterns settle the labels a CRF learns from (`hplus.teach.labels`) and the units it finds.
They look at characters only, so they serve every tokenizer. A recipe turns them on, and then
`version`, a hash of table and list, is part of the model's fingerprint.

Cost: one pass of a regular expression and one of an automaton, about a millisecond for an abstract;
a tenth of a second once for the whole table, a hundredth for a query of plain words.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from hplus.types import I32, Bool, Tokens
from hplus.units.partition import keep_characters_whole
from hplus.units.pattern_table import PATTERNS, Pattern
from hplus.units.terms import Terms

EXPRESSIONS = Path(__file__).with_name("expressions.txt")
NOTHING = "(?!)"
"""An expression that matches nowhere."""


class Spelled(NamedTuple):
    """Characters start:end belong together; a unit begins at start, or ends at end, where told."""

    start: int
    end: int
    begins: bool
    ends: bool


def _compiled(patterns: Sequence[Pattern]) -> re.Pattern[str]:
    """One expression for all of them; the group of a match is named by the place in PATTERNS."""

    def either(patterns: Iterable[Pattern], kind: str) -> str:
        groups = []
        for own in patterns:
            key = f"{kind}{PATTERNS.index(own)}"
            groups.append(f"(?P<{key}>{own.regex.replace('(?P<inner>', f'(?P<inner_{key}>')})")
        return "|".join(groups) or NOTHING

    plain = either((own for own in patterns if own.plain), "plain")
    every = either(patterns, "every")
    word = r"[a-z]+(?=[ ])"
    return re.compile(rf"(?<!\w)(?:(?={word})(?:{plain})|(?!{word})(?:{every}))", re.VERBOSE)


@cache
def _needs() -> list[re.Pattern[str]]:
    return [re.compile(own.needs) for own in PATTERNS]


def needed(text: str) -> tuple[Pattern, ...]:
    """The patterns that may match in a text, in the order of the table.

    >>> [own.name for own in needed("denies N/V/D and has no fever")]
    ['slashed abbreviation', 'slashed capitals', 'negation']
    """
    both = zip(PATTERNS, _needs(), strict=True)
    return tuple(own for own, needs in both if needs.search(text))


class _Table:
    """The table as one expression, compiled as far as texts need it.

    Compiling all of it takes as long as the rest of a query: the first text gets the patterns it
    needs, and the first that needs others gets them all.
    """

    def __init__(self) -> None:
        self._ready: tuple[tuple[Pattern, ...], re.Pattern[str]] = ((), _compiled(()))

    def of(self, text: str) -> re.Pattern[str]:
        """An expression that finds in this text what the whole table would find."""
        patterns, expression = self._ready
        if len(patterns) < len(PATTERNS):
            wanted = needed(text)
            if not set(wanted) <= set(patterns):
                patterns = PATTERNS if patterns else wanted
                expression = _compiled(patterns)
                self._ready = patterns, expression
        return expression


_table = _Table()


@cache
def _expressions() -> Terms:
    return Terms.read(EXPRESSIONS)


@cache
def version() -> str:
    """SHA-256 (hex) of the table and of the list of expressions."""
    identity = hashlib.sha256()
    for own in PATTERNS:
        identity.update(f"{own.name}\0{own.regex}\0{own.begins}\0{own.ends}\0".encode())
    identity.update(_expressions().fingerprint.encode())
    return identity.hexdigest()


def spelled(text: str) -> list[Spelled]:
    """What the patterns find, in reading order and without overlap: at each place the first pattern
    of the table that matches; then the fixed expressions, which may overlap them.

    >>> text = "Warfarin 5 mg p.o. for P < 0.01"
    >>> [text[own.start : own.end] for own in spelled(text)]
    ['5 mg', 'p.o.', 'P < 0.01']
    """
    found = []
    pattern = _table.of(text)
    for match in pattern.finditer(text):
        key = match.lastgroup or ""
        own = PATTERNS[int(key[5:])]
        span = match.span(pattern.groupindex.get(f"inner_{key}", 0))
        found.append(Spelled(*span, own.begins, own.ends))
    found += [Spelled(a, b, False, False) for a, b, _ in _expressions().find(text)]
    return found


def settle(begins: Bool, spans: I32, found: list[Spelled]) -> Bool:
    """One text's partition `begins bool[T]` of pieces at characters `spans i32[T, 2]`, with every
    match undivided: a piece that a match touches is part of it.

    >>> spans = np.array([[0, 1], [2, 3], [4, 9]], np.int32)  # P < 0.001
    >>> settle(np.array([True, True, True]), spans, [Spelled(0, 9, False, False)]).tolist()
    [True, False, False]
    """
    result = begins.copy()
    firsts = np.searchsorted(spans[:, 1], [own.start for own in found], side="right").tolist()
    lasts = np.searchsorted(spans[:, 0], [own.end for own in found], side="left").tolist()
    for own, first, last in zip(found, firsts, lasts, strict=True):
        if first < last:
            result[first] |= own.begins
            if last < len(result):
                result[last] |= own.ends
    for first, last in zip(firsts, lasts, strict=True):
        result[first + 1 : last] = False
    return result


def override(begins: Bool, tokens: Tokens) -> Bool:
    """The partition `begins bool[T]` of a batch with every match undivided."""
    result = begins.copy()
    for text, (first, last) in zip(tokens.texts, pairwise(tokens.offsets.tolist()), strict=True):
        found = spelled(text)
        if found:
            # Zero-width tokens overlap nothing, and their position means nothing.
            spans = tokens.spans[first:last]
            rows = first + np.flatnonzero(spans[:, 0] < spans[:, 1])
            result[rows] = settle(result[rows], tokens.spans[rows], found)
    return keep_characters_whole(result, tokens)
