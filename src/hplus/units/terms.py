"""Terminology overrides ("the trie"): terms of a list that are always one unit.

Terms are searched for in the text itself, leftmost-longest, without overlap and on word edges, and
the characters a term covers become one unit, whatever the tagger says. Text and terms are first
brought to one spelling: compatibility-decomposed and case-folded, white space and dashes
unified, invisible characters ignored; matches are reported in characters of the original text.
All-capital abbreviations ("AIDS", "COX-2") keep their case, so that "aids" stays a verb.

`find` equals the naive rule "from left to right, take the longest term that has a word edge on
both sides". A leftmost-longest automaton does not give that: where the longest term ends inside a
word ("common cold" in "common colds"), it has already discarded the shorter one. So the automaton
reports all overlapping matches, and they are filtered here.

Cost: 170,000 terms load in 2 to 3 s; an abstract then takes about 0.2 ms.
"""

from __future__ import annotations

import hashlib
import os
import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache

import numpy as np
from ahocorasick_rs import AhoCorasick

from hplus.arguments import as_path
from hplus.errors import InputError, TermsError
from hplus.files import megabytes, numbered_lines
from hplus.types import Bool, Tokens
from hplus.units.words import HAN, IGNORABLE, KANA, cluster_pattern, is_mark

LONGEST = 200
FILE_BYTES = 64 * 2**20
"""The largest file of terms, unpacked: two million terms."""

_UNSPACED = re.compile(f"[{HAN}{KANA}]")
_IGNORABLE = re.compile(f"[{IGNORABLE}]+")
_SURROUNDING = re.compile(f"\\A[\\s{IGNORABLE}]+|[\\s{IGNORABLE}]+\\Z")
# ASCII text without these folds character by character: offsets stay as they are.
_UNEVEN_SPACE = re.compile(r"[\t-\r\x1c-\x1f]|  ")
# Dashes and minus become a hyphen, the typographic apostrophe a plain one. Lone surrogates, which
# JSON may contain, cannot be encoded as UTF-8, which the automaton needs.
_ALIKE = dict.fromkeys([*range(0x2010, 0x2016), 0x2212], "-")
_ALIKE |= {0x2019: "'"} | dict.fromkeys(range(0xD800, 0xE000), "\ufffd")


class Terms:
    """A list of terms, ready to be found in texts.

    `patterns` are the distinct terms in their first spelling, in the order given; `fingerprint`
    is the sha256 of the sorted folded terms, whatever their order and spelling.

    >>> terms = Terms(["type 2 diabetes", "diabetes", "AIDS"])
    >>> terms.find("Type\\u00a02 Diabetes aids no one")
    [(0, 15, 0)]
    """

    def __init__(self, terms: Iterable[str]) -> None:
        if isinstance(terms, str):
            raise TermsError(f"expected a list of terms, got the single text {terms[:40]!r}")
        if not isinstance(terms, Iterable):
            raise TermsError(f"expected a list of terms, got {type(terms).__name__}")
        spellings: dict[tuple[str, str | None], str] = {}
        for number, term in enumerate(terms):
            if complaint := _complaint(term):
                raise TermsError(f"term {number}: {complaint}")
            term, exact, folded = _spellings(term)
            if exact:
                key = (folded, exact if exact.isupper() else None)
                spellings.setdefault(key, term)
        if not spellings:
            raise TermsError("the list of terms is empty; give at least one term, or no list")
        self.patterns: tuple[str, ...] = tuple(spellings.values())
        self._exact = [exact for _, exact in spellings]
        normalised = sorted(folded if exact is None else exact for folded, exact in spellings)
        self.fingerprint: str = hashlib.sha256("\n".join(normalised).encode()).hexdigest()
        self._automaton = AhoCorasick([folded for folded, _ in spellings], store_patterns=False)

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Terms:
        """The terms of a file, one per line; see `read_terms`."""
        return cls(read_terms(path))

    def __len__(self) -> int:
        return len(self.patterns)

    def __repr__(self) -> str:
        return f"Terms({len(self):,} terms, {self.fingerprint[:12]})"

    def find(self, text: str) -> list[tuple[int, int, int]]:
        """Where terms occur: (start, end, index into `patterns`), in characters of `text`.

        >>> Terms(["5 mg", "mg"]).find("0.5 mg or 5 mg")
        [(4, 6, 1), (10, 14, 0)]
        """
        if not isinstance(text, str):
            raise InputError(f"expected a text, got {type(text).__name__}")
        folded = fold(text)
        raw = self._automaton.find_matches_as_indexes(folded.text, overlapping=True)
        at_edges = [
            # Of the same letters, the all-capital term comes first.
            (start, -end, self._exact[index] is None, index)
            for index, start, end in raw
            if folded.is_edge(start) and folded.is_edge(end)
        ]
        matches = []
        free = 0
        for start, minus_end, any_case, index in sorted(at_edges):
            if start < free:
                continue
            first, last = folded.starts[start], folded.ends[-minus_end - 1]
            if any_case or fold(text[first:last], case=False).text == self._exact[index]:
                matches.append((first, last, index))
                free = -minus_end
        return matches


def read_terms(path: str | os.PathLike[str]) -> list[str]:
    """The lines of a UTF-8 file (plain or gz), stripped, without the blank ones."""
    terms = []
    size = 0
    try:
        for number, line in numbered_lines(as_path("terms", path)):
            size += len(line) + 1
            if size > FILE_BYTES:
                raise TermsError(f"{path} has more than {megabytes(FILE_BYTES)} of terms")
            term = line.strip()
            if complaint := _complaint(term):
                raise TermsError(f"{path}:{number}: {complaint}")
            if term:
                terms.append(term)
    except InputError as error:
        raise TermsError(f"{error}; expected UTF-8 text, one term per line") from None
    if not terms:
        raise TermsError(f"{path} has no terms; expected one term per line")
    return terms


def override(begins: Bool, tokens: Tokens, terms: Terms) -> Bool:
    """The partition `begins bool[T]` with every matched term made exactly one unit.

    All tokens that a match touches become its unit; a token that two matches touch belongs to the
    first. What a match leaves of another unit stays a unit.

    >>> from hplus.types import offsets_of
    >>> spans = np.array([[0, 4], [5, 6], [7, 15], [16, 20]], np.int32)
    >>> tokens = Tokens(("type 2 diabetes care",), np.zeros(4, np.int32), spans, offsets_of([4]))
    >>> override(np.array([True, False, True, False]), tokens, Terms(["type 2 diabetes"])).tolist()
    [True, False, False, True]
    """
    result = begins.copy()
    for number, text in enumerate(tokens.texts):
        matches = terms.find(text)
        if not matches:
            continue
        rows = np.arange(tokens.offsets[number], tokens.offsets[number + 1])
        # Zero-width tokens overlap nothing, and their position means nothing.
        rows = rows[tokens.spans[rows, 0] < tokens.spans[rows, 1]]
        bounds = np.array([match[:2] for match in matches])
        firsts = np.searchsorted(tokens.spans[rows, 1], bounds[:, 0], side="right").tolist()
        lasts = np.searchsorted(tokens.spans[rows, 0], bounds[:, 1], side="left").tolist()
        free = 0
        for first, last in zip(firsts, lasts, strict=True):
            first = max(first, free)
            if first >= last:
                continue
            free = last
            begin, end = rows[first], rows[last - 1] + 1
            result[begin] = True
            result[begin + 1 : end] = False
            if end < tokens.offsets[number + 1]:
                result[end] = True
    return result


@dataclass(frozen=True, slots=True)
class Folded:
    """A text brought to one spelling, and the way back to the original, cluster by cluster.

    For each folded character, `starts` and `ends` say where its cluster begins and ends in the
    original (-1 if the character is not the cluster's first or last), and `bases` holds the base
    character of its cluster, which decides about word edges.
    """

    text: str
    starts: Sequence[int]
    ends: Sequence[int]
    bases: str

    def is_edge(self, position: int) -> bool:
        """Whether a term may begin or end before the folded character `position`."""
        if position == 0 or position == len(self.text):
            return True
        if self.starts[position] < 0:
            return False
        if _joins_words(self.bases[position - 1]) and _joins_words(self.bases[position]):
            return False
        return not self._in_number(position)

    def _in_number(self, position: int) -> bool:
        """Whether it is next to the point (or comma) of a number: 0|.5 or 0.|5."""
        text = self.text
        point = position if text[position] in ".," else position - 1
        return (
            text[point] in ".,"
            and 0 < point < len(text) - 1
            and text[point - 1].isdigit()
            and text[point + 1].isdigit()
        )


def fold(text: str, *, case: bool = True) -> Folded:
    """Bring a text to the one spelling in which terms are compared; `case=False` keeps the case.

    >>> fold("Ｈｂ\\r\\nA1c–Wert").text
    'hb a1c-wert'
    """
    if text.isascii() and not _UNEVEN_SPACE.search(text):
        lower = text.lower() if case else text
        return Folded(lower, range(len(text)), range(1, len(text) + 1), text)
    parts: list[str] = []
    starts: list[int] = []
    ends: list[int] = []
    bases: list[str] = []
    for match in _pieces().finditer(text):
        piece = match[0]
        start, end = match.span()
        if match["plain"]:
            parts.append(piece.lower() if case else piece)
            bases.append(piece)
            starts.extend(range(start, end))
            ends.extend(range(start + 1, end + 1))
            continue
        folded, base = _fold_cluster(piece, case)
        is_more_space = folded == " " and parts[-1:] == [" "]
        if folded and not is_more_space:
            parts.append(folded)
            bases.append(base * len(folded))
            inside = [-1] * (len(folded) - 1)
            starts += [start, *inside]
            ends += [*inside, end]
    return Folded("".join(parts), starts, ends, "".join(bases))


@cache
def _pieces() -> re.Pattern[str]:
    """A plain stretch, which folds character by character; or a cluster.

    A plain stretch is ASCII and common Han words with single spaces between them. If a character
    that is not plain follows, the last one is left out, since what follows may be a mark on it.
    """
    word = "[!-~\u4e00-\u9fff]+"
    plain = f"{word}(?: {word})*(?![^\\x00-\\x7f\u4e00-\u9fff])"
    return re.compile(f"(?P<plain>{plain})|{cluster_pattern()}", re.DOTALL)


@lru_cache(maxsize=1 << 16)
def _fold_cluster(cluster: str, case: bool) -> tuple[str, str]:
    """The folded cluster and its base character; both empty if the cluster is invisible."""
    visible = _IGNORABLE.sub("", cluster)
    if visible.isspace():
        return " ", " "
    folded = unicodedata.normalize("NFKD", visible)
    if case:
        folded = unicodedata.normalize("NFKD", folded.casefold())
    return folded.translate(_ALIKE), visible[:1]


@lru_cache(maxsize=1 << 16)
def _joins_words(character: str) -> bool:
    """Whether it belongs to a word of a script that has word edges: not Han, not Kana."""
    is_word = character.isalnum() or character == "_" or is_mark(character)
    return is_word and not _UNSPACED.match(character)


def _spellings(term: str) -> tuple[str, str, str]:
    """A term without what surrounds it, and brought to one spelling with and without its case."""
    if term.isascii() and not _UNEVEN_SPACE.search(plain := term.strip()):
        return plain, plain, plain.lower()  # as `fold` gives them, in a fifth of the time
    term = _SURROUNDING.sub("", term)
    return term, fold(term, case=False).text, fold(term).text


def _complaint(term: object) -> str | None:
    """Why this cannot be a term, and what to do."""
    if not isinstance(term, str):
        return f"expected a string, got {type(term).__name__}"
    if "\0" in term:
        return "contains a NUL character; save the file as UTF-8 text"
    if len(term.strip()) > LONGEST:
        return (
            f"{len(term.strip())} characters, but a term has at most {LONGEST}; "
            "put one term on a line, or shorten it"
        )
    return None
