"""Documents trained a second at 128 tokens, beside sentence-transformers on the same model.

python benchmarks/train_rate.py ENCODER [--queries 8] [--steps 4] [--threads 1] [--out docs/results]

ENCODER is a folder that transformers loads, gte-small for instance. Every contestant sees the same
texts: pairs of 32 and 128 tokens, the same number of them in a batch, in-batch negatives; in
float32 and, where the processor has it, in bfloat16 (autocast in both libraries). The contestants
take turns, step by step, in one process, so that a busy machine slows all of them alike; rates are
per second of processor time, ratios within a precision. Peaks of memory are of two steps in a
process of its own. Prints one line of JSON per contestant; sentence-transformers is left out where
it is not installed.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from threadpoolctl import threadpool_limits

from hplus import checkpoint
from hplus.teach.groups import Bad, Group
from hplus.train.config import Config, GlobalLoss, LossSettings, Precision, StudentSettings
from hplus.train.data import Batches
from hplus.train.data_files import open_data, write_data
from hplus.train.distributed import World
from hplus.train.objective import Objective
from hplus.train.passes import backward
from hplus.train.run import has_bfloat16, make_optimiser, make_reader
from hplus.train.student import make_student
from machine import record

WORDS = ["heart", "failure", "kidney", "insulin", "therapy", "cancer", "gene", "cell", "dose"]


def pairs(count: int) -> list[tuple[str, str]]:
    """Texts of about 30 and 126 tokens: one word is one token."""
    random = np.random.default_rng(13)
    made = (" ".join(random.choice(WORDS, n)) for _ in range(count) for n in (30, 126))
    texts = list(made)
    return list(zip(texts[::2], texts[1::2], strict=True))


def ours(
    encoder: str, texts: list[tuple[str, str]], queries: int, precision: Precision, **student: Any
) -> Callable[[], int]:
    """A step of stage 1: what sentence-transformers' loss is, too."""
    base = checkpoint.load(encoder, device="cpu")
    config = Config(
        student=StudentSettings(start=encoder, heads=(), **student),
        loss=LossSettings(global_=GlobalLoss(weight=1.0, tau=0.05)),
    )
    config = replace(
        config,
        batch=replace(config.batch, queries=queries, chunk=1 << 20),
        data=replace(config.data, query_length=32, document_length=128),
        schedule=replace(config.schedule, precision=precision),
    )
    learner = make_student(base, config, 1)
    groups = [Group("bench", query, (positive,)) for query, positive in texts]
    folder = Path(tempfile.mkdtemp())
    write_data(folder / "data", groups, [], base.backbone, base.recipe, config, Bad())
    data = open_data(folder / "data", base.backbone, base.recipe, config)
    reader = make_reader(learner, config, folder, World())
    readers = [reader(data.queries, "queries"), reader(data.documents, "documents")]
    objective, batches = (
        Objective(learner, data, config, 1, World()),
        Batches(data, config, stage=1),
    )
    optimiser = make_optimiser(learner.learning(), config)
    steps = iter(range(1 << 30))

    def step() -> int:
        batch = batches.at(next(steps))
        optimiser.zero_grad()
        backward(readers, [batch.queries, batch.documents], partial(objective, batch))
        optimiser.step()
        return len(batch.documents)

    return step


def theirs(
    encoder: str, texts: list[tuple[str, str]], queries: int, precision: Precision
) -> Callable[[], int]:
    """A plain loop over sentence-transformers' model and its MultipleNegativesRankingLoss."""
    from sentence_transformers import SentenceTransformer, losses, models

    word = models.Transformer(encoder, max_seq_length=128)
    model = SentenceTransformer(modules=[word, models.Pooling(384)], device="cpu").train()
    loss = losses.MultipleNegativesRankingLoss(model)
    optimiser = torch.optim.AdamW(model.parameters(), lr=2e-5)
    place = iter(range(0, 1 << 30, queries))

    def step() -> int:
        first = next(place) % (len(texts) - queries + 1)
        sides = zip(*texts[first : first + queries], strict=True)
        features = [model.tokenize(list(side)) for side in sides]
        optimiser.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == "bfloat16"):
            value = loss(features, None)
        value.backward()
        optimiser.step()
        return queries

    return step


OURS: dict[str, dict[str, Any]] = {
    "hplus, all weights": {"mode": "full"},
    "hplus, LoRA": {"mode": "lora"},
    "hplus, LoRA in the top 3 layers, stored states": {
        "mode": "lora",
        "layers": 3,
        "cached": True,
    },
    "hplus, top 3 layers, stored states": {"mode": "top", "layers": 3, "cached": True},
}
PEER = "sentence-transformers"


def contestant(encoder: str, queries: int, name: str, precision: Precision) -> Callable[[], int]:
    """A step of the trainer of this name."""
    texts = pairs(4 * queries)
    if name == PEER:
        return theirs(encoder, texts, queries, precision)
    return ours(encoder, texts, queries, precision, **OURS[name])


def peak(encoder: str, queries: int, threads: int, name: str, precision: str) -> int:
    """MB of a process that takes two steps."""
    options = ["--queries", str(queries), "--threads", str(threads)]
    command = [sys.executable, __file__, encoder, *options, "--alone", name, precision]
    return int(subprocess.run(command, check=True, capture_output=True).stdout.split()[-1])


def main() -> None:
    """Turns of every contestant, then the rates."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("encoder")
    parser.add_argument("--queries", type=int, default=8)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument(
        "--out", type=Path, default=Path(tempfile.gettempdir()), help="docs/results"
    )
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--alone", nargs=2, metavar=("NAME", "PRECISION"), help="for its memory")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    threadpool_limits(given.threads)
    if given.alone:
        step = contestant(given.encoder, given.queries, *given.alone)
        step(), step()
        # Not getrusage: a child begins with its parent's peak there.
        status = Path("/proc/self/status").read_text()
        print(int(status.split("VmHWM:")[1].split()[0]) // 1024)
        return
    names = [*OURS, *([PEER] if find_spec("sentence_transformers") else [])]
    precisions: list[Precision] = ["float32"]
    if has_bfloat16(torch.device("cpu")):
        precisions.append("bfloat16")
    both = [(name, precision) for precision in precisions for name in names]
    steps = {key: contestant(given.encoder, given.queries, *key) for key in both}
    seconds, documents = dict.fromkeys(both, 0.0), dict.fromkeys(both, 0)
    for turn in range(given.steps + 1):
        for key, step in steps.items():
            started = time.process_time()
            count = step()
            if turn:  # the first warms up
                seconds[key] += time.process_time() - started
                documents[key] += count
    del steps
    rates = {key: documents[key] / seconds[key] for key in both}
    rows = []
    for (name, precision), rate in rates.items():
        row = {
            "trainer": name,
            "precision": precision,
            "documents_per_cpu_second": round(rate, 2),
        }
        if PEER in names:
            row["times_sentence_transformers"] = round(rate / rates[PEER, precision], 2)
        row["peak_mb"] = peak(given.encoder, given.queries, given.threads, name, precision)
        rows.append(row)
    record(given.out / "train_rate.jsonl", rows)


if __name__ == "__main__":
    main()
