"""Filters as a person writes them: the grammar of `ast`, with a caret under a mistake."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from typing import Any, TypeVar

from hplus.errors import FilterError
from hplus.filters.ast import (
    COMPARISONS,
    ID,
    INTEGER_BITS,
    And,
    Compare,
    Contains,
    Exists,
    Field,
    Filter,
    In,
    Not,
    Or,
    Value,
    check_text,
    check_value,
)

LENGTH = 100_000
"""Characters of a filter, at most."""
_NAME = re.compile(r"[\w-]+(?:\.[\w-]+)*")
_STEPS = re.compile(r"[\w-]+")
_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?(?![\w.+-])")
_SIGNS = re.compile(r"[=<>!~&|:]+")
_SHOWN = re.compile(r"[\w.+-]+|[=<>!~&|:]+|.", re.DOTALL)
_RESERVED = {"and", "or", "not", "in", "contains", "exists"}
_ESCAPES = {"\\": "\\", '"': '"', "'": "'", "`": "`", "n": "\n", "r": "\r", "t": "\t"}
_QUOTES = ("`", '"', "'")
_MEANT = {"==": "=", "<>": "!=", "=<": "<=", "=>": ">="}
_WRITTEN = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
_BRACKETS = 100  # levels, redundant ones included: a limit for Python's stack

Node = TypeVar("Node")


def parse(text: str) -> Filter:
    """A filter from what a person wrote; a mistake is shown with a caret under it.

    >>> parse('year >= 2020')
    Compare(field=Field(path=('year',)), operator='>=', value=2020)
    """
    if not isinstance(text, str):
        raise FilterError(f"expected a filter as text, got {type(text).__name__}")
    if len(text) > LENGTH:
        raise FilterError(
            f"the filter has {len(text):,} characters, at most {LENGTH:,} are allowed"
        )
    return _Parser(text).whole()


def parse_field(text: str) -> Field:
    """The name of a field, written as in a filter.

    >>> parse_field("journal.`short name`")
    Field(path=('journal', 'short name'))
    """
    parser = _Parser(text)
    found = parser.field()
    if parser.at < len(text):
        raise parser.expected("the end of the field", "; put a name with such signs in backticks")
    return found


def spelled(field: Field) -> str:
    """A field as it is written in a filter.

    >>> spelled(Field(("Publication Year", "first")))
    '`Publication Year`.first'
    """
    if field == ID:
        return "id"
    return ".".join(_spelled_step(step, alone=len(field.path) == 1) for step in field.path)


def _spelled_step(step: str, *, alone: bool) -> str:
    bare = _STEPS.fullmatch(step) and step.lower() not in _RESERVED and not (alone and step == "id")
    if bare:
        return step
    kept = "".join(f"\\{c}" if c in "\\`" else _WRITTEN.get(c, c) for c in step)
    return f"`{kept}`"


class _Parser:
    """Recursive descent: `at` is the next character that is not blank."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.level = 0
        self.skip_blanks()

    def whole(self) -> Filter:
        filter = self.alternatives()
        if self.at < len(self.text):
            raise self.expected('"and", "or" or the end')
        return filter

    def alternatives(self) -> Filter:
        return self.chain("or", Or, lambda: self.chain("and", And, self.factor))

    def chain(
        self, word: str, make: Callable[[tuple[Filter, ...]], Filter], part: Callable[[], Filter]
    ) -> Filter:
        parts = [part()]
        first = self.at
        while self.take_word(word):
            parts.append(part())
        return parts[0] if len(parts) == 1 else self.made(first, make, tuple(parts))

    def factor(self) -> Filter:
        start = self.at
        if self.take_word("not"):
            part = self.within(start, self.factor)
            return self.made(start, Not, part)
        if self.take("("):
            filter = self.within(start, self.alternatives)
            self.close(start, '"and", "or" or ")"')
            return filter
        return self.comparison()

    def comparison(self) -> Filter:
        field = self.field()
        start = self.at
        if self.take_word("exists"):
            return Exists(field)
        if self.take_word("contains"):
            value, at = self.value()
            return self.made(at, Contains, field, value)
        if self.take_word("in"):
            return self.membership(field)
        if self.word() == "not":
            raise self.mistake('expected an operator; "not" goes before the field')
        found = _SIGNS.match(self.text, start)
        if found is None:
            raise self.expected("one of = != < <= > >= contains in exists")
        sign = found.group()
        if sign not in COMPARISONS:
            hint = f'; write "{_MEANT[sign]}"' if sign in _MEANT else ""
            raise self.mistake(f'"{sign}" is not an operator{hint}')
        self.move(found.end())
        value, at = self.value()
        return self.made(at, Compare, field, sign, value)

    def membership(self, field: Field) -> Filter:
        start = self.at
        if not self.take("("):
            raise self.expected('"(" and a list of values')
        values: list[Value] = []
        while not values or self.take(","):
            value, place = self.value()
            values.append(value)
            self.made(place, check_value, field, value)
        self.close(start, '"," or ")"')
        return self.made(start, In, field, tuple(values))

    def field(self) -> Field:
        start = self.at
        path: list[str] = []
        while True:
            quote = self.text[self.at : self.at + 1]
            quoted = quote in _QUOTES
            if quoted:
                path.append(self.quoted(quote, named=True))
            elif found := _STEPS.match(self.text, self.at):
                if not path and self.word() in _RESERVED:
                    raise self.expected("a field", "; put a field of that name in backticks")
                path.append(found.group())
                self.at = found.end()
            else:
                raise self.expected("a field" if not path else "a field's name after the dot")
            if not self.text.startswith(".", self.at):
                break
            self.at += 1
        bare_id = path == ["id"] and not quoted
        self.skip_blanks()
        return ID if bare_id else self.made(start, Field, tuple(path))

    def value(self) -> tuple[Value, int]:
        """The next value and its position."""
        start = self.at
        if self.text[start : start + 1] in ('"', "'"):
            text = self.quoted(self.text[start])
            self.skip_blanks()
            return text, start
        if found := _NUMBER.match(self.text, start):
            self.move(found.end())
            return self.made(start, _number, found), start
        for word, value in (("true", True), ("false", False)):
            if self.take_word(word):
                return value, start
        hint = "; put a text or a date in quotes" if self.word() else ""
        raise self.expected("a value", hint)

    def quoted(self, quote: str, *, named: bool = False) -> str:
        """The text between quotes, a field's name or a value; `at` is then right behind them."""
        start = self.at
        self.at += 1
        characters: list[str] = []
        while not self.text.startswith(quote, self.at):
            if self.at >= len(self.text):
                raise self.mistake(f"this {quote} is never closed", start)
            if self.text[self.at] == "\\":
                characters.append(self.escaped())
            else:
                characters.append(self.text[self.at])
                self.at += 1
        self.at += 1
        text = "".join(characters)
        self.made(start, check_text, text)
        if named and not text:
            marks = "backticks" if quote == "`" else "quotes"
            raise self.mistake(f"expected the name of a field between the {marks}", start)
        return text

    def escaped(self) -> str:
        start = self.at
        letter = self.text[start + 1 : start + 2]
        if letter in _ESCAPES:
            self.at += 2
            return _ESCAPES[letter]
        code = re.compile(r"u([0-9a-fA-F]{4})").match(self.text, start + 1)
        if code is None:
            raise self.mistake(r"""expected an escape, one of \\ \" \' \` \n \r \t \u0000""")
        self.at = code.end()
        return chr(int(code.group(1), 16))

    def within(self, start: int, read: Callable[[], Filter]) -> Filter:
        self.level += 1
        if self.level > _BRACKETS:
            raise self.mistake(f"brackets are nested more than {_BRACKETS} levels deep", start)
        filter = read()
        self.level -= 1
        return filter

    def close(self, start: int, expected: str) -> None:
        if self.at >= len(self.text):
            raise self.mistake("this ( is never closed", start)
        if not self.take(")"):
            raise self.expected(expected)

    def word(self) -> str:
        found = _NAME.match(self.text, self.at)
        return found.group().lower() if found else ""

    def take_word(self, word: str) -> bool:
        if self.word() != word:
            return False
        self.move(self.at + len(word))
        return True

    def take(self, sign: str) -> bool:
        if not self.text.startswith(sign, self.at):
            return False
        self.move(self.at + len(sign))
        return True

    def move(self, at: int) -> None:
        self.at = at
        self.skip_blanks()

    def skip_blanks(self) -> None:
        while self.at < len(self.text) and self.text[self.at].isspace():
            self.at += 1

    def made(self, at: int, make: Callable[..., Node], *parts: Any) -> Node:
        """What `make` makes; its objection is shown at `at`."""
        try:
            return make(*parts)
        except FilterError as error:
            raise self.mistake(str(error), at) from None

    def expected(self, what: str, hint: str = "") -> FilterError:
        found = _SHOWN.match(self.text, self.at)
        if found is None:
            return self.mistake(f"expected {what}, but the filter ends here")
        return self.mistake(f"expected {what}, got {_printable(found.group())[:40]!r}{hint}")

    def mistake(self, problem: str, at: int | None = None) -> FilterError:
        place = self.at if at is None else at
        return FilterError(f"{problem}\n{_pointed(self.text, place)}", place)


def _number(found: re.Match[str]) -> int | float:
    whole = found.group(1) is None and found.group(2) is None
    if whole and len(found.group()) > INTEGER_BITS // 3:
        raise FilterError(f"this integer has more than {INTEGER_BITS} bits")
    number = int(found.group()) if whole else float(found.group())
    check_value(Field(("number",)), number)
    return number


def _pointed(text: str, at: int) -> str:
    """The line around position `at`, as much as a terminal shows, and a caret under it."""
    first = text.rfind("\n", 0, at) + 1
    last = text.find("\n", at)
    start = max(first, at - 60)
    end = min(len(text) if last < 0 else last, at + 20)
    before, after = _printable(text[start:at]), _printable(text[at:end])
    return f"  {before}{after}\n  {' ' * _cells(before)}^"


def _printable(text: str) -> str:
    return "".join(character if character.isprintable() else " " for character in text)


def _cells(text: str) -> int:
    """How many columns of a terminal a text takes: two for a Chinese character."""
    wide = sum(unicodedata.east_asian_width(character) in "WF" for character in text)
    return len(text) + wide - sum(unicodedata.combining(character) > 0 for character in text)
