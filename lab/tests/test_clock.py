"""Clocks: which queries and texts they run, and what they make of the times."""

from __future__ import annotations

import numpy as np
import pytest

from hplus.types import F32
from hplus_lab import clock
from hplus_lab.clock import Clock
from hplus_lab.cost import Cost
from hplus_lab.line import Line


class Hours:
    """A clock that moves when it is told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        monkeypatch.setattr(clock.time, "perf_counter", lambda: self.now)


def test_percentiles_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Query i takes i + 1 ms, the very first a second: the median and the 95th percentile of the
    fifty that are asked, without the one that warms up."""
    hours, asked = Hours(monkeypatch), []

    def score(row: int) -> F32:
        asked.append(row)
        hours.now += (row + 1) / 1000 if len(asked) > 1 else 1
        return np.zeros(1, np.float32)

    found = clock.latency(score, 1_000)
    rows = [int(place) for place in np.linspace(0, 999, 50)]
    assert asked == [0, *rows]
    times = sorted(row + 1 for row in rows)
    assert found["p50_ms"] == pytest.approx((times[24] + times[25]) / 2)
    assert found["p95_ms"] == pytest.approx(times[46] + 0.55 * (times[47] - times[46]))


def test_what_a_first_document_costs_is_not_in_the_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader that takes 10 s to load and 0.5 s a text, by a clock of its own."""
    hours = Hours(monkeypatch)

    def encode(texts: list[str]) -> None:
        hours.now += 10 + 0.5 * len(texts)

    assert clock.encode_rate(encode, [str(i) for i in range(100)]) == pytest.approx(2)


def test_a_line_has_its_own_file_rate_and_percentiles(monkeypatch: pytest.MonkeyPatch) -> None:
    hours, encoded = Hours(monkeypatch), []

    def slow(texts: list[str]) -> None:
        encoded.append(len(texts))
        hours.now += len(texts)

    def score(_: int) -> F32:
        hours.now += 0.002
        return np.zeros(1, np.float32)

    def fast(texts: list[str]) -> None:
        hours.now += 0.1 * len(texts)

    line = Line(
        "ours", np.zeros(2), Cost(1, 1, 1, 1), file=512, score=score, candidates=[np.zeros(1)] * 2,
        encode=slow,
    )  # fmt: skip
    other = Line(**{**vars(line), "name": "theirs", "file": 7.0, "encode": fast})
    timer = Clock([str(i) for i in range(100)])
    ours, theirs = timer.times(line), timer.times(other)
    assert ours == pytest.approx(
        {"kb_on_disk": 0.512, "documents_a_second": 1.0, "p50_ms": 2.0, "p95_ms": 2.0}
    )
    assert theirs["documents_a_second"] == pytest.approx(10)
    assert theirs["kb_on_disk"] == 0.007
    runs = len(encoded)
    timer.times(line)
    assert len(encoded) == runs  # an encoder is timed once
