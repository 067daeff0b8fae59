"""`hplus bulk` and `hplus index --encoded` as typed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from hplus import HPlus, Index
from shards import ROWS, shard_bytes, write_rows

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    return write_rows(tmp_path / "corpus.jsonl", ROWS)


@pytest.fixture
def model(tmp_path: Path, tiny: HPlus) -> Path:
    tiny.save(tmp_path / "model", include_encoder=True)
    return tmp_path / "model"


def test_shards_then_an_index(run: Run, corpus: Path, model: Path, tmp_path: Path) -> None:
    folder, index = tmp_path / "encoded", tmp_path / "corpus.hplus"
    common = ("bulk", corpus, folder, "--model", model, "--budget", "8", "--policy", "merge")
    code, out, err = run(*common, "--shard", "2/3")
    assert (code, err) == (0, "")
    assert out.endswith(
        "encoded: 1 of 3 shards of 23 documents, merge to 8 units, width 32, int8; missing: 1, 3\n"
    )
    code, out, _ = run(*common, "--status", "--json")
    assert (code, json.loads(out)) == (1, {"shards": 3, "done": [2], "missing": [1, 3]})
    code, _, err = run("index", "--encoded", folder, index)
    assert (code, index.exists()) == (2, False)
    assert err.endswith(
        "encoded lacks shard 1 of 3 and 1 more; run hplus bulk again, which encodes only what is "
        "missing\n"
    )
    code, out, _ = run(*common, "--shards", "3")
    assert (code, out.endswith("3 of 3 shards of 23 documents, merge to 8 units, width 32, int8; "
                               "complete\n")) == (0, True)  # fmt: skip
    assert run(*common, "--status")[0] == 0
    # The model is found by its name, beside the shards.
    code, out, err = run("index", "--encoded", folder, index)
    assert (code, err) == (0, "")
    assert "23 added, 0 replaced, 0 unchanged; 23 documents" in out
    assert "merge to 8 units" in out
    code, out, _ = run("index", "--encoded", folder, index, "--json")
    assert (code, json.loads(out)["unchanged"]) == (0, 23)
    with Index.open(index) as opened:
        assert opened.settings.model == "model"
        assert opened.search("type 7 diabetes", k=1)[0].id


def test_other_shards_and_workers_give_the_same_bytes(
    run: Run, corpus: Path, model: Path, tmp_path: Path
) -> None:
    common = ("--model", model, "--budget", "4", "--width", "16", "--format", "f32")
    for shard in ("1/2", "2/2"):
        assert run("bulk", corpus, tmp_path / "alone", *common, "--shard", shard)[0] == 0
    run("bulk", corpus, tmp_path / "workers", *common, "--shards", "2", "--workers", "2")
    assert shard_bytes(tmp_path / "alone") == shard_bytes(tmp_path / "workers")
    index = tmp_path / "small.hplus"
    assert run("index", "--encoded", tmp_path / "alone", index, "--width", "8")[0] == 0
    with Index.open(index) as opened:
        kept = opened.settings
        assert (kept.budget.count, kept.width, kept.format) == (4, 8, "f32")


def test_columns_and_bad_rows(run: Run, model: Path, tmp_path: Path) -> None:
    source = tmp_path / "papers.csv"
    source.write_text(
        "PMID;Abstract;Year\n17;heart failure;2021\n17;kidney;2022\n19;type 2 diabetes;2023\n"
    )
    folder = tmp_path / "encoded"
    options = ("--text", "abstract", "--id", "pmid", "--model", model)
    code, _, err = run("bulk", source, folder, *options)
    assert (code, "papers.csv:3: the id '17' repeats" in err) == (2, True)
    code, _, err = run("bulk", source, folder, *options, "--on-error", "skip")
    assert (code, err.startswith("skipped: ")) == (0, True)
    run("index", "--encoded", folder, tmp_path / "index", "--model", model)
    with Index.open(tmp_path / "index", model=model) as index:
        assert [(d.id, d.metadata) for d in index] == [
            ("17", {"Year": 2021}),
            ("19", {"Year": 2023}),
        ]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--shard", "0/3"], "expected --shard as I/N, such as 3/64, counted from 1, got 0/3"),
        (["--shard", "4/3"], "expected --shard as I/N, such as 3/64, counted from 1, got 4/3"),
        (["--shard", "3"], "expected --shard as I/N, such as 3/64, counted from 1, got 3"),
        (["--shard", "1/3", "--shards", "4"], "--shard 1/3 is one of 3, but --shards is 4"),
        (["--shard", "1/3", "--ray", "local"], "--ray shares out all shards among CPUs"),
        (["--status"], "encoded is not a folder of shards"),
    ],
)
def test_mistakes(
    run: Run, corpus: Path, tmp_path: Path, options: list[str], sentence: str
) -> None:
    code, _, err = run("bulk", corpus, tmp_path / "encoded", *options)
    assert (code, sentence in err) == (2, True), err
    assert not (tmp_path / "encoded").exists()


def test_mistakes_about_what_is_encoded(
    run: Run, corpus: Path, model: Path, tiny_folder: Path, tmp_path: Path
) -> None:
    folder, index = tmp_path / "encoded", tmp_path / "index"
    common = ("bulk", corpus, folder, "--model", model, "--budget", "8", "--policy", "merge")
    run(*common)
    for options, sentence in (
        (["--sync", "--yes"], "--encoded takes documents as hplus bulk has read and encoded them"),
        (["--text", "body"], "--encoded takes documents as hplus bulk has read and encoded them"),
        (["--model", tiny_folder], "encoded was encoded by model"),
        (["--budget", "9", "--policy", "merge"], "encoded was encoded at merge to 8 units"),
        (["--passages", "9"], "encoded has passages of none, the index expects 9 tokens"),
    ):
        code, _, err = run("index", "--encoded", folder, index, *options)
        assert (code, sentence in err) == (2, True), err
        assert not index.exists()
    code, _, err = run(*common, "--shards", "2")
    assert (code, "is of another job: shards: 1, not 2; choose a new folder" in err) == (2, True)
    run("index", corpus, index, "--model", tiny_folder)
    code, _, err = run("index", "--encoded", folder, index)
    assert (code, "give the model and the terms it was encoded with" in err) == (2, True)
