"""What the boundaries of phrases are worth once units are merged, on dev data.

    python experiments/boundaries.py ../shared/data/eval small --cache STATES --set citance-dev:dev

The model's units beside words, bigrams, equal chunks and spans with random or shuffled boundaries
(two seeds, their mean), all by the same importance, merged to the same counts by the same rule,
queries and documents alike; and tokens, weighted, merged with importance as mass. Chunks and
shuffled units are as many as the model's before they are merged. nDCG@10 of phrases alone over the
model's own global top 1,000, sets and queries as in dev_table.py, and the paired differences of the
model's units from each.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import numpy as np

from dev_table import QUERIES, SETS
from hplus import Budget, HPlus
from hplus.evaluate import rescore
from hplus.evaluate.bench import Bench
from hplus.evaluate.data import read_beir, sample
from hplus.evaluate.statistics import paired_difference
from hplus.states_file import StoredStates
from hplus.types import F64, Bool
from hplus.units import rules
from hplus.units.select import narrow

COUNTS, WIDTHS, SEEDS = (16, 32), (384, 128), (13, 42)
MODEL = "the model's units"
Boundaries = Callable[[Bench, StoredStates], Bool]


def _model(bench: Bench, side: StoredStates) -> Bool:
    return bench.begins(side, "crf")


def _chunks(bench: Bench, side: StoredStates) -> Bool:
    """As many as the model's units, text by text."""
    begins = _model(bench, side)
    sums = np.concatenate([[0], np.cumsum(begins)])
    return rules.equal_chunks(side.tokens, np.diff(sums[side.tokens.offsets]))


def _by_rule(name: str) -> Boundaries:
    return lambda _, side: rules.rule(name)(side.tokens)


def _shuffled(seed: int) -> Boundaries:
    return lambda bench, side: rules.shuffled(_model(bench, side), side.tokens, seed)


GROUPINGS: dict[str, list[Boundaries]] = {
    MODEL: [_model],
    "words": [_by_rule("words")],
    "bigrams of tokens": [_by_rule("ngrams-2")],
    "equal chunks": [_chunks],
    "random spans": [_by_rule(f"random-{seed}") for seed in SEEDS],
    "the model's units, shuffled": [_shuffled(seed) for seed in SEEDS],
    "tokens": [_by_rule("tokens")],
}


def measure(bench: Bench, name: str, found: dict[str, dict[str, F64]]) -> None:
    """Every line of one set."""
    dim = bench.model.dim
    weights = {
        id(side): bench.importance(side, "head") for side in (bench.queries, bench.documents)
    }
    for grouping, ways in GROUPINGS.items():
        for count in COUNTS:
            values: dict[int, list[F64]] = {width: [] for width in WIDTHS}
            for way in ways:
                asked, given = (
                    rescore.units_of(side, way(bench, side), weights[id(side)], dim, budget)
                    for side, budget in (
                        (bench.queries, Budget()),
                        (bench.documents, Budget(count, policy="merge")),
                    )
                )
                for width in WIDTHS:
                    scores = rescore.maxsim_of_pools(
                        narrow(asked, width), narrow(given, width), bench.pools
                    )
                    values[width].append(bench.ndcg10(bench.pooled(scores)))
            for width in WIDTHS:
                line = f"{count} x {width}: {grouping}"
                found.setdefault(line, {})[name] = np.mean(values[width], axis=0)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("model")
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--set", action="append", default=[], metavar="FOLDER:SPLIT")
    options = parser.parse_args()
    model = HPlus(options.model, long="cut")
    found: dict[str, dict[str, F64]] = {}
    for name in (*(f"{options.data / own}" for own in SETS), *options.set):
        folder, _, split = name.rpartition(":")
        data = sample(read_beir(Path(folder), split), QUERIES, seed=13)
        measure(Bench(model, data, options.cache), name, found)
    for line, by_set in found.items():
        values = [100 * float(own.mean()) for own in by_set.values()]
        d = paired_difference(found[f"{line.split(':')[0]}: {MODEL}"], by_set)
        print(
            f"{line}:",
            *(f"{value:.2f}" for value in values),
            f"macro {np.mean(values):.2f}; the model's minus it",
            f"{100 * d.mean:+.2f} [{100 * d.low:.2f}, {100 * d.high:.2f}]",
        )


if __name__ == "__main__":
    main()
