"""BIO supervision for the CRF: the units of a text, from gold spans, terms, rules and a chunker.

Each layer takes what the layers above left free:

1. gold spans of a corpus or a teacher, the longest first. Of nested spans the outer one is the
   unit; a span of more than LONGEST words is a clause, not a unit, and its words go to the layers
   below. Leading determiners and punctuation at the edges are removed, and a span that begins or
   ends inside a word is widened to the word. Types NP… are not gold but layer 4.
2. terms of a list, leftmost-longest, two words or more.
3. rules: numbers with units, hyphen compounds, abbreviations.
4. base noun phrases, without determiners, divided at function words and punctuation; where the
   corpus does not mark them, a chunker does.
5. whole words that carry content, Chinese ones by dictionary (rjieba, extra `zh`). Function words
   and punctuation stay outside, as singletons.

6. patterns of spelling (`hplus.units.patterns`) settle all of these as they settle the units of a
   trained CRF.

*Minimal* units leave layer 4 out. With *noun-phrase* units a noun phrase absorbs the terms and
compounds inside it: they are the same unit, only shorter.

No corpus teaches O where another teaches a unit: an entity corpus marks its own types only, and the
rest of its text is labelled by the layers below, like any other text.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Literal

import numpy as np

from hplus.errors import InputError
from hplus.teach.marked import Marked
from hplus.teach.spelling import quantities, spelled_compounds
from hplus.types import Span
from hplus.units.patterns import Spelled, settle, spelled
from hplus.units.terms import Terms
from hplus.units.words import is_content, words

Length = Literal["minimal", "noun-phrase"]
LAYERS = ("gold", "term", "rule", "noun phrase", "word", "pattern")
# Words of a unit, at most; a noun phrase may have twice as many. Han characters count one by one,
# so Chinese units may have more of them.
LONGEST = 6
LONGEST_HAN = 12


@dataclass(frozen=True)
class Labelled:
    """A text and its units in reading order, with the layer each came from. What no unit covers is
    outside: function words and punctuation."""

    text: str
    units: tuple[Span, ...]
    layers: tuple[str, ...]


def label(
    marked: Marked,
    *,
    terms: Terms | None = None,
    phrases: Sequence[Span] = (),
    length: Length = "noun-phrase",
    patterns: bool = True,
    dropped: Counter[str] | None = None,
) -> Labelled:
    """The units of one text; `phrases` are the chunker's noun phrases, used where the text has
    none of its own, `patterns` settle the units of all layers, and `dropped` counts by reason what
    could not be used.

    >>> label(Marked("The type 2 diabetes", ((0, 19, "Disease"),))).units
    (Span(start=4, end=19),)
    """
    if length not in ("minimal", "noun-phrase"):
        raise InputError(f"unknown length {length!r}; known: minimal, noun-phrase")
    lost = Counter() if dropped is None else dropped
    lost["segments that do not occur"] += marked.lost
    page = _Page(marked.text)
    gold = [span for span in marked.spans if not span[2].startswith("NP")]
    for start, end, _ in sorted(gold, key=lambda span: (span[0] - span[1], span[0])):
        page.claim_gold(Span(start, end), lost)
    chunks: list[tuple[int, int]] = []
    if length == "noun-phrase":
        own = [span for span in marked.spans if span[2].startswith("NP")]
        if own:  # pronouns are marked too, but are function words
            phrases = [Span(a, b) for a, b, kind in own if kind != "NP-PRP"]
        for phrase in phrases:
            chunks += page.pieces(phrase)
    for layer, spans in (
        ("term", [Span(*found[:2]) for found in terms.find(marked.text)] if terms else []),
        ("rule", [*quantities(marked.text), *spelled_compounds(marked.text)]),
    ):
        for span in spans:
            page.claim_inside(span, layer, chunks, lost)
    for first, last in chunks:
        page.claim_rest(first, last, "noun phrase")
    page.claim_words()
    if patterns:
        page.settle(spelled(marked.text))
    return page.labelled()


class _Page:
    """The words of a text, and which unit has claimed each."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.words = words(text, han="characters")
        self.content = [is_content(text[a:b]) for a, b in self.words]
        self.owner: list[int | None] = [None] * len(self.words)
        self.units: list[tuple[int, int, str]] = []
        # Terms and compounds that a noun phrase absorbed: no later unit may overlap them.
        self.absorbed: list[tuple[int, int]] = []
        self.starts = [word.start for word in self.words]

    def rows(self, span: Span) -> tuple[int, int]:
        """The words that a span touches: first and one past the last."""
        first = bisect_right(self.starts, span.start) - 1
        if first < 0 or self.words[first].end <= span.start:
            first += 1
        return first, bisect_left(self.starts, span.end)

    def trimmed(self, first: int, last: int) -> tuple[int, int]:
        """Without function words at the left and punctuation at either edge."""
        while first < last and not self.content[first]:
            first += 1
        while first < last and not self._has_letter(last - 1):
            last -= 1
        return first, last

    def _has_letter(self, row: int) -> bool:
        word = self.words[row]
        return any(c.isalnum() or c in "%‰°" for c in self.text[word.start : word.end])

    def _is_function_word(self, row: int) -> bool:
        word = self.words[row]
        return not self.content[row] and self.text[word.start : word.end].isalpha()

    def is_free(self, first: int, last: int) -> bool:
        return all(owner is None for owner in self.owner[first:last])

    def _is_claimed(self, row: int) -> bool:
        return self.owner[row] is not None or not self.content[row]

    def claim(self, first: int, last: int, layer: str) -> None:
        self.owner[first:last] = [len(self.units)] * (last - first)
        self.units.append((first, last, layer))

    def gold_rows(self, span: Span) -> tuple[int, int]:
        """The words of a gold span: no leading determiner, no punctuation at the edges.

        A bracket that the span closes stays ("Poly(A)"); one that it leaves open ends it before:
        "confidence interval [CI".
        """
        first, last = self.rows(span)
        begin, end = self.trimmed(first, last)
        if begin == end and self.text[span.start : span.end].isupper():
            return first, last  # an abbreviation that spells a function word: ALL, WAS
        still_open: list[int] = []
        for row in range(begin, last):
            sign = self.text[self.words[row].start : self.words[row].end]
            if sign in "([{":
                still_open.append(row)
            elif sign in ")]}" and still_open:
                still_open.pop()
                end = max(end, row + 1) if not still_open else end
        return self.trimmed(begin, still_open[0]) if still_open else (begin, end)

    def claim_gold(self, span: Span, lost: Counter[str]) -> None:
        first, last = self.gold_rows(span)
        if first == last:
            lost["gold spans without content"] += 1
        elif self._is_too_long(first, last):
            lost["gold spans too long for a unit"] += 1
        elif not self.is_free(first, last):
            lost["gold spans inside or across a longer one"] += 1
        else:
            self.claim(first, last, "gold")

    def claim_inside(
        self, span: Span, layer: str, chunks: Sequence[tuple[int, int]], lost: Counter[str]
    ) -> None:
        """A term or a rule's unit of two words or more, unless a noun phrase contains it."""
        first, last = self.trimmed(*self.rows(span))
        if last - first < 2:
            return
        if any(a <= first and last <= b for a, b in chunks):
            self.absorbed.append((first, last))
        elif (
            self._is_too_long(first, last)
            or not self.is_free(first, last)
            or any(a < last and first < b for a, b in self.absorbed)
        ):
            lost[f"{layer}s that meet a longer unit"] += 1
        else:
            self.claim(first, last, layer)

    def pieces(self, phrase: Span) -> Iterator[tuple[int, int]]:
        """The parts of a noun phrase between gold units, function words and punctuation."""
        first, last = self.rows(phrase)
        run = first
        for row in range(first, last + 1):
            if row < last and self.owner[row] is None and self._continues(row, last):
                continue
            begin, end = self.trimmed(run, row)
            if end - begin > 1:
                yield begin, min(end, begin + 2 * LONGEST)
            run = row + 1

    def _continues(self, row: int, last: int) -> bool:
        """Whether it is content, or a sign that joins two words without a space."""
        if self.content[row]:
            return True
        word = self.words[row]
        glued = (
            0 < row < last - 1
            and self.words[row - 1].end == word.start
            and word.end == self.words[row + 1].start
        )
        return glued and self.text[word.start : word.end] in "-‐‑–/+·'’."

    def claim_rest(self, first: int, last: int, layer: str) -> None:
        """The free parts of a noun phrase that are two words or more."""
        run = first
        for row in range(first, last + 1):
            if row < last and self.owner[row] is None:
                continue
            begin, end = self.trimmed(run, row)
            if end - begin > 1:
                self.claim(begin, end, layer)
            run = row + 1

    def claim_words(self) -> None:
        """What is still free of each word; a Chinese word has several rows, one a character."""
        for word in words(self.text):
            rows = range(*self.rows(word))
            for claimed, run in groupby(rows, self._is_claimed):
                if not claimed:
                    free = list(run)
                    self.claim(free[0], free[-1] + 1, "word")

    def settle(self, found: list[Spelled]) -> None:
        """Join and divide units as the patterns of spelling do with those of a trained CRF."""
        if not found:
            return
        begins = np.ones(len(self.words), np.bool_)
        inside = np.zeros(len(self.words), np.bool_)
        layers = [""] * len(self.words)
        for first, last, layer in self.units:
            begins[first + 1 : last] = False
            inside[first:last] = True
            layers[first:last] = [layer] * (last - first)
        settled = settle(begins, np.array(self.words, np.int32), found)
        bounds = [*np.flatnonzero(settled).tolist(), len(self.words)]
        was = set(self.units)
        self.units = []
        for first, last in pairwise(bounds):
            if begins[first + 1 : last].any():
                self.units.append((first, last, "pattern"))
            elif inside[first] and (first, last, layers[first]) in was:
                self.units.append((first, last, layers[first]))
            elif inside[first]:  # a piece of a divided unit, "rise of" before "95%"
                begin, end = self.trimmed(first, last)
                while begin < end and self._is_function_word(end - 1):
                    end -= 1
                if begin < end:
                    self.units.append((begin, end, layers[first]))

    def labelled(self) -> Labelled:
        units = sorted(self.units)
        return Labelled(
            self.text,
            tuple(Span(self.words[a].start, self.words[b - 1].end) for a, b, _ in units),
            tuple(layer for _, _, layer in units),
        )

    def _is_too_long(self, first: int, last: int) -> bool:
        spelled = self.text[self.words[first].start : self.words[last - 1].end]
        longest = LONGEST if spelled.isascii() or " " in spelled else LONGEST_HAN
        return sum(self._has_letter(row) for row in range(first, last)) > longest


def multiword_terms(terms: Iterable[str]) -> list[str]:
    """The terms that can be units: two words or more, content at both ends.

    >>> multiword_terms(["aspirin", "heart failure", "in fact", "肺癌"])
    ['heart failure', '肺癌']
    """
    kept = []
    for term in terms:
        found = words(term, han="characters")
        spelled = [term[a:b] for a, b in found]
        if len(found) > 1 and is_content(spelled[0]) and is_content(spelled[-1]):
            kept.append(term)
    return kept
