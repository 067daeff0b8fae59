"""How well units recover the term spans that people marked.

The gold is partial: it marks its own types of term and leaves the rest of the text open. So only
units that overlap a gold span count as predicted; units elsewhere are neither right nor wrong.
A hit is a unit with exactly the characters of a gold span. Gold spans may nest, units may not,
so that recall can stay below 1 even for the best partition.

Counts are kept text by text, because the bootstrap draws texts.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np

from hplus.errors import InputError
from hplus.evaluate.statistics import RESAMPLES, Difference, difference, resampled_sums
from hplus.types import I64
from hplus.units.words import HAN, whitespace_words, words

Measure = Literal["f1", "precision", "recall", "multi_recall"]

DETERMINERS: frozenset[str] = frozenset(
    """
    a an the this that these those its their our his her my your
    some any each every all both no such another
    """.split()  # noqa: SIM905 - easier to read than quoted words
)

_HAN = re.compile(f"[{HAN}]")
_FIRST_WORD = re.compile(r"([A-Za-z]+)\s+(?=\S)")


@dataclass(frozen=True)
class SpanCounts:
    """Counts i64[n], one per text, and the measures over all texts together.

    gold: gold spans; predicted: units that overlap one; hits: units that equal one;
    multi_gold and multi_hits: the gold spans of several words, and those hit.
    A measure is 0 where it has nothing to count.
    """

    gold: I64
    predicted: I64
    hits: I64
    multi_gold: I64
    multi_hits: I64

    def __len__(self) -> int:
        return len(self.gold)

    @property
    def precision(self) -> float:
        return self.measure("precision")

    @property
    def recall(self) -> float:
        return self.measure("recall")

    @property
    def f1(self) -> float:
        return self.measure("f1")

    @property
    def multi_recall(self) -> float:
        """The share of gold spans of several words that are one unit each."""
        return self.measure("multi_recall")

    def measure(self, name: Measure) -> float:
        """The measure of this name, micro-averaged."""
        part, whole = self.parts(name)
        return float(part.sum() / max(whole.sum(), 1))

    def parts(self, name: Measure) -> tuple[I64, I64]:
        """Numerator and denominator of a measure, i64[n] each, to be summed before dividing."""
        if name == "f1":
            return 2 * self.hits, self.gold + self.predicted
        if name == "precision":
            return self.hits, self.predicted
        if name == "recall":
            return self.hits, self.gold
        if name == "multi_recall":
            return self.multi_hits, self.multi_gold
        raise InputError(f"measure must be f1, precision, recall or multi_recall, not {name!r}")


def strip_determiner(text: str, start: int, end: int) -> tuple[int, int]:
    """The span without the determiners and possessive pronouns it begins with.

    What would leave nothing stays. Capitals are read as names: "NO synthase", "ALL cells" and,
    inside a sentence, "A beta" are left alone.

    >>> strip_determiner("All the lung tumours", 0, 20)
    (8, 20)
    """
    while (match := _FIRST_WORD.match(text, start, end)) and _is_determiner(text, *match.span(1)):
        start = match.end()
    return start, end


def span_counts(
    texts: Sequence[str],
    gold: Sequence[Sequence[tuple[int, int]]],
    units: Sequence[Sequence[tuple[int, int]]],
    *,
    minimum_words: int = 2,
) -> SpanCounts:
    """Counts gold spans and units of each text; `minimum_words` makes a span one of several words.

    Gold spans may overlap, repeated ones count once; units come in order without overlap.

    >>> counts = span_counts(["severe lung cancer"], [[(7, 18)]], [[(0, 6), (7, 18)]])
    >>> counts.f1, counts.multi_recall
    (1.0, 1.0)
    """
    if not len(texts) == len(gold) == len(units):
        raise InputError(
            f"{len(texts)} texts, {len(gold)} lists of gold spans and {len(units)} lists of units "
            "were given; one list of each is expected per text"
        )
    rows = np.zeros((len(texts), 5), np.int64)
    for number, text in enumerate(texts):
        _check(number, text, gold[number], units[number])
        rows[number] = _count(text, gold[number], units[number], minimum_words)
    return SpanCounts(*rows.T.copy())


def f1_difference(
    ours: SpanCounts,
    theirs: SpanCounts,
    *,
    measure: Measure = "f1",
    resamples: int = RESAMPLES,
    seed: int = 13,
) -> Difference:
    """ours - theirs in a measure over all texts, with a paired bootstrap over texts."""
    if not len(ours) or len(ours) != len(theirs):
        raise InputError(
            f"our counts have {len(ours)} texts and theirs {len(theirs)}; "
            "both need the same texts, and at least one"
        )
    other = (ours.gold != theirs.gold) | (ours.multi_gold != theirs.multi_gold)
    if other.any():
        row = int(np.flatnonzero(other)[0])
        raise InputError(
            f"text {row} has {ours.gold[row]} gold spans in our counts and {theirs.gold[row]} in "
            f"theirs, {ours.multi_gold[row]} and {theirs.multi_gold[row]} of them of several "
            "words; compare counts of the same gold"
        )
    columns = [part.astype(np.float64) for side in (ours, theirs) for part in side.parts(measure)]
    sums = resampled_sums(columns, resamples, np.random.default_rng(seed))
    our_part, our_whole, their_part, their_whole = sums
    resampled = our_part / np.maximum(our_whole, 1) - their_part / np.maximum(their_whole, 1)
    return difference(ours.measure(measure) - theirs.measure(measure), resampled)


def _is_determiner(text: str, start: int, end: int) -> bool:
    word = text[start:end]
    if word == "A":
        return text[:start].rstrip()[-1:] in ("", ".", "!", "?", ":")
    return word[0].lower() + word[1:] in DETERMINERS


def _count(
    text: str,
    gold: Sequence[tuple[int, int]],
    units: Sequence[tuple[int, int]],
    minimum_words: int,
) -> tuple[int, int, int, int, int]:
    # A Span and a plain pair compare equal, so sets may mix them.
    marked = {(start, end) for start, end in gold}
    inside = bytearray(len(text))
    for start, end in marked:
        inside[start:end] = b"\1" * (end - start)
    predicted = sum(1 in inside[start:end] for start, end in units)
    hits = marked.intersection(units)
    several = {
        (start, end) for start, end in marked if _word_count(text[start:end]) >= minimum_words
    }
    return len(marked), predicted, len(hits), len(several), len(several & hits)


def _word_count(text: str) -> int:
    """Words between white space; what holds Han characters counts character by character."""
    pieces = (text[start:end] for start, end in whitespace_words(text))
    return sum(len(words(p, han="characters")) if _HAN.search(p) else 1 for p in pieces)


def _check(
    number: int, text: str, gold: Sequence[tuple[int, int]], units: Sequence[tuple[int, int]]
) -> None:
    for name, spans in (("gold span", gold), ("unit", units)):
        for start, end in spans:
            if not 0 <= start < end <= len(text):
                raise InputError(
                    f"text {number} has {len(text)} characters, but a {name} {start}:{end}"
                )
    for (start, end), (next_start, next_end) in pairwise(units):
        if next_start < end:
            raise InputError(
                f"units of text {number} must come in order without overlap, but "
                f"{next_start}:{next_end} follows {start}:{end}"
            )
