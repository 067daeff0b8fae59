"""The input and the queries of every engine, each in its own environment and process.

    python ENGINE.py FOLDER VARIANT build
    python ENGINE.py FOLDER VARIANT search CORES

FOLDER holds vectors.npy f32[M, r] with offsets.npy i64[n + 1], the units of the documents, and
query_vectors.npy with query_weights.npy and query_offsets.npy. `search` opens the index that
`build` left there, says so in one line, and then answers every line of its input, a number s, with
one JSON line: seconds that every s-th query took, by the clock and of processor time, the ten best
documents of each, and the peak of its memory. Only numpy is needed here.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

K = 10

# Everything loaded so far is light: libraries that count cores when imported come after `main`.
Search = Callable[[int], list[list[int]]]


def documents(folder: Path) -> list[Any]:
    """The unit vectors of each document, f32[units, r]."""
    return _split(folder, "vectors", "offsets")


def queries(folder: Path, *, weighted: bool) -> list[Any]:
    """The unit vectors of each query; weighted: times their weights, so that a plain sum of
    maxima of dot products is eq:phrase_score. Otherwise every unit counts the same."""
    import numpy as np

    vectors = _split(folder, "query_vectors", "query_offsets")
    if not weighted:
        return vectors
    weights = _split(folder, "query_weights", "query_offsets")
    return [np.asarray(v * w[:, None]) for v, w in zip(vectors, weights, strict=True)]


def main(
    build: Callable[[Path, str], None], open_: Callable[[Path, str, int], tuple[str, Search]]
) -> None:
    """Run one engine: `open_` gives its name with version, and the search of every s-th query."""
    folder, variant, what = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    if what == "build":
        build(folder, variant)
        return
    cores = int(sys.argv[4])
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-cores:])
    # What an engine prints must not get between the answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    name, search = open_(folder, variant, cores)
    print(json.dumps({"name": name}), file=answers, flush=True)
    for line in sys.stdin:
        started, cpu = time.perf_counter(), time.process_time()
        found = search(int(line))
        taken, cpu = time.perf_counter() - started, time.process_time() - cpu
        answer = {"seconds": taken, "cpu_seconds": cpu, "found": found, "peak_mb": peak_mb()}
        print(json.dumps(answer), file=answers, flush=True)


def peak_mb() -> float:
    """Largest resident memory so far of this process and of those it started.

    ru_maxrss would not do: a process inherits it from the one that started it.
    """
    children = Path("/proc/self/task").glob("*/children")
    pids = ["self", *(pid for file in children for pid in _read(file).split())]
    return sum(_peak_kb(pid) for pid in pids) / 1024


def _read(file: Path) -> str:
    try:
        return file.read_text()
    except (FileNotFoundError, ProcessLookupError):  # a thread or process that has just ended
        return ""


def _peak_kb(pid: str) -> int:
    status = _read(Path(f"/proc/{pid}/status"))
    return next((int(s.split()[1]) for s in status.splitlines() if s.startswith("VmHWM")), 0)


def _split(folder: Path, name: str, offsets: str) -> list[Any]:
    import numpy as np

    rows = np.load(folder / f"{name}.npy")
    return [rows[i:j] for i, j in pairwise(np.load(folder / f"{offsets}.npy").tolist())]
