"""Columns: named, matched without case, joined; delimiters told from the header."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hplus import Columns, InputError
from hplus.sources.document import Document, id_of_text
from hplus.sources.read import count, read
from hplus.sources.tables import DELIMITERS

PAPERS = [
    {"PMID": 17, "Headline": "Insulin", "Abstract": "Short.", "Body": "Long text.", "year": 2021},
    {"PMID": 18, "Headline": "", "Abstract": "", "Body": "Only this.", "year": 2022},
]
CHOSEN = Columns(text=("abstract", "body"), title="headline", id="pmid")
OF_PAPERS = [
    Document("17", "Insulin Short.\n\nLong text.", {"Headline": "Insulin", "year": 2021}),
    Document("18", "Only this.", {"year": 2022}),
]


def table_of(rows: list[dict[str, Any]], mark: str = ",") -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), delimiter=mark)
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def write(path: Path, content: str) -> Path:
    path.write_bytes(content.encode())
    return path


def problem(source: Any, columns: Columns | None = None) -> str:
    with pytest.raises(InputError) as caught:
        list(read(source, columns=columns))
    return str(caught.value)


def test_columns_of_every_kind_of_source(tmp_path: Path) -> None:
    lines = "".join(json.dumps(row) + "\n" for row in PAPERS)
    pq.write_table(pa.Table.from_pylist(PAPERS), tmp_path / "d.parquet")
    for source in (
        write(tmp_path / "d.csv", table_of(PAPERS)),
        write(tmp_path / "d.tsv", table_of(PAPERS, "\t")),
        write(tmp_path / "d.jsonl", lines),
        tmp_path / "d.parquet",
        PAPERS,
        pd.DataFrame(PAPERS),
        pa.Table.from_pylist(PAPERS),
    ):
        assert list(read(source, columns=CHOSEN)) == OF_PAPERS
        assert count(source, CHOSEN) == 2


def test_names_differ_in_case_only(tmp_path: Path) -> None:
    expected = [Document("7", "T a b", {"Title": "T"})]
    assert list(read(write(tmp_path / "d.csv", "ID,Title,TEXT\n7,T,a b\n"))) == expected
    assert list(read([{"Id": "7", "Title": "T", "Text": "a b"}])) == expected
    # The very same name comes first, wherever it stands.
    path = write(tmp_path / "e.csv", "Text,text,ID,_Id,id\nx,y,1,2,3\n")
    assert list(read(path)) == [Document("3", "y", {"Text": "x", "ID": 1, "_Id": 2})]
    path = write(tmp_path / "f.csv", "Text,ID,_Id\nx,1,2\n")
    assert list(read(path)) == [Document("2", "x", {"ID": 1})]


def test_a_text_that_is_read_verbatim(tmp_path: Path) -> None:
    """Columns of text, title and id are not turned into numbers, whatever they are called."""
    path = write(tmp_path / "d.csv", "n,t,code,x\n007,1.50,2020,3.10\n")
    columns = Columns(text=("code", "x"), title="t", id="n")
    assert list(read(path, columns=columns)) == [
        Document("007", "1.50 2020\n\n3.10", {"t": "1.50"})
    ]


def test_what_other_columns_are_called_like_ours(tmp_path: Path) -> None:
    path = write(tmp_path / "d.csv", "id,title,text,body,name\n1,T,x,b,N\n")
    assert list(read(path, columns=Columns(text="body", title="name", id="text"))) == [
        Document("x", "N b", {"id": 1, "title": "T", "name": "N"})
    ]


def test_texts_of_json_lines_may_lack_some() -> None:
    rows: list[Any] = [{"a": "x"}, {"b": "y", "a": None}, {"c": "z"}, {"a": None}, {"a": 5}]
    told: list[str] = []
    remedy = (
        "expected a string; give the row a text, or leave such rows out with --on-error skip "
        '(on_error="skip")'
    )
    columns = Columns(text=("a", "b"))
    found = list(read(rows, columns=columns, on_error="skip", report=told.append))
    assert [document.text for document in found] == ["x", "y"]
    assert told == [
        'documents[2]: no "a" field',
        f"documents[3]: the text is null, {remedy}",
        f"documents[4]: the text is int, {remedy}",
    ]
    assert problem([{"text": "x"}], Columns(id="pmid")) == 'documents[0]: no "pmid" field'


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        (Columns(text="abstrct"), "has no column 'abstrct' (near: 'Abstract'); its columns are"),
        (Columns(text=("Body", "bodi")), "has no column 'bodi' (near: 'Body'); its columns are"),
        (Columns(text="body", title="zzz"), "has no column 'zzz'; its columns are 'PMID', 'Head"),
        (Columns(text="body", id="mid"), "has no column 'mid' (near: 'PMID'); its columns are"),
        (None, "--text NAME, in Python Columns(text=NAME)"),
    ],
)
def test_a_missing_column_names_the_near_ones(
    tmp_path: Path, columns: Columns | None, said: str
) -> None:
    path = write(tmp_path / "d.csv", table_of(PAPERS))
    assert said in problem(path, columns)
    assert said in problem(pd.DataFrame(PAPERS), columns)


def test_a_missing_field_names_the_near_ones() -> None:
    said = "documents[0]: no \"texts\" field (near: 'text')"
    assert problem([{"text": "x"}], Columns(text="texts")) == said


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"text": ()}, "expected names of columns, got []"),
        ({"text": ("a", "")}, "expected names of columns, got ['a', '']"),
        ({"text": ("a", "A")}, "the column 'a' is named twice"),
        ({"text": "a", "id": "A"}, "the column 'a' is named twice"),
        ({"delimiter": "||"}, "expected a delimiter of one character, or tab, got '||'"),
        ({"delimiter": '"'}, "expected a delimiter of one character, or tab, got '\"'"),
        ({"delimiter": ""}, "expected a delimiter of one character, or tab, got ''"),
    ],
)
def test_columns_that_cannot_be(given: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError) as caught:
        Columns(**given)
    assert said in str(caught.value)


def test_a_tab_can_be_typed() -> None:
    assert {Columns(delimiter=mark).delimiter for mark in ("tab", "\\t", "\t")} == {"\t"}


def test_columns_of_what_has_none(tmp_path: Path) -> None:
    write(tmp_path / "a.txt", "x")
    for source in (tmp_path, tmp_path / "a.txt"):
        assert "columns are those of tables and JSON lines" in problem(source, Columns(text="a"))
    path = write(tmp_path / "d.jsonl", '{"text": "x"}\n')
    for rows in (path, [{"text": "x"}]):
        assert "a delimiter separates the columns of a CSV" in problem(rows, Columns(delimiter=";"))


# Delimiters


names = st.lists(
    st.text(st.sampled_from("ab ,;|\t\n'\"é"), min_size=1, max_size=6)
    .map(str.strip)
    .filter(lambda name: name.casefold() not in ("", "text", "title", "id")),
    max_size=5,
    unique=True,
)


@settings(deadline=None, max_examples=200)
@given(names, st.sampled_from(DELIMITERS), st.sampled_from(["csv", "tsv"]), st.data())
def test_any_table_is_read_whatever_separates_it(
    tmp_path_factory: pytest.TempPathFactory,
    others: list[str],
    mark: str,
    kind: str,
    data: st.DataObject,
) -> None:
    """Names may hold other delimiters, quotes and line ends, all quoted as CSV has it."""
    header = data.draw(st.permutations(["text", *others]))
    row = {name: f"a{mark}{i}\nb" for i, name in enumerate(header)}
    text = io.StringIO()
    writer = csv.DictWriter(text, header, delimiter=mark, quoting=csv.QUOTE_ALL)
    writer.writeheader()
    writer.writerow(row)
    path = write(tmp_path_factory.getbasetemp() / f"any.{kind}", text.getvalue())
    metadata = {name: cell for name, cell in row.items() if name != "text"}
    expected = Document(id_of_text(row["text"]), row["text"], metadata)
    assert list(read(path)) == [expected]
    assert count(path) == 1


@pytest.mark.parametrize(
    ("header", "row", "text"),
    [
        ("id;text", "1;a, b, c", "a, b, c"),
        ("id|text", "1|a;b", "a;b"),
        ("text", "a;b", "a;b"),
        ("id;text;note (a, b, c, d)", "1;x;y", "x"),
        ('"id, number";"text"', "1;x", "x"),
        ("\n\nid;text", "1;x", "x"),
    ],
)
def test_the_delimiter_of_a_header(tmp_path: Path, header: str, row: str, text: str) -> None:
    path = write(tmp_path / "d.csv", f"{header}\n{row}\n")
    assert [document.text for document in read(path)] == [text]


def test_a_delimiter_that_is_given_counts(tmp_path: Path) -> None:
    content = "text:note,n\na,b:c,1\n"
    path = write(tmp_path / "d.csv", content)
    assert problem(path).startswith(f"{path} has no column 'text' (near: 'text:note')")
    (document,) = read(path, columns=Columns(delimiter=":"))
    assert (document.text, document.metadata) == ("a,b", {"note,n": "c,1"})
    # A file of any name is a table then.
    for name in ("d.dat", "d.txt"):
        path = write(tmp_path / name, content)
        assert list(read(path, columns=Columns(delimiter=":"))) == [document]
        assert count(path, Columns(delimiter=":")) == 1


def test_a_header_with_a_quote_that_never_ends(tmp_path: Path) -> None:
    path = write(tmp_path / "d.csv", 'text,"n\n' + "a;b\n" * 100_000)
    assert problem(path) == f"{path}:1: not CSV: unexpected end of data"
