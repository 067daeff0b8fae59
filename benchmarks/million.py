"""A million documents, added five thousand at a time: how many segments, how much memory, how fast?

    python benchmarks/million.py --folder /tmp/million --out docs/results/million.jsonl

Random documents of 4 units of width 32 and 8 token ids, encoded beforehand, under a limit of 1,024
handles. Then the index is copied, the copy compacted, and the same queries are put to both in turn,
on one thread, by processor time. The bars: it opens, memory is bounded (what the process has of its
own, files mapped into it not counted), and a search is no slower than after `compact` by more than
a third. Ten minutes and 2 GB of disk.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import statistics
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

from hplus import Budget, Encoded, Index
from indexing import Shape, random_documents

DOCUMENTS, CALL = 1_000_000, 5_000
SHAPE = Shape(units=4, width=32, global_width=32, tokens=8)
HANDLES = 1_024
QUERIES = 60


class Memory(threading.Thread):
    """The most memory that was this process's own, sampled, in MB."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.most, self.ended = 0, threading.Event()

    def run(self) -> None:
        while not self.ended.wait(0.02):
            status = Path("/proc/self/status").read_text("utf-8")
            self.most = max(self.most, int(status.split("RssAnon:")[1].split()[0]))

    def __enter__(self) -> Memory:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.ended.set()
        self.join()
        self.most //= 1024


def fill(folder: Path, documents: int) -> dict[str, Any]:
    """Add the documents, all calls through one open index."""
    index = Index.create(
        folder,
        budget=Budget(SHAPE.units, policy="merge"),
        width=SHAPE.width,
        global_width=SHAPE.global_width,
        fingerprint="random",
    )
    random = np.random.default_rng(13)
    calls: list[float] = []
    segments = handles = log = 0
    with Memory() as memory, index:
        for first in range(0, documents, CALL):
            some = random_documents(random, CALL, SHAPE)
            started = time.perf_counter()
            index.add_encoded([str(first + i) for i in range(CALL)], some)
            calls.append(time.perf_counter() - started)
            segments = max(segments, len(index.engine.snapshot.parts))
            handles = max(handles, len(list(Path("/proc/self/fd").iterdir())))
            log = max(log, (folder / "catalogue.sqlite-wal").stat().st_size)
    return {
        "documents": documents,
        "docs_per_s": round(documents / sum(calls)),
        "median_call_s": round(statistics.median(calls), 2),
        "longest_call_s": round(max(calls), 1),
        "peak_mb": memory.most,
        "most_segments": segments,
        "most_handles": handles,
        "log_bytes": log,
    }


def queries() -> list[Encoded]:
    """Encodings of the documents' kind."""
    drawn = random_documents(np.random.default_rng(14), QUERIES, SHAPE)
    return [drawn[i] for i in range(QUERIES)]


def search_ms(indexes: dict[str, Index]) -> dict[str, float]:
    """Processor time of a search, medians by index, the indexes taking turns."""
    times: dict[str, list[float]] = {name: [] for name in indexes}
    asked = queries()
    for query in [asked[0], *asked]:  # the first one twice: it warms
        for name, index in indexes.items():
            started = time.process_time()
            index.search(query, k=10)
            times[name].append(1000 * (time.process_time() - started))
    return {name: round(statistics.median(own[1:]), 1) for name, own in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--documents", type=int, default=DOCUMENTS)
    options = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_NOFILE, (HANDLES, HANDLES))
    shutil.rmtree(options.folder, ignore_errors=True)
    options.folder.mkdir(parents=True)
    grown, compacted = options.folder / "grown", options.folder / "compacted"
    line = fill(grown, options.documents)
    shutil.copytree(grown, compacted)
    started = time.perf_counter()
    with Memory() as memory, Index.open(compacted) as index:
        index.compact()
    line |= {"compact_s": round(time.perf_counter() - started, 1), "compact_mb": memory.most}
    started = time.perf_counter()
    with Index.open(grown) as before, Index.open(compacted) as after:
        line["open_ms"] = round(500 * (time.perf_counter() - started), 1)
        found = search_ms({"search_ms": before, "compacted_ms": after})
        line |= found | {"ratio": round(found["search_ms"] / found["compacted_ms"], 2)}
        line |= {"segments": before.stats().segments, "compacted": after.stats().segments}
        line["recall"] = [index.verify().recall for index in (before, after)]
    shutil.rmtree(options.folder)
    print(json.dumps(line))
    options.out.write_text(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
