"""A corpus of 23 documents, and the job of encoding it in five shards."""

from __future__ import annotations

from pathlib import Path

import pytest

from hplus import HPlus, texts
from hplus.bulk.job import Job, job_of
from hplus.storage import writer
from shards import ROWS, write_rows


@pytest.fixture(autouse=True)
def _small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several steps a shard, and segments that do not depend on the clock."""
    monkeypatch.setattr(texts, "STEP_TEXTS", 2)
    monkeypatch.setattr(writer, "CONFIRM_BYTES", 2_000)
    monkeypatch.setattr(writer, "CONFIRM_SECONDS", float("inf"))


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    return write_rows(tmp_path / "corpus.jsonl", ROWS)


@pytest.fixture
def job(tiny: HPlus, corpus: Path) -> Job:
    return job_of(tiny, corpus, shards=5)
