"""Documents trained a second at 128 tokens, beside sentence-transformers on the same model.

python benchmarks/train_rate.py ENCODER [--queries 8] [--steps 4] [--threads 1] [--out docs/results]

ENCODER is a folder that transformers loads, gte-small for instance. Every contestant sees the same
texts: pairs of 32 and 128 tokens, the same number of them in a batch, in-batch negatives, float32
unless the processor has bfloat16. The contestants take turns, step by step, in one process, so that
a busy machine slows all of them alike; rates are per second of processor time. Prints one line of
JSON per contestant; `hplus train` itself reports its peak of memory. sentence-transformers is left
out where it is not installed.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hplus import checkpoint
from hplus.teach.groups import Group
from hplus.train.config import Config, GlobalLoss, LossSettings, StudentSettings
from hplus.train.data import Batches, make_data
from hplus.train.distributed import World
from hplus.train.objective import Objective
from hplus.train.passes import backward
from hplus.train.run import make_optimiser, make_reader
from hplus.train.student import make_student

WORDS = ["heart", "failure", "kidney", "insulin", "therapy", "cancer", "gene", "cell", "dose"]


def pairs(count: int) -> list[tuple[str, str]]:
    """Texts of about 30 and 126 tokens: one word is one token."""
    random = np.random.default_rng(13)
    made = (" ".join(random.choice(WORDS, n)) for _ in range(count) for n in (30, 126))
    texts = list(made)
    return list(zip(texts[::2], texts[1::2], strict=True))


def ours(
    encoder: str, texts: list[tuple[str, str]], queries: int, **student: Any
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
    )
    learner = make_student(base, config, 1)
    groups = [Group("bench", query, (positive,)) for query, positive in texts]
    data = make_data(groups, {}, base.backbone, base.recipe, config)
    reader = make_reader(learner, config, Path(tempfile.mkdtemp()), World())
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


def theirs(encoder: str, texts: list[tuple[str, str]], queries: int) -> Callable[[], int]:
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
        loss(features, None).backward()
        optimiser.step()
        return queries

    return step


def main() -> None:
    """Turns of every contestant, then the rates."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("encoder")
    parser.add_argument("--queries", type=int, default=8)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--out", type=Path, help="the folder of docs/results")
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    texts = pairs(4 * given.queries)
    make = partial(ours, given.encoder, texts, given.queries)
    contestants: dict[str, Callable[[], int]] = {
        "hplus, all weights": make(mode="full"),
        "hplus, LoRA": make(mode="lora"),
        "hplus, LoRA in the top 3 layers, stored states": make(mode="lora", layers=3, cached=True),
        "hplus, top 3 layers, stored states": make(mode="top", layers=3, cached=True),
    }
    try:
        contestants["sentence-transformers"] = theirs(given.encoder, texts, given.queries)
    except ImportError:
        print("sentence-transformers is not installed: left out")
    seconds, documents = dict.fromkeys(contestants, 0.0), dict.fromkeys(contestants, 0)
    for turn in range(given.steps + 1):
        for name, step in contestants.items():
            started = time.process_time()
            count = step()
            if turn:  # the first warms up
                seconds[name] += time.process_time() - started
                documents[name] += count
    rates = {name: documents[name] / seconds[name] for name in contestants}
    peer = rates.get("sentence-transformers")
    lines = []
    for name, rate in rates.items():
        row = {"trainer": name, "documents_per_cpu_second": round(rate, 2)}
        if peer:
            row["times_sentence_transformers"] = round(rate / peer, 2)
        lines.append(json.dumps(row))
        print(lines[-1])
    if given.out:
        (given.out / "train_rate.jsonl").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
