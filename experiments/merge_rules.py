"""Which rule merges units best: mass and weight of a unit by powers of its importance.

    python experiments/merge_rules.py small --cache STATES \
        ../shared/data/eval/nfcorpus:dev ../shared/data/eval/feedbackqa:dev \
        ../shared/data/eval/medicalqa-dev:dev WORK/citance-dev:dev

A rule is (is a cosine distance taken for a distance, or for the squared one that it is; power of
the mass in Ward's method; power of the weight in a group's mean). The first is the former one, the
second the one of `units.select`, by whose code it is measured. Phrases alone and in the hybrid, at
16 and 32 units and two widths, nDCG@10 over the model's own global top 1,000, 300 queries a set,
with paired differences from the former rule. `--rules 2` leaves the others out.
"""

from __future__ import annotations

import argparse
from itertools import pairwise
from pathlib import Path

import numpy as np

from hplus import Budget, HPlus
from hplus.evaluate import rescore
from hplus.evaluate.bench import Bench
from hplus.evaluate.data import read_beir, sample
from hplus.evaluate.statistics import paired_difference
from hplus.kernels import ward
from hplus.types import F64, Units, offsets_of
from hplus.units.select import cluster, narrow
from hplus.units.vectors import normalise
from hplus.views.fusion import fuse

Rule = tuple[bool, float, float]
FORMER, NOW = (True, 0.0, 0.5), (False, 1.0, 1.0)
RULES: tuple[Rule, ...] = (
    FORMER,
    NOW,
    (False, 0, 0.5),
    (False, 0.25, 0.5),
    (False, 0.5, 0.5),
    (False, 0.5, 0.75),
    (False, 1, 0.5),
    (True, 0.5, 0.5),
    (True, 1, 0.5),
    (True, 1, 1),
)
COUNTS = (16, 32)


def merged(units: Units, count: int, rule: Rule) -> Units:
    """Every document's units in at most `count` groups; their spans are left out."""
    as_distances, mass, weight = rule
    vectors, weights, lengths = [], [], []
    for first, last in pairwise(units.offsets.tolist()):
        own, importance = units.vectors[first:last], units.weights[first:last]
        if last - first > count:
            distances = np.clip(1 - own @ own.T, 0, 2).astype(np.float64)
            joins = ward(distances**2 if as_distances else distances, importance**mass)
            groups = cluster(joins, count)
            means = np.zeros((count, units.width), np.float32)
            np.add.at(means, groups, own * importance[:, None] ** weight)
            own, importance = normalise(means), np.bincount(groups, importance)
        vectors.append(own)
        weights.append(importance.astype(np.float32))
        lengths.append(len(own))
    kept = sum(lengths)
    return Units(
        np.concatenate(vectors),
        np.concatenate(weights),
        offsets_of(np.array(lengths)),
        np.zeros((kept, 2), np.int32),
        np.arange(kept + 1),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("sets", nargs="+", metavar="FOLDER:SPLIT")
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--rules", type=int, default=len(RULES))
    parser.add_argument("--queries", type=int, default=300)
    options = parser.parse_args()
    model = HPlus(options.model, long="cut")
    found: dict[str, dict[str, F64]] = {}
    for name in options.sets:
        folder, _, split = name.rpartition(":")
        data = sample(read_beir(Path(folder), split), options.queries, seed=13)
        bench = Bench(model, data, options.cache)
        asked, given = (
            bench.units(side, "crf", "head", model.dim, Budget())
            for side in (bench.queries, bench.documents)
        )
        views = {
            "global": bench.pooled(bench.global_),
            "lexical": bench.pooled(bench.lexical("head")),
        }
        for count in COUNTS:
            budget = Budget(count, policy="merge")
            shipped = bench.units(bench.documents, "crf", "head", model.dim, budget)
            for rule in RULES[: options.rules]:
                units = shipped if rule == NOW else merged(given, count, rule)
                for width in (128, model.dim):
                    scores = rescore.maxsim_of_pools(
                        narrow(asked, width), narrow(units, width), bench.pools
                    )
                    phrase = bench.pooled(scores)
                    fused = fuse({**views, "phrase": phrase}, model.recipe.fusion)
                    for kind, pooled in (("phrases", phrase), ("hybrid", fused)):
                        line = f"{count} x {width}, {kind}"
                        found.setdefault(f"{line}: {rule}", {})[name] = bench.ndcg10(pooled)
    for line, by_set in found.items():
        values = [100 * float(own.mean()) for own in by_set.values()]
        d = paired_difference(by_set, found[f"{line.split(':')[0]}: {FORMER}"])
        print(
            f"{line}:",
            *(f"{value:.2f}" for value in values),
            f"macro {np.mean(values):.2f},",
            f"{100 * d.mean:+.2f} [{100 * d.low:.2f}, {100 * d.high:.2f}]",
        )


if __name__ == "__main__":
    main()
