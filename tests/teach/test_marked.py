"""Reading texts to be labelled: each kind of row, and each mistake by file and line."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hplus.errors import InputError
from hplus.teach.marked import Marked, read_marked, read_rows


def written(folder: Path, name: str, *rows: Any, packed: bool = False) -> Path:
    data = "".join(json.dumps(row) + "\n" for row in rows).encode()
    path = folder / name
    path.write_bytes(gzip.compress(data) if packed else data)
    return path


@pytest.mark.parametrize("packed", [False, True])
def test_every_kind_of_row(tmp_path: Path, packed: bool) -> None:
    path = written(
        tmp_path,
        "rows.jsonl.gz" if packed else "rows.jsonl",
        {"text": "heart failure", "spans": [[0, 13, "Disease"], [0, 5, "NP"]], "id": 7},
        {"text": "cell by cell", "segments": ["cell", "cells", "cell"]},
        {"query": "what is p53", "positive": "p53 is a gene", "negative": "no"},
        {"text": "alone"},
        {"text": "", "spans": []},
        {"text": "both", "query": "q", "positive": "p"},
        packed=packed,
    )
    assert list(read_marked(path)) == [
        Marked("heart failure", ((0, 13, "Disease"), (0, 5, "NP"))),
        Marked("cell by cell", ((0, 4, "segment"), (8, 12, "segment")), lost=1),
        Marked("what is p53"),
        Marked("p53 is a gene"),
        Marked("alone"),
        Marked(""),
        Marked("both"),
    ]


@pytest.mark.parametrize("name", ["notes.txt", "notes", "notes.txt.gz", "notes.json"])
@pytest.mark.parametrize("packed", [False, True])
def test_any_other_file_is_a_text_a_line(tmp_path: Path, name: str, packed: bool) -> None:
    """gz is known by its first bytes, not by its name."""
    data = '\n  heart failure \r\n\t\n{"text": "as it stands"}\n心力衰竭'.encode()
    (tmp_path / name).write_bytes(gzip.compress(data) if packed else data)
    texts = [marked.text for marked in read_marked(tmp_path / name)]
    assert texts == ["heart failure", '{"text": "as it stands"}', "心力衰竭"]


def test_an_empty_file_has_no_rows(tmp_path: Path) -> None:
    for name in ("empty.txt", "empty.jsonl"):
        (tmp_path / name).write_bytes(b"")
        assert list(read_marked(tmp_path / name)) == []


BAD = [
    ("nonsense", "is not JSON"),
    ('{"text": "heart"', "is not JSON"),
    ("[]", 'expected a JSON object with a "text"'),
    ("null", 'expected a JSON object with a "text"'),
    ("5", 'expected a JSON object with a "text"'),
    ("{}", 'expected a JSON object with a "text"'),
    ('{"text": null}', 'expected a JSON object with a "text"'),
    ('{"text": ["heart"]}', 'expected a JSON object with a "text"'),
    ('{"query": "heart"}', 'expected a JSON object with a "text"'),
    ('{"positive": "heart"}', 'expected a JSON object with a "text"'),
    ('{"query": "heart", "positive": 5}', 'expected a JSON object with a "text"'),
    ('{"text": "heart", "spans": null}', '"spans" must be a list'),
    ('{"text": "heart", "spans": {"0": 5}}', '"spans" must be a list'),
    ('{"text": "heart", "segments": null}', '"segments" must be a list of strings'),
    ('{"text": "heart", "segments": "heart"}', '"segments" must be a list of strings'),
    ('{"text": "heart", "segments": ["heart", 5]}', '"segments" must be a list of strings'),
]


@pytest.mark.parametrize(("line", "message"), BAD)
@pytest.mark.parametrize("packed", [False, True])
def test_a_bad_row_is_named_by_its_line(
    tmp_path: Path, line: str, message: str, packed: bool
) -> None:
    path = tmp_path / "bad.jsonl"
    data = f'{{"text": "fine"}}\n{line}\n{{"text": "never reached"}}\n'.encode()
    path.write_bytes(gzip.compress(data) if packed else data)
    rows = read_marked(path)
    assert next(rows) == Marked("fine")
    with pytest.raises(InputError) as error:
        list(rows)
    assert f"{path}:2" in str(error.value)
    assert message in str(error.value)


@pytest.mark.parametrize(
    "span",
    [
        [0, 6, "x"],
        [-1, 3, "x"],
        [3, 3, "x"],
        [4, 2, "x"],
        [0, 5],
        [0, 5, "x", "y"],
        [0, 5, 1],
        [0, 5, None],
        [0.0, 5, "x"],
        ["0", 5, "x"],
        {"start": 0, "end": 5},
        "heart",
        None,
        5,
    ],
)
def test_a_bad_span_is_shown(tmp_path: Path, span: Any) -> None:
    fine = {"text": "heart", "spans": [[0, 5, "x"]]}
    bad = {"text": "heart", "spans": [[0, 5, "x"], span]}
    path = written(tmp_path, "bad.jsonl", fine, bad)
    with pytest.raises(InputError) as error:
        list(read_marked(path))
    assert str(error.value) == (
        f"{path}:2: expected spans [start, end, type] with 0 <= start < end <= 5, "
        f"got {json.dumps(span)}"
    )


def test_true_and_false_are_no_offsets(tmp_path: Path) -> None:
    path = written(tmp_path, "bad.jsonl", {"text": "heart", "spans": [[False, True, "x"]]})
    with pytest.raises(InputError, match="expected spans"):
        list(read_marked(path))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.text(max_size=6), st.integers(-2, 8), st.integers(-2, 8))
def test_a_span_is_taken_where_it_lies_in_the_text(
    tmp_path: Path, text: str, start: int, end: int
) -> None:
    path = written(tmp_path, "any.jsonl", {"text": text, "spans": [[start, end, "x"]]})
    if start in range(len(text)) and end in range(start + 1, len(text) + 1):
        assert list(read_marked(path)) == [Marked(text, ((start, end, "x"),))]
    else:
        with pytest.raises(InputError, match=r"any\.jsonl:1: expected spans"):
            list(read_marked(path))


@pytest.mark.parametrize("name", ["bad.txt", "bad.jsonl"])
@pytest.mark.parametrize("packed", [False, True])
def test_bytes_that_are_not_utf8(tmp_path: Path, name: str, packed: bool) -> None:
    data = b'{"text": "fine"}\n{"text": "caf\xe9"}\n'
    path = tmp_path / name
    path.write_bytes(gzip.compress(data) if packed else data)
    with pytest.raises(InputError, match=r"bad\.\w+:2: not UTF-8"):
        list(read_marked(path))


@pytest.mark.parametrize("name", ["notes.txt", "rows.jsonl"])
@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:-9],
        lambda data: data[: len(data) // 2],
        lambda data: data[:20] + bytes(10) + data[30:],
        lambda data: data[:-8] + bytes(8),
        lambda _: b"\x1f\x8bnonsense",
        lambda data: data + b"more",
    ],
    ids=["cut", "halved", "overwritten", "wrong checksum", "no gzip", "followed by other bytes"],
)
def test_a_damaged_gz(tmp_path: Path, name: str, damage: Any) -> None:
    rows = "".join(json.dumps({"text": f"text {i * 7919}"}) + "\n" for i in range(50))
    path = tmp_path / name
    path.write_bytes(damage(gzip.compress(rows.encode())))
    with pytest.raises(InputError, match=rf"{name} is damaged: "):
        list(read_marked(path))


def test_a_missing_file_and_a_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.txt is missing"):
        list(read_marked(tmp_path / "none.txt"))
    with pytest.raises(InputError, match="is a folder, expected a file"):
        list(read_marked(tmp_path))


def test_rows_with_fields_that_must_be_strings(tmp_path: Path) -> None:
    path = written(tmp_path, "rows.jsonl", {"a": "x", "b": "y", "c": 1}, {"a": "x", "b": None})
    rows = read_rows(path, "a", "b")
    assert next(rows) == (1, {"a": "x", "b": "y", "c": 1})
    with pytest.raises(InputError, match=r"rows\.jsonl:2 lacks b$"):
        next(rows)
    for line in ("[]", "{}", "null"):
        path.write_text(line)
        with pytest.raises(InputError, match=r"rows\.jsonl:1 lacks a and b$"):
            list(read_rows(path, "a", "b"))
    path.write_text("{")
    with pytest.raises(InputError, match=r"rows\.jsonl:1 is not JSON"):
        list(read_rows(path))
