"""`hplus-lab baselines` as typed, and what it measures."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from baseline_rows import (
    DENSE,
)
from hplus.evaluate.bm25 import BM25
from hplus.evaluate.data import demo_folder, read_beir
from hplus.evaluate.metrics import ndcg
from hplus_lab.baselines import (
    BASELINES,
)
from hplus_lab.baselines import measure as measuring
from hplus_lab.cli import baselines as command
from hplus_lab.cli import main


@pytest.fixture
def run(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[int, str, str]]:
    """`run("bm25", "scifact")` -> exit code, standard output, standard error."""

    def call(*arguments: str | Path) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["hplus-lab", "baselines", *map(str, arguments)])
        code = 0
        try:
            main()
        except SystemExit as stop:
            code = int(stop.code or 0)
        out, err = capsys.readouterr()
        return code, out, err

    return call


def test_a_line_for_bm25(run: Callable[..., tuple[int, str, str]]) -> None:
    code, out, err = run("bm25", demo_folder("en"))
    assert (code, err) == (0, "")
    line = json.loads(out)
    data = read_beir(demo_folder("en"))
    assert (line["baseline"], line["pool"], line["tokens"]) == ("bm25", "full corpus", None)
    assert line["queries"] == len(data.queries)
    assert line["cost"]["vectors"] == 0 < line["cost"]["bytes"]
    corpus = BM25(data.documents)
    values = []
    for query_id, query in zip(data.query_ids, data.queries, strict=True):
        ranked = sorted(zip(-corpus.scores(query), data.document_ids, strict=True))[:10]
        values.append(ndcg([name for _, name in ranked], data.judgements[query_id]))
    assert line["ndcg10"] == pytest.approx(100 * np.mean(values), abs=0.005)
    assert line["low"] <= line["ndcg10"] <= line["high"]


def test_a_cross_encoder_reranks_the_top_of_bm25(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its scores here are the negative ranks of BM25: the first ten turn round."""
    data = read_beir(demo_folder("en"))
    pools, _ = BM25(data.documents).search(data.queries, 100)
    monkeypatch.setattr(
        measuring, "rerank", lambda *a, **_: np.tile(np.arange(a[3].shape[1]), (len(a[3]), 1))
    )
    line = measuring.measure(replace(DENSE, kind="cross-encoder"), data)
    names = np.array(data.document_ids)
    values = [
        ndcg(names[pool[::-1][:10]].tolist(), data.judgements[query])
        for pool, query in zip(pools, data.query_ids, strict=True)
    ]
    assert (line["pool"], line["cost"]) == ("BM25 top 100", None)
    assert line["ndcg10"] == pytest.approx(100 * np.mean(values), abs=0.005)


def test_all_are_listed_with_what_they_lack(run: Callable[..., tuple[int, str, str]]) -> None:
    code, out, err = run()
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert [line.split()[0] for line in lines] == list(BASELINES)
    assert lines[0].endswith("ready")
    assert (
        "  needs its weights: put the files of BAAI/bge-m3 into DIR/bge-m3, then --baselines DIR"
        in out
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["bge", "DEMO"], "there is no baseline 'bge'"),
        (["bm25"], "expected a BEIR folder to measure bm25 on"),
        (["bm25", "nowhere"], "nowhere is"),
        (["bge-m3", "DEMO"], "bge-m3 needs"),
    ],
)
def test_a_mistake_is_one_sentence_and_exit_code_2(
    run: Callable[..., tuple[int, str, str]], arguments: list[str], message: str
) -> None:
    code, out, err = run(*(demo_folder("en") if a == "DEMO" else a for a in arguments))
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert message in err
    assert err.count("\n") == 1


def test_the_example_of_the_help_runs(
    run: Callable[..., tuple[int, str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "Example: hplus-lab baselines" in run("--help")[1]
    monkeypatch.chdir(tmp_path)
    Path("scifact").symlink_to(demo_folder("en"))
    typed = shlex.split(command.EXAMPLE.removeprefix("Example: hplus-lab baselines"))
    code, out, err = run(*typed)
    assert (code, err) == (0, "")
    assert (json.loads(out)["set"], json.loads(out)["queries"]) == ("scifact", 20)
