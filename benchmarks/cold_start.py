"""Process start to answer: `hplus score` against a process that only imports the peer.

    python benchmarks/cold_start.py

Needs sentence-transformers in the same environment. Runs alternate; medians are compared.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time

ROUNDS = 7
SCORE = ["-m", "hplus", "score", "type 2 diabetes", "Metformin treats type 2 diabetes."]
PROGRAMS = {
    "hplus score": SCORE,
    "import torch": ["-c", "import torch"],
    "import sentence_transformers": ["-c", "import sentence_transformers"],
}


def seconds(arguments: list[str]) -> float:
    """One run of a fresh process."""
    started = time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, capture_output=True)
    return time.perf_counter() - started


if __name__ == "__main__":
    times: dict[str, list[float]] = {name: [] for name in PROGRAMS}
    for round_ in range(ROUNDS + 1):
        for name, arguments in PROGRAMS.items():
            taken = seconds(arguments)
            if round_:  # the first round warms the file cache
                times[name].append(taken)
    medians = {name: statistics.median(values) for name, values in times.items()}
    ours = medians["hplus score"]
    for name, median in medians.items():
        row = {
            "program": name,
            "median_s": round(median, 3),
            "hplus_ratio": round(ours / median, 3),
        }
        print(json.dumps(row))
