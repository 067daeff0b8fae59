"""Columns or bits: what a document's bytes are best spent on, on dev data.

    python experiments/bits.py ../shared/data/eval small --cache STATES --set citance-dev:dev

Sixteen and 32 merged units a document, at several widths and bits a column; codes are what is left
of a vector without the model's mean, rounded to whole numbers with one scale a vector, as an int8
index rounds to eight bits. Queries stay as they are. nDCG@10 of the phrase view over the model's
own global top 1,000, sets and queries as in dev_table.py, and the paired difference from 128
columns of eight bits.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np

from dev_table import QUERIES, SETS
from hplus import Budget, HPlus
from hplus.evaluate import rescore
from hplus.evaluate.bench import Bench
from hplus.evaluate.data import read_beir, sample
from hplus.evaluate.statistics import paired_difference
from hplus.types import F32, F64, Units

CELLS = ((128, 8), (192, 5), (256, 4), (384, 3), (384, 4), (384, 8))
COUNTS = (16, 32)


def rounded(units: Units, mean: F32, bits: int) -> Units:
    """Vectors as codes of so many bits would have them."""
    left = units.vectors - mean
    most = 2 ** (bits - 1) - 1
    scales = np.abs(left).max(axis=1, keepdims=True) / most
    codes = np.rint(left / np.maximum(scales, 1e-9)).clip(-most, most)
    return replace(units, vectors=(codes * scales + mean).astype(np.float32))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("model")
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--set", action="append", default=[], metavar="FOLDER:SPLIT")
    options = parser.parse_args()
    model = HPlus(options.model, long="cut")
    assert model.checkpoint.mean is not None
    mean = np.asarray(model.checkpoint.mean, np.float32)
    found: dict[str, dict[str, F64]] = {}
    for name in (*(f"{options.data / own}" for own in SETS), *options.set):
        folder, _, split = name.rpartition(":")
        data = sample(read_beir(Path(folder), split), QUERIES, seed=13)
        bench = Bench(model, data, options.cache)
        for width, bits in CELLS:
            asked = bench.units(bench.queries, "crf", "head", width, Budget())
            for count in COUNTS:
                budget = Budget(count, policy="merge")
                given = bench.units(bench.documents, "crf", "head", width, budget)
                scores = rescore.maxsim_of_pools(
                    asked, rounded(given, mean[:width], bits), bench.pools
                )
                line = f"{count} x {width}, {bits} bits, {count * (width * bits // 8 + 2):,} bytes"
                found.setdefault(line, {})[name] = bench.ndcg10(bench.pooled(scores))
    for line, by_set in found.items():
        count = line.split()[0]
        first = next(own for own in found if own.startswith(f"{count} x 128,"))
        d = paired_difference(by_set, found[first])
        values = [100 * float(own.mean()) for own in by_set.values()]
        print(
            f"{line}:",
            *(f"{value:.2f}" for value in values),
            f"macro {np.mean(values):.2f},",
            f"{100 * d.mean:+.2f} [{100 * d.low:.2f}, {100 * d.high:.2f}]",
        )


if __name__ == "__main__":
    main()
