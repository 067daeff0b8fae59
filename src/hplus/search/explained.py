"""An explanation for people: what is printed is sorted, short, and adds up.

Contributions are shown as shares of the score, in thousandths: those of the phrases sum to the
phrase view's share, those of the words to the lexical view's, and the views to the score, as
printed. Rounding each number by itself would be off by a thousandth here and there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle, islice

from hplus.search.snippets import likest_first
from hplus.terminal import visible
from hplus.types import Explanation, Span, UnitMatch
from hplus.units.words import is_content, words

# Query units below this share of the query's weight are shown together, as function words are.
LEAST_SHARE = 0.03
# Words, and units that a budget dropped, that are named one by one.
NAMED = 8


@dataclass(frozen=True)
class Line:
    """One query unit: its text, what it matched, how similar that is, what it gave."""

    text: str
    found: str
    similarity: float
    thousandths: int
    spans: list[Span]
    document_spans: list[Span]


@dataclass(frozen=True)
class Readable:
    """An explanation as it is printed; all scores in thousandths.

    lines: units that carry content, most first; light: the others, and what they gave together;
    words: exact matches, most first; rest: how many more of them, and what they gave together.
    """

    fused: int
    shares: dict[str, int]
    lines: list[Line]
    light: tuple[list[str], int]
    words: list[tuple[str, int]]
    rest: tuple[int, int]
    dropped: list[str]

    def shown(self, thousandths: int) -> str:
        """A score as printed."""
        return f"{thousandths / 1000:.3f}"

    @property
    def sum(self) -> str:
        """`1.308 = global 0.299 + phrase 0.848 + lexical 0.161`."""
        shares = " + ".join(f"{view} {self.shown(own)}" for view, own in self.shares.items())
        return f"{self.shown(self.fused)} = {shares}"

    @property
    def exact(self) -> str:
        """The words that both have, with what each gave."""
        named = [f"{word} {self.shown(own)}" for word, own in self.words]
        count, own = self.rest
        return ", ".join([*named, *([f"{count} more {self.shown(own)}"] if count else [])])

    @property
    def left_out(self) -> str:
        """The units that a budget dropped."""
        more = len(self.dropped) - NAMED
        return ", ".join(self.dropped[:NAMED]) + (f" and {more} more" if more > 0 else "")


def readable(explanation: Explanation, text: str) -> Readable:
    """What to print of the explanation of a document with this text."""
    shares = list(explanation.shares.values())
    printed = dict(
        zip(explanation.shares, rounded(shares, round(1000 * explanation.fused)), strict=True)
    )
    matches = sorted(explanation.phrase, key=lambda match: -match.contribution)
    raw = explanation.phrase_raw
    scale = explanation.shares.get("phrase", 0.0) / raw if raw else 0.0
    gave = rounded([scale * match.contribution for match in matches], printed.get("phrase", 0))
    least = LEAST_SHARE * sum(match.weight for match in matches)
    heavy = {i for i, match in enumerate(matches) if match.weight >= least and _content(match.text)}
    heavy = heavy or set(range(len(matches)))
    light = [i for i in range(len(matches)) if i not in heavy]
    raw = explanation.lexical_raw
    scale = explanation.shares.get("lexical", 0.0) / raw if raw else 0.0
    exact = rounded([scale * w.contribution for w in explanation.words], printed.get("lexical", 0))
    named = [
        (word.text if word.whole else f"part of {word.text}", own)
        for word, own in zip(explanation.words, exact, strict=True)
    ]
    named.sort(key=lambda word: -word[1])
    return Readable(
        fused=round(1000 * explanation.fused),
        shares=printed,
        lines=[_line(matches[i], gave[i], text) for i in sorted(heavy)],
        light=([_one_line(matches[i].text) for i in light], sum(gave[i] for i in light)),
        words=named[:NAMED],
        rest=(len(named[NAMED:]), sum(own for _, own in named[NAMED:])),
        dropped=[_one_line(unit.text) for unit in explanation.dropped],
    )


def rounded(parts: Sequence[float], total: int) -> list[int]:
    """Parts in thousandths that sum to `total`, each as near as that allows: the largest remainders
    are rounded up.

    >>> rounded([0.3334, 0.3333, 0.3333], 1000)
    [334, 333, 333]
    """
    floors = [math.floor(1000 * part) for part in parts]
    falling = sorted(range(len(parts)), key=lambda i: floors[i] - 1000 * parts[i])
    missing = total - sum(floors)
    step = 1 if missing > 0 else -1
    order = falling if missing > 0 else falling[::-1]
    for i in islice(cycle(order), abs(missing)) if order else ():
        floors[i] += step
    return floors


def _line(match: UnitMatch, thousandths: int, text: str) -> Line:
    spans = _worth_citing(match.document_spans, text)
    pieces = dict.fromkeys(_one_line(text[start:end]) for start, end in spans)
    once = {piece.casefold(): piece for piece in reversed(pieces)}
    found = " … ".join(piece for piece in pieces if once[piece.casefold()] is piece)
    query_text = _one_line(match.text)
    shown_first = likest_first(query_text, text, spans)
    return Line(query_text, found, match.similarity, thousandths, match.spans, shown_first)


def _worth_citing(spans: list[Span], text: str) -> list[Span]:
    """Of a merged unit the pieces that carry content, if any does."""
    return [span for span in spans if _content(text[span.start : span.end])] or spans


def _content(text: str) -> bool:
    """Whether a word carries content; a text that is not known may."""
    found = words(text, han="characters")
    return not found or any(is_content(text[start:end]) for start, end in found)


def _one_line(text: str) -> str:
    return visible(" ".join(text.split()))
