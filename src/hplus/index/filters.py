r"""Metadata filters: which documents a search may return.

    year >= 2020 and source = "pubmed" and not title contains "mice"

**Grammar.** `or` binds weaker than `and`, `and` weaker than `not`, `not` weaker than a comparison
or brackets. A comparison is a field and `= != < <= > >=` with a value, `contains` with a text,
`in (value, value)`, or `exists`. Words are read in either case. A field is made of letters,
digits, `_` and `-`, steps into nested objects written with dots; any other name stands in
backticks, and so does a field named like a word of the grammar: `` `in`.`first name` ``. A bare
`id` is the document's id; the metadata field of that name is `` `id` ``. A value is a text in
double or single quotes (escapes `\\ \" \' \n \r \t \u0000`), a number, `true` or `false`.

**Meaning.** Every filter is true or false of a document, never unknown.

- A missing field matches nothing, so `not` of it is true. Null counts as missing, an empty list
  too; `exists` is true of everything else.
- Numbers compare with numbers, exactly; texts with texts, by code point (ISO dates therefore by
  date); booleans with `=` and `!=` only; `true` is not 1. Different types are never equal and
  neither comes first.
- `field != value` means `field exists and not field = value`.
- A list stands for its elements, also on the way to a nested field: `tags = "a"` is true if any
  element is "a", `authors.name = "Li"` if any author is called so, `tags != "a"` if there are
  tags and none is "a".
- `contains` looks for a part of a text, case folded as Unicode says (ß as ss), nothing else:
  `%` and `_` are plain characters, é in one code point is not é in two.

`matches` is the plain reference. `compile` gives SQL for a table with `id TEXT NOT NULL` and
`metadata TEXT`, an object as `json.dumps` writes it, in a UTF-8 database. SQLite's own JSON
functions decide what they decide exactly: texts, booleans and 64-bit integers in metadata without
a backslash (they cut a text at NUL, compare escaped keys as written, and round numbers in their
own way). What they leave open, Python decides as `matches` does, in the same expression: lists,
floats, rows with a backslash. A comparison costs 1 to 3 microseconds a document in SQLite and 8
to 15 in Python; `json.dumps(…, ensure_ascii=False)` keeps backslashes rare.
"""

from __future__ import annotations

import json
import math
import operator
import re
import sqlite3
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias, TypeVar

from hplus.errors import FilterError

LENGTH = 100_000
"""Characters of a filter, at most."""
DEPTH = 16
"""Levels of and, or and not, at most: SQLite's parser stops at some twenty."""
TERMS = 400
"""Comparisons in a filter, at most: SQLite allows expressions a thousand levels high."""
VALUES = 10_000
"""Values in the lists of a filter, at most: SQLite binds 32,766 parameters."""
INTEGER_BITS = 1024
"""Longest integer: the range of floats."""

Value: TypeAlias = str | int | float | bool
Bound: TypeAlias = str | float | int

_ORDER: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_COMPARISONS = ("=", "!=", *_ORDER)


@dataclass(frozen=True)
class Field:
    """Where a value stands in the metadata, step by step; no step at all is the document's id."""

    path: tuple[str, ...]

    def __post_init__(self) -> None:
        for step in self.path:
            if not isinstance(step, str) or not step:
                raise FilterError(f"the name of a field expected, {step!r} came")
            _check_text(step)


ID = Field(())
"""The document's id."""


@dataclass(frozen=True)
class Compare:
    """`field = value`, and likewise != < <= > >=."""

    field: Field
    operator: str
    value: Value

    def __post_init__(self) -> None:
        if self.operator not in _COMPARISONS:
            raise FilterError(f"one of {' '.join(_COMPARISONS)} expected, {self.operator!r} came")
        _check_value(self.field, self.value)
        if isinstance(self.value, bool) and self.operator in _ORDER:
            raise FilterError("true and false compare with = and != only")


@dataclass(frozen=True)
class Contains:
    """`field contains "text"`."""

    field: Field
    text: str

    def __post_init__(self) -> None:
        if not isinstance(self.text, str):
            raise FilterError("contains looks for a text; put it in quotes")
        _check_text(self.text)


@dataclass(frozen=True)
class In:
    """`field in (value, value)`."""

    field: Field
    values: tuple[Value, ...]

    def __post_init__(self) -> None:
        for value in self.values:
            _check_value(self.field, value)
        _check_size(self)


@dataclass(frozen=True)
class Exists:
    """`field exists`."""

    field: Field


@dataclass(frozen=True)
class Not:
    """`not part`."""

    part: Filter

    def __post_init__(self) -> None:
        _check_size(self)


@dataclass(frozen=True)
class And:
    """`part and part`; of no parts: true."""

    parts: tuple[Filter, ...]

    def __post_init__(self) -> None:
        _check_size(self)


@dataclass(frozen=True)
class Or:
    """`part or part`; of no parts: false."""

    parts: tuple[Filter, ...]

    def __post_init__(self) -> None:
        _check_size(self)


Leaf: TypeAlias = Compare | Contains | In | Exists
Filter: TypeAlias = Leaf | Not | And | Or


def _check_text(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise FilterError("this text holds one half of a surrogate pair, no character") from None


def _check_value(field: Field, value: object) -> None:
    if field == ID and not isinstance(value, str):
        raise FilterError("an id is a text; put the value in quotes")
    if isinstance(value, str):
        _check_text(value)
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise FilterError(f"a number is expected that floats can hold, {value} came")
    elif not isinstance(value, int):
        raise FilterError(f"a text, number or boolean expected, {type(value).__name__} came")
    elif value.bit_length() > INTEGER_BITS:
        raise FilterError(f"this integer has more than {INTEGER_BITS} bits")


def _check_size(filter: Filter) -> None:
    """Checked whenever a tree grows, so that every tree that exists can be compiled."""
    depth, terms, values = _size(filter)
    if depth > DEPTH:
        raise FilterError(f"more than {DEPTH} levels of and, or and not, one within another")
    if terms > TERMS:
        raise FilterError(f"more than {TERMS} comparisons; for many values write: field in (…)")
    if values > VALUES:
        raise FilterError(f"more than {VALUES:,} values in the lists of one filter")


def _size(filter: Filter) -> tuple[int, int, int]:
    """Levels, comparisons, values in lists."""
    if isinstance(filter, In):
        return 0, 1, len(filter.values)
    if not isinstance(filter, (Not, And, Or)):
        return 0, 1, 0
    parts = (filter.part,) if isinstance(filter, Not) else filter.parts
    sizes = [_size(part) for part in parts]
    depth = 1 + max((size[0] for size in sizes), default=0)
    return depth, sum(size[1] for size in sizes), sum(size[2] for size in sizes)


def matches(filter: Filter, id: str, metadata: dict[str, Any]) -> bool:
    """Whether a document passes the filter.

    >>> matches(parse('year >= 2020 and not tags = "mice"'), "d1", {"year": 2021, "tags": ["rats"]})
    True
    """
    match filter:
        case Not(part):
            return not matches(part, id, metadata)
        case And(parts):
            return all(matches(part, id, metadata) for part in parts)
        case Or(parts):
            return any(matches(part, id, metadata) for part in parts)
        case leaf:
            return _holds(leaf, [id] if leaf.field == ID else _values(metadata, leaf.field.path))


def _values(held: Any, path: tuple[str, ...]) -> list[Any]:
    """What stands at the path, lists replaced by their elements and nulls left out."""
    if isinstance(held, list):
        return [value for element in held for value in _values(element, path)]
    if path:
        inside = isinstance(held, dict) and path[0] in held
        return _values(held[path[0]], path[1:]) if inside else []
    return [] if held is None else [held]


def _holds(leaf: Leaf, values: list[Any]) -> bool:
    match leaf:
        case Exists():
            return bool(values)
        case Contains(text=text):
            return any(isinstance(value, str) and _contains(value, text) for value in values)
        case In(values=wanted):
            return any(_equal(value, one) for value in values for one in wanted)
        case Compare(operator="=", value=wanted):
            return any(_equal(value, wanted) for value in values)
        case Compare(operator="!=", value=wanted):
            return bool(values) and not any(_equal(value, wanted) for value in values)
        case Compare(operator=sign, value=wanted):
            kind = _kind(wanted)
            return any(_kind(value) == kind and _ORDER[sign](value, wanted) for value in values)


def _kind(value: object) -> str:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, (int, float)):
        return "number"
    return "text" if isinstance(value, str) else "object"


def _equal(a: object, b: object) -> bool:
    return _kind(a) == _kind(b) and a == b


def _contains(text: str, part: str) -> bool:
    return part.casefold() in text.casefold()


def register(connection: sqlite3.Connection) -> None:
    """Give the connection the two functions that compiled filters call."""
    parsed = lru_cache(maxsize=1)(json.loads)  # the comparisons of a filter come row by row

    def holds(metadata: str | None, leaf: str) -> bool:
        asked = _leaf(leaf)
        return _holds(asked, _values(parsed(metadata or "{}"), asked.field.path))

    connection.create_function("hplus_matches", 2, holds, deterministic=True)
    connection.create_function("hplus_contains", 2, _contains, deterministic=True)


def compile(filter: Filter) -> tuple[str, list[Bound]]:
    """The filter as an expression for WHERE, and the parameters it binds; see `register`.

    >>> compile(parse('id < "d2"'))
    ('id < ?', ['d2'])
    """
    match filter:
        case Not(part):
            sql, bound = compile(part)
            return f"NOT ({sql})", bound
        case And(parts):
            return _joined(" AND ", parts) if parts else ("1", [])
        case Or(parts):
            return _joined(" OR ", parts) if parts else ("0", [])
        case leaf:
            return _of_id(leaf) if leaf.field == ID else _of_field(leaf)


def _joined(word: str, parts: tuple[Filter, ...]) -> tuple[str, list[Bound]]:
    compiled = [compile(part) for part in parts]
    return word.join(f"({sql})" for sql, _ in compiled), [one for _, own in compiled for one in own]


def _of_id(leaf: Leaf) -> tuple[str, list[Bound]]:
    match leaf:
        case Exists():
            return "1", []
        case Contains(text=text):
            return "hplus_contains(id, ?)", [text]
        case In(values=values):
            return f"id IN ({_marks(values)})", list(values)
        case Compare(operator=sign, value=value):
            return f"id {sign} ?", [value]


def _of_field(leaf: Leaf) -> tuple[str, list[Bound]]:
    if isinstance(leaf, Compare) and leaf.operator == "!=":
        same = Compare(leaf.field, "=", leaf.value)
        return compile(And((Exists(leaf.field), Not(same))))
    asked, spec = "hplus_matches(metadata, ?)", _spec(leaf)
    path = leaf.field.path
    if any(re.search(r'["\\\x00-\x1f]', step) for step in path):
        return asked, [spec]  # SQLite's paths cannot name it
    where = "$" + "".join(f'."{step}"' for step in path)
    cases, bound = _cases(leaf, where)
    # A nested field that SQLite finds missing may stand in objects of a list.
    rest = " ELSE 0" if len(path) == 1 else ""
    quick = (
        "CASE WHEN instr(metadata, '\\') THEN NULL "
        f"ELSE CASE json_type(metadata, ?) {cases} WHEN 'array' THEN NULL{rest} END END"
    )
    return f"coalesce({quick}, {asked})", [where, *bound, spec]


def _cases(leaf: Leaf, where: str) -> tuple[str, list[Bound]]:
    """What SQLite decides, by the type it finds; NULL: Python is to be asked."""
    found = "json_extract(metadata, ?)"
    match leaf:
        case Exists():
            kinds = ("text", "integer", "real", "true", "false", "object")
            return " ".join(f"WHEN '{kind}' THEN 1" for kind in kinds), []
        case Contains(text=text):
            return f"WHEN 'text' THEN hplus_contains({found}, ?)", [where, text]
        case Compare(operator=sign, value=str() as text) if sign in _ORDER:
            return f"WHEN 'text' THEN {found} {sign} ?", [where, text]
        case Compare(operator=sign, value=number) if sign in _ORDER:
            if not _is_exact(number):
                return "WHEN 'integer' THEN NULL WHEN 'real' THEN NULL", []
            integer, bound = _if_integer(f"{sign} ?", [number], where)
            return f"{integer} WHEN 'real' THEN NULL", bound
        case Compare(value=value):
            return _cases_of_equality((value,), where)
        case In(values=values):
            return _cases_of_equality(values, where)


def _cases_of_equality(values: tuple[Value, ...], where: str) -> tuple[str, list[Bound]]:
    texts: list[Bound] = [value for value in values if isinstance(value, str)]
    numbers = [value for value in values if _kind(value) == "number"]
    cases = [f"WHEN '{json.dumps(one)}' THEN 1" for one in (True, False) if _among(one, values)]
    bound: list[Bound] = []
    if texts:
        cases.append(f"WHEN 'text' THEN json_extract(metadata, ?) IN ({_marks(texts)})")
        bound += [where, *texts]
    if numbers:
        # An integer of more than 64 bits equals none of 64, and of others Python is asked.
        exact: list[Bound] = [number for number in numbers if _is_exact(number)]
        integer, integers = _if_integer(f"IN ({_marks(exact)})", exact, where)
        cases.append(f"{integer} WHEN 'real' THEN NULL")
        bound += integers
    return " ".join(cases), bound


def _if_integer(test: str, values: list[Bound], where: str) -> tuple[str, list[Bound]]:
    """A test of an integer that SQLite holds exactly; one of more than 64 bits it reads as real."""
    found = "json_extract(metadata, ?)"
    sql = f"WHEN 'integer' THEN CASE typeof({found}) WHEN 'integer' THEN {found} {test} END"
    return sql, [where, where, *values]


def _is_exact(number: Value) -> bool:
    """Whether SQLite can bind the number as it is."""
    return isinstance(number, float) or -(2**63) <= int(number) < 2**63


def _among(one: bool, values: tuple[Value, ...]) -> bool:
    return any(value is one for value in values)


def _marks(values: tuple[Value, ...] | list[Bound]) -> str:
    return ", ".join("?" * len(values))


def _spec(leaf: Leaf) -> str:
    """A comparison as one parameter; `_leaf` reads it back."""
    match leaf:
        case Exists(field):
            parts: list[Any] = ["exists", field.path]
        case Contains(field, text):
            parts = ["contains", field.path, text]
        case In(field, values):
            parts = ["in", field.path, values]
        case Compare(field, sign, value):
            parts = [sign, field.path, value]
    return json.dumps(parts)


@lru_cache(maxsize=4 * TERMS)
def _leaf(spec: str) -> Leaf:
    match json.loads(spec):
        case ["exists", path]:
            return Exists(Field(tuple(path)))
        case ["contains", path, text]:
            return Contains(Field(tuple(path)), text)
        case ["in", path, values]:
            return In(Field(tuple(path)), tuple(values))
        case [sign, path, value]:
            return Compare(Field(tuple(path)), sign, value)
    raise FilterError(f"no comparison: {spec}")


_NAME = re.compile(r"[\w-]+(?:\.[\w-]+)*")
_STEPS = re.compile(r"[\w-]+")
_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?(?![\w.+-])")
_SIGNS = re.compile(r"[=<>!~&|:]+")
_SHOWN = re.compile(r"[\w.+-]+|[=<>!~&|:]+|.", re.DOTALL)
_RESERVED = {"and", "or", "not", "in", "contains", "exists"}
_ESCAPES = {"\\": "\\", '"': '"', "'": "'", "`": "`", "n": "\n", "r": "\r", "t": "\t"}
_MEANT = {"==": "=", "<>": "!=", "=<": "<=", "=>": ">="}
_BRACKETS = 100  # of redundant ones; a limit for Python's stack

Node = TypeVar("Node")


def parse(text: str) -> Filter:
    """A filter from what a person wrote; a mistake is shown with a caret under it.

    >>> parse('year >= 2020')
    Compare(field=Field(path=('year',)), operator='>=', value=2020)
    """
    if not isinstance(text, str):
        raise FilterError(f"a filter is a text, {type(text).__name__} came")
    if len(text) > LENGTH:
        raise FilterError(f"a filter of {len(text):,} characters; {LENGTH:,} are allowed")
    return _Parser(text).whole()


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
            raise self.mistake('an operator is expected here; "not" stands before the field')
        found = _SIGNS.match(self.text, start)
        if found is None:
            raise self.expected("one of = != < <= > >= contains in exists")
        sign = found.group()
        if sign not in _COMPARISONS:
            hint = f'; write "{_MEANT[sign]}"' if sign in _MEANT else ""
            raise self.mistake(f'"{sign}" is no operator{hint}')
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
            self.made(place, _check_value, field, value)
        self.close(start, '"," or ")"')
        return self.made(start, In, field, tuple(values))

    def field(self) -> Field:
        start = self.at
        path: list[str] = []
        while True:
            quoted = self.text.startswith("`", self.at)
            if quoted:
                path.append(self.quoted("`"))
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
        """The next value and where it stands."""
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

    def quoted(self, quote: str) -> str:
        """The text between quotes; `at` is then right behind them."""
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
        self.made(start, _check_text, text)
        if quote == "`" and not text:
            raise self.mistake("the name of a field is expected between the backticks", start)
        return text

    def escaped(self) -> str:
        start = self.at
        letter = self.text[start + 1 : start + 2]
        if letter in _ESCAPES:
            self.at += 2
            return _ESCAPES[letter]
        code = re.compile(r"u([0-9a-fA-F]{4})").match(self.text, start + 1)
        if code is None:
            raise self.mistake(r"""an escape is expected, one of \\ \" \' \` \n \r \t \u0000""")
        self.at = code.end()
        return chr(int(code.group(1), 16))

    def within(self, start: int, read: Callable[[], Filter]) -> Filter:
        self.level += 1
        if self.level > _BRACKETS:
            raise self.mistake(f"more than {_BRACKETS} brackets, one within another", start)
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
            return self.mistake(f"{what} is expected, but the filter ends here")
        return self.mistake(f"{what} is expected, {_printable(found.group())[:40]!r} came{hint}")

    def mistake(self, problem: str, at: int | None = None) -> FilterError:
        place = self.at if at is None else at
        return FilterError(f"{problem}\n{_pointed(self.text, place)}")


def _number(found: re.Match[str]) -> int | float:
    whole = found.group(1) is None and found.group(2) is None
    if whole and len(found.group()) > INTEGER_BITS // 3:
        raise FilterError(f"this integer has more than {INTEGER_BITS} bits")
    number = int(found.group()) if whole else float(found.group())
    _check_value(Field(("number",)), number)
    return number


def _pointed(text: str, at: int) -> str:
    """The line of position `at`, cut to what a terminal shows, and a caret under it."""
    first = text.rfind("\n", 0, at) + 1
    last = text.find("\n", at)
    start = max(first, at - 60)
    end = min(len(text) if last < 0 else last, at + 20)
    before, after = _printable(text[start:at]), _printable(text[at:end])
    return f"  {before}{after}\n  {' ' * _cells(before)}^"


def _printable(text: str) -> str:
    return "".join(character if character.isprintable() else " " for character in text)


def _cells(text: str) -> int:
    """How many columns of a terminal the text takes: two for a Chinese character."""
    wide = sum(unicodedata.east_asian_width(character) in "WF" for character in text)
    return len(text) + wide - sum(unicodedata.combining(character) > 0 for character in text)
