"""TREC runs: what is written is what is read; what is wrong is named by file and line."""

from __future__ import annotations

import gzip
import math
import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hplus.errors import InputError
from hplus.evaluate.metrics import ranking_of
from hplus.evaluate.runs import read_run, write_run

RUN = {"q2": {"a": 0.25, "c": 1.5, "b": 0.25}, "q1": {"糖\u3000尿": -1e-07}}
TEXT = """\
q2 Q0 c 1 1.5 hplus
q2 Q0 a 2 0.25 hplus
q2 Q0 b 3 0.25 hplus
q1 Q0 糖\u3000尿 1 -1e-07 hplus
"""
ids = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters=" \t\n\r\v\f"), min_size=1
)
scores = st.floats(allow_nan=False, allow_infinity=False)


def written(path: Path, text: str) -> Path:
    data = text.encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


@pytest.mark.parametrize("name", ["run.trec", "run.trec.gz"])
def test_a_run_is_written_sorted_and_read_again(tmp_path: Path, name: str) -> None:
    path = tmp_path / "new" / name
    write_run(path, RUN, "hplus")
    data = path.read_bytes()
    assert (gzip.decompress(data) if name.endswith(".gz") else data).decode() == TEXT
    assert read_run(path) == RUN
    assert list(read_run(path)) == ["q2", "q1"]
    assert [file.name for file in path.parent.iterdir()] == [name]


@settings(deadline=None, max_examples=100)
@given(run=st.dictionaries(ids, st.dictionaries(ids, scores, min_size=1, max_size=6), max_size=4))
def test_every_run_comes_back(
    run: dict[str, dict[str, float]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("runs") / "run.gz"
    write_run(path, run, "t")
    found = read_run(path)
    assert found == run
    assert list(found) == list(run)
    for query, documents in found.items():
        assert list(documents) == ranking_of(run, query)


def test_the_same_run_gives_the_same_bytes(tmp_path: Path) -> None:
    write_run(tmp_path / "a.gz", RUN, "hplus")
    shuffled = {query: dict(reversed(RUN[query].items())) for query in RUN}
    write_run(tmp_path / "b.gz", shuffled, "hplus")
    assert (tmp_path / "a.gz").read_bytes() == (tmp_path / "b.gz").read_bytes()


def test_scores_keep_every_digit(tmp_path: Path) -> None:
    close = {"a": 0.1 + 0.2, "b": 0.3, "c": struct.unpack("f", struct.pack("f", 0.1))[0]}
    write_run(tmp_path / "run", {"q": close}, "t")
    assert read_run(tmp_path / "run") == {"q": close}


def test_a_query_that_found_nothing_leaves_no_line(tmp_path: Path) -> None:
    write_run(tmp_path / "run", {"q": {}, "r": {"a": 1.0}}, "t")
    assert read_run(tmp_path / "run") == {"r": {"a": 1.0}}


def test_tabs_and_crlf_are_read_and_ranks_are_not_used(tmp_path: Path) -> None:
    text = "q\tQ0\ta\t7\t1\tx\r\nr  0 b  0 2e0 y \r\nq Q0 c 7 3 x"
    assert read_run(written(tmp_path / "run", text)) == {"q": {"a": 1.0, "c": 3.0}, "r": {"b": 2.0}}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("q Q0 a 1 0.5", r"expected 6 fields .*, got 5"),
        ("q Q0 a b 1 0.5 x", r"expected 6 fields .*, got 7"),
        ("", "got 0"),
        ("q Q0 a 1 high x", "expected numbers, got the rank '1' and the score 'high'"),
        ("q Q0 a first 0.5 x", "expected numbers, got the rank 'first' and the score '0.5'"),
        ("q Q0 a 1 nan x", "expected a finite score, got 'nan'"),
        ("q Q0 a 1 -inf x", "expected a finite score, got '-inf'"),
        ("q Q0 a 1 1e999 x", "expected a finite score, got '1e999'"),
        ("q Q0 twice 3 0.1 x", "repeats document 'twice' for query 'q'"),
    ],
)
@pytest.mark.parametrize("name", ["run.trec", "run.trec.gz"])
def test_a_bad_line_is_named(tmp_path: Path, name: str, line: str, message: str) -> None:
    good = "q Q0 twice 1 0.9 x\nr Q0 twice 1 0.9 x\n"
    path = written(tmp_path / name, f"{good}{line}\n{good}")
    with pytest.raises(InputError, match=message) as caught:
        read_run(path)
    assert str(caught.value).startswith(f"{path}:3: ")


def test_bytes_that_are_no_text_are_named(tmp_path: Path) -> None:
    path = tmp_path / "run"
    path.write_bytes(b"q Q0 a 1 0.5 x\nq Q0 \xff 2 0.4 x\n")
    with pytest.raises(InputError, match="run:2: not UTF-8"):
        read_run(path)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="lost is missing"):
        read_run(tmp_path / "lost")
    (tmp_path / "half.gz").write_bytes(gzip.compress(TEXT.encode())[:-9])
    with pytest.raises(InputError, match=r"half\.gz is damaged: "):
        read_run(tmp_path / "half.gz")
    (tmp_path / "cut.gz").write_bytes(gzip.compress(TEXT.encode())[:-9])
    with pytest.raises(InputError, match=r"cut\.gz is damaged: "):
        read_run(tmp_path / "cut.gz")


@pytest.mark.parametrize(
    ("run", "tag", "message"),
    [
        ({"q": {"a b": 1.0}}, "t", "the id of a document of query 'q' is 'a b'"),
        ({"q": {"": 1.0}}, "t", "the id of a document of query 'q' is ''"),
        ({"q\n": {"a": 1.0}}, "t", r"a query's id is 'q\\n'"),
        ({"q": {"\ud800": 1.0}}, "t", r"is '\\ud800', which cannot be encoded as UTF-8"),
        ({"q": {"a": 1.0}}, "two words", "the tag is 'two words'"),
        ({"q": {"a": 1.0}}, "", "the tag is ''"),
        ({"q": {"a": 1.0, "b": math.nan}}, "t", "document 'b' has the score nan"),
        ({"q": {"a": math.inf}}, "t", "document 'a' has the score inf"),
    ],
)
@pytest.mark.parametrize("name", ["run.trec", "run.trec.gz"])
def test_what_cannot_be_written_leaves_the_old_file(
    tmp_path: Path, run: dict[str, dict[str, float]], tag: str, message: str, name: str
) -> None:
    path = tmp_path / name
    path.write_text("old")
    with pytest.raises(InputError, match=message):
        write_run(path, {"good": {"a": 1.0}, **run}, tag)
    assert path.read_text() == "old"
    assert [file.name for file in tmp_path.iterdir()] == [name]
