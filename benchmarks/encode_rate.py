"""Bulk encoding, all three views, against sentence-transformers on the same model and texts.

    python benchmarks/encode_rate.py ../shared/data/eval/scifact

1,000 abstracts, cut at 256 tokens, the same threads, the peer at its best batch size. Slices
alternate between the systems, so that a slow moment of the machine hits them all.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"

import numpy as np
from sentence_transformers import SentenceTransformer

from hplus import HPlus
from hplus.backbones import mini
from hplus.evaluate.data import read_beir

ABSTRACTS, SLICES = 1_000, 5


def timed(encode: Callable[[list[str]], object], texts: list[str]) -> float:
    """Seconds for these texts."""
    started = time.perf_counter()
    encode(texts)
    return time.perf_counter() - started


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    texts = read_beir(parser.parse_args().data).documents[:ABSTRACTS]
    peer = SentenceTransformer(str(mini.verified_folder()))
    peer.max_seq_length = 256
    batch_sizes = {
        size: timed(lambda part, size=size: peer.encode(part, batch_size=size), texts[:160])
        for size in (4, 8, 16, 32, 64)
    }
    best = min(batch_sizes, key=batch_sizes.__getitem__)
    by_numpy, by_torch = HPlus(long="cut"), HPlus(long="cut", device="cpu")
    systems: dict[str, Callable[[list[str]], object]] = {
        f"sentence-transformers, batch {best}": lambda part: peer.encode(part, batch_size=best),
        "hplus, numpy": by_numpy.encode_document,
        "hplus, torch": by_torch.encode_document,
    }
    for encode in systems.values():
        encode(texts[:32])
    times: dict[str, list[float]] = {name: [] for name in systems}
    for part in np.array_split(np.arange(len(texts)), SLICES):
        for name, encode in systems.items():
            times[name].append(timed(encode, [texts[i] for i in part]))
    peer_times = np.array(next(iter(times.values())))
    for name, values in times.items():
        ratios = peer_times / np.array(values)
        row = {
            "system": name,
            "abstracts_per_s": round(ABSTRACTS / sum(values), 1),
            "ratio": round(float(peer_times.sum() / sum(values)), 3),
            "ratio_by_slice": [round(float(r), 2) for r in ratios],
        }
        print(json.dumps(row))
