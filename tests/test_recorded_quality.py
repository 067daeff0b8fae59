"""Slow: hplus-mini reaches its recorded quality again on real data.

    make test-slow SHARED=../shared

HPLUS_EVAL names the folder of retrieval sets; HPLUS_CACHE keeps encoded states between runs.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from pathlib import Path

import pytest

from hplus import HPlus
from hplus.evaluate.bench import Bench
from hplus.evaluate.data import read_beir

ROOT = Path(__file__).parents[1]


@pytest.mark.slow
def test_nfcorpus_as_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = Path(os.environ.get("HPLUS_EVAL", ""))
    if not (data / "nfcorpus").is_dir():
        pytest.fail("set HPLUS_EVAL to a folder of retrieval sets that has nfcorpus")
    spec = importlib.util.spec_from_file_location("quality", ROOT / "benchmarks" / "quality.py")
    assert spec is not None
    assert spec.loader is not None
    quality = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "quality", quality)  # its dataclasses look for it there
    spec.loader.exec_module(quality)
    cache = Path(os.environ.get("HPLUS_CACHE", tmp_path))
    bench = Bench(HPlus("mini", long="cut"), read_beir(data / "nfcorpus", "test"), cache)
    lines = (ROOT / "docs" / "results" / "quality.jsonl").read_text().splitlines()
    recorded = {
        tuple(row[key] for key in ("view", "units", "weights", "width", "budget")): row["ndcg10"]
        for row in map(json.loads, lines)
        if row["set"] == "nfcorpus"
    }
    seen = 0
    for row, _, values in quality.measure(bench):
        if row.units not in ("", "crf"):
            break
        assert 100 * values.mean() == pytest.approx(recorded[tuple(vars(row).values())], abs=0.1)
        seen += 1
    assert seen > 30
