r"""Metadata filters: which documents a search may return.

    year >= 2020 and source = "pubmed" and not title contains "mice"

**Grammar.** `or` binds more loosely than `and`, `and` than `not`, `not` than a comparison or
brackets. A comparison is a field with `= != < <= > >=` and a value, with `contains` and a text,
with `in (value, value)`, or with `exists`. Case does not matter in these words. A field consists of
letters, digits, `_` and `-`, with dots between the steps into nested objects; any other name is
written in backticks or quotes, and so is a field named like a word of the grammar: `` `in`.`first
name` ``, `"first name"`. A bare `id` is the document's id; the metadata field of that name is
`` `id` ``. A value is a text in
double or single quotes (escapes `\\ \" \' \n \r \t \u0000`), a number, `true` or `false`.

**Meaning.** Every filter is true or false of a document, never unknown.

- A missing field matches nothing, so `not` of it is true. Null and an empty list count as missing;
  `exists` is true of everything else.
- Numbers compare with numbers, exactly; texts with texts, by code point (hence ISO dates by date);
  booleans with `=` and `!=` only; `true` is not 1. Values of different types are never equal, and
  neither is less than the other.
- `field != value` means `field exists and not field = value`.
- A list stands for its elements, also on the way to a nested field: `tags = "a"` is true if any
  element is "a", `authors.name = "Li"` if any author has that name, `tags != "a"` if there are
  tags and none is "a".
- `contains` looks for a part of a text after Unicode case folding (ß is ss) and nothing else:
  `%` and `_` are plain characters, é as one code point is not é as two.

`syntax.parse` reads what a person wrote; `matches` is the plain reference of its meaning,
`sql.compile` the same for a database.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

from hplus.errors import FilterError

DEPTH = 16
"""Levels of and, or and not, at most: SQLite's parser stops at about twenty."""
LEAVES = 400
"""Comparisons in a filter, at most: SQLite allows expressions a thousand levels high."""
VALUES = 10_000
"""Values in the lists of a filter, at most: SQLite binds 32,766 parameters."""
INTEGER_BITS = 1024
"""The longest integer: the range of floats."""

Value: TypeAlias = str | int | float | bool

ORDER: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
COMPARISONS = ("=", "!=", *ORDER)


@dataclass(frozen=True)
class Field:
    """Where a value is in the metadata, step by step; without steps, the document's id."""

    path: tuple[str, ...]

    def __post_init__(self) -> None:
        for step in self.path:
            if not isinstance(step, str) or not step:
                raise FilterError(f"expected the name of a field, got {step!r}")
            check_text(step)


ID = Field(())
"""The document's id."""


@dataclass(frozen=True)
class Compare:
    """`field = value`, and likewise != < <= > >=."""

    field: Field
    operator: str
    value: Value

    def __post_init__(self) -> None:
        if self.operator not in COMPARISONS:
            raise FilterError(f"expected one of {' '.join(COMPARISONS)}, got {self.operator!r}")
        check_value(self.field, self.value)
        if isinstance(self.value, bool) and self.operator in ORDER:
            raise FilterError("true and false compare with = and != only")


@dataclass(frozen=True)
class Contains:
    """`field contains "text"`."""

    field: Field
    text: str

    def __post_init__(self) -> None:
        if not isinstance(self.text, str):
            raise FilterError("contains looks for a text; put it in quotes")
        check_text(self.text)


@dataclass(frozen=True)
class In:
    """`field in (value, value)`."""

    field: Field
    values: tuple[Value, ...]

    def __post_init__(self) -> None:
        for value in self.values:
            check_value(self.field, value)
        _check_size(self)

    @cached_property
    def known(self) -> frozenset[tuple[str, Value]]:
        """The values with their kinds, to be found at once: there may be thousands."""
        return frozenset((kind_of(value), value) for value in self.values)


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
    """`part and part`; true if there are no parts."""

    parts: tuple[Filter, ...]

    def __post_init__(self) -> None:
        _check_size(self)


@dataclass(frozen=True)
class Or:
    """`part or part`; false if there are no parts."""

    parts: tuple[Filter, ...]

    def __post_init__(self) -> None:
        _check_size(self)


Leaf: TypeAlias = Compare | Contains | In | Exists
Filter: TypeAlias = Leaf | Not | And | Or


def fields_of(filter: Filter) -> list[Field]:
    """The metadata fields that a filter names, each once, in its order."""
    match filter:
        case Not(part):
            return fields_of(part)
        case And(parts) | Or(parts):
            return list(dict.fromkeys(field for part in parts for field in fields_of(part)))
        case leaf:
            return [] if leaf.field == ID else [leaf.field]


def check_text(text: str) -> None:
    """Refuse what UTF-8 cannot express."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise FilterError("this text contains half a surrogate pair") from None


def check_value(field: Field, value: object) -> None:
    """Refuse values that no metadata can have."""
    if field == ID and not isinstance(value, str):
        raise FilterError("an id is a text; put the value in quotes")
    if isinstance(value, str):
        check_text(value)
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise FilterError(f"expected a number in the range of floats, got {value}")
    elif not isinstance(value, int):
        raise FilterError(f"expected a text, number or boolean, got {type(value).__name__}")
    elif value.bit_length() > INTEGER_BITS:
        raise FilterError(f"this integer has more than {INTEGER_BITS} bits")


def _check_size(filter: Filter) -> None:
    """Checked whenever a tree grows, so that every tree that exists can be compiled."""
    depth, leaves, values = _size(filter)
    if depth > DEPTH:
        raise FilterError(f"and, or and not are nested more than {DEPTH} levels deep")
    if leaves > LEAVES:
        raise FilterError(f"more than {LEAVES} comparisons; for many values write: field in (…)")
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

    >>> matches(Compare(Field(("tags",)), "=", "mice"), "d1", {"tags": ["rats", "mice"]})
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
            return holds(leaf, [id] if leaf.field == ID else values_at(metadata, leaf.field.path))


def values_at(held: Any, path: tuple[str, ...]) -> list[Any]:
    """The values at a path, lists replaced by their elements and nulls left out."""
    if isinstance(held, list):
        return [value for element in held for value in values_at(element, path)]
    if path:
        inside = isinstance(held, dict) and path[0] in held
        return values_at(held[path[0]], path[1:]) if inside else []
    return [] if held is None else [held]


def holds(leaf: Leaf, values: list[Any]) -> bool:
    """Whether a comparison is true of a field with these values."""
    match leaf:
        case Exists():
            return bool(values)
        case Contains(text=text):
            return any(isinstance(value, str) and contains_text(value, text) for value in values)
        case In():
            comparable = ((kind_of(value), value) for value in values)
            return any(kind != "object" and (kind, one) in leaf.known for kind, one in comparable)
        case Compare(operator="=", value=wanted):
            return any(_equal(value, wanted) for value in values)
        case Compare(operator="!=", value=wanted):
            return bool(values) and not any(_equal(value, wanted) for value in values)
        case Compare(operator=sign, value=wanted):
            kind = kind_of(wanted)
            return any(kind_of(value) == kind and ORDER[sign](value, wanted) for value in values)


def kind_of(value: object) -> str:
    """Values of one kind can be compared with each other."""
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, (int, float)):
        return "number"
    return "text" if isinstance(value, str) else "object"


def _equal(a: object, b: object) -> bool:
    return kind_of(a) == kind_of(b) and a == b


def contains_text(text: str, part: str) -> bool:
    """Whether a text contains another, whatever the case."""
    return part.casefold() in text.casefold()
