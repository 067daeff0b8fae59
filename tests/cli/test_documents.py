"""`hplus get`, `hplus export`, `hplus delete --where` as typed."""

from __future__ import annotations

import io
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hplus import Document, HPlus, Index

Run = Callable[..., tuple[int, str, str]]
ROWS = [
    Document("a", "Metformin treats type 2 diabetes.", {"title": "Metformin", "year": 2021}),
    Document("b", "Line one.\n\x1b[31mLine two.", {"tags": ["x"]}),
]


@pytest.fixture(scope="module")
def made(tiny: HPlus, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("made") / "notes.hplus"
    with Index.create(path, tiny) as index:
        index.add(ROWS)
    return path


@pytest.fixture
def index(made: Path, tmp_path: Path) -> Path:
    """A copy that a test may change."""
    return Path(shutil.copytree(made, tmp_path / "notes.hplus"))


def asked(monkeypatch: pytest.MonkeyPatch, answer: str, *, terminal: bool = True) -> None:
    stream = io.StringIO(answer)
    monkeypatch.setattr(stream, "isatty", lambda: terminal)
    monkeypatch.setattr(sys, "stdin", stream)


def test_get_for_people(run: Run, made: Path) -> None:
    code, out, err = run("get", made, "a", "b")
    assert (code, err) == (0, "")
    assert out == (
        "a\ntitle: Metformin\nyear: 2021\nMetformin treats type 2 diabetes.\n\n"
        'b\ntags: ["x"]\nLine one.\n␛[31mLine two.\n'
    )


def test_get_json(run: Run, made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked(monkeypatch, "b\n\na\n")
    code, out, err = run("get", made, "-", "--json")
    assert (code, err) == (0, "")
    assert [json.loads(line) for line in out.splitlines()] == [
        {"id": row.id, "text": row.text, "metadata": row.metadata} for row in reversed(ROWS)
    ]


def test_get_what_is_not_there(run: Run, made: Path) -> None:
    code, out, err = run("get", made, "z", "a", "y", "--json")
    assert code == 1
    assert json.loads(out)["id"] == "a"
    assert err == "not in the index: z and 1 more\n"


def test_export(run: Run, made: Path, tmp_path: Path, tiny_folder: Path) -> None:
    _, lines, err = run("export", made, "-")
    assert err == ""
    for name in ("out.jsonl", "out.parquet"):
        code, out, err = run("export", made, tmp_path / name)
        assert (code, out, err) == (0, f"{tmp_path / name}: 2 documents\n", "")
        again = tmp_path / f"{name}.hplus"
        assert run("index", tmp_path / name, again, "--model", tiny_folder)[0] == 0
        assert run("export", again, "-")[1] == lines
    assert (tmp_path / "out.jsonl").read_text() == lines
    assert [json.loads(line)["text"] for line in lines.splitlines()] == [row.text for row in ROWS]


def test_export_with_vectors(run: Run, made: Path) -> None:
    _, out, _ = run("export", made, "-", "--vectors")
    row = json.loads(out.splitlines()[0])
    vectors = row["hplus_vectors"]
    assert len(vectors["global"]) == len(vectors["units"][0]["vector"]) == 32
    spans = [row["text"][a:b] for unit in vectors["units"] for a, b in unit["spans"]]
    assert "diabetes" in " ".join(spans)


def test_an_export_of_another_kind(run: Run, made: Path, tmp_path: Path) -> None:
    code, _, err = run("export", made, tmp_path / "out.csv")
    assert code == 2
    assert "expected a .jsonl, .jsonl.gz or .parquet file" in err


def test_delete_by_a_filter(run: Run, index: Path) -> None:
    code, _, err = run("delete", index, "--where", "year > 2000")
    assert code == 2
    assert "1 document would be deleted, and nobody can answer here; add --yes" in err
    code, out, err = run("delete", index, "--where", "year > 2000", "--yes")
    assert (code, out, err) == (0, f"{index}: 1 deleted\n", "")
    assert run("delete", index, "--where", "year > 2000", "--yes")[:2] == (
        1,
        f"{index}: 0 deleted\n",
    )
    code, _, err = run("delete", index, "--where", "year >")
    assert code == 2
    assert "expected a value" in err


@pytest.mark.parametrize(("answer", "left"), [("y\n", 1), ("n\n", 2)])
def test_delete_by_a_filter_asks(
    run: Run, index: Path, monkeypatch: pytest.MonkeyPatch, answer: str, left: int
) -> None:
    asked(monkeypatch, answer)
    code, _, err = run("delete", index, "--where", "year > 2000")
    assert f"delete 1 document of {index}?" in err
    assert code == left - 1
    with Index.open(index) as opened:
        assert len(opened) == left


@pytest.mark.parametrize("arguments", [(), ("a", "--where", "year > 1"), ("a", "--yes")])
def test_ids_or_a_filter(run: Run, index: Path, arguments: tuple[str, ...]) -> None:
    assert run("delete", index, *arguments)[0] == 2
    with Index.open(index) as opened:
        assert len(opened) == 2
