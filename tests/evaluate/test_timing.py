"""Clocks: which queries and texts they run, and that every line has all its figures."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from hplus import HPlus
from hplus.evaluate import timing
from hplus.evaluate.beir import Bench
from hplus.evaluate.data import demo_folder, read_beir
from hplus.evaluate.lab import Lab
from hplus.evaluate.protocol import load
from hplus.evaluate.run import sample
from hplus.types import F32


def test_every_line_has_a_file_a_rate_and_percentiles(tiny_folder: Path, tmp_path: Path) -> None:
    data = sample(read_beir(demo_folder("en")), 3, 13)
    bench = Bench(HPlus(tiny_folder, long="cut"), data, tmp_path)
    protocol = replace(load("dimensional"), pools=(20,), widths=(16,), gate_width=8)
    found = timing.times(Lab(bench, protocol))
    assert {"global 16", "token 16, own gate", "phrase full, frozen gate"} <= found.keys()
    for own in found.values():
        assert list(own) == ["kb_on_disk", "documents_a_second", "p50_ms", "p95_ms"]
        assert min(own.values()) > 0
    assert len({own["documents_a_second"] for own in found.values()}) == 1


def test_percentiles_are_of_the_queries_asked() -> None:
    asked: list[int] = []

    def score(row: int) -> F32:
        asked.append(row)
        return np.zeros(1, np.float32)

    found = timing.latency(score, 1_000)
    assert set(found) == {"p50_ms", "p95_ms"}
    assert 0 <= found["p50_ms"] <= found["p95_ms"]
    assert asked[0] == asked[1] == 0  # the first one warms
    assert len(asked) == timing.QUERIES + 1
    assert asked[-1] == 999


def test_what_a_first_document_costs_is_not_in_the_rate(monkeypatch) -> None:
    """A reader that takes 10 s to load and 0.5 s a text, by a clock of its own."""
    now = [0.0]
    monkeypatch.setattr(timing.time, "perf_counter", lambda: now[0])

    def read(texts: list[str]) -> None:
        now[0] += 10 + 0.5 * len(texts)

    assert timing.encode_rate(read, [str(i) for i in range(100)]) == 2
