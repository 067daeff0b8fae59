"""`hplus teach labels`: files in, labels and figures out, and mistakes in one sentence."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hplus import HPlus, checkpoint
from hplus.cli import teach
from hplus.heads.crf import CRF
from hplus.recipe import Recipe
from hplus.teach.label_file import PAPER, read_labels
from hplus.teach.labels import LAYERS

Run = Callable[..., tuple[int, str, str]]
FIRST = "Metformin treats type 2 diabetes at 5 mg/kg."
SECOND = "The heart failure of a patient"


@pytest.fixture
def run(run: Run) -> Run:
    """`run("a.txt", …)` runs `hplus teach labels a.txt …`."""
    return partial(run, "teach", "labels")


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    path = tmp_path / "notes.txt"
    path.write_text(f"{FIRST}\n\n{SECOND}\n{FIRST}\n")
    return path


@pytest.fixture
def terms(tmp_path: Path) -> Path:
    path = tmp_path / "terms.gz"
    path.write_bytes(gzip.compress(b"type 2 diabetes\nmetformin\nof a\n"))
    return path


@pytest.fixture(scope="module")
def chunker(tiny: HPlus, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A CRF to which every text is one noun phrase, on the tiny backbone."""
    shapes = [(3, tiny.dim), 3, (3, 3), 3, 3]
    parts = [np.zeros(shape, np.float32) for shape in shapes]
    parts[1][2] = 1
    return checkpoint.save(
        tmp_path_factory.mktemp("chunker") / "saved",
        replace(
            tiny.checkpoint,
            recipe=Recipe(name="chunker", units="crf", window=64, trained=("crf",)),
            crf=CRF(*parts),
        ),
    )


def read(path: Path) -> dict[str, list[list[str]]]:
    """The units of each text, by source, as strings."""
    return {
        source: [[item.text[a:b] for a, b in item.units] for item in labels]
        for source, labels in read_labels(path).items()
    }


def test_labels_without_a_chunker(run: Run, notes: Path, terms: Path, tmp_path: Path) -> None:
    out = tmp_path / "out" / "labels.jsonl.gz"
    code, shown, err = run(notes, "--chunker", "none", "--terms", terms, "--out", out)
    assert (code, shown, err) == (0, f"2 texts labelled: {out}\n", "")
    assert read(out) == {
        "notes": [
            ["Metformin", "treats", "type 2 diabetes", "5 mg/kg"],
            ["heart", "failure", "patient"],
        ]
    }


def test_labels_with_a_chunker(run: Run, notes: Path, chunker: Path, tmp_path: Path) -> None:
    out = tmp_path / "labels.jsonl"
    assert run(notes, "--chunker", chunker, "--out", out)[0] == 0
    assert read(out)["notes"] == [
        ["Metformin treats type 2 diabetes", "5 mg/kg"],
        ["heart failure", "patient"],
    ]
    run(notes, "--chunker", chunker, "--units", "minimal", "--out", out)
    assert read(out)["notes"][1] == ["heart", "failure", "patient"]


def test_the_same_command_twice_gives_the_same_bytes(
    run: Run, notes: Path, terms: Path, chunker: Path, tmp_path: Path
) -> None:
    command = [notes, "--chunker", chunker, "--terms", terms, "--sample", "1", "--json"]
    first, second = tmp_path / "1.jsonl.gz", tmp_path / "2.jsonl.gz"
    shown = run(*command, "--out", first, "--cache", tmp_path / "cache")[1]
    # with the texts encoded already, and encoded anew
    for cache in ([], ["--cache", tmp_path / "cache"]):
        assert run(*command, "--out", second, *cache)[1] == shown
        assert second.read_bytes() == first.read_bytes()


def test_json_rows(run: Run, notes: Path, terms: Path, tmp_path: Path) -> None:
    folder = tmp_path / "genes"
    folder.mkdir()
    rows: list[dict[str, Any]] = [
        {"text": "the BRCA1 gene", "spans": [[0, 14, "Gene"], [4, 9, "Gene"]]},
        {"text": "type 2 diabetes", "segments": ["type 2", "type 1"]},
    ]
    (folder / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    out = tmp_path / "labels.jsonl"
    files = [notes, folder / "train.jsonl"]
    code, shown, _ = run(*files, "--chunker", "none", "--terms", terms, "--out", out, "--json")
    first, second = map(json.loads, shown.splitlines())
    assert code == 0
    assert list(read(out)) == ["notes", "genes"]
    assert list(first)[:2] == ["source", "texts"]
    assert {key: first[key] for key in ("source", "texts", "units", *LAYERS, "dropped")} == {
        "source": "notes",
        "texts": 2,
        "units": 7,
        "gold": 0,
        "term": 1,
        "rule": 1,
        "noun phrase": 0,
        "word": 5,
        "pattern": 0,
        "dropped": {"rules that meet a longer unit": 1},  # the mg/kg in 5 mg/kg
    }
    assert first["share of several words"] == pytest.approx(2 / 7)
    assert (second["source"], second["gold"], second["word"]) == ("genes", 2, 1)
    assert second["dropped"] == {
        "gold spans inside or across a longer one": 1,
        "segments that do not occur": 1,
        "terms that meet a longer unit": 1,
    }


def test_the_report_stands_beside_the_papers_figures(
    run: Run, notes: Path, terms: Path, tmp_path: Path
) -> None:
    out = tmp_path / "labels.jsonl"
    code, shown, _ = run(notes, "--chunker", "none", "--terms", terms, "--out", out, "--report")
    header, row, paper, *dropped = shown.splitlines()
    assert code == 0
    assert [column for column in ("texts", "units", *LAYERS, "mean") if column not in header] == []
    assert row.split()[:10] == ["notes", "2", "7", "0", "1", "1", "0", "5", "0", "29%"]
    assert paper.split() == ["the", "paper's", "teacher", "1,739,921", "2", "2.4", "to", "2.9"]
    assert PAPER["multi-token segments"] == 1_739_921
    assert dropped == ["notes: 1 rules that meet a longer unit"]


def test_a_sample(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "many.txt"
    path.write_text("".join(f"text {i}\n" for i in range(30)))
    command = [path, "--chunker", "none", "--sample", "5", "--out"]
    for name, seed in (("1", "1"), ("2", "1"), ("3", "2")):
        assert "5 texts labelled" in run(*command, tmp_path / name, "--seed", seed)[1]
    one, two, three = (read(tmp_path / name) for name in "123")
    assert one == two != three


def test_texts_near_an_evaluation_set_are_left_out(run: Run, notes: Path, tmp_path: Path) -> None:
    folder = tmp_path / "beir"
    folder.mkdir()
    (folder / "corpus.jsonl").write_text(json.dumps({"_id": "1", "text": FIRST.lower()}) + "\n")
    (folder / "queries.jsonl").write_text(json.dumps({"_id": "1", "text": "heart"}) + "\n")
    out = tmp_path / "labels.jsonl"
    command = [notes, "--chunker", "none", "--out", out, "--apart-from", folder, "--json"]
    row = json.loads(run(*command)[1])
    assert read(out) == {"notes": [["heart", "failure", "patient"]]}
    assert row["dropped"] == {"texts near an evaluation text": 1}


def test_an_empty_file(run: Run, tmp_path: Path) -> None:
    (tmp_path / "empty.txt").touch()
    out = tmp_path / "labels.jsonl"
    code, shown, _ = run(tmp_path / "empty.txt", "--chunker", "none", "--out", out, "--report")
    assert code == 0
    assert "empty" in shown
    assert out.read_bytes() == b""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere.txt"], "nowhere.txt is missing or not a file"),
        (["notes.txt", "nowhere.txt"], "nowhere.txt is missing or not a file"),
        (["."], "is missing or not a file"),
        (["bad.jsonl"], "bad.jsonl:2: expected a JSON object"),
        (["latin.txt"], "latin.txt:1: not UTF-8"),
        (["notes.txt", "--terms", "nowhere.gz"], "nowhere.gz"),
        (["notes.txt", "--apart-from", "nowhere"], "expected a BEIR folder"),
        (["notes.txt", "--chunker", "nowhere"], "neither a folder nor a built-in"),
        (["notes.txt", "--chunker", "untrained"], "has no trained CRF"),
    ],
)
def test_a_mistake_is_one_sentence_and_exit_code_2(
    run: Run,
    notes: Path,
    tiny: HPlus,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(notes.parent)
    Path("bad.jsonl").write_text('{"text": "fine"}\n{"body": 1}\n')
    Path("latin.txt").write_bytes(b"caf\xe9\n")
    tiny.save("untrained")
    given = [] if "--chunker" in arguments else ["--chunker", "none"]
    code, out, err = run(*arguments, *given, "--out", "labels.jsonl")
    assert code == 2
    assert out == ""
    assert err.startswith("error: ")
    assert message in err
    assert err.count("\n") == 1
    assert not Path("labels.jsonl").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["notes.txt"],
        ["notes.txt", "--out", "x", "--units", "long"],
        ["notes.txt", "--out", "x", "--sample", "0"],
    ],
)
def test_bad_usage_is_exit_code_2(run: Run, arguments: list[str]) -> None:
    assert run(*arguments, "--chunker", "none")[0] == 2


def test_the_help_ends_with_an_example(run: Run) -> None:
    code, out, _ = run("--help")
    assert code == 0
    assert "Example: hplus teach labels" in out
    assert teach.EXAMPLE.startswith("Example: hplus teach labels ")
