"""Filters as SQL, for a table with `id TEXT NOT NULL` and `metadata TEXT` in a UTF-8 database.

Metadata is an object as `json.dumps` writes it. SQLite's own JSON functions decide where they are
exact: texts, booleans and 64-bit integers in metadata without a backslash (they end a text at NUL,
compare escaped keys as written, and round numbers in their own way). Python decides the rest by
`ast.matches`, in the same expression: lists, floats, rows with a backslash. A comparison takes
1 to 3 microseconds per document in SQLite and 8 to 15 in Python;
`json.dumps(…, ensure_ascii=False)` keeps backslashes rare.

Each comparison in SQLite decodes the metadata again. A filter of more than `QUICK` comparisons is
therefore one call of Python, which decodes them once.
"""

from __future__ import annotations

import json
import re
import sqlite3
from functools import lru_cache
from typing import Any, TypeAlias

from hplus.errors import FilterError
from hplus.filters.ast import (
    ID,
    ORDER,
    And,
    Compare,
    Contains,
    Exists,
    Field,
    Filter,
    In,
    Leaf,
    Not,
    Or,
    Value,
    contains_text,
    kind_of,
    matches,
)

QUICK = 8
"""Comparisons of metadata that SQLite may decide, at most."""
Bound: TypeAlias = str | float | int


def register(connection: sqlite3.Connection) -> None:
    """Give the connection the two functions that compiled filters call."""
    # All comparisons of a filter see one row, then the next.
    parsed = lru_cache(maxsize=1)(json.loads)

    def passes(id: str, metadata: str | None, spec: str) -> bool:
        return matches(_read(spec), id, parsed(metadata or "{}"))

    connection.create_function("hplus_matches", 3, passes, deterministic=True)
    connection.create_function("hplus_contains", 2, contains_text, deterministic=True)


def compile(filter: Filter) -> tuple[str, list[Bound]]:
    """The filter as an expression for WHERE, and the parameters it binds; see `register`.

    >>> compile(Compare(ID, "<", "d2"))
    ('id < ?', ['d2'])
    """
    if _comparisons(filter) > QUICK:
        return _IN_PYTHON, [_spec(filter)]
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


def _comparisons(filter: Filter) -> int:
    """Comparisons of metadata; an id is a column of its own."""
    match filter:
        case Not(part):
            return _comparisons(part)
        case And(parts) | Or(parts):
            return sum(map(_comparisons, parts))
        case leaf:
            return int(leaf.field != ID)


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
    spec = _spec(leaf)
    path = leaf.field.path
    if any(re.search(r'["\\\x00-\x1f]', step) for step in path):
        return _IN_PYTHON, [spec]  # SQLite has no path for it
    where = "$" + "".join(f'."{step}"' for step in path)
    cases, bound = _cases(leaf, where)
    # A nested field that SQLite does not find may be in the objects of a list.
    rest = " ELSE 0" if len(path) == 1 else ""
    quick = (
        "CASE WHEN instr(metadata, '\\') THEN NULL "
        f"ELSE CASE json_type(metadata, ?) {cases} WHEN 'array' THEN NULL{rest} END END"
    )
    return f"coalesce({quick}, {_IN_PYTHON})", [where, *bound, spec]


def _cases(leaf: Leaf, where: str) -> tuple[str, list[Bound]]:
    """What SQLite decides, by the type it finds; NULL leaves the decision to Python."""
    found = "json_extract(metadata, ?)"
    match leaf:
        case Exists():
            kinds = ("text", "integer", "real", "true", "false", "object")
            return " ".join(f"WHEN '{kind}' THEN 1" for kind in kinds), []
        case Contains(text=text):
            return f"WHEN 'text' THEN hplus_contains({found}, ?)", [where, text]
        case Compare(operator=sign, value=str() as text) if sign in ORDER:
            return f"WHEN 'text' THEN {found} {sign} ?", [where, text]
        case Compare(operator=sign, value=number) if sign in ORDER:
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
    numbers = [value for value in values if kind_of(value) == "number"]
    cases = [f"WHEN '{json.dumps(one)}' THEN 1" for one in (True, False) if _among(one, values)]
    bound: list[Bound] = []
    if texts:
        cases.append(f"WHEN 'text' THEN json_extract(metadata, ?) IN ({_marks(texts)})")
        bound += [where, *texts]
    if numbers:
        # A stored integer of 64 bits equals none of more bits; Python decides about longer ones.
        exact: list[Bound] = [number for number in numbers if _is_exact(number)]
        integer, integers = _if_integer(f"IN ({_marks(exact)})", exact, where)
        cases.append(f"{integer} WHEN 'real' THEN NULL")
        bound += integers
    return " ".join(cases), bound


def _if_integer(test: str, values: list[Bound], where: str) -> tuple[str, list[Bound]]:
    """A test of an integer of up to 64 bits; SQLite reads longer ones as real."""
    found = "json_extract(metadata, ?)"
    sql = f"WHEN 'integer' THEN CASE typeof({found}) WHEN 'integer' THEN {found} {test} END"
    return sql, [where, where, *values]


def _is_exact(number: Value) -> bool:
    """Whether SQLite can bind the number without rounding it."""
    return isinstance(number, float) or -(2**63) <= int(number) < 2**63


def _among(one: bool, values: tuple[Value, ...]) -> bool:
    return any(value is one for value in values)


def _marks(values: tuple[Value, ...] | list[Bound]) -> str:
    return ", ".join("?" * len(values))


_IN_PYTHON = "hplus_matches(id, metadata, ?)"


def _spec(filter: Filter) -> str:
    """A filter as one parameter; `_read` reads it back."""
    return json.dumps(_parts(filter))


def _parts(filter: Filter) -> list[Any]:
    match filter:
        case Not(part):
            return ["not", _parts(part)]
        case And(parts):
            return ["and", *map(_parts, parts)]
        case Or(parts):
            return ["or", *map(_parts, parts)]
        case Exists(field):
            return ["exists", field.path]
        case Contains(field, text):
            return ["contains", field.path, text]
        case In(field, values):
            return ["in", field.path, values]
        case Compare(field, sign, value):
            return [sign, field.path, value]


@lru_cache(maxsize=8 * QUICK)
def _read(spec: str) -> Filter:
    return _made(json.loads(spec))


def _made(parts: list[Any]) -> Filter:
    match parts:
        case ["not", part]:
            return Not(_made(part))
        case ["and", *rest]:
            return And(tuple(map(_made, rest)))
        case ["or", *rest]:
            return Or(tuple(map(_made, rest)))
        case ["exists", path]:
            return Exists(Field(tuple(path)))
        case ["contains", path, text]:
            return Contains(Field(tuple(path)), text)
        case ["in", path, values]:
            return In(Field(tuple(path)), tuple(values))
        case [sign, path, value]:
            return Compare(Field(tuple(path)), sign, value)
    raise FilterError(f"not a filter: {parts}")
