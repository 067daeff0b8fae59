"""Where a text may be cut: at the end of a paragraph, a sentence, a word, a character.

Plain patterns for any script: a sentence ends with a full stop, a question or an exclamation mark,
closing quotes and brackets included, before white space and something other than a small letter;
after a full-width mark no space is needed. "Dr. Smith" is cut in two, "e.g. this" is not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from hplus.units.words import cluster_pattern

_CLOSING = "\"'”’»)\\]）】」』〉》"
_PARAGRAPH = re.compile(r"\n[^\S\n]*\n\s*")
_SENTENCE = re.compile(rf"[.!?…]+[{_CLOSING}]*\s+(?![a-zà-öø-ÿ])|[。！？｡]+[{_CLOSING}]*\s*")
_SPACE = re.compile(r"\s+")
# Characters before a cut that are examined so that no cluster is divided.
_NEAR = 64


def paragraph_ends(text: str) -> list[int]:
    """Where paragraphs end, blank lines included: the next one begins there."""
    return [match.end() for match in _PARAGRAPH.finditer(text)]


def sentence_ends(text: str) -> list[int]:
    """Where sentences and paragraphs end, ascending, without the end of the text.

    >>> text = "It rained, e.g. here. Why? (So what.) Then"
    >>> [text[a:b] for a, b in zip([0, *sentence_ends(text)], [*sentence_ends(text), None])]
    ['It rained, e.g. here. ', 'Why? ', '(So what.) ', 'Then']
    """
    ends = {match.end() for match in _SENTENCE.finditer(text)} | set(paragraph_ends(text))
    return sorted(ends - {len(text)})


def stretches(text: str, size: int) -> Iterator[tuple[int, str]]:
    """A long text in pieces of at most `size` characters, each with its place; together they are
    the text.

    A piece ends with the last paragraph of its second half, else with a sentence, else with a word;
    where there is none of these, after `size` characters.

    >>> list(stretches("One two. Three four. Five", 12))
    [(0, 'One two. '), (9, 'Three four. '), (21, 'Five')]
    """
    start = 0
    while len(text) - start > size:
        end = _last_end(text, start + size // 2, start + size)
        yield start, text[start:end]
        start = end
    yield start, text[start:]


def _last_end(text: str, first: int, last: int) -> int:
    """The best place to cut in first:last, the latest of its kind."""
    for pattern in (_PARAGRAPH, _SENTENCE, _SPACE):
        end = 0
        for match in pattern.finditer(text, first, last):
            end = match.end()
        if end:
            return end
    return character_edge(text, first, last)


def character_edge(text: str, first: int, last: int) -> int:
    """The last place in first + 1:last that divides no character of several code points."""
    near = max(first, last - _NEAR)
    edges = re.compile(cluster_pattern(), re.DOTALL).finditer(text, near, last + _NEAR)
    inside = [match.start() for match in edges if first < match.start() <= last]
    return max(inside, default=last)
