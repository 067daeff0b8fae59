"""Does the approximate path find what the exact one finds, and stay fast, at ten times the size?

    python benchmarks/scale.py ../shared/data/eval --cache /tmp/states --folder /tmp/scale \
        --out docs/results/scale.jsonl

A made-up document is a real one of SciFact or NFCorpus, merged to 32 units of width 128, every
vector moved to a cosine of 0.8 with its original; the queries are real ones of both. Every query is
run exactly and by lists in turn, on one thread. The bars: recall@10 of at least 0.95 against the
exact scan; ten times the documents, at most four times the latency of the path that a search takes
by default (the smaller index is scanned, the larger one has lists). About ten minutes, mostly
building, and 1.2 GB of disk; indexes already in --folder are used again.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from encoded_sets import WIDTH, EncodedSet, encoded_set
from hplus import Budget, Encoded, Index
from hplus.search import candidates
from hplus.types import concatenate
from hplus.units.vectors import normalise

SIZES = (20_000, 200_000)
SETS = ("scifact", "nfcorpus")
BUDGET = Budget(32, policy="merge")
QUERIES = 100  # of each set
CHUNK = 5_000
SEED = 13
NOISE = 0.75  # a vector of this length at a right angle to a unit vector: cosine 0.8


def some_queries(sets: list[EncodedSet]) -> list[Encoded]:
    """Real queries of each set, drawn by a seed."""
    random = np.random.default_rng(SEED)
    return [
        found.queries[row]
        for found in sets
        for row in np.sort(random.permutation(len(found.queries))[:QUERIES]).tolist()
    ]


def made_up(documents: Encoded, count: int) -> Iterator[Encoded]:
    """`count` documents near real ones, some at a time."""
    random = np.random.default_rng(SEED)
    for first in range(0, count, CHUNK):
        rows = random.integers(0, len(documents), min(CHUNK, count - first))
        some = documents.take(rows)
        units = some.units
        noise = random.standard_normal(units.vectors.shape, np.float32)
        moved = normalise(units.vectors + NOISE * normalise(noise))
        yield replace(some, units=replace(units, vectors=moved))


def build(folder: Path, documents: Encoded, count: int) -> None:
    """An index of `count` documents, in as few segments as `compact` makes."""
    index = Index.create(
        folder,
        budget=BUDGET,
        width=WIDTH,
        global_width=documents.global_.shape[1],
        fingerprint="scale",
    )
    done = 0
    for some in made_up(documents, count):
        index.add_encoded([f"{done + i:07d}" for i in range(len(some))], some)
        done += len(some)
    index.compact()
    index.close()


def measure(index: Index, queries: list[Encoded]) -> dict[str, float]:
    """Recall@10 of the approximate path, and the median latency of both in milliseconds."""
    recall, times = [], {"exact": [], "lists": []}  # type: ignore[var-annotated]
    scanned, candidates.SCANNED = candidates.SCANNED, 0  # lists, however small the index
    try:
        for query in [queries[0], *queries]:  # the first one twice: it warms
            found = {}
            for path, exact in (("exact", True), ("lists", False)):
                started = time.perf_counter()
                hits = index.search(query, view="phrase", k=10, exact=exact)
                times[path].append(1000 * (time.perf_counter() - started))
                found[path] = {hit.id for hit in hits}
            recall.append(len(found["exact"] & found["lists"]) / len(found["exact"]))
    finally:
        candidates.SCANNED = scanned
    medians = {f"{path}_ms": float(np.median(values[1:])) for path, values in times.items()}
    return {"recall10": float(np.mean(recall[1:])), **medians}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    options = parser.parse_args()
    sets = [encoded_set(options.data / name, options.cache) for name in SETS]
    queries = some_queries(sets)
    missing = [count for count in options.sizes if not (options.folder / str(count)).exists()]
    if missing:
        documents = concatenate([found.documents.at(budget=BUDGET) for found in sets])
        for count in missing:
            build(options.folder / str(count), documents, count)
    lines: list[dict[str, Any]] = []
    for count in options.sizes:
        folder = options.folder / str(count)
        with Index.open(folder) as index:
            stats = index.stats()
            found = measure(index, queries)
        lines.append(
            {
                "documents": stats.documents,
                "units": stats.units,
                "segments": stats.segments,
                "probes": candidates.PROBES,
                "survivors": candidates.SURVIVORS,
                **{name: round(value, 3) for name, value in found.items()},
            }
        )
        path = "exact" if stats.units <= candidates.SCANNED else "lists"
        lines[-1] |= {"path": path, "ms": lines[-1][f"{path}_ms"]}
        lines[-1]["times_first"] = round(lines[-1]["ms"] / lines[0]["ms"], 2)
        lines[-1]["lists_times_first"] = round(lines[-1]["lists_ms"] / lines[0]["lists_ms"], 2)
        print(json.dumps(lines[-1]), flush=True)
    options.out.write_text("\n".join(json.dumps(line) for line in lines) + "\n")


if __name__ == "__main__":
    main()
