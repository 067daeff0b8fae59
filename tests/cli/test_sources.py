"""`hplus index`: columns, pages, other files, and a first run that fails."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from hplus import HPlus, Index
from hplus.sources import pages
from hplus.storage.create import New

Run = Callable[..., tuple[int, str, str]]
PAPERS = (
    "PMID;Headline;Abstract;Body\n"
    '17;Insulin;"Short; and\nquoted.";Long text.\n'
    "18;;First drug.;Metformin.\n"
)


@pytest.fixture
def papers(tmp_path: Path) -> Path:
    path = tmp_path / "papers.csv"
    path.write_text(PAPERS)
    return path


def test_columns_are_named(run: Run, papers: Path, tmp_path: Path, tiny_folder: Path) -> None:
    target = tmp_path / "out.hplus"
    options = ("--text", "abstract", "--text", "body", "--title", "headline", "--id", "pmid")
    code, out, err = run("index", papers, target, "--model", tiny_folder, *options)
    assert (code, err) == (0, "")
    assert "2 added" in out
    with Index.open(target, model=HPlus(tiny_folder)) as index:
        rows = index.engine.snapshot.rows(index.engine.snapshot.find(["17", "18"]))
        hit = index.search("insulin", where='Headline = "Insulin"', explain=True).hits[0]
        match = hit.explanation.phrase[0]
    assert rows[0].text == "Insulin Short; and\nquoted.\n\nLong text."
    assert rows[0].metadata == {"Headline": "Insulin"}
    assert rows[1].text == "First drug.\n\nMetformin."
    assert [rows[0].text[a:b] for a, b in match.document_spans] == [match.document_text]
    code, out, _ = run("index", papers, target, "--model", tiny_folder, *options)
    assert "2 unchanged" in out


def test_a_delimiter_is_given(run: Run, tmp_path: Path, tiny_folder: Path) -> None:
    path = tmp_path / "d.dat"
    path.write_text("text:n\na;b:1\n")
    code, out, err = run(
        "index", path, tmp_path / "out", "--model", tiny_folder, "--delimiter", ":"
    )
    assert (code, err) == (0, "")
    assert "1 added" in out


@pytest.mark.parametrize("target", ["out.hplus", "new/folders/out.hplus"])
@pytest.mark.parametrize(
    ("content", "options"),
    [
        (PAPERS, ()),
        (PAPERS, ("--text", "abstrct")),
        (PAPERS, ("--text", "abstract", "--delimiter", ",")),
        ("text,n\na\n", ()),
    ],
)
def test_a_first_run_that_fails_leaves_nothing(
    run: Run, tmp_path: Path, tiny_folder: Path, content: str, options: tuple[str, ...], target: str
) -> None:
    path = tmp_path / "d.csv"
    path.write_text(content)
    before = sorted(tmp_path.rglob("*"))
    code, _, err = run("index", path, tmp_path / target, "--model", tiny_folder, *options)
    assert code == 2
    assert err.startswith("error: ")
    assert sorted(tmp_path.rglob("*")) == before


def test_what_was_confirmed_before_a_failure_stays(
    run: Run, tmp_path: Path, tiny_folder: Path
) -> None:
    path = tmp_path / "d.csv"
    path.write_text("text,n\na,1\nb\n")
    assert run("index", path, tmp_path / "out", "--model", tiny_folder)[0] == 2
    with Index.open(tmp_path / "out") as index:
        assert len(index) == 1
    # Nor does a second run that fails take anything away.
    path.write_text("nothing,n\n")
    assert run("index", path, tmp_path / "out", "--model", tiny_folder)[0] == 2
    with Index.open(tmp_path / "out") as index:
        assert len(index) == 1


def test_an_index_that_was_made_empty_stays_empty(run: Run, tmp_path: Path, tiny: HPlus) -> None:
    Index.create(tmp_path / "out", tiny).close()
    path = tmp_path / "d.csv"
    path.write_text("nothing,n\n")
    assert run("index", path, tmp_path / "out", "--model", tiny.checkpoint.source)[0] == 2
    with Index.open(tmp_path / "out") as index:
        assert len(index) == 0


def fail_to_make(path: Path, model: HPlus, beside: str = "") -> None:
    with New(path):
        Index.create(path, model).close()
        if beside:
            (path / beside).write_text("of somebody else")
        raise KeyboardInterrupt


def test_a_folder_that_was_there_stays(tmp_path: Path, tiny: HPlus) -> None:
    there = tmp_path / "there"
    there.mkdir()
    for path in (there / "out" / "index", there):
        with pytest.raises(KeyboardInterrupt):
            fail_to_make(path, tiny)
        assert list(tmp_path.rglob("*")) == [there]
    for path in (there, there / "out" / "index"):
        with pytest.raises(KeyboardInterrupt):
            fail_to_make(path, tiny, beside="mine.txt")
        assert (path / "mine.txt").exists()


def test_an_index_that_another_process_writes_to_stays(tmp_path: Path, tiny: HPlus) -> None:
    path = tmp_path / "index"
    index = Index.create(path, tiny)
    with index._writer(), pytest.raises(ValueError, match="first"), New(path):
        raise ValueError("first")
    with Index.open(path) as opened:
        assert len(opened) == 0


def test_other_files_of_a_folder_are_counted(
    run: Run, tmp_path: Path, tiny_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "a.txt").write_text("type 2")
    (tree / "b.html").write_text("<p>heart failure")
    (tree / "c.docx").write_text("?")
    options = (tree, tmp_path / "out", "--model", tiny_folder)
    code, out, err = run("index", *options)
    assert (code, err) == (0, "")
    assert "2 added" in out
    assert "other files, not indexed: 1 .docx\n" in out
    # Without its reader a page is not read, but not deleted either.
    monkeypatch.setattr(pages, "find_spec", lambda _: None)
    code, out, err = run("index", *options, "--sync", "--yes")
    assert (code, err) == (0, "")
    assert "1 unchanged; 2 documents" in out
    assert "nothing was deleted, because files could not be read" in out
    assert "1 .docx, 1 .html; to read .html and .pdf files, run: pip install 'hplus[docu" in out


def test_json_counts_other_files(
    run: Run, tmp_path: Path, tiny_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.txt").write_text("type 2")
    (tmp_path / "c.docx").write_text("?")
    monkeypatch.chdir(tmp_path)
    _, out, _ = run("index", ".", "new/out", "--model", tiny_folder, "--json")
    assert '"other_files": {".docx": 1}' in out
