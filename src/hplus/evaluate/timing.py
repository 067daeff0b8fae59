"""How long encoding and scoring take here, line by line: kept in files of their own."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from hplus.evaluate.lab import Lab
from hplus.evaluate.others import Other
from hplus.evaluate.workload import Scorer, workloads

# Queries and documents that are timed, spread over the set.
QUERIES = 50
DOCUMENTS = 32
# Raised when something else is timed than before: times of the old way are taken again.
TIMED = 3

Times = dict[str, dict[str, float]]
"""Line -> measure -> value."""


def times(lab: Lab, others: Mapping[str, Other] | None = None) -> Times:
    """Of every line: KB a document in the file that it reads, documents encoded a second, and
    milliseconds to score one query on one thread, median and 95th percentile."""
    texts, others = lab.bench.data.documents, others or {}
    # One pass of the encoder gives all views, so all our lines have one rate.
    ours = encode_rate(lab.bench.model.encode_document, texts)
    rates = {name: encode_rate(other.read, texts) for name, other in others.items()}
    found: Times = {}
    last: tuple[Scorer | None, dict[str, float]] = (None, {})
    for line, work in workloads(lab, others):
        if work.score is not last[0]:  # lines that do the same are timed once
            last = (work.score, latency(work.score, len(lab.gate)))
        found[line] = {
            "kb_on_disk": work.file / 1000,
            "documents_a_second": rates.get(line, ours),
            **last[1],
        }
    return found


def encode_rate(read: Callable[[list[str]], object], texts: Sequence[str]) -> float:
    """Documents a second, with all threads of the encoder; what a first one costs, as loading
    weights, is not in it."""
    places = np.linspace(0, len(texts) - 1, min(DOCUMENTS, len(texts))).astype(int)
    chosen = [texts[place] for place in places]
    spent = []
    for some in (chosen[:2], chosen[:2], chosen[:2] + chosen):  # the first one warms
        started = time.perf_counter()
        read(some)
        spent.append(time.perf_counter() - started)
    return len(chosen) / max(spent[2] - spent[1], 1e-9)


def latency(score: Scorer, queries: int) -> dict[str, float]:
    """Milliseconds a query, of QUERIES out of so many."""
    rows = np.linspace(0, queries - 1, min(QUERIES, queries)).astype(int)
    spent = []
    for row in [rows[0], *rows]:  # the first one twice: it warms
        started = time.perf_counter()
        score(int(row))
        spent.append(1000 * (time.perf_counter() - started))
    return {f"p{share}_ms": float(np.quantile(spent[1:], share / 100)) for share in (50, 95)}
