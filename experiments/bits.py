"""Columns or bits: what a document's bytes are best spent on, on dev data.

    python experiments/bits.py ../shared/data/eval small --cache STATES --set citance-dev:dev

Sixteen and 32 merged units a document, at several widths and in several formats, rounded as an
index rounds them; tokens pooled to as many vectors beside them, in the same format. nDCG@10 over
the model's own global top 1,000, sets and queries as in dev_table.py, alone and in the hybrid, and
paired differences: from 128 columns of eight bits, from pooled tokens and from all weighted tokens.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from dev_table import QUERIES, SETS
from hplus import Budget, HPlus
from hplus.evaluate import rescore
from hplus.evaluate.bench import Bench
from hplus.evaluate.data import read_beir, sample
from hplus.evaluate.statistics import paired_difference
from hplus.storage.segment import Format, bytes_of, dequantise, quantise
from hplus.types import F32, F64, Units
from hplus.units.select import Policy, narrow
from hplus.views.fusion import fuse

CELLS: tuple[tuple[int, Format], ...] = (
    (128, "int8"),
    (256, "int4"),
    (384, "int4"),
    (384, "int8"),
    (384, "f32"),
)
KINDS: tuple[tuple[str, str, Policy], ...] = (
    ("units", "crf", "merge"),
    ("pooled tokens", "tokens", "ward"),
)
COUNTS = (16, 32)
TOKENS = "all weighted tokens x 384, f32"

Lines = dict[str, dict[str, F64]]


def rounded(units: Units, width: int, format: Format, mean: F32 | None) -> Units:
    """Units as an index of this width and format would have them."""
    narrower = narrow(units, width)
    taken_off = None if mean is None or format == "f32" else mean[:width]
    kept = dequantise(*quantise(narrower.vectors, format, taken_off), taken_off)
    return replace(narrower, vectors=kept)


def measure(bench: Bench, name: str, found: Lines) -> None:
    """Every line of one set."""
    recipe, mean = bench.model.recipe, bench.model.checkpoint.mean
    views = {
        "global": bench.pooled(bench.global_),
        "lexical": bench.pooled(bench.lexical("head")),
    }
    dim = bench.model.dim
    for kind, rule, policy in KINDS:
        asked = bench.units(bench.queries, rule, "head", dim, Budget())
        every = bench.units(bench.documents, rule, "head", dim, Budget())
        if rule == "tokens":
            scores = rescore.maxsim_of_pools(asked, every, bench.pools)
            found.setdefault(TOKENS, {})[name] = bench.ndcg10(bench.pooled(scores))
        for count in COUNTS:
            given = bench.units(bench.documents, rule, "head", dim, Budget(count, policy=policy))
            for width, format in CELLS:
                stored = rounded(given, width, format, mean)
                scores = rescore.maxsim_of_pools(narrow(asked, width), stored, bench.pools)
                phrase = bench.pooled(scores)
                fused = fuse({**views, "phrase": phrase}, recipe.fusion)
                line = f"{count} {kind} x {width}, {format}"
                found.setdefault(line, {})[name] = bench.ndcg10(phrase)
                found.setdefault(f"{line}, hybrid", {})[name] = bench.ndcg10(fused)


def rivals(line: str) -> list[str]:
    """What a line of units is compared with."""
    if " units " not in line:
        return []
    first = f"{line.split()[0]} units x 128, int8" + (", hybrid" if "hybrid" in line else "")
    pooled = line.replace("units", "pooled tokens")
    return [own for own in (first, pooled, TOKENS) if own != line]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("model")
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--set", action="append", default=[], metavar="FOLDER:SPLIT")
    options = parser.parse_args()
    model = HPlus(options.model, long="cut")
    found: Lines = {}
    for name in (*(f"{options.data / own}" for own in SETS), *options.set):
        folder, _, split = name.rpartition(":")
        data = sample(read_beir(Path(folder), split), QUERIES, seed=13)
        measure(Bench(model, data, options.cache), name, found)
    for line, by_set in found.items():
        values = [100 * float(own.mean()) for own in by_set.values()]
        macro = sum(values) / len(values)
        print(f"{line}:", *(f"{value:.2f}" for value in values), f"macro {macro:.2f}")
        if line != TOKENS:
            count, _, rest = line.partition(" ")
            width, format = rest.split(" x ")[1].split(", ")[:2]
            print(f"    {bytes_of(int(count), int(width), format):,.0f} bytes of units")
        for rival in rivals(line):
            d = paired_difference(by_set, found[rival])
            print(f"    minus {rival}: {100 * d.mean:+.2f} [{100 * d.low:.2f}, {100 * d.high:.2f}]")


if __name__ == "__main__":
    main()
