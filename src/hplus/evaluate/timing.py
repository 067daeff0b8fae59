"""How long scoring and encoding take here: kept in files of their own, results have no times."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np

from hplus.evaluate.lab import Lab
from hplus.kernels import weighted_maxsim
from hplus.types import I64
from hplus.units.select import Kept

# Queries and documents that are timed, spread over the set.
QUERIES = 50
DOCUMENTS = 32


def times(lab: Lab) -> dict[str, float]:
    """Documents encoded a second, and milliseconds to score one query's candidates on one thread:
    median and 95th percentile, at every width, pool size and budget of the protocol."""
    found = {"documents encoded a second": encode_rate(lab)}
    for name, queries, documents, pools, ends in _timed(lab):
        for measure, value in latency(queries, documents, pools, ends).items():
            found[f"{name}: {measure}"] = value
    return found


def encode_rate(lab: Lab) -> float:
    """Documents a second, states of all tokens, with the model's threads."""
    texts = lab.bench.data.documents
    places = np.linspace(0, len(texts) - 1, min(DOCUMENTS, len(texts))).astype(int)
    chosen = [texts[place] for place in places]
    lab.bench.model.states(chosen[:2])  # warms
    started = time.perf_counter()
    lab.bench.model.states(chosen)
    return len(chosen) / (time.perf_counter() - started)


def latency(
    queries: Kept, documents: Kept, pools: I64, ends: I64 | None = None
) -> dict[str, float]:
    """Milliseconds to score one query's pool on one thread; ends: of each document's units."""
    starts, ends = documents.offsets[:-1], documents.offsets[1:] if ends is None else ends
    rows = np.linspace(0, len(pools) - 1, min(QUERIES, len(pools))).astype(int)
    spent = []
    for row in [rows[0], *rows]:  # the first one twice: it warms
        own = slice(queries.offsets[row], queries.offsets[row + 1])
        places = np.sort(pools[row])
        started = time.perf_counter()
        weighted_maxsim(
            queries.vectors[own],
            queries.weights[own],
            documents.vectors,
            None,
            starts[places],
            ends[places],
        )
        spent.append(1000 * (time.perf_counter() - started))
    return {f"p{share}_ms": float(np.quantile(spent[1:], share / 100)) for share in (50, 95)}


def _timed(lab: Lab) -> Iterator[tuple[str, Kept, Kept, I64, I64]]:
    """What the lines of a protocol score: a name, units of both sides, candidates, ends."""
    protocol, dim, n = lab.protocol, lab.bench.model.dim, len(lab.bench.ids)
    widths = {min(width, dim) for width in protocol.widths} if protocol.kind == "widths" else ()
    for width in sorted({*widths, dim}) if widths else [lab.width]:
        for name, units, kind in (("phrase", lab.units, ""), ("token", "tokens", "uniform")):
            queries, documents = (lab.kept(side, units, width, kind) for side in lab.sides)
            for count in (*protocol.budgets, None):
                kept = "all" if count is None else f"at most {count}"
                cap = documents.offsets[-1] if count is None else count
                ends = np.minimum(documents.offsets[1:], documents.offsets[:-1] + cap)
                sizes = {min(size, n) for size in protocol.pools}
                for size in sorted(sizes | {n} if protocol.kind == "full-corpus" else sizes):
                    every = np.tile(np.arange(n), (len(lab.gate), 1))
                    pools = lab.gate[:, :size] if size <= lab.gate.shape[1] else every
                    label = f"{name}, {width} wide, {size:,} candidates, {kept} units"
                    yield label, queries, documents, pools, ends
        lab.forget()
