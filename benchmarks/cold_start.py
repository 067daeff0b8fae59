"""Process start to answer: `hplus search` of now and of before, and what importing peers takes.

    python benchmarks/cold_start.py --before SRC --out docs/results

SRC: the `src` of a checkout whose BERT was written in numpy (`git worktree add OLD 0c122e6^`).
Needs sentence-transformers in the same environment. Runs take turns; medians are compared.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from hplus.evaluate.data import demo_folder
from machine import record

ROUNDS = 9
HPLUS = ["-m", "hplus"]
QUERY = "first-line drug for diabetes"
NOW, BEFORE = "hplus search", "hplus search before, hplus-mini in numpy"


def run(arguments: list[str], source: Path | None = None) -> tuple[float, float]:
    """Seconds of one fresh process, by the clock and of CPU."""
    environment = {**os.environ, **({"PYTHONPATH": str(source)} if source else {})}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # an installation has bytecode
    before = os.times()
    started = time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, capture_output=True, env=environment)
    wall, after = time.perf_counter() - started, os.times()
    return wall, after[2] + after[3] - before[2] - before[3]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--before", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        corpus = str(demo_folder("en"))
        now, before = f"{folder}/now.hplus", f"{folder}/before.hplus"
        run([*HPLUS, "index", corpus, now])
        run([*HPLUS, "index", corpus, before], options.before)
        programs: dict[str, tuple[list[str], Path | None]] = {
            NOW: ([*HPLUS, "search", now, QUERY], None),
            BEFORE: ([*HPLUS, "search", before, QUERY], options.before),
            "import torch": (["-c", "import torch"], None),
            "import sentence_transformers": (["-c", "import sentence_transformers"], None),
        }
        times: dict[str, list[tuple[float, float]]] = {name: [] for name in programs}
        for round_ in range(ROUNDS + 1):
            for name, program in programs.items():
                taken = run(*program)
                if round_:  # the first round warms the file cache
                    times[name].append(taken)
    medians = {
        name: [statistics.median(column) for column in zip(*values, strict=True)]
        for name, values in times.items()
    }
    rows = [
        {
            "program": name,
            "median_s": round(wall, 3),
            "cpu_s": round(cpu, 3),
            "hplus_ratio": round(medians[NOW][0] / wall, 3),
            "hplus_cpu_ratio": round(medians[NOW][1] / cpu, 3),
        }
        for name, (wall, cpu) in medians.items()
    ]
    record(options.out / "cold_start.jsonl", rows)


if __name__ == "__main__":
    main()
