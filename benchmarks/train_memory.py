"""Peak memory of `hplus train stage1` by the number of rows: training data are read from disk.

    python benchmarks/train_memory.py [--rows 20000 200000] [--steps 3] [--out docs/results]

Rows are made up: queries of 10 words, documents of 60, all different. The command is the user's: it
reads the file, writes tokens and texts to the run's folder and takes its steps (hplus-mini, the
top three layers, batches of 8), each size in a process of its own, of which `peak_mb` is the most
it held, mapped files included. Prints one line of JSON per size.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from machine import record

WORDS = [
    "heart",
    "failure",
    "kidney",
    "insulin",
    "therapy",
    "cancer",
    "gene",
    "cell",
    "dose",
    "acute",
    "chronic",
    "patient",
]
SETTINGS = """
[student]
start = "mini"
mode = "top"
layers = 3
heads = []
[data]
groups = ["pairs.jsonl"]
document_length = 128
[batch]
queries = 8
[schedule]
precision = "float32"
[loss.global]
tau = 0.05
"""


def write_pairs(file: Path, rows: int) -> None:
    """Rows whose number makes them different."""
    random = np.random.default_rng(13)
    with file.open("w") as stream:
        for row in range(rows):
            words = [WORDS[i] for i in random.integers(len(WORDS), size=70).tolist()]
            pair = {"query": f"{row} {' '.join(words[:10])}", "positive": " ".join(words[10:])}
            pair["positive"] += f" {row}"
            stream.write(json.dumps(pair) + "\n")


def measure(rows: int, steps: int) -> dict[str, Any]:
    """One run of the command, and what it held."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_pairs(folder / "pairs.jsonl", rows)
        (folder / "stage1.toml").write_text(SETTINGS)
        options = ["--set", f"schedule.steps={steps}", "--threads", "1", "--out", "mine"]
        command = [sys.executable, "-m", "hplus", "train", "stage1", "stage1.toml", *options]
        subprocess.run(command, cwd=folder, stdout=subprocess.DEVNULL, check=True)
        size = (folder / "pairs.jsonl").stat().st_size
        notes = json.loads((folder / "mine" / "config.json").read_text())["notes"]["stage1"]
    return {
        "rows": rows,
        "file_mb": round(size / 1e6, 1),
        "steps": steps,
        "peak_mb": notes["peak_memory_mb"],
    }


def main() -> None:
    """One run after the other."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[20_000, 200_000])
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path(tempfile.gettempdir()))
    given = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    record(given.out / "train_memory.jsonl", [measure(rows, given.steps) for rows in given.rows])


if __name__ == "__main__":
    main()
