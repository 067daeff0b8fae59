"""Bulk encoding, all three views, beside an earlier version and sentence-transformers, in one run.

    python benchmarks/encode_rate.py SCIFACT --gte FOLDER --before SRC --out docs/results

1,000 abstracts cut at 256 tokens, the default budget, two threads. FOLDER: the weights of gte-small
for sentence-transformers (which makes the sentence vector alone, at its best batch size). SRC: the
`src` of a checkout whose BERT was written in numpy (`git worktree add OLD 0c122e6^`). Each system
has a process and so a peak of memory of its own; slices take turns, so that a slow moment of the
machine hits them all. CPU seconds count what other processes cannot take away.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from machine import record

ABSTRACTS, SLICES, WARM = 1_000, 10, 16

HPLUS = """
from hplus import HPlus
encode = HPlus({name!r}, long="cut").encode_document
"""
PEER = """
import os
os.environ["HF_HUB_OFFLINE"] = "1"
import time
from sentence_transformers import SentenceTransformer
model = SentenceTransformer({folder!r})
model.max_seq_length = 256
times = {{}}
for size in (4, 8, 16, 32, 64):
    started = time.process_time()
    model.encode(texts[:96], batch_size=size)
    times[size] = time.process_time() - started
best = min(times, key=times.get)
encode = lambda part: model.encode(part, batch_size=best)
"""
WORKER = """
import json, resource, sys, time
texts = json.loads(sys.stdin.readline())
{setup}
encode(texts[:{warm}])
print("ready", flush=True)
for line in sys.stdin:
    first, last = json.loads(line)
    wall, cpu = time.perf_counter(), time.process_time()
    encode(texts[first:last])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps([time.perf_counter() - wall, time.process_time() - cpu, peak]), flush=True)
"""


class System:
    """One process that encodes slices as it is told."""

    def __init__(self, setup: str, texts: list[str], source: Path | None = None) -> None:
        environment = {**os.environ, "OMP_NUM_THREADS": "2"}
        if source is not None:
            environment["PYTHONPATH"] = str(source)
        code = WORKER.format(setup=setup, warm=WARM)
        self.process = subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            text=True,
        )
        self.say(texts)
        if self.process.stdout.readline().strip() != "ready":  # type: ignore[union-attr]
            raise SystemExit("a system did not start; its message is above")
        self.wall: list[float] = []
        self.cpu: list[float] = []
        self.peak = 0.0

    def say(self, what: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(what) + "\n")
        self.process.stdin.flush()

    def encode(self, first: int, last: int) -> None:
        self.say([first, last])
        assert self.process.stdout is not None
        wall, cpu, self.peak = json.loads(self.process.stdout.readline())
        self.wall.append(wall)
        self.cpu.append(cpu)


def main() -> None:
    from hplus.evaluate.data import read_beir

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--gte", type=Path, required=True)
    parser.add_argument("--before", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    texts = read_beir(options.data).documents[:ABSTRACTS]
    systems = {
        "hplus-small, int8": System(HPLUS.format(name="small"), texts),
        "hplus-mini, float32": System(HPLUS.format(name="mini"), texts),
        "hplus-mini before, numpy": System(HPLUS.format(name="mini"), texts, options.before),
        "sentence-transformers, gte-small": System(PEER.format(folder=str(options.gte)), texts),
    }
    step = len(texts) // SLICES
    for first in range(0, len(texts), step):
        for system in systems.values():
            system.encode(first, first + step)
        print(f"{first + step} of {len(texts)}", file=sys.stderr)
    ours = sum(systems["hplus-small, int8"].cpu)
    rows = []
    for name, system in systems.items():
        by_slice = [
            b / a for a, b in zip(systems["hplus-small, int8"].cpu, system.cpu, strict=True)
        ]
        row = {
            "system": name,
            "cpu_ms_per_abstract": round(1e3 * sum(system.cpu) / len(texts), 1),
            "abstracts_per_s": round(len(texts) / sum(system.wall), 1),
            "cpu_over_small": round(sum(system.cpu) / ours, 2),
            "by_slice": f"{min(by_slice):.2f} to {max(by_slice):.2f}",
            "peak_mb": round(system.peak),
        }
        rows.append(row)
    record(options.out / "encode_rate.jsonl", rows)


if __name__ == "__main__":
    main()
