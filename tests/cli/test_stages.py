"""`hplus train stage2` as typed: what it prints, and what a kill leaves behind."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import toy
from hplus.cli import stages
from hplus.teach.groups import write_groups
from hplus.train.state import History

Run = Callable[..., tuple[int, str, str]]
CONFIG = """
[student]
start = "encoder"
mode = "top"
layers = 1
heads = ["importance"]
[data]
groups = ["groups.jsonl"]
documents = 3
[batch]
queries = 4
[schedule]
steps = 24
save_every = 3
validate_every = 5
average = 2
[loss.units]
weight = 1.0
tau = 0
budgets = [2, 0]
widths = [16, 0]
[dev]
sets = ["dev:dev"]
budgets = [4]
widths = [0]
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tiny encoder, scored groups, a dev set and a configuration."""
    monkeypatch.chdir(tmp_path)
    toy.encoder(tmp_path / "encoder")
    write_groups(tmp_path / "groups.jsonl", toy.groups(24))
    (tmp_path / "stage2.toml").write_text(CONFIG)
    qrels = tmp_path / "dev" / "qrels"
    qrels.mkdir(parents=True)
    rows = toy.groups(12, seed=9)
    names: dict[str, str] = {}
    for row in rows:
        for text in row.documents:
            names.setdefault(text, f"d{len(names)}")
    lines = [json.dumps({"_id": name, "text": text}) for text, name in names.items()]
    (tmp_path / "dev" / "corpus.jsonl").write_text("\n".join(lines) + "\n")
    lines = [json.dumps({"_id": f"q{i}", "text": row.query}) for i, row in enumerate(rows)]
    (tmp_path / "dev" / "queries.jsonl").write_text("\n".join(lines) + "\n")
    lines = [f"q{i}\t{names[row.documents[0]]}\t1" for i, row in enumerate(rows)]
    (qrels / "dev.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *lines]) + "\n")
    return tmp_path


def test_what_decides_is_what_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    """The row of the best weights by dev.by; and a word where none were better."""
    rows = [
        {"step": 0, "phrase": 40.0, "lexical": 30.0},
        {"step": 5, "phrase": 20.0, "lexical": 50.0},
        {"step": 9, "phrase": 39.0, "lexical": 45.0},
    ]
    log: dict[str, Any] = {"peak_memory_mb": 1200, "minutes": 0.5}
    shown = []
    for by in ("lexical", "phrase"):
        settings = {"config": {"dev": {"by": by}}}
        stages._print(History({}, step=9, validations=rows), {**log, **settings}, Path("mine"))
        shown.append(capsys.readouterr().out)
    assert "before: phrase 40.0, lexical 30.0\nstep 5: phrase 20.0, lexical 50.0\n9 st" in shown[0]
    assert "step 9: phrase 39.0, lexical 45.0\nno weights were better on the dev sets" in shown[1]
    assert shown[1].endswith("9 steps, 0.5 minutes, 1,200 MB: mine\n")


def test_a_killed_command_goes_on_to_the_same_bytes(run: Run, here: Path) -> None:
    """SIGKILL, wherever it happens to be; then the same command again."""
    command = ["train", "stage2", "stage2.toml", "--threads", "1", "--out"]
    assert run(*command, "whole")[::2] == (0, "")
    log = here / ".killed.run" / "log.jsonl"
    process = subprocess.Popen(
        [sys.executable, "-m", "hplus", *command, "killed"], stderr=subprocess.DEVNULL
    )
    until = time.monotonic() + 120
    while not log.exists() or log.read_text().count('"loss"') < 8:
        assert process.poll() is None, "it ended before it was killed"
        assert time.monotonic() < until
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert run(*command, "killed")[0] == 0
    for file in sorted((here / "whole").rglob("*.safetensors")):
        assert (here / "killed" / file.relative_to(here / "whole")).read_bytes() == (
            file.read_bytes()
        ), file.name
    logs = [(here / name / "log.jsonl").read_text().splitlines() for name in ("whole", "killed")]
    rows_of = [[{**json.loads(row), "seconds": 0} for row in log] for log in logs]
    assert rows_of[0] == rows_of[1]
