"""Filters: SQL against the plain reference, meanings one by one, mistakes with their carets."""

from __future__ import annotations

import json
import re
import sqlite3
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hplus.errors import FilterError, InputError
from hplus.filters import ast as filters
from hplus.filters import sql
from hplus.filters.ast import (
    ID,
    And,
    Compare,
    Contains,
    Exists,
    Field,
    Filter,
    In,
    Not,
    Or,
    matches,
)
from hplus.filters.sql import compile, register
from hplus.filters.syntax import parse

some = settings(deadline=None, max_examples=300)

ODD_TEXTS = [
    "", "a", "A", "ab", "%", "_", "a%b", "'", '"', "\\", "a\\nb", "x\x00y", "x", "\x00", "ß",
    "SS", "é", "e\u0301", "İ", "糖尿病", "😀", "\uffff", "2020-01-31", "1", "true", "null",
    '"; DROP TABLE documents; --',
]  # fmt: skip
ODD_NUMBERS: list[int | float] = [
    0, 1, -1, 0.0, -0.0, 1.0, 0.1, 2020, 2**53, 2**53 + 1, float(2**53), 2**63 - 1, 2**63,
    2**63 + 1, -(2**63), -(2**63) - 1, float(2**63), -float(2**63), 2**64, 10**300, 1e308,
    -1e308, 5e-324, 0.30000000000000004, 123456789.12345679,
]  # fmt: skip
ODD_NAMES = [
    "a", "b", "c", "id", "metadata", "a.b", "a b", 'a"b', "a\\b", "é", "\x00", "`", "$", "[",
]  # fmt: skip

texts = st.sampled_from(ODD_TEXTS) | st.text(st.characters(exclude_categories=["Cs"]), max_size=4)
numbers = (
    st.sampled_from(ODD_NUMBERS)
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
)
values = texts | numbers | st.booleans()
names = st.sampled_from(ODD_NAMES)
fields = st.lists(names, min_size=1, max_size=3).map(lambda path: Field(tuple(path)))

json_values: st.SearchStrategy[Any] = st.recursive(
    values | st.none(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=6,
)
metadatas = st.dictionaries(names, json_values, max_size=4)
signs = st.sampled_from(["=", "!=", "<", "<=", ">", ">="])


def comparable(field: Field, sign: str, value: Any) -> Compare:
    equality = isinstance(value, bool) and sign not in ("=", "!=")
    return Compare(field, "=" if equality else sign, value)


leaves: st.SearchStrategy[Filter] = st.one_of(
    st.builds(comparable, fields, signs, values),
    st.builds(In, fields, st.lists(values, min_size=1, max_size=4).map(tuple)),
    st.builds(Contains, fields, texts),
    st.builds(Exists, fields),
    st.builds(Compare, st.just(ID), signs, texts),
    st.builds(In, st.just(ID), st.lists(texts, min_size=1, max_size=3).map(tuple)),
    st.builds(Contains, st.just(ID), texts),
    st.just(Exists(ID)),
)
trees: st.SearchStrategy[Filter] = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.builds(Not, inner),
        st.builds(And, st.lists(inner, min_size=2, max_size=3).map(tuple)),
        st.builds(Or, st.lists(inner, min_size=2, max_size=3).map(tuple)),
    ),
    max_leaves=8,
)


def database() -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE documents (id TEXT NOT NULL, metadata TEXT)")
    register(connection)
    return connection


def chosen(connection: sqlite3.Connection, filter: Filter) -> list[int]:
    """The rows that SQLite finds, each compared in a SELECT too: the answer is 0 or 1."""
    sql, bound = compile(filter)
    said = connection.execute(f"SELECT {sql} FROM documents", bound).fetchall()
    assert {one for (one,) in said} <= {0, 1}
    found = connection.execute(f"SELECT rowid FROM documents WHERE {sql} ORDER BY rowid", bound)
    rows = [row for (row,) in found]
    assert rows == [i for i, (one,) in enumerate(said, start=1) if one]
    return rows


def passes(filter: Filter, metadata: dict[str, Any], id: str = "d1") -> bool:
    """By the reference and by SQLite, in both ways of writing JSON."""
    expected = matches(filter, id, metadata)
    connection = database()
    for ascii_only in (True, False):
        text = json.dumps(metadata, ensure_ascii=ascii_only)
        connection.execute("INSERT INTO documents VALUES (?, ?)", [id, text])
    assert chosen(connection, filter) == ([1, 2] if expected else [])
    connection.close()
    return expected


@some
@given(trees, st.lists(st.tuples(texts, metadatas), min_size=1, max_size=4), st.booleans())
def test_sql_finds_what_the_reference_finds(
    filter: Filter, documents: list[tuple[str, dict[str, Any]]], ascii_only: bool
) -> None:
    connection = database()
    rows = [(id, json.dumps(held, ensure_ascii=ascii_only)) for id, held in documents]
    connection.executemany("INSERT INTO documents VALUES (?, ?)", rows)
    expected = [i for i, (id, held) in enumerate(documents, start=1) if matches(filter, id, held)]
    assert chosen(connection, filter) == expected
    connection.close()


@some
@given(names, signs, values, json_values)
@example("a", "=", 0.1, 0.1)
@example("a", "=", float(2**63), 2**63)
@example("a", "<", 2**63 + 1, 2**63)
@example("a", "<=", -float(2**63), -(2**63))
@example("a", "=", "x", "x\x00y")
@example('a"b', "=", 1, 1)
def test_one_comparison(name: str, sign: str, value: Any, held: Any) -> None:
    passes(comparable(Field((name,)), sign, value), {name: held})
    passes(comparable(Field(("a", name)), sign, value), {"a": {name: held}})
    passes(In(Field((name,)), (value, "else", 7, True)), {name: held})


@some
@given(trees, st.lists(st.tuples(texts, metadatas), min_size=1, max_size=4))
def test_python_finds_what_the_reference_finds(
    filter: Filter, documents: list[tuple[str, dict[str, Any]]]
) -> None:
    """With as many comparisons more as make Python decide about the whole filter."""
    always = Or((Exists(ID), *[Exists(Field(("a",)))] * (sql.QUICK + 1)))
    whole = And((always, filter))
    assert compile(whole)[0] == "hplus_matches(id, metadata, ?)"
    connection = database()
    rows = [(id, json.dumps(held)) for id, held in documents]
    connection.executemany("INSERT INTO documents VALUES (?, ?)", rows)
    expected = [i for i, (id, held) in enumerate(documents, start=1) if matches(filter, id, held)]
    assert chosen(connection, whole) == expected
    connection.close()


@pytest.mark.parametrize("comparisons", [1, 8, 9, 400])
def test_metadata_are_decoded_a_few_times_whatever_the_comparisons(
    comparisons: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded: list[str] = []
    loads = json.loads

    def counting(text: str) -> Any:
        decoded.append(text)
        return loads(text)

    monkeypatch.setattr(json, "loads", counting)
    connection = database()
    rows = [json.dumps({"a": [i], "b": {"c": i}}) for i in range(20)]
    connection.executemany("INSERT INTO documents VALUES ('d', ?)", [(row,) for row in rows])
    for field in ("a", "b.c"):
        filter = parse(" or ".join(f"{field} = {20 - i}" for i in range(comparisons)))
        statement, bound = compile(filter)
        assert statement.count("metadata") <= 40  # each of them SQLite may decode
        found = connection.execute(f"SELECT rowid FROM documents WHERE {statement}", bound)
        expected = [i for i, row in enumerate(rows, 1) if matches(filter, "d", loads(row))]
        assert [row for (row,) in found] == expected
        assert max(map(decoded.count, rows)) <= 1
        decoded.clear()
    connection.close()


def test_many_values_are_hashed_not_compared() -> None:
    class Number(int):
        compared = 0

        def __eq__(self, other: object) -> bool:
            Number.compared += 1
            return int(self) == other

        __hash__ = int.__hash__

    filter = In(Field(("a",)), tuple(map(Number, range(1000))))
    for value, expected in ((999, True), (999.0, True), (1000, False), (True, False), ("1", False)):
        assert matches(filter, "d", {"a": [value, {}]}) is expected
    assert Number.compared < 100


def test_every_odd_value_against_every_other() -> None:
    connection = database()
    held = [*ODD_TEXTS, *ODD_NUMBERS, True, False, None, [], {}, [1, "a"], [[1]], [None], {"a": 1}]
    rows = [("d", json.dumps({"a": one}, ensure_ascii=False)) for one in held]
    connection.executemany("INSERT INTO documents VALUES (?, ?)", rows)
    for value in (*ODD_TEXTS, *ODD_NUMBERS, True, False):
        for sign in ("=", "!=") if isinstance(value, bool) else ("=", "!=", "<", "<=", ">", ">="):
            filter = Compare(Field(("a",)), sign, value)
            expected = [i for i, v in enumerate(held, 1) if matches(filter, "d", {"a": v})]
            assert chosen(connection, filter) == expected, filter
    connection.close()


YES: list[tuple[str, dict[str, Any]]] = [
    ('year >= 2020 and source = "pubmed" and not title contains "mice"', {"year": 2021, "source": "pubmed", "title": "Rats"}),  # noqa: E501
    ("not missing = 1", {}),
    ("not missing != 1", {}),
    ("not missing exists", {}),
    ("not a exists", {"a": None}),
    ("not a exists", {"a": []}),
    ("not a exists", {"a": [None]}),
    ("a exists", {"a": {}}),
    ("a exists", {"a": ""}),
    ("a exists", {"a": False}),
    ("a != 2", {"a": 1}),
    ('a != "1"', {"a": 1}),
    ("a != true", {"a": 1}),
    ("a != 1", {"a": True}),
    ("a != 1", {"a": {}}),
    ("not a = 1", {"a": True}),
    ("not a = 1", {"a": "1"}),
    ('not a < "2"', {"a": 1}),
    ('not a >= "2"', {"a": 1}),
    ("a = 1", {"a": 1.0}),
    ("a = 1.0", {"a": 1}),
    ("a < 9007199254740993", {"a": 9007199254740992.0}),
    ("a > 1e308", {"a": 10**309}),
    ('date < "2020-02-01" and date >= "2020-01-01"', {"date": "2020-01-31"}),
    ('a < "a"', {"a": "Z"}),
    ('a > "\uffff"', {"a": "😀"}),
    ('tags = "a"', {"tags": ["b", "a"]}),
    ('not tags != "a"', {"tags": ["b", "a"]}),
    ('tags != "a"', {"tags": ["b", "c"]}),
    ('tags = "a"', {"tags": [["a"]]}),
    ('tags contains "A"', {"tags": ["b", "xax"]}),
    ("tags > 2 and tags < 2", {"tags": [1, 3]}),
    ('not tags = "a"', {"tags": []}),
    ('authors.name = "Li"', {"authors": [{"name": "Wu"}, {"name": "Li"}]}),
    ('authors.name != "Li"', {"authors": [{"name": "Wu"}]}),
    ("a.b.c = 1", {"a": {"b": {"c": 1}}}),
    ("not a.b.c = 1", {"a": {"b": 1}}),
    ("not a.b = 1", {"a.b": 1}),
    ("`a.b` = 1", {"a.b": 1}),
    ("`a b`.c-d = 1", {"a b": {"c-d": 1}}),
    ("`in` = 1 and `\\`` = 2", {"in": 1, "`": 2}),
    ("in-vitro = true", {"in-vitro": True}),
    ("2020 = 1", {"2020": 1}),
    ("日付 = 1", {"日付": 1}),
    ('title contains "STRASSE"', {"title": "Die Straße"}),
    ('title contains ""', {"title": ""}),
    ('not title contains ""', {"title": 1}),
    ('title contains "100%"', {"title": "at 100% speed"}),
    ('not title contains "1_0"', {"title": "100"}),
    ('not title contains "é"', {"title": "e\u0301"}),
    ('a in (1, "x", true)', {"a": "x"}),
    ('a in (1, "x", true)', {"a": True}),
    ('a in (1, "x", true)', {"a": [2, 1]}),
    ("not a in (1)", {"a": True}),
    ("not a in (true)", {"a": 1}),
    ('id = "d1"', {"id": "else"}),
    ('`id` = "else"', {"id": "else"}),
    ("not `id` exists", {}),
    ("id exists", {}),
    ('id in ("d0", "d1") and id contains "D" and id > "d0" and id != "d2"', {}),
    ("id.x = 1", {"id": {"x": 1}}),
    ("a = 1 or b = 1 and c = 1", {"a": 1}),
    ("not (a = 1 or b = 1) and c = 1", {"c": 1}),
    ("not a = 2 and b = 1", {"a": 1, "b": 1}),
    ("not not a = 1", {"a": 1}),
    ("NOT A = 1 AnD b IN (1) OR c EXISTS", {"a": 1, "b": 1}),
    ("a='x'and(b=-1.5e+2)", {"a": "x", "b": -150}),
    (r"""a = "q\"\\\'\n\t\r\u00e9" """, {"a": "q\"\\'\n\t\ré"}),
    (r"""a = 'say "hi"\u0000'""", {"a": 'say "hi"\x00'}),
    ("a\n  =\n  1\n", {"a": 1}),
    ("a = TRUE", {"a": True}),
]  # fmt: skip


@pytest.mark.parametrize(("text", "metadata"), YES, ids=[text for text, _ in YES])
def test_meanings(text: str, metadata: dict[str, Any]) -> None:
    assert passes(parse(text), metadata)
    assert not passes(Not(parse(text)), metadata)


def test_and_and_or_of_nothing() -> None:
    assert passes(And(()), {})
    assert not passes(Or(()), {})


def test_null_metadata_is_empty() -> None:
    connection = database()
    connection.execute("INSERT INTO documents VALUES ('d1', NULL)")
    for text in ("a = 1", "a.b = 1", '`"` = 1', "a exists", 'a contains "b"', "a in (1, true)"):
        assert chosen(connection, parse(text)) == []
        assert chosen(connection, Not(parse(text))) == [1]
    connection.close()


def test_an_index_on_id_is_used() -> None:
    connection = database()
    connection.execute("CREATE INDEX by_id ON documents (id)")
    sql, bound = compile(parse('id = "d1" and year > 2000'))
    plan = connection.execute(f"EXPLAIN QUERY PLAN SELECT 1 FROM documents WHERE {sql}", bound)
    assert "USING INDEX by_id (id=?)" in plan.fetchone()[-1]
    connection.close()


def written(filter: Filter) -> str:
    """The tree as a person would write it, with all brackets."""
    match filter:
        case Not(part):
            return f"not ({written(part)})"
        case And(parts):
            return " and ".join(f"({written(part)})" for part in parts)
        case Or(parts):
            return " OR ".join(f"({written(part)})" for part in parts)
        case Exists(field):
            return f"{named(field)} exists"
        case Contains(field, text):
            return f"{named(field)} contains {quoted(text, chr(34))}"
        case In(field, wanted):
            return f"{named(field)} in ({', '.join(map(literal, wanted))})"
        case Compare(field, sign, value):
            return f"{named(field)}{sign}{literal(value)}"


def named(field: Field) -> str:
    return ".".join(quoted(step, "`") for step in field.path) or "id"


def literal(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return quoted(value, "'") if isinstance(value, str) else repr(value)


def quoted(text: str, mark: str) -> str:
    return mark + text.replace("\\", "\\\\").replace(mark, "\\" + mark) + mark


@some
@given(trees)
def test_what_is_written_is_read(filter: Filter) -> None:
    assert repr(parse(written(filter))) == repr(filter)


@some
@given(st.text(max_size=40) | st.text("ab.=<>!()'\"`\\ \n,1-e", max_size=30))
def test_any_text_is_a_filter_or_a_filter_error(text: str) -> None:
    try:
        filter = parse(text)
    except FilterError as error:
        problem, line, caret = str(error).split("\n")
        assert problem
        assert line.startswith("  ")
        assert caret.strip() == "^"
    else:
        passes(filter, {"a": 1})


QUOTES = "; put a text or a date in quotes"
TICKS = "; put a field of that name in backticks"
ENDS = "but the filter ends here"
OPERATOR = "one of = != < <= > >= contains in exists"

# The mistake, its message, and a caret under its place.
MISTAKES = [
    ("", f"expected a field, {ENDS}", "^"),
    ("   ", f"expected a field, {ENDS}", "   ^"),
    ("year", f"expected {OPERATOR}, {ENDS}", "    ^"),
    ("year 2020", f"expected {OPERATOR}, got '2020'", "     ^"),
    ("year >=", f"expected a value, {ENDS}", "       ^"),
    ("year = and x", "expected a value, got 'and'" + QUOTES, "       ^"),
    ("source = pubmed", "expected a value, got 'pubmed'" + QUOTES, "         ^"),
    ("date > 2020-01-31", "expected a value, got '2020-01-31'" + QUOTES, "       ^"),
    ("a = 1.", "expected a value, got '1.'" + QUOTES, "    ^"),
    ("a = .5", "expected a value, got '.5'", "    ^"),
    ("a = +5", "expected a value, got '+5'", "    ^"),
    ("a = 5x", "expected a value, got '5x'" + QUOTES, "    ^"),
    ("a = null", "expected a value, got 'null'" + QUOTES, "    ^"),
    ("a = “x”", "expected a value, got '“'", "    ^"),
    ("a == 1", '"==" is not an operator; write "="', "  ^"),
    ("a <> 1", '"<>" is not an operator; write "!="', "  ^"),
    ("a => 1", '"=>" is not an operator; write ">="', "  ^"),
    ("a ~ 1", '"~" is not an operator', "  ^"),
    ("a = 1 && b = 2", 'expected "and", "or" or the end, got \'&&\'', "      ^"),
    ("a = 1 b = 2", 'expected "and", "or" or the end, got \'b\'', "      ^"),
    ("a = 1)", 'expected "and", "or" or the end, got \')\'', "     ^"),
    ("a = 1; DROP TABLE x", 'expected "and", "or" or the end, got \';\'', "     ^"),
    ("a = 1 and", f"expected a field, {ENDS}", "         ^"),
    ("a = 1 and or b = 1", "expected a field, got 'or'" + TICKS, "          ^"),
    ("in = 1", "expected a field, got 'in'" + TICKS, "^"),
    ("not", f"expected a field, {ENDS}", "   ^"),
    ('a not contains "x"', 'expected an operator; "not" goes before the field', "  ^"),
    ("(a = 1", "this ( is never closed", "^"),
    ("b = 2 and (a = 1 or (c = 1)", "this ( is never closed", "          ^"),
    ("(a = 1 b = 2)", 'expected "and", "or" or ")", got \'b\'', "       ^"),
    ("()", "expected a field, got ')'", " ^"),
    ('a = "x', 'this " is never closed', "    ^"),
    ("a = 'x\\'", "this ' is never closed", "    ^"),
    ("`a = 1", "this ` is never closed", "^"),
    ("a.`` = 1", "expected the name of a field between the backticks", "  ^"),
    ("a..b = 1", "expected a field's name after the dot, got '.b'", "  ^"),
    ("a. = 1", "expected a field's name after the dot, got ' '", "  ^"),
    (".a = 1", "expected a field, got '.a'", "^"),
    (r'a = "x\q"', r"""expected an escape, one of \\ \" \' \` \n \r \t \u0000""", "      ^"),
    (r'a = "x\u12"', r"""expected an escape, one of \\ \" \' \` \n \r \t \u0000""", "      ^"),
    (r'a = "\ud800"', "this text contains half a surrogate pair", "    ^"),
    ("a in 1", 'expected "(" and a list of values, got \'1\'', "     ^"),
    ("a in ()", "expected a value, got ')'", "      ^"),
    ("a in (1,)", "expected a value, got ')'", "        ^"),
    ("a in (1 2)", 'expected "," or ")", got \'2\'', "        ^"),
    ("a in (1", "this ( is never closed", "     ^"),
    ("a < true", "true and false compare with = and != only", "    ^"),
    ("a contains 5", "contains looks for a text; put it in quotes", "           ^"),
    ("id = 5", "an id is a text; put the value in quotes", "     ^"),
    ('id in ("a", 5)', "an id is a text; put the value in quotes", "            ^"),
    ("a = 1e999", "expected a number in the range of floats, got inf", "    ^"),
    ("a = 糖尿病", "expected a value, got '糖尿病'" + QUOTES, "    ^"),
    ('糖尿病 = "病" 病', 'expected "and", "or" or the end, got \'病\'', "              ^"),
    ("a = 1 and\nb =\t? and\nc = 1", "expected a value, got '?'", "    ^"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "problem", "caret"), MISTAKES, ids=[row[0] for row in MISTAKES])
def test_mistakes(text: str, problem: str, caret: str) -> None:
    with pytest.raises(FilterError) as caught:
        parse(text)
    line = "b = ? and" if "\n" in text else text
    assert str(caught.value) == f"{problem}\n  {line}\n  {caret}"


def test_a_long_line_is_cut_around_the_mistake() -> None:
    with pytest.raises(FilterError) as caught:
        parse(" " * 500 + "x = ?" + "y" * 500)
    _, line, caret = str(caught.value).split("\n")
    assert len(line) < 100
    assert line[caret.index("^")] == "?"


def test_control_characters_are_not_shown() -> None:
    with pytest.raises(FilterError) as caught:
        parse('a = "\x1b[31m" \x1b')
    assert "\x1b" not in str(caught.value)


def test_the_error_is_an_input_error() -> None:
    assert issubclass(FilterError, InputError)


@pytest.mark.parametrize(
    "attack",
    [
        "'; DROP TABLE documents; --",
        '" OR 1=1 --',
        "') OR ('1'='1",
        "$.a') OR 1=1 --",
        '$."a"',
        "?1",
        ":name",
        "\\'; --",
        "*/ 1 /*",
    ],
)
def test_no_text_of_the_user_stands_in_the_sql(attack: str) -> None:
    mark = "zzz" + attack
    field = Field((mark,))
    for filter in (
        Compare(field, "=", mark),
        Compare(field, "!=", mark),
        Compare(field, "<", mark),
        Compare(Field(("a", mark)), ">=", 5),
        Contains(field, mark),
        In(field, (mark, 1, True)),
        Exists(field),
        Compare(ID, "=", mark),
        Contains(ID, mark),
        In(ID, (mark,)),
    ):
        sql, bound = compile(filter)
        assert "zzz" not in sql
        assert sql.count("?") == len(bound)
        assert not passes(filter, {"a": 1})
        assert matches(filter, mark, {mark: mark, "a": {mark: 5}}) == passes(
            filter, {mark: mark, "a": {mark: 5}}, mark
        )


SQL_WORDS = re.compile(
    r"""coalesce|CASE|WHEN|THEN|ELSE|END|NULL|AND|OR|NOT|IN|instr|json_type|typeof|json_extract
    |hplus_matches|hplus_contains|metadata|id|'(text|integer|real|true|false|object|array|\\)'
    |[?01]|[<>!]?=|[<>]|[(), ]""",
    re.VERBOSE,
)


@given(trees)
def test_the_sql_is_made_of_a_few_words(filter: Filter) -> None:
    sql, bound = compile(filter)
    assert sql.count("?") == len(bound)
    assert not SQL_WORDS.sub("", sql)


@pytest.mark.parametrize("opening", ["(", "not ", "(not ", "a=1 or (b=1 and ", "not(a=1 and("])
def test_deep_nesting_is_refused(opening: str) -> None:
    for times in (200, 30_000 // len(opening)):
        with pytest.raises(FilterError, match=r"nested more than \d+ levels deep\n"):
            parse(opening * times + "a = 1" + ")" * (opening.count("(") * times))


def test_deep_trees_cannot_be_built() -> None:
    filter: Filter = Exists(ID)
    for _ in range(filters.DEPTH):
        filter = Not(filter)
    assert passes(filter, {})
    with pytest.raises(FilterError, match="more than 16 levels deep"):
        Not(filter)


def test_too_much_is_refused() -> None:
    with pytest.raises(FilterError, match="100,001 characters, at most 100,000 are allowed"):
        parse("a" * 100_001)
    with pytest.raises(FilterError, match="more than 400 comparisons"):
        parse(" or ".join(["a = 1"] * 401))
    with pytest.raises(FilterError, match="more than 10,000 values"):
        parse(f"a in ({','.join('1' * 10_001)})")
    half = f"a in ({','.join('1' * 5_001)})"
    with pytest.raises(FilterError, match="more than 10,000 values"):
        parse(f"{half} or {half}")
    for digits in (400, 50_000):
        with pytest.raises(FilterError, match="this integer has more than 1024 bits"):
            parse(f"a = {'9' * digits}")
    with pytest.raises(FilterError, match="expected a filter as text, got bytes"):
        parse(b"a = 1")  # type: ignore[arg-type]
    with pytest.raises(FilterError, match="half a surrogate pair"):
        parse('a = "\ud800"')


def test_the_largest_filters_run() -> None:
    """At every limit at once, in a statement with other brackets."""
    inner: Filter = And((Compare(Field(("a", "b")), "!=", 7), Compare(Field(("a",)), "!=", 7)))
    for level in range(filters.DEPTH - 4):
        make = Or if level % 2 else And
        inner = make((Compare(Field(("c",)), "=", 1), inner))
    many = In(Field(("a",)), tuple(range(filters.VALUES)))
    left = filters.LEAVES - filters.DEPTH
    whole = And((*[Compare(Field(("a", "b")), "!=", 5)] * (left - 1), inner, many))
    metadata = {"a": {"b": 6}, "c": 1}
    connection = database()
    connection.execute("INSERT INTO documents VALUES (?, ?)", ["d", json.dumps(metadata)])
    for filter in (whole, Or((Compare(ID, "=", "x"), Not(whole)))):
        sql, bound = compile(filter)
        statement = f"SELECT count(*) FROM (SELECT id FROM documents WHERE ((({sql}))))"
        found = connection.execute(statement, bound).fetchone()
        assert found == (int(matches(filter, "d", metadata)),)
    connection.close()


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: Compare(ID, "LIKE", "x"), "expected one of = != < <= > >=, got 'LIKE'"),
        (lambda: Compare(Field(("a",)), "=", None), "got NoneType"),  # type: ignore[arg-type]
        (lambda: Compare(Field(("a",)), "=", float("nan")), "got nan"),
        (lambda: Compare(ID, "=", 5), "an id is a text"),
        (lambda: In(Field(("a",)), (b"x",)), "got bytes"),  # type: ignore[arg-type]
        (lambda: Field(("a", "")), "got ''"),
        (lambda: Field((5,)), "got 5"),  # type: ignore[arg-type]
        (lambda: Contains(ID, 5), "put it in quotes"),  # type: ignore[arg-type]
        (lambda: Compare(Field(("a",)), "<", True), "true and false compare with"),
        (lambda: Compare(Field(("a",)), "=", 2**1024), "more than 1024 bits"),
        (lambda: Field(("\ud800",)), "surrogate"),
    ],
)
def test_trees_by_hand_are_checked(make: Any, problem: str) -> None:
    with pytest.raises(FilterError, match=problem):
        make()
