"""`hplus index`, `search`, `delete`, `compact`, `verify`, `stats` as typed."""

from __future__ import annotations

import io
import json
import shutil
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hplus import HPlus, Index, any_index, texts, workers
from hplus.sources import read as sources
from hplus.sources.document import Document
from hplus.storage import writer

Run = Callable[..., tuple[int, str, str]]

NOTES = [
    {"_id": "a", "title": "Metformin", "text": "Metformin treats type 2 diabetes.", "year": 2021},
    {"_id": "b", "title": "Insulin", "text": "Insulin treats type 1 diabetes.", "year": 2015},
    {"_id": "c", "text": "Heart failure with reduced ejection fraction.", "year": 2023},
]


def write(path: Path, rows: list[dict[str, object]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    return write(tmp_path / "notes.jsonl", NOTES)


@pytest.fixture(scope="module")
def made(mini: HPlus, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("made") / "notes.hplus"
    with Index.create(path, mini) as index:
        index.add(NOTES)
    return path


@pytest.fixture
def index(made: Path, tmp_path: Path) -> Path:
    """A copy that a test may change."""
    return Path(shutil.copytree(made, tmp_path / "notes.hplus"))


def test_index_then_again_then_changed(run: Run, notes: Path, tmp_path: Path) -> None:
    target = tmp_path / "out.hplus"
    code, out, err = run("index", notes, target)
    assert (code, err) == (0, "")
    assert "3 added, 0 replaced, 0 unchanged; 3 documents" in out
    assert "tokens read" in out
    assert "merge to 32 units; no unit dropped, those beyond it averaged into others" in out
    assert "0 added, 0 replaced, 3 unchanged" in run("index", notes, target)[1]
    write(notes, [*NOTES[:2], {**NOTES[2], "text": "Heart failure."}, {"_id": "d", "text": "x"}])
    report = json.loads(run("index", notes, target, "--json")[1])
    changes = {name: report[name] for name in ("added", "updated", "unchanged", "documents")}
    assert changes == {"added": 1, "updated": 1, "unchanged": 2, "documents": 4}


def test_workers_share_the_encoding(
    run: Run, notes: Path, tmp_path: Path, tiny_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(texts, "STEP_TEXTS", 1)
    monkeypatch.setattr(writer, "CONFIRM_SECONDS", float("inf"))
    started = []

    class Pool(ProcessPoolExecutor):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            started.append(arguments[0])
            super().__init__(*arguments, **options)

    monkeypatch.setattr(workers, "ProcessPoolExecutor", Pool)
    for count in ("1", "2"):
        target = tmp_path / f"{count}.hplus"
        code, out, err = run("index", notes, target, "--model", tiny_folder, "--workers", count)
        assert (code, err) == (0, "")
        assert "3 added" in out
    assert started == [2]
    name = Path("segments") / "00000001.safetensors"
    assert (tmp_path / "1.hplus" / name).read_bytes() == (tmp_path / "2.hplus" / name).read_bytes()
    assert run("index", notes, tmp_path / "0.hplus", "--workers", "0")[0] == 2


def test_a_missing_source_makes_no_index(run: Run, tmp_path: Path) -> None:
    code, _, err = run("index", tmp_path / "nowhere.jsonl", tmp_path / "out.hplus")
    assert code == 2
    assert "nowhere.jsonl is missing" in err
    assert not (tmp_path / "out.hplus").exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--budget", "4"), "--budget: merge to 4 units requested, but"),
        (("--budget", "4", "--policy", "drop"), "--budget: drop to 4 units requested, but"),
        (("--width", "64"), "--width: 64 requested, but"),
        (("--global-width", "64"), "--global-width: 64 requested, but"),
        (("--format", "f32"), "--format: f32 requested, but"),
        (("--policy", "merge"), "--policy merge needs a --budget"),
    ],
)
def test_options_that_contradict_an_index_are_refused(
    run: Run, notes: Path, index: Path, options: tuple[str, ...], said: str
) -> None:
    write(notes, [{"_id": "new", "text": "a new document"}])
    code, out, err = run("index", notes, index, *options)
    assert (code, out) == (2, "")
    assert said in err
    assert len(Index.open(index)) == 3


def test_the_same_command_continues(run: Run, notes: Path, tmp_path: Path) -> None:
    command = ("index", notes, tmp_path / "out.hplus", "--budget", "4", "--width", "64")
    command += ("--global-width", "128", "--format", "f16")
    assert "3 added" in run(*command)[1]
    code, out, err = run(*command)
    assert (code, err) == (0, "")
    assert "0 added, 0 replaced, 3 unchanged" in out


def test_ctrl_c_says_what_was_kept(
    run: Run, notes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "out.hplus"
    monkeypatch.setattr(texts, "STEP_TEXTS", 1)

    def interrupted(source: str, **options: Any) -> Iterator[Document]:
        for i, document in enumerate(sources.read(source, **options)):
            if i == 2:
                raise KeyboardInterrupt
            yield document

    monkeypatch.setattr(any_index, "sources", SimpleNamespace(read=interrupted, count=len))
    code, out, err = run("index", notes, target)
    assert (code, out) == (130, "")
    assert err == (
        f"interrupted: 2 new documents kept, {target} has 2; run the same command again to "
        "continue\n"
    )
    monkeypatch.undo()
    assert "1 added, 0 replaced, 2 unchanged" in run("index", notes, target)[1]


def test_an_id_that_repeats_stops_or_is_counted(run: Run, notes: Path, tmp_path: Path) -> None:
    write(notes, [*NOTES, {"_id": "a", "text": "another text"}])
    said = f"{notes}:4: the id 'a' repeats; ids must differ\n"
    code, out, err = run("index", notes, tmp_path / "stop.hplus")
    assert (code, out, err) == (2, "", f"error: {said}")
    assert len(Index.open(tmp_path / "stop.hplus")) == 3
    code, out, err = run("index", notes, tmp_path / "skip.hplus", "--on-error", "skip")
    assert (code, err) == (0, f"skipped: {said}")
    assert "3 added, 0 replaced, 0 unchanged, 1 row skipped; 3 documents" in out


def test_new_metadata_are_counted_as_such(run: Run, notes: Path, index: Path) -> None:
    write(notes, [{**NOTES[0], "year": 1900}, *NOTES[1:]])
    out = run("index", notes, index)[1]
    assert "0 added, 0 replaced, 1 with new metadata, 2 unchanged; 3 documents" in out


def test_what_the_source_no_longer_has(run: Run, notes: Path, index: Path) -> None:
    write(notes, NOTES[:1])
    hint = (
        f"2 documents of the index are not in {notes}; --sync deletes what the source does not have"
    )
    code, out, err = run("index", notes, index)
    assert (code, err) == (0, "")
    assert hint in out
    assert len(Index.open(index)) == 3
    assert json.loads(run("index", notes, index, "--json")[1])["absent"] == 2
    code, out, err = run("index", notes, index, "--sync", "--yes")
    assert (code, err) == (0, "")
    assert "0 added, 0 replaced, 1 unchanged, 2 deleted; 1 document\n" in out
    assert "not in" not in out


@pytest.mark.parametrize(("answer", "left"), [("y\n", 1), ("n\n", 3), ("", 3)])
def test_sync_asks(
    run: Run, notes: Path, index: Path, answer: str, left: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(notes, NOTES[:1])
    terminal = io.StringIO(answer)
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stdin", terminal)
    _, _, err = run("index", notes, index, "--sync")
    assert f"delete 2 documents of {index} that {notes} does not have?" in err
    assert len(Index.open(index)) == left


def test_sync_needs_an_answer(run: Run, notes: Path, tmp_path: Path) -> None:
    for options, said in (
        (("--sync",), "nobody can answer here; add --yes"),
        (("--yes",), "--yes answers the question of --sync"),
    ):
        code, out, err = run("index", notes, tmp_path / "out.hplus", *options)
        assert (code, out) == (2, "")
        assert said in err
    assert not (tmp_path / "out.hplus").exists()


def test_sync_with_skipped_rows_deletes_nothing(run: Run, notes: Path, index: Path) -> None:
    notes.write_text(json.dumps(NOTES[0]) + "\n{\n")
    options = ("--sync", "--yes", "--on-error", "skip")
    out = run("index", notes, index, *options)[1]
    assert f"2 documents of the index are not in {notes}; nothing was deleted, because rows" in out
    assert len(Index.open(index)) == 3


def test_bad_rows_stop_or_are_skipped(run: Run, notes: Path, tmp_path: Path) -> None:
    with notes.open("a") as file:
        file.write('{"_id": "bad"}\n')
        file.write('{"_id": "e", "text": "fine"}\n')
    code, _, err = run("index", notes, tmp_path / "stop.hplus")
    assert code == 2
    assert "notes.jsonl:4" in err
    assert len(Index.open(tmp_path / "stop.hplus")) == 3  # what precedes it is kept
    code, out, err = run("index", notes, tmp_path / "skip.hplus", "--on-error", "skip")
    assert code == 0
    assert "4 added" in out
    assert err.startswith("skipped: ")
    assert "notes.jsonl:4" in err


def test_search_for_people(run: Run, made: Path) -> None:
    code, out, err = run("search", made, "type 2 diabetes", "-k", "2")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0].startswith(" 1  a  ")
    assert "Metformin treats type 2 diabetes." in lines[1]
    assert lines[2].startswith(" 2  b  ")
    assert lines[-1] == "3 candidates; global exact, phrase exact"


def test_search_explained(run: Run, made: Path) -> None:
    _, out, _ = run("search", made, "type 2 diabetes", "-k", "1", "--explain")
    assert "1  a  fused" in out
    assert "type 2 diabetes  0." in out


def test_search_json(run: Run, made: Path) -> None:
    _, out, _ = run("search", made, "type 2 diabetes", "-k", "2", "--json", "--width", "64")
    found = json.loads(out)
    assert list(found) == ["query", "hits", "paths", "candidates"]
    assert [list(hit) for hit in found["hits"]] == [
        ["id", "score", "views", "text", "metadata"]
    ] * 2
    assert list(found["hits"][0]["views"]) == ["global", "phrase", "lexical"]
    assert found["hits"][0]["metadata"] == {"title": "Metformin", "year": 2021}
    _, out, _ = run("search", made, "type 2", "--json", "--explain", "--view", "phrase")
    assert json.loads(out)["hits"][0]["explanation"]["phrase"]


def test_filters(run: Run, made: Path) -> None:
    _, out, _ = run("search", made, "diabetes", "--json", "--where", "year < 2020")
    assert [hit["id"] for hit in json.loads(out)["hits"]] == ["b"]
    code, out, err = run("search", made, "diabetes", "--where", "year > 3000")
    assert (code, err) == (1, "nothing found\n")
    code, _, err = run("search", made, "diabetes", "--where", "year >")
    assert code == 2
    assert err.splitlines()[-1].endswith("^")


def test_the_prompt_reads_a_query_a_line(
    run: Run, made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("type 2 diabetes\n\nheart failure\n"))
    code, out, err = run("search", made, "-k", "1", "--json")
    assert (code, err) == (0, "")
    found = [json.loads(line)["hits"][0]["id"] for line in out.splitlines()]
    assert found == ["a", "c"]


def test_a_mistake_at_the_prompt_ends_nothing(
    run: Run, made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("type 2\nheart\n"))
    code, out, err = run("search", made, "--budget", "99", "--json")
    assert (code, out) == (0, "")
    assert err.count("error: budget 99 requested, but the index keeps 32") == 2


def test_a_whole_set_of_queries(run: Run, made: Path, tmp_path: Path) -> None:
    queries = write(
        tmp_path / "queries.jsonl",
        [{"_id": "q1", "text": "type 2 diabetes"}, {"_id": "q2", "text": "heart failure"}],
    )
    target = tmp_path / "run.trec"
    code, out, err = run("search", made, "--queries", queries, "--trec", target, "-k", "2")
    assert (code, out) == (0, "")
    assert "2 queries over 3 documents" in err
    rows = [line.split() for line in target.read_text().splitlines()]
    assert [row[:4] for row in rows if row[3] == "1"] == [
        ["q1", "Q0", "a", "1"],
        ["q2", "Q0", "c", "1"],
    ]
    assert len(rows) == 4
    run("search", made, "--queries", queries, "--trec", target, "-k", "1", "--from", "1")
    second = [line.split() for line in target.read_text().splitlines()]
    assert [row[3] for row in second] == ["2", "2"]
    assert [row[2] for row in second] == [row[2] for row in rows if row[3] == "2"]


def test_a_run_that_fails_leaves_the_file_as_it_was(run: Run, made: Path, tmp_path: Path) -> None:
    queries = write(
        tmp_path / "queries.jsonl",
        [{"_id": "q1", "text": "type 2 diabetes"}, {"_id": "q 2", "text": "heart failure"}],
    )
    target = tmp_path / "run.trec"
    target.write_text("before")
    code, _, err = run("search", made, "--queries", queries, "--trec", target)
    assert code == 2
    assert "a TREC run has no ids with blanks: 'q 2'" in err
    assert target.read_text() == "before"
    assert {path.name for path in tmp_path.iterdir()} == {"queries.jsonl", "run.trec"}


def test_the_second_page_begins_with_its_own_rank(run: Run, made: Path) -> None:
    whole = run("search", made, "type 2 diabetes", "-k", "2")[1].splitlines()
    page = run("search", made, "type 2 diabetes", "-k", "1", "--from", "1")[1].splitlines()
    assert page[:2] == whole[2:4]
    assert page[0].startswith(" 2  ")


def test_delete_compact_verify_stats(run: Run, index: Path) -> None:
    assert run("delete", index, "b")[:2] == (0, f"{index}: 1 deleted\n")
    code, out, err = run("delete", index, "b", "zz")
    assert (code, out) == (1, f"{index}: 0 deleted\n")
    assert err == "not in the index: b and 1 more\n"
    assert "2 documents in 1 segment" in run("compact", index, "--budget", "2", "--width", "64")[1]
    found = json.loads(run("stats", index, "--json")[1])
    assert (found["documents"], found["deleted"], found["units"]) == (2, 0, 4)
    assert found["smaller"][-1] == {"budget": 2, "width": 64, "bytes": 4 * 66}
    assert "2 documents, 0 deleted, 4 units (2.0 per document)" in run("stats", index)[1]
    code, out, _ = run("verify", index)
    assert code == 0
    assert "sound; 2 documents" in out
    assert run("compact", index, "--budget", "8")[0] == 2


def test_damage_has_an_exit_code_of_its_own(run: Run, index: Path) -> None:
    (segment,) = (index / "segments").iterdir()
    data = bytearray(segment.read_bytes())
    data[-5] ^= 1
    segment.write_bytes(data)
    code, out, _ = run("verify", index)
    assert code == 3
    assert "damaged: " in out
    assert json.loads(run("verify", index, "--json")[1])["problems"]
    segment.write_bytes(data[:100])
    code, _, err = run("search", index, "diabetes")
    assert code == 3
    assert err.count("\n") == 1


@pytest.mark.parametrize("command", ["search", "delete", "compact", "verify", "stats"])
def test_a_folder_that_is_not_an_index_is_named(run: Run, tmp_path: Path, command: str) -> None:
    arguments = ["x"] if command in ("search", "delete") else []
    code, out, err = run(command, tmp_path / "nowhere", *arguments)
    assert (code, out) == (2, "")
    assert "is not an index; make one with `hplus index" in err


def test_an_empty_query_is_refused(run: Run, made: Path) -> None:
    assert run("search", made, " ")[0] == 2


def test_every_option_of_a_search_reaches_the_request(run: Run, made: Path, mini: HPlus) -> None:
    question = "drugs for type 2 diabetes"
    for options, fields in (
        (["--query-budget", "1"], {"query_budget": 1}),
        (["--from", "1", "-k", "1"], {"from_": 1, "k": 1}),
        (["--min-score", "0.4"], {"min_score": 0.4}),
        (["--pool", "1", "-k", "1"], {"pool": 1, "k": 1}),
        (["--alpha", "phrase=2"], {"alphas": {"phrase": 2}}),
    ):
        code, out, _ = run("search", made, question, "--json", *options)
        with Index.open(made, model=mini) as index:
            expected = index.search(question, **fields)
            assert list(expected) != list(index.search(question)) or "pool" in fields
        assert code == 0
        found = json.loads(out)
        assert [hit["id"] for hit in found["hits"]] == [hit.id for hit in expected]
        assert [hit["score"] for hit in found["hits"]] == [hit.score for hit in expected]
        assert found["candidates"] == expected.candidates
    code, _, err = run("search", made, question, "--alpha", "phrase")
    assert (code, err) == (2, "error: --alpha phrase: expected VIEW=WEIGHT, such as phrase=1\n")


def test_many_queries_as_lines_of_json(run: Run, made: Path, tmp_path: Path, mini: HPlus) -> None:
    rows = [("q1", "type 2 diabetes"), ("q2", "heart failure"), ("q3", "insulin")]
    queries = write(tmp_path / "queries.jsonl", [{"_id": id_, "text": text} for id_, text in rows])
    code, out, err = run("search", made, "--queries", queries, "--json", "-k", "2")
    assert (code, err) == (0, "")
    found = [json.loads(line) for line in out.splitlines()]
    with Index.open(made, model=mini) as index:
        for row, (id_, text) in zip(found, rows, strict=True):
            one = index.search(text, k=2)
            assert row == {"id": id_, **json.loads(json.dumps(one.as_json()))}
    code, out, _ = run("search", made, "--queries", queries, "--json", "--trec", tmp_path / "run")
    assert (code, out.count("\n")) == (0, 3)
    assert (tmp_path / "run").read_text().count("\n") == 9
    code, out, _ = run("search", made, "--queries", queries, "-k", "1")
    assert code == 0
    lines = out.splitlines()
    assert lines[0] == "q1  type 2 diabetes"
    assert lines[1].startswith(" 1  a  ")
    assert lines[4] == "q2  heart failure"


def test_what_queries_go_with(run: Run, made: Path, tmp_path: Path) -> None:
    queries = write(tmp_path / "queries.jsonl", [{"_id": "q1", "text": " "}])
    for options, said in (
        (["--queries", queries, "--json"], "the query q1 is empty"),
        (["--queries", queries, "insulin"], "--queries FILE.jsonl goes without a QUERY"),
        (["--trec", "run.trec"], "--trec OUT needs --queries FILE.jsonl"),
    ):
        code, out, err = run("search", made, *options)
        assert (code, out) == (2, "")
        assert said in err


def test_documents_like_one_of_the_index(run: Run, made: Path, mini: HPlus) -> None:
    code, out, err = run("more-like", made, "a")
    assert (code, err) == (0, "")
    assert out.splitlines()[0].startswith(" 1  b  ")
    assert "Metformin" not in out
    options = ["--where", "year > 2000", "--from", "1", "-k", "1", "--view", "global"]
    code, out, _ = run("more-like", made, "a", "--json", *options)
    with Index.open(made, model=mini) as index:
        expected = index.more_like("a", where="year > 2000", from_=1, k=1, view="global")
        assert json.loads(out) == json.loads(json.dumps(expected.as_json()))
        assert [hit.id for hit in expected] == ["c"]
    assert "type 1 diabetes" in run("more-like", made, "a", "-k", "1", "--explain")[1]
    code, out, err = run("more-like", made, "nobody")
    assert (code, out, err) == (2, "", "error: no document 'nobody' in the index\n")
    assert run("more-like", made, "a", "--where", "year > 3000")[0] == 1


def test_the_best_hit_of_each_group(run: Run, notes: Path, tmp_path: Path) -> None:
    write(notes, [{**row, "kind": kind} for row, kind in zip(NOTES, "xxy", strict=True)])
    run("index", notes, tmp_path / "kinds.hplus")
    target = tmp_path / "kinds.hplus"
    code, out, _ = run("search", target, "type 1 diabetes", "--group-by", "kind", "--json")
    assert (code, [hit["id"] for hit in json.loads(out)["hits"]]) == (0, ["b", "c"])
    _, out, _ = run("more-like", target, "b", "--group-by", "kind", "--json")
    assert [hit["id"] for hit in json.loads(out)["hits"]] == ["a", "c"]
