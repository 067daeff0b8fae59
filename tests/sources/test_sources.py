"""Sources: every kind, every rule on fields, every mistake with its place, and bounded memory."""

from __future__ import annotations

import contextlib
import csv
import datetime
import decimal
import gzip
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow.dataset import dataset

from hplus import files
from hplus.errors import HPlusError, InputError, MissingExtraError
from hplus.evaluate.data import demo_folder, read_beir
from hplus.sources import columns as source_columns
from hplus.sources import folders as source_texts
from hplus.sources import tables as source_tables
from hplus.sources.document import Document, id_of_text
from hplus.sources.read import count, read

ROWS = [
    {"_id": "a", "title": "Diabetes", "text": "type 2", "year": 2021},
    {"id": 7, "text": "heart failure", "metadata": {"year": 2019, "tags": ["x"]}},
    {"text": "no id"},
]
DOCUMENTS = [
    Document("a", "Diabetes type 2", {"year": 2021, "title": "Diabetes"}),
    Document("7", "heart failure", {"year": 2019, "tags": ["x"]}),
    Document(id_of_text("no id"), "no id"),
]


SAY_WHICH = "; say which one holds the text: --text NAME, in Python Columns(text=NAME)"


def unnamed(text: str, **metadata: Any) -> Document:
    """A document whose row has no id."""
    return Document(id_of_text(text), text, metadata)


def json_lines(rows: list[Any]) -> str:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def write(path: Path, content: str | bytes) -> Path:
    data = content.encode() if isinstance(content, str) else content
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def skipping(source: Any) -> tuple[list[Document], list[str]]:
    told: list[str] = []
    return list(read(source, on_error="skip", report=told.append)), told


def problem(source: Any) -> str:
    with pytest.raises(InputError) as caught:
        list(read(source))
    return str(caught.value)


def from_input(monkeypatch: pytest.MonkeyPatch, data: str | bytes) -> None:
    raw = io.BytesIO(data.encode() if isinstance(data, str) else data)
    buffered = io.BufferedReader(raw)  # type: ignore[type-var, unused-ignore]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(buffered))


@pytest.mark.parametrize(
    "name", ["d.jsonl", "d.ndjson", "d.jsonl.gz", "D.JSONL", "d.jsonl.bak", "plain", "plain.gz"]
)
def test_json_lines(tmp_path: Path, name: str) -> None:
    assert list(read(write(tmp_path / name, json_lines(ROWS)))) == DOCUMENTS
    assert list(read(str(tmp_path / name))) == DOCUMENTS


def test_gz_is_recognised_by_content(tmp_path: Path) -> None:
    path = write(tmp_path / "d.jsonl", gzip.compress(json_lines(ROWS).encode()))
    assert list(read(path)) == DOCUMENTS
    path = write(tmp_path / "d.md", gzip.compress(b"# T\ntext"))
    assert list(read(path)) == [Document("d.md", "# T\ntext", {"path": "d.md", "title": "T"})]


def test_blank_lines_count_but_are_no_documents(tmp_path: Path) -> None:
    path = write(tmp_path / "d.jsonl", '\ufeff{"text": "a"}\r\n\r\n  \n{"text": "b"}')
    assert list(read(path)) == [unnamed("a"), unnamed("b")]
    assert list(read(write(tmp_path / "empty.jsonl", ""))) == []


FIELDS: list[tuple[dict[Any, Any], Document]] = [
    ({"_id": "x", "id": 5, "text": "t"}, Document("x", "t", {"id": 5})),
    ({"id": 0, "text": ""}, Document("0", "")),
    ({"id": "é", "title": "T", "text": " t \n"}, Document("é", "T  t", {"title": "T"})),
    ({"id": "x", "title": "", "text": "t"}, Document("x", "t")),
    ({"id": "x", "title": None, "text": "t"}, Document("x", "t")),
    ({"id": "x", "title": "T", "text": ""}, Document("x", "T", {"title": "T"})),
    ({"id": "x", "text": "t", "metadata": {}}, Document("x", "t")),
    ({"id": "x", "text": "t", "metadata": None}, Document("x", "t")),
    ({"id": "x", "text": "t", "metadata": "m"}, Document("x", "t", {"metadata": "m"})),
    (
        {"id": "x", "text": "t", "a": 1, "metadata": {"a": 2, "b": 3, "id": 4, "text": "u"}},
        Document("x", "t", {"a": 1, "b": 3, "id": 4, "text": "u"}),
    ),
    (
        {"id": "x", "title": "T", "text": "t", "metadata": {"title": "else"}},
        Document("x", "T t", {"title": "T"}),
    ),
    ({"id": "x", "text": "t", "metadata": {"title": "T"}}, Document("x", "t", {"title": "T"})),
    ({"id": "x", "text": "t", "a": None, "b": [{}]}, Document("x", "t", {"a": None, "b": [{}]})),
    ({"id": "x" * 512, "text": "t"}, Document("x" * 512, "t")),
]


@pytest.mark.parametrize(("row", "document"), FIELDS)
def test_fields(tmp_path: Path, row: dict[Any, Any], document: Document) -> None:
    before = json.dumps(row)
    assert list(read([row])) == [document]
    assert list(read(write(tmp_path / "d.jsonl", json_lines([row])))) == [document]
    assert json.dumps(row) == before


def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


BAD_ROWS: list[tuple[dict[Any, Any], str]] = [
    ({}, 'no "text" field'),
    ({"text": None}, "the text is null, expected a string; give the row a text"),
    ({"text": ["t"]}, "the text is list, expected a string; give the row a text"),
    ({"id": "", "text": "t"}, "the id is empty"),
    ({"id": None, "text": "t"}, "the id is NoneType, expected str"),
    ({"id": True, "text": "t"}, "the id is bool, expected str"),
    ({"id": 1.5, "text": "t"}, "the id is float, expected str"),
    ({"id": "a\nb", "text": "t"}, r"the id 'a\nb' contains a control character"),
    ({"id": "a\x85", "text": "t"}, r"the id 'a\x85' contains a control character"),
    ({"id": "é" * 257, "text": "t"}, "the id has 514 bytes, at most 512 are allowed"),
    ({"title": 5, "text": "t"}, "the title is int, expected str"),
    ({"text": "a\ud800"}, "the text contains half a surrogate pair at character 1"),
    ({"id": "\udfff", "text": "t"}, "the id contains half a surrogate pair at character 0"),
    ({"text": "t", "a": ["\ud800"]}, "metadata.a[0] contains half a surrogate pair"),
    ({"text": "t", "\ud800": 1}, "a key of metadata contains half a surrogate pair"),
    ({"text": "t", "a": {"b": [1e999]}}, "metadata.a.b[0] is inf, which is not a JSON number"),
    ({"text": "t", "a": 2**1024}, "metadata.a is an integer of more than 1024 bits"),
    ({"text": "t", "a": deep(32)}, "the metadata is nested more than 32 levels deep"),
]


@pytest.mark.parametrize(("row", "said"), BAD_ROWS, ids=[said for _, said in BAD_ROWS])
def test_bad_fields(tmp_path: Path, row: dict[Any, Any], said: str) -> None:
    good = {"id": "g", "text": "good"}
    assert problem([good, row]).startswith(f"documents[1]: {said}")
    documents, told = skipping([good, row, good])
    assert [document.id for document in documents] == ["g", "g"]
    assert len(told) == 1
    line = json.dumps(row).replace("Infinity", "1e999")
    path = write(tmp_path / "d.jsonl", f'{{"id": "g", "text": "good"}}\n{line}\n{json.dumps(good)}')
    assert problem(path).startswith(f"{path}:2: {said}")
    documents, told = skipping(path)
    assert [document.id for document in documents] == ["g", "g"]
    assert len(told) == 1
    assert told[0].startswith(f"{path}:2: {said}")
    told[0].encode()


def test_the_deepest_metadata_pass() -> None:
    assert len(list(read([{"text": "t", "a": deep(31)}]))) == 1


BAD_LINES = [
    ('{"text": NaN}', "NaN is not JSON"),
    ('{"text": "t", "a": [-Infinity]}', "-Infinity is not JSON"),
    ('{"text": "t"', "not JSON: Expecting ',' delimiter at character 13"),
    ("{'text': 1}", "not JSON: Expecting property name enclosed in double quotes at character 2"),
    ('["t"]', "expected a JSON object, got list"),
    ('{"text": "t"} {}', "not JSON: Extra data at character 15"),
    ('{"a": ' + "[" * 100_000, "the JSON is nested too deeply"),
    ('{"text": "t", "a": ' + "9" * 5000 + "}", "the JSON has a number with too many digits"),
    (b'{"text": "\xff"}', "not UTF-8 (invalid start byte at byte 11)"),
    (b'{"text": "\xed\xa0\x80"}', "not UTF-8 (invalid continuation byte at byte 11)"),
]


@pytest.mark.parametrize(("line", "said"), BAD_LINES, ids=[said for _, said in BAD_LINES])
@pytest.mark.parametrize("name", ["d.jsonl", "d.jsonl.gz"])
def test_bad_lines(tmp_path: Path, name: str, line: str | bytes, said: str) -> None:
    bad = line.encode() if isinstance(line, str) else line
    path = write(tmp_path / name, b'{"text": "a"}\n' + bad + b'\n{"text": "b"}\n')
    assert problem(path) == f"{path}:2: {said}"
    assert skipping(path) == ([unnamed("a"), unnamed("b")], [f"{path}:2: {said}"])


def test_what_precedes_a_bad_line_is_kept(tmp_path: Path) -> None:
    documents = read(write(tmp_path / "d.jsonl", '{"text": "a"}\n?\n'))
    assert next(documents) == unnamed("a")
    with pytest.raises(InputError):
        next(documents)


def test_a_line_too_long_is_refused_without_being_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "LINE_BYTES", 2**20)
    fits = '{"text": "' + "x" * (2**20 - 13) + '"}\n'
    assert len(fits) == 2**20
    path = write(tmp_path / "d.jsonl", fits + "y" * (20 * 2**20) + '\n{"text": "b"}')
    tracemalloc.start()
    documents, told = skipping(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [len(document.text) for document in documents] == [2**20 - 13, 1]
    assert told == [f"{path}:2: the line has more than 1 MB"]
    assert peak < 8 * 2**20
    assert problem(path) == f"{path}:2: the line has more than 1 MB"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("d.jsonl.gz", b'{"text": "' + b"a" * 10_000_000),
        ("d.csv.gz", b"text\n" + b"a" * 10_000_000),
        ("d.csv.gz", b"text\n" + b'"\n",' * 2_000_000),
        ("d.txt.gz", b"a" * 10_000_000),
    ],
)
def test_a_text_that_unpacks_to_too_much_is_not_read_to_its_end(
    tmp_path: Path, name: str, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / name, content)
    for module in (files, source_tables, source_texts):
        monkeypatch.setattr(module, "LINE_BYTES", 100_000)
    read_bytes = 0

    class Watched(gzip.GzipFile):
        def read(self, size: int | None = -1) -> bytes:
            nonlocal read_bytes
            data = super().read(size)
            read_bytes += len(data)
            return data

    monkeypatch.setattr(gzip, "GzipFile", Watched)
    assert "has more than 100000 bytes" in problem(path)
    assert 100_000 < read_bytes < 1_000_000


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    lines = [json.dumps({"id": str(i), "text": "word " * 100, "n": i}) for i in range(20_000)]
    for name in ("d.jsonl", "d.jsonl.gz"):
        path = write(tmp_path / name, "\n".join(lines))
        tracemalloc.start()
        assert sum(1 for _ in read(path)) == 20_000
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 2**20


@pytest.mark.parametrize(("name", "mark"), [("d.csv", ","), ("D.TSV", "\t"), ("d.csv.gz", ",")])
def test_tables(tmp_path: Path, name: str, mark: str) -> None:
    rows = [
        ["id", " title ", "text", "year", "code", ""],
        ["007", "T", f'said "{mark}"\r\nline two', "2021", "007", "0"],
        ["1.0", "", "12", "", "-1.50", "1"],
        [],
        ["x", "", "", "true", "1e-05", "2"],
    ]
    text = io.StringIO()
    csv.writer(text, delimiter=mark).writerows(rows)
    path = write(tmp_path / name, "\ufeff" + text.getvalue())
    said = f'T said "{mark}"\r\nline two'
    assert list(read(path)) == [
        Document("007", said, {"year": 2021, "code": "007", "title": "T"}),
        Document("1.0", "12", {"code": -1.5}),
        Document("x", "", {"year": "true", "code": 1e-05}),
    ]


def test_rows_without_an_id_are_known_by_their_text(tmp_path: Path) -> None:
    path = write(tmp_path / "d.csv", 'text,n\n"a\nb",1\nc,2\n')
    assert list(read(path)) == [unnamed("a\nb", n=1), unnamed("c", n=2)]
    path = write(tmp_path / "d.csv", 'text,n\nnew,0\nc,3\n"a\nb",1\n')
    assert list(read(path)) == [unnamed("new", n=0), unnamed("c", n=3), unnamed("a\nb", n=1)]
    # The title is a part of the text; these two are the reference that stored ids are held to.
    (document,) = read([{"title": "type 2", "text": "diabetes"}])
    assert document.id == "2ae3516c38a3e6b3"


def test_two_columns_of_ids(tmp_path: Path) -> None:
    path = write(tmp_path / "d.csv", "id,_id,text\n5,x,t\n")
    assert list(read(path)) == [Document("x", "t", {"id": 5})]


@pytest.mark.parametrize(
    ("cell", "value"),
    [
        ("0", 0), ("-7", -7), ("123456789012345678", 123456789012345678), ("0.0", 0.0),
        ("-0.50", -0.5), ("1.5e+300", 1.5e300), ("2E-3", 0.002),
        *[(text, text) for text in (
            "007", "+1", "1.", ".5", "1,000", "1 ", "1e5", "2E10", "0x10", "1_000", "inf", "nan",
            "1234567890123456789", "1.0e+999", "２０", "true", "null", "2020-01-31", "--1", "-",
        )],
    ],
)  # fmt: skip
def test_cells(tmp_path: Path, cell: str, value: object) -> None:
    path = write(tmp_path / "d.csv", f'text,n\nt,"{cell}"\n')
    (document,) = read(path)
    assert document.metadata["n"] == value
    assert type(document.metadata["n"]) is type(value)


@given(st.integers(-(10**18) + 1, 10**18 - 1) | st.floats(allow_nan=False, allow_infinity=False))
def test_python_numbers_come_back_from_cells(number: int | float) -> None:
    cell = repr(number)
    value = source_tables._number_or_text(cell)
    long = len(cell.lstrip("-").partition(".")[0].partition("e")[0]) > 18
    assert value == (cell if long else number)


BAD_TABLES: list[tuple[str | bytes, str, list[str]]] = [
    ("text,n\na\nb,2\n", "2: the row has 1 fields, the header has 2", ["b"]),
    ("text,n\na,1,1\nb,2\n", "2: the row has 3 fields, the header has 2", ["b"]),
    ("id,text\n,a\nx,b\n", "2: the id is empty", ["b"]),
    ('text\n"a"b\nc\n', "2: not CSV: ',' expected after '\"'", ["c"]),
    ('text\na\n"b\nc\n', "3: not CSV: unexpected end of data", ["a"]),
    (b"text\n\xff\nc\n", "2: field 1 is not UTF-8", ["c"]),
    (b'n,text\n1,"a\n\xff\nb"\n2,c\n', "2: field 2 is not UTF-8", ["c"]),
]


@pytest.mark.parametrize(
    ("content", "said", "texts"), BAD_TABLES, ids=[row[1] for row in BAD_TABLES]
)
def test_bad_rows(tmp_path: Path, content: str | bytes, said: str, texts: list[str]) -> None:
    path = write(tmp_path / "d.csv", content)
    assert problem(path) == f"{path}:{said}"
    documents, told = skipping(path)
    assert told[0] == f"{path}:{said}"
    assert [document.text for document in documents] == texts


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", " is empty, expected a header line with a column 'text'"),
        ("\n\n", " is empty, expected a header line with a column 'text'"),
        ("id;body\n1;a\n", f" has no column 'text'; its columns are 'id', 'body'{SAY_WHICH}"),
        ("text,a,a\n1,2,3\n", " has two columns called 'a'"),
        (b"\xff\n", ":1: field 1 is not UTF-8"),
        ('"text', ":1: not CSV: unexpected end of data"),
    ],
)
def test_a_bad_header_always_stops(tmp_path: Path, content: str | bytes, said: str) -> None:
    path = write(tmp_path / "d.csv", content)
    assert problem(path) == f"{path}{said}"
    with pytest.raises(InputError):
        skipping(path)


def test_long_cells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "word " * 100_000
    path = write(tmp_path / "d.csv", f'text\n"{text}"\n')
    assert list(read(path)) == [unnamed(text.strip())]
    before = csv.field_size_limit(1000)
    monkeypatch.setattr(source_tables, "LINE_BYTES", 2000)
    path = write(tmp_path / "e.csv", 'text\n"' + "a\n" * 1500 + '"\nb\n')
    assert problem(path) == f"{path}:2: the row has more than 2000 bytes"
    path = write(tmp_path / "f.csv", "text,n\n" + '"\n",' * 1500 + '"\n"\n')
    assert problem(path) == f"{path}:2: the row has more than 2000 bytes"
    path = write(tmp_path / "g.csv", f"text\n{'a' * 1999}\n{'b' * 1999}\n")
    assert [len(document.text) for document in read(path)] == [1999, 1999]
    csv.field_size_limit(before)


def parquet_file(path: Path, columns: dict[str, Any], **options: Any) -> Path:
    pq.write_table(pa.table(columns), path, **options)
    return path


def test_parquet(tmp_path: Path) -> None:
    zone = datetime.UTC
    path = parquet_file(
        tmp_path / "d.parquet",
        {
            "id": pa.array([1, 2]),
            "title": pa.array(["T", None]),
            "text": pa.array(["a", "b"], pa.large_string()),
            "year": pa.array([2020, None], pa.int32()),
            "score": pa.array([0.5, 1e308]),
            "day": pa.array([datetime.date(2020, 1, 31), None]),
            "at": pa.array([1, None], pa.timestamp("ns")),
            "zoned": pa.array([datetime.datetime(2020, 1, 1, tzinfo=zone), None]),
            "price": pa.array([decimal.Decimal("1.10"), None]),
            "tags": pa.array([["x", None], []]),
            "where": pa.array([{"city": "Bonn"}, None]),
            "kind": pa.array(["k", "k"]).dictionary_encode(),
            "metadata": pa.array([{"year": 1, "more": True}, None]),
            "__index_level_0__": pa.array([0, 1]),
        },
    )
    first = {
        **{"more": True, "title": "T", "year": 2020, "score": 0.5, "day": "2020-01-31"},
        **{"at": "1970-01-01T00:00:00", "zoned": "2020-01-01T00:00:00+00:00", "price": 1.1},
        **{"tags": ["x", None], "where": {"city": "Bonn"}, "kind": "k"},
    }
    second = {"score": 1e308, "tags": [], "kind": "k"}
    expected = [Document("1", "T a", first), Document("2", "b", second)]
    assert list(read(path)) == expected
    path.rename(tmp_path / "unnamed")
    assert list(read(tmp_path / "unnamed")) == expected


def test_parquet_row_groups_and_ids(tmp_path: Path) -> None:
    texts = [f"text {i}" for i in range(3000)]
    path = parquet_file(tmp_path / "d.parquet", {"text": texts}, row_group_size=700)
    assert list(read(path)) == [unnamed(text) for text in texts]


def test_parquet_mistakes(tmp_path: Path) -> None:
    path = parquet_file(
        tmp_path / "d.parquet",
        {
            "id": ["a", None, "c", "d", "e"],
            "text": ["a", "b", None, "d", "e"],
            "n": [1.0, 2.0, 3.0, float("nan"), 5.0],
            "b": [None, None, None, None, b"x"],
        },
    )
    assert skipping(path) == (
        [Document("a", "a", {"n": 1.0})],
        [
            f"{path}:2: the id is NoneType, expected str",
            f'{path}:3: no "text" field',
            f"{path}:4: metadata.n is nan, which is not a JSON number",
            f"{path}:5: metadata.b is bytes, expected a JSON value",
        ],
    )
    assert problem(path) == f"{path}:2: the id is NoneType, expected str"
    path = parquet_file(tmp_path / "e.parquet", {"body": ["a"]})
    assert problem(path) == f"{path} has no column 'text'; its columns are 'body'{SAY_WHICH}"


def test_damaged_parquet(tmp_path: Path) -> None:
    whole = parquet_file(tmp_path / "d.parquet", {"text": ["a" * 100] * 1000}).read_bytes()
    for content in (b"", b"PAR1", whole[: len(whole) // 2], b"x" + whole[:-4], b"junk" * 10):
        path = write(tmp_path / "e.parquet", content)
        assert problem(path).startswith(f"cannot read {path} as Parquet: ")
        assert "\n" not in problem(path)
        with pytest.raises(InputError):
            skipping(path)


def test_parquet_without_pyarrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = parquet_file(tmp_path / "d.parquet", {"text": ["a"]})
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'hplus\[parquet\]'"):
        list(read(path))


def test_importing_sources_imports_no_pyarrow() -> None:
    check = "import hplus.sources.read, sys; assert 'pyarrow' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", check]).returncode == 0


@pytest.mark.parametrize("name", ["corpus.jsonl", "corpus.jsonl.gz"])
def test_a_beir_folder(tmp_path: Path, name: str) -> None:
    write(tmp_path / name, json_lines(ROWS))
    write(tmp_path / "queries.jsonl", json_lines([{"_id": "q", "text": "no document"}]))
    write(tmp_path / "README.md", "no document")
    assert list(read(tmp_path)) == DOCUMENTS
    write(tmp_path / name, "{}")
    assert problem(tmp_path) == f'{tmp_path / name}:1: no "text" field'


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_demo_corpora_read_as_the_evaluation_reads_them(language: str) -> None:
    corpus = read_beir(demo_folder(language))
    documents = list(read(demo_folder(language)))
    assert [document.id for document in documents] == corpus.document_ids
    assert [document.text for document in documents] == corpus.documents


def test_a_tree_of_texts(tmp_path: Path) -> None:
    for name in ("b.txt", "a/z.txt", "a.txt", "a-b/x.md", "a/b/c.TXT", "é.md"):
        write(tmp_path / name, f"\ufeff\ntext of {name}\n")
    for name in (".hidden.txt", ".git/x.txt", "data.json", "txt", "a/.b/c.md", "x.txt.gz"):
        write(tmp_path / name, "not read")
    documents = list(read(tmp_path))
    ids = [document.id for document in documents]
    assert ids == sorted(["b.txt", "a/z.txt", "a.txt", "a-b/x.md", "a/b/c.TXT", "é.md"])
    for document in documents:
        assert document == Document(document.id, f"text of {document.id}", {"path": document.id})


@settings(deadline=None, max_examples=25)
@given(st.sets(st.lists(st.sampled_from(["a", "b", "a-", "a.", "a0"]), min_size=1, max_size=3)
               .map(lambda steps: "/".join(steps) + ".txt"), min_size=1))  # fmt: skip
def test_a_tree_is_in_the_order_of_its_ids(names: set[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            write(Path(folder) / name, "t")
        assert [document.id for document in read(folder)] == sorted(names)


def test_links(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    write(tree / "a.txt", "a")
    write(tmp_path / "other" / "o.txt", "o")
    (tree / "loop").symlink_to(tree)
    (tree / "up").symlink_to(tmp_path)
    (tree / "folder.txt").symlink_to(tmp_path / "other")
    (tree / "file.txt").symlink_to(tmp_path / "other" / "o.txt")
    assert [document.id for document in read(tree)] == ["a.txt", "file.txt"]
    (tmp_path / "link").symlink_to(tree)
    assert [document.id for document in read(tmp_path / "link")] == ["a.txt", "file.txt"]
    (tree / "self.txt").symlink_to(tree / "self.txt")
    (tree / "gone.txt").symlink_to(tree / "nothing")
    os.mkfifo(tree / "pipe.txt")
    documents, told = skipping(tree)
    assert [document.id for document in documents] == ["a.txt", "file.txt"]
    assert told == [
        f"{tree}/gone.txt: the file is missing",
        f"{tree}/self.txt: cannot read the file: Too many levels of symbolic links",
    ]


def test_a_very_deep_tree(tmp_path: Path) -> None:
    folders = [tmp_path / "/".join("d" * depth) for depth in range(1, 1201)]
    for folder in folders:
        folder.mkdir()
    try:
        write(folders[20] / "z.txt", "z")
        assert [document.text for document in read(tmp_path)] == ["z"]
        (folders[20] / "z.txt").unlink()
    finally:
        # Python's own rmtree, which pytest calls, would go too deep.
        for folder in reversed(folders):
            folder.rmdir()


def test_bad_files_of_a_tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_texts, "LINE_BYTES", 100)
    write(tmp_path / "a.txt", "x" * 101)
    write(tmp_path / "b.txt", b"\xff")
    write(tmp_path / "c.txt", gzip.compress(b"x" * 50)[:-4])
    write(tmp_path / "d\n.txt", "t")
    write(tmp_path / ("e" * 200) / ("e" * 200) / ("e" * 200 + ".txt"), "t")
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/f\xff.txt")).write_text("t")
    write(tmp_path / "g.txt", "good")
    documents, told = skipping(tmp_path)
    assert [document.id for document in documents] == ["g.txt"]
    assert [one.removeprefix(str(tmp_path)).rpartition(".txt: ")[2] for one in told] == [
        "the file has more than 100 bytes",
        "not UTF-8 (invalid start byte at byte 1)",
        "the file is damaged: Compressed file ended before the end-of-stream marker was reached",
        r"the id 'd\n.txt' contains a control character",
        "the id has 606 bytes, at most 512 are allowed",
        "the id contains half a surrogate pair at character 1",
    ]
    "".join(told).encode()
    assert problem(tmp_path) == f"{tmp_path}/a.txt: the file has more than 100 bytes"


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("# Heart failure\ntext", "Heart failure"),
        ("intro\n\n## Two  ##\n# One", "Two"),
        ("```\n# code\n```\n### C# ###", "C#"),
        ("   # in", "in"),
        ("#hashtag\n####### seven", None),
        ("#\n# \n", None),
        ("no heading", None),
    ],
)
def test_titles_of_markdown(tmp_path: Path, text: str, title: str | None) -> None:
    path = write(tmp_path / "d.md", text)
    expected = {"path": "d.md"} | ({"title": title} if title else {})
    assert list(read(path)) == [Document("d.md", text.strip(), expected)]
    write(tmp_path / "d.txt", text)
    assert list(read(tmp_path / "d.txt")) == [Document("d.txt", text.strip(), {"path": "d.txt"})]


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    from_input(monkeypatch, "\n  \n" + json_lines(ROWS))
    assert list(read("-")) == DOCUMENTS
    from_input(monkeypatch, "\nfirst line\r\n\n {\n")
    assert list(read("-")) == [unnamed("first line"), unnamed("{")]
    from_input(monkeypatch, gzip.compress(b"zipped\n"))
    assert list(read("-")) == [unnamed("zipped")]
    from_input(monkeypatch, "")
    assert list(read("-")) == []
    from_input(monkeypatch, b"good\n\xff\nbetter\n")
    assert skipping("-") == (
        [unnamed("good"), unnamed("better")],
        ["standard input:2: not UTF-8 (invalid start byte at byte 1)"],
    )
    from_input(monkeypatch, gzip.compress(b"zipped\n")[:-4])
    assert problem("-").startswith("standard input is damaged: Compressed file ended before")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"in memory")))
    assert list(read("-")) == [unnamed("in memory")]
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(InputError, match="standard input is closed"):
        read("-")


def test_a_pipe_by_name() -> None:
    program = "import sys\nfrom hplus.sources.read import read\nprint(list(read(sys.argv[1])))"
    shell = '"$0" -c "$1" <(printf \'{"text": "piped"}\')'
    command = ["bash", "-c", shell, sys.executable, program]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "text='piped'" in done.stdout


def test_python_iterables() -> None:
    items = [
        "  a text ",
        {"text": "b"},
        ("x", "c"),
        [5, "d"],
        Document("y", " e "),
        {"_id": 1, "text": ""},
        "",
    ]
    expected = [
        unnamed("a text"),
        unnamed("b"),
        Document("x", "c"),
        Document("5", "d"),
        Document("y", " e "),
        Document("1", ""),
        unnamed(""),
    ]
    assert list(read(items)) == expected
    assert list(read(iter(items))) == expected
    assert list(read(tuple(items))) == expected
    assert list(read([])) == []


def test_iterables_are_read_lazily() -> None:
    def endless() -> Iterator[str]:
        while True:
            yield "text"

    documents = read(endless())
    assert [next(documents).text for _ in range(3)] == ["text"] * 3


def test_errors_of_the_iterable_are_its_own() -> None:
    def failing() -> Iterator[str]:
        yield "a"
        raise OSError("their disk")

    with pytest.raises(OSError, match="their disk"):
        list(read(failing(), on_error="skip", report=print))


@pytest.mark.parametrize(
    ("item", "said"),
    [
        (5, "expected str, dict, (id, text) or Document, got int"),
        (None, "expected str, dict, (id, text) or Document, got NoneType"),
        (b"x", "expected str, dict, (id, text) or Document, got bytes"),
        (("a", "b", "c"), "expected str, dict, (id, text) or Document, got tuple"),
        (
            ("a", 5),
            "the text is int, expected a string; give the row a text, or leave such rows out with "
            '--on-error skip (on_error="skip")',
        ),
        ((None, "a"), "the id is NoneType, expected str"),
        ({"text": "t", 5: 1}, "metadata has the key 5, expected str"),
        ({"text": "t", "a": (1, 2)}, "metadata.a is tuple, expected a JSON value"),
        ({"text": "t", "a": {1}}, "metadata.a is set, expected a JSON value"),
        ({"text": "t", "a": float("nan")}, "metadata.a is nan, which is not a JSON number"),
    ],
)
def test_bad_items(item: object, said: str) -> None:
    assert problem(["good", item]) == f"documents[1]: {said}"
    assert skipping([item, "good"]) == ([unnamed("good")], [f"documents[0]: {said}"])


class Columns:
    """As much of a table as iterates over the names of its columns."""

    def keys(self) -> list[str]:
        return ["id", "text"]

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (5, "expected a file, a folder, - or a list of documents, got int"),
        (None, "expected a file, a folder, - or a list of documents, got NoneType"),
        ({"text": "a"}, "got dict; put it in brackets"),
        (b"text", "got bytes; put it in brackets"),
        (MappingProxyType({}), "got mappingproxy, which iterates over its keys; give its rows"),
        (Columns(), "got Columns, which iterates over its keys; give its rows"),
        (Document("a", "b"), "got Document; put it in brackets"),
    ],
)
def test_not_a_source(source: Any, said: str) -> None:
    with pytest.raises(InputError) as caught:
        read(source)
    assert str(caught.value).endswith(said)


TABLE = {
    "id": ["a", "b", "c"],
    "text": ["one", "two", "three"],
    "year": [2020, None, 2022],
    "on": [datetime.datetime(2020, 1, 2), None, datetime.datetime(2021, 1, 1)],
    "tags": [["x", "y"], [], None],
}
OF_TABLE = [
    Document("a", "one", {"year": 2020, "on": "2020-01-02T00:00:00", "tags": ["x", "y"]}),
    Document("b", "two", {"tags": []}),
    Document("c", "three", {"year": 2022, "on": "2021-01-01T00:00:00"}),
]


class Polars:
    """What polars has; it is not among our dependencies."""

    schema = columns = tuple(TABLE)

    def iter_rows(self, *, named: bool) -> Iterator[dict[str, Any]]:
        assert named
        return (dict(zip(TABLE, row, strict=True)) for row in zip(*TABLE.values(), strict=True))

    def __iter__(self) -> Iterator[Any]:
        return iter(TABLE.values())


class Dataset:
    """What Hugging Face's datasets have: rows that are dicts, no keys."""

    column_names = tuple(TABLE)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        rows = pa.table(TABLE).drop_columns(["on", "tags", "year"]).to_pylist()
        return iter(rows)


def test_tables_in_memory_are_read_by_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    frame, arrow = pd.DataFrame(TABLE), pa.table(TABLE)
    assert list(read(frame)) == OF_TABLE
    assert list(read(frame.set_index("id"))) == OF_TABLE
    for source in (arrow, arrow.to_batches()[0], arrow.to_reader(), dataset(arrow), Polars()):
        assert list(read(source)) == OF_TABLE
    assert list(read(Dataset())) == [Document(one.id, one.text) for one in OF_TABLE]
    assert list(read(row for row in arrow.to_pylist()[1:2])) == [
        Document("b", "two", {"year": None, "on": None, "tags": []})
    ]
    assert list(read(frame["text"])) == [unnamed(text) for text in TABLE["text"]]
    assert count(frame) == count(arrow) == 3
    monkeypatch.setattr(source_tables, "BATCH", 2)
    assert list(read(frame)) == list(read(arrow)) == OF_TABLE


def test_mistakes_of_tables_in_memory() -> None:
    for source in (pd.DataFrame({"id": [1]}), pa.table({"id": [1]})):
        name = type(source).__name__
        said = f"the {name} has no column 'text'; its columns are 'id'{SAY_WHICH}"
        assert problem(source) == said
    frame = pd.DataFrame([["a", "b", "c"]], columns=["text", "x", "x"])
    assert problem(frame) == "the DataFrame has two columns called 'x'"
    frame = pd.DataFrame({"text": ["a", None, "c"]})
    documents, told = skipping(frame)
    assert [document.text for document in documents] == ["a", "c"]
    assert told == ['documents[1]: no "text" field']
    assert problem(pd.DataFrame({"text": ["a"], 5: [1]})).endswith("has the key 5, expected str")


# Ids that repeat


@pytest.mark.parametrize(
    ("name", "content", "place"),
    [
        ("d.jsonl", json_lines([{"id": one, "text": one} for one in "aba"]), "3"),
        ("d.csv", 'id,text\na,"one\ntwo"\nb,x\na,y\n', "5"),
    ],
)
def test_an_id_that_repeats_is_a_bad_row(
    tmp_path: Path, name: str, content: str, place: str
) -> None:
    path = write(tmp_path / name, content)
    said = f"{path}:{place}: the id 'a' repeats; ids must differ"
    with pytest.raises(InputError, match=re.escape(said)):
        list(read(path, is_new=noting()))
    told: list[str] = []
    documents = read(path, on_error="skip", report=told.append, is_new=noting())
    assert [document.id for document in documents] == ["a", "b"]
    assert told == [said]


def test_equal_texts_without_ids_are_numbered() -> None:
    rows: list[Any] = ["x", {"text": "x", "n": 1}, "y", "x", {"id": id_of_text("x"), "text": "z"}]
    told: list[str] = []
    documents = list(read(rows, on_error="skip", report=told.append, is_new=noting()))
    name = id_of_text("x")
    assert [document.id for document in documents] == [
        name,
        f"{name}-2",
        id_of_text("y"),
        f"{name}-3",
    ]
    assert told == [f"documents[4]: the id {name!r} repeats; ids must differ"]


def test_many_equal_texts_take_two_questions_each() -> None:
    asked: list[str] = []
    is_new = noting()

    def counting(id: str) -> bool:
        asked.append(id)
        return is_new(id)

    assert len(list(read(["n/a"] * 1000, is_new=counting))) == 1000
    assert len(asked) == 1 + 2 * 999


def noting() -> Callable[[str], bool]:
    """The plain reference of `storage.seen`."""
    seen: set[str] = set()

    def is_new(id: str) -> bool:
        new = id not in seen
        seen.add(id)
        return new

    return is_new


class Compared(str):
    """A text that counts how often it is compared."""

    times = 0

    def __eq__(self, other: object) -> bool:
        Compared.times += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


def test_the_columns_of_a_table_are_compared_a_few_times_each() -> None:
    columns = [Compared(f"c{i}") for i in range(2000)]
    source_columns.of_header("d.csv", [*columns, "text"], source_columns.DEFAULT)
    assert Compared.times < 10 * len(columns)


def test_options_are_checked_at_once() -> None:
    with pytest.raises(InputError, match="got 'ignore'"):
        read([], on_error="ignore")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="needs report="):
        read([], on_error="skip")


def test_unreadable_sources(tmp_path: Path) -> None:
    missing = tmp_path / "nothing.jsonl"
    for path in (missing, write(tmp_path / "file", "x") / "below"):
        with pytest.raises(InputError) as caught:
            read(path)
        assert str(caught.value) == f"{path} is missing; give a file, a folder, or - for input"
    with pytest.raises(InputError, match=r"cannot read .*null"):
        read("a\x00b")
    with pytest.raises(InputError, match=r"cannot read .*[Nn]ame too long"):
        read("x" * 5000)
    empty = tmp_path / "empty"
    write(empty / "data.csv", "text\na\n")
    assert problem(empty) == (
        f"{empty} has no .txt, .md, .html or .pdf file that can be read (it has 1 .csv) and no "
        "corpus.jsonl; name a .jsonl, .csv or .parquet file itself"
    )
    path = write(tmp_path / "d.json", '[{"text": "a"}]')
    assert problem(path) == f"{path} is a JSON list; write it as JSON lines, one object per line"
    for path in (write(tmp_path / "d.docx", "PK"), write(tmp_path / "nil", "")):
        assert problem(path) == (
            f"{path} is of an unknown kind; "
            "expected .jsonl, .csv, .tsv, .parquet, .txt, .md, .html, .pdf or a folder"
        )


def test_damaged_gz(tmp_path: Path) -> None:
    whole = gzip.compress(json_lines([{"text": f"text {i}"} for i in range(5000)]).encode())
    path = tmp_path / "d.jsonl.gz"
    for content, said in (
        (whole[: len(whole) // 2], f"{path} is damaged: Compressed file ended before"),
        (whole[:1000] + bytes(1000) + whole[2000:], f"{path} is damaged: "),
        (whole[:-8] + bytes([whole[-8] ^ 1]) + whole[-7:], f"{path} is damaged: CRC check failed"),
        (whole + b"rubbish", f"{path} is damaged: Not a gzipped file"),
    ):
        path.write_bytes(content)
        assert problem(path).startswith(said)
        with pytest.raises(InputError):
            skipping(path)


@given(st.binary(max_size=200), st.sampled_from(["d.jsonl", "d.csv", "d.txt", "d.parquet", "d"]))
@settings(deadline=None, max_examples=150)
def test_any_bytes_give_documents_or_our_errors(content: bytes, name: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(content)
        told: list[str] = []
        with contextlib.suppress(HPlusError):
            for document in read(path, on_error="skip", report=told.append):
                assert Document(document.id, document.text, document.metadata) == document
        assert all("\n" not in one for one in told)


metadata_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abc"), inner, max_size=3),
    max_leaves=5,
)  # fmt: skip


@settings(deadline=None)
@given(
    st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=100),
    st.text(st.characters(exclude_categories=["Cs"])),
    st.dictionaries(st.text("abc", min_size=1), metadata_values, max_size=4),
)
def test_json_lines_give_back_what_was_written(
    id: str, text: str, metadata: dict[str, Any]
) -> None:
    row = {"_id": id, "text": text, **metadata}
    with tempfile.TemporaryDirectory() as folder:
        path = write(Path(folder) / "d.jsonl", json_lines([row, row]))
        assert list(read(path)) == [Document(id, text.strip(), metadata)] * 2


# How many there are


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("d.jsonl", json_lines(ROWS)),
        ("d.jsonl.gz", "\n" + json_lines(ROWS) + " \n\n"),
        ("d.jsonl", '{"text": "no end of line"}'),
        ("corpus.jsonl", json_lines(ROWS)),
        ("d.csv", 'text\n"two\nlines"\n\nb\n'),
        ("d.tsv.gz", "id\ttext\n1\ta\n2\tb\n"),
        ("d.csv", "text\n"),
        ("d.md", "# One\n\ntext"),
        ("d.jsonl", ""),
    ],
)
def test_the_count_is_that_of_the_documents(tmp_path: Path, name: str, content: str) -> None:
    path = write(tmp_path / name, content)
    for source in (path, str(path), *([tmp_path] if name == "corpus.jsonl" else [])):
        assert count(source) == len(list(read(source)))


def test_counts_of_parquet_folders_and_lists(tmp_path: Path) -> None:
    path = parquet_file(tmp_path / "d.parquet", {"text": ["a"] * 5000}, row_group_size=100)
    assert count(path) == 5000
    for name in ("a.txt", "b/c.md", ".hidden.txt", "data.json"):
        write(tmp_path / "tree" / name, "t")
    assert count(tmp_path / "tree") == 2
    assert count(["a", "b"]) == count(("a", "b")) == count({"a": 1, "b": 2}.items()) == 2


def test_bad_rows_count_too(tmp_path: Path) -> None:
    for name, content in (
        ("d.jsonl", b'{"text": "a"}\n?\n\xff\n'),
        ("d.csv", b"text\na,b\n\xff\n"),
    ):
        path = write(tmp_path / name, content)
        documents, told = skipping(path)
        assert count(path) == len(documents) + len(told)


def test_what_cannot_be_counted(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.jsonl")
    damaged = write(tmp_path / "d.parquet", b"PAR1")
    cut = tmp_path / "d.jsonl.gz"
    cut.write_bytes(gzip.compress(json_lines(ROWS).encode())[:-4])
    for source in (iter(["a"]), "-", tmp_path / "none", tmp_path / "pipe.jsonl", damaged, cut):
        assert count(source) is None


def test_counting_takes_bounded_memory(tmp_path: Path) -> None:
    path = write(tmp_path / "d.jsonl", json_lines([{"text": "word " * 100}] * 20_000))
    tracemalloc.start()
    assert count(path) == 20_000
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**20
