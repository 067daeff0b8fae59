"""Words of a text as character spans, in any script.

The paper's word control splits at white space (`whitespace_words`), which makes "mg)," a word and
a whole Chinese text another. `words` is finer: a run of letters and digits is a word, any other
sign that is not white space is a word of its own, and Han text is divided by a dictionary (rjieba)
or by character. Spans are in order, never overlap and cover every non-space character once.

What a reader sees as one character may be several: a base with combining marks, an emoji with
modifiers and joiners. Such a *cluster* is never divided, here or in `hplus.units.terms`.

Cost: one pass of a regular expression, about half a millisecond for an abstract; rjieba loads
its dictionary once, at the first Han character.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import cache, lru_cache
from typing import Literal

from hplus.errors import InputError, MissingExtraError
from hplus.types import Span

# Bodies of character classes: write them inside [ ].
# Default_Ignorable_Code_Point of Unicode: soft hyphen, zero-width characters, BOM, variation
# selectors, direction marks, tags.
IGNORABLE = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e"
    "\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
HAN = "\u2e80-\u2fdf\u3005-\u3007\u3021-\u3029\u3038-\u303b\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
HAN += "\U00020000-\U0003ffff"
KANA = "\u3041-\u30ff\u3105-\u312f\u31a0-\u31bf\u31f0-\u31ff\uff66-\uff9f\U0001aff0-\U0001b16f"

_PICTOGRAPH = (
    "\u00a9\u00ae\u203c\u2049\u2122\u2139\u2190-\u21ff\u2300-\u23ff\u2460-\u24ff\u25a0-\u27bf"
    "\u2900-\u297f\u2b00-\u2bff\u3030\u303d\u3297\u3299\U0001f000-\U0001faff"
)
_SKIN_TONE = "\U0001f3fb-\U0001f3ff"
_FLAG_LETTER = "\U0001f1e6-\U0001f1ff"

_HAN = re.compile(f"[{HAN}]")
_NOT_SPACE = re.compile(r"\S+")
# `_word` for text that is all ASCII, as most is; it takes a third of the time.
_ASCII_WORD = re.compile(
    r"[A-Za-z0-9]+(?:(?:'(?<=[A-Za-z].)(?=[A-Za-z])|[.,](?<=\d.)(?=\d))[A-Za-z0-9]+)*|\S"
)


def is_mark(character: str) -> bool:
    """Whether it is a combining mark (Unicode category M).

    >>> is_mark("\\u0301"), is_mark("e")
    (True, False)
    """
    return unicodedata.category(character)[0] == "M"


@cache
def _extenders() -> str:
    """The class of characters that never stand alone: marks and invisible characters."""
    # Planes 2 to 13 hold Han characters or nothing; the marks of plane 14 are ignorable anyway.
    marks = [character for character in map(chr, range(0x20000)) if is_mark(character)]
    # Half-width voiced sound marks are letters to Unicode, but decompose into marks.
    return "".join(marks) + "\uff9e\uff9f" + IGNORABLE


@cache
def _extender() -> re.Pattern[str]:
    return re.compile(f"[{_extenders()}]")


def _extended(base: str, more: str = "") -> str:
    # Without the lookahead every ASCII character would be compared with 2,400 marks.
    return f"{base}(?:(?![\\x00-\\x7f])[{_extenders()}{more}]+)?"


@cache
def cluster_pattern() -> str:
    """Regular expression of one cluster, to be compiled with DOTALL.

    >>> re.findall(cluster_pattern(), "ae\\u0301 👍🏽", re.DOTALL) == ["a", "e\\u0301", " ", "👍🏽"]
    True
    """
    pictograph = _extended(f"[{_PICTOGRAPH}]", more=_SKIN_TONE)
    joined = f"{pictograph}(?:(?<=\u200d){pictograph})*"
    flag = _extended(f"[{_FLAG_LETTER}]{{2}}")
    return f"{flag}|{joined}|{_extended('.')}"


@cache
def _word() -> re.Pattern[str]:
    plain = r"[A-Za-z0-9]+(?![^\x00-\x7f])"
    character = _extended(r"[^\W_]")
    apostrophe = f"['’](?:(?<=[^\\W\\d_].)|(?<=[{_extenders()}].))(?=[^\\W\\d_])"
    point = r"[.,](?<=\d.)(?=\d)"
    run = f"{character}(?:{plain}|{character}|{apostrophe}|{point})*"
    return re.compile(f"(?P<run>{run})|(?!\\s)(?:{cluster_pattern()})", re.DOTALL)


def words(text: str, *, han: Literal["jieba", "characters"] = "jieba") -> list[Span]:
    """The words of a text; hyphens, punctuation and emoji are words of their own.

    Han text is divided by dictionary (`han="jieba"`, extra `zh`) or into single characters.
    That dictionary separates Kana from Han; a run of Kana stays one word.

    >>> text = "Don't take 0.5 mg anti-TNF."
    >>> [text[start:end] for start, end in words(text)]
    ["Don't", 'take', '0.5', 'mg', 'anti', '-', 'TNF', '.']
    >>> words("癌症", han="characters")
    [Span(start=0, end=1), Span(start=1, end=2)]
    """
    if han not in ("jieba", "characters"):
        raise InputError(f"han must be 'jieba' or 'characters', not {han!r}")
    if text.isascii():
        return [Span(*match.span()) for match in _ASCII_WORD.finditer(text)]
    spans = []
    for match in _word().finditer(text):
        start, end = match.span()
        if match["run"] and _HAN.search(text, start, end):
            for place in _han_starts(match[0], han):
                spans.append(Span(start, match.start() + place))
                start = match.start() + place
        spans.append(Span(start, end))
    return spans


def whitespace_words(text: str) -> list[Span]:
    """The stretches between white space, which are the paper's word control.

    >>> whitespace_words("0.5 mg (daily)")
    [Span(start=0, end=3), Span(start=4, end=6), Span(start=7, end=14)]
    """
    return [Span(*match.span()) for match in _NOT_SPACE.finditer(text)]


def _han_starts(run: str, han: str) -> Iterator[int]:
    """Positions inside a run of letters and digits, some of them Han, at which a word begins.

    The dictionary sees the whole run, since it knows words like B超 and AA制; but only where it
    divides next to a Han character counts: it would take accented or Korean letters apart.
    """
    ends = _jieba_ends(run) if han == "jieba" else range(1, len(run))
    extenders = frozenset(match.start() for match in _extender().finditer(run))
    for place in ends:
        base = place - 1
        while base in extenders:
            base -= 1
        if place not in extenders and (_HAN.match(run[base]) or _HAN.match(run[place])):
            yield place


def _jieba_ends(run: str) -> Iterator[int]:
    try:
        import rjieba
    except ImportError as missing:
        raise MissingExtraError(
            "dividing Chinese into words needs rjieba: pip install 'hplus[zh]', "
            'or use han="characters"'
        ) from missing
    end = 0
    for word in rjieba.cut(run)[:-1]:
        end += len(word)
        yield end


# Function words only. Negations (no, not, nor, never, without, don't …) are deliberately absent:
# in medicine they decide relevance.
STOP_WORDS: frozenset[str] = frozenset(
    """
    a an the this that these those each every either some any all both such own same other another
    i me my mine myself we us our ours ourselves you your yours yourself yourselves
    he him his himself she her hers herself it its itself they them their theirs themselves
    who whom whose which what
    am is are was were be been being do does did doing done have has had having
    can could may might must shall should will would
    about above across after against along among around as at before behind below beneath
    beside besides between beyond by down during except for from in into
    of off on onto out over per since than through throughout to toward towards under
    until up upon via with within
    and or but so yet if because although though unless while whereas whether when where why how
    here there then thus hence therefore however moreover
    furthermore
    also again already almost always often once only just quite rather really still too very even
    ever else now much many more most several
    it's i'm i've you're you've we're we've they're they've he's she's that's there's
    """.split()  # noqa: SIM905 - a list of two hundred quoted words is no easier to read
)


@lru_cache(maxsize=1 << 16)
def is_content(word: str) -> bool:
    """Whether a word carries content: it has a letter or digit and is not an English function word.

    >>> is_content("aspirin"), is_content("The"), is_content("not"), is_content("-")
    (True, False, True, False)
    """
    folded = word.casefold().replace("’", "'")
    return folded not in STOP_WORDS and any(character.isalnum() for character in folded)
