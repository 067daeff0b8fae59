"""Slow: the recorded quality of the frozen backbone comes out again on real data.

    make test-slow SHARED=../shared

HPLUS_EVAL names the folder of retrieval sets; HPLUS_CACHE keeps encoded states between runs.
"""

from __future__ import annotations

import importlib.util
import json
import os
from pathlib import Path

import pytest

from hplus import Budget

ROOT = Path(__file__).parents[1]


@pytest.mark.slow
def test_merged_runs_on_scifact(tmp_path: Path) -> None:
    data = Path(os.environ.get("HPLUS_EVAL", ""))
    if not (data / "scifact").is_dir():
        pytest.fail("set HPLUS_EVAL to a folder of retrieval sets that has scifact")
    spec = importlib.util.spec_from_file_location("quality", ROOT / "benchmarks" / "quality.py")
    assert spec is not None
    assert spec.loader is not None
    quality = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(quality)
    cache = Path(os.environ.get("HPLUS_CACHE", tmp_path))
    wanted = {"units": "runs", "width": 128, "budget": "merge to 32 units", "weights": "idf"}
    rows = [("runs", 128, Budget(32, policy="merge"), "idf")]
    found = quality.run("scifact", "test", data, cache, rows)
    recorded = map(json.loads, (ROOT / "docs/results/frozen.jsonl").read_text().splitlines())
    expected = {
        row["view"]: row["ndcg10_exponential"]
        for row in recorded
        if row["set"] == "scifact" and wanted.items() <= row.items()
    }
    measured = {row["view"]: row["ndcg10_exponential"] for row in found if "units" in row}
    assert measured == pytest.approx(expected, abs=0.1)
