"""How long encoding and scoring take here, line by line: kept in files of their own."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np

from hplus_lab.line import Line

# Queries and documents that are timed, spread over the set.
QUERIES = 50
DOCUMENTS = 32
# Raised when something else is timed than before: times of an older edition are taken again.
EDITION = 4

Times = dict[str, dict[str, float]]
"""Line -> measure -> value."""


class Clock:
    """Times the lines of one cell as they come."""

    def __init__(self, texts: Sequence[str]) -> None:
        self.texts = texts
        self._rates: dict[Callable[[list[str]], object], float] = {}

    def times(self, line: Line) -> dict[str, float]:
        """KB a document in the file that the line reads, documents encoded a second, and
        milliseconds to score one query on one thread, median and 95th percentile."""
        assert line.encode is not None, "a line read from a file cannot be timed"
        assert line.score is not None
        # One pass of an encoder gives all its views: their lines have one rate.
        if line.encode not in self._rates:
            self._rates[line.encode] = encode_rate(line.encode, self.texts)
        return {
            "kb_on_disk": line.file / 1000,
            "documents_a_second": self._rates[line.encode],
            **latency(line.score, len(line.candidates)),
        }


def encode_rate(encode: Callable[[list[str]], object], texts: Sequence[str]) -> float:
    """Documents a second, with all threads of the encoder; what a first one costs, as loading
    weights, is left out."""
    places = np.linspace(0, len(texts) - 1, min(DOCUMENTS, len(texts))).astype(int)
    chosen = [texts[place] for place in places]
    spent = []
    for some in (chosen[:2], chosen[:2], chosen[:2] + chosen):  # the first one warms up
        started = time.perf_counter()
        encode(some)
        spent.append(time.perf_counter() - started)
    return len(chosen) / max(spent[2] - spent[1], 1e-9)


def latency(score: Callable[[int], object], queries: int) -> dict[str, float]:
    """Milliseconds a query, of QUERIES out of so many."""
    rows = np.linspace(0, queries - 1, min(QUERIES, queries)).astype(int)
    spent = []
    for row in [rows[0], *rows]:  # the first one twice: it warms up
        started = time.perf_counter()
        score(int(row))
        spent.append(1000 * (time.perf_counter() - started))
    return {f"p{share}_ms": float(np.quantile(spent[1:], share / 100)) for share in (50, 95)}
