"""`hplus-lab audit` as typed."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hplus_lab.audit import read_items
from hplus_lab.audit.report import COLUMNS, FLAG_COLUMNS, markdown, table
from hplus_lab.cli import audit as command
from hplus_lab.cli import main
from marked_texts import AUDIT, write_corpus


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("states")


Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """`run("audit.jsonl")` -> exit code, standard output, standard error."""

    def call(*arguments: str | Path) -> tuple[int, str, str]:
        typed = ["hplus-lab", "audit", *map(str, arguments)]
        monkeypatch.setattr(sys, "argv", typed)
        code = 0
        try:
            main()
        except SystemExit as stop:
            code = int(stop.code or 0)
        out, err = capsys.readouterr()
        return code, out, err

    return call


def test_json_and_limit(run: Run, cache: Path) -> None:
    code, out, err = run(AUDIT, "--cache", cache, "--json", "--limit", "4")
    assert (code, err) == (0, "")
    summary = json.loads(out)
    assert (summary["set"], summary["items"], summary["reference"]) == ("audit", 4, "A")
    assert summary["agreement"]["items"] == 4


def test_a_table_for_people(run: Run, cache: Path, tmp_path: Path) -> None:
    terms, gains = tmp_path / "terms.txt", tmp_path / "gains.json"
    terms.write_text("acute kidney injury\n")
    gains.write_text(json.dumps({f"q{i}": i for i in range(1, 10)}))
    options = ["--terms", terms, "--gains", gains, "--reference", "union"]
    code, out, err = run(AUDIT, "--cache", cache, *options)
    assert (code, err) == (0, "")
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert lines[0] == "audit"
    assert lines[1] == " ".join(COLUMNS)
    assert " ".join(FLAG_COLUMNS) in lines
    summary = json.loads(run(AUDIT, "--cache", cache, *options, "--json")[1])
    shown = [" ".join(" ".join(line).split()) for line in table(summary)]
    assert lines[2 : 2 + len(shown)] == shown
    assert shown[1].startswith("crf+trie ")
    assert "over 8 queries: Spearman's rho" in out


def test_out_writes_the_same_bytes_twice(run: Run, cache: Path, tmp_path: Path) -> None:
    spans = [[0, 11, "Disease"]]
    corpus = write_corpus(tmp_path / "ill", [{"text": "lung cancer kills", "spans": spans}])
    for name in ("one", "two"):
        code, _, _ = run(AUDIT, corpus, "--cache", cache, "--out", tmp_path / "to" / name)
        assert code == 0
    for suffix in (".json", ".md"):
        one, two = (tmp_path / "to" / f"{name}{suffix}" for name in ("one", "two"))
        assert one.read_bytes() == two.read_bytes()
    summaries = json.loads((tmp_path / "to" / "one.json").read_text())
    assert [(s["set"], s["split"], s["gold"]) for s in summaries] == [
        ("audit", None, "exhaustive"),
        ("ill", "test", "partial"),
    ]
    assert (tmp_path / "to" / "one.md").read_text() == markdown(summaries)


def test_a_teacher_from_a_file(run: Run, cache: Path, tmp_path: Path) -> None:
    rows = [
        {"source": "x", "text": item.text, "units": [[*u, "gold"] for u in item.marks["B"].units]}
        for item in read_items(AUDIT)
    ]
    labels = tmp_path / "labels.jsonl"
    labels.write_text("\n".join(map(json.dumps, rows)))
    options = ["--teacher", labels, "--reference", "B", "--json"]
    summary = json.loads(run(AUDIT, "--cache", cache, *options)[1])
    assert summary["rows"]["teacher"]["boundary_f1"] == 1.0
    assert list(summary["absent"]) == ["crf+trie"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere.jsonl"], "nowhere.jsonl is missing"),
        (["ill", "--split", "dev"], "ill has neither dev.jsonl.gz nor dev.jsonl"),
        (
            ["ill", "--reference", "B"],
            "ill: reference B needs the marks of annotator B, but item '1'",
        ),
        (["ill", "--gains", "gains.json"], "ill: none of the 1 gains is of a query"),
        (["ill", "--terms", "nowhere"], "nowhere is missing"),
        (["ill", "--teacher", "labels.jsonl"], "ill: the teacher has no labels for 1 of 1 texts"),
        (["ill", "--model", "nowhere"], "neither a folder nor a built-in"),
    ],
)
def test_a_mistake_is_one_sentence_and_exit_code_2(
    run: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    write_corpus(Path("ill"), [{"text": "lung cancer kills", "spans": [[0, 11, "Disease"]]}])
    Path("gains.json").write_text('{"q": 1}')
    Path("labels.jsonl").write_text('{"source": "x", "text": "other", "units": []}')
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert message in err
    assert err.count("\n") == 1


def test_the_example_of_the_help_runs(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out, _ = run("--help")
    assert code == 0
    assert "Example: hplus-lab audit" in out
    monkeypatch.chdir(tmp_path)
    shutil.copy(AUDIT, "audit.jsonl")
    code, out, err = run(*shlex.split(command.EXAMPLE.removeprefix("Example: hplus-lab audit")))
    assert (code, err) == (0, "")
    assert json.loads(out)["reference"] == "union"
