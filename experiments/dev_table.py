"""What a model gives on the dev sets, line by line, and which weights of the views serve it best.

    python experiments/dev_table.py ../shared/data/eval small v2/small --cache STATES
    python experiments/dev_table.py ../shared/data/eval small v2/small --cache STATES --fusion

300 queries (seed 13) of NFCorpus dev, FeedbackQA dev and MedicalQA-dev over their whole corpora,
texts cut at the window, each view rescoring its model's own global top 1,000; `--set FOLDER:SPLIT`
adds a dev set of one's own. Below the lines, the paired differences of the other models from the
first, macro of the sets. *Asked by tokens*: the query's weighted tokens instead of its units.
`--fusion` tries weights of the global and the lexical view beside 1 for phrases, and says what
leaving a set out would have chosen.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import numpy as np

from hplus import Budget, HPlus
from hplus.evaluate import rescore
from hplus.evaluate.bench import Bench
from hplus.evaluate.data import read_beir, sample
from hplus.evaluate.statistics import paired_difference
from hplus.types import F64
from hplus.views.fusion import fuse

SETS = ("nfcorpus:dev", "feedbackqa:dev", "medicalqa-dev:dev")
QUERIES, WIDTHS, COUNTS = 300, (384, 128), (32, 16)
GLOBAL = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0)
LEXICAL = (0.0, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.6)

Views = dict[str, F64]


def views_of(bench: Bench) -> tuple[Views, dict[str, F64]]:
    """Scores of the pools, f64[queries, pool]: global and lexical; tokens and phrases by cell."""
    recipe = bench.model.recipe
    found = {"global": bench.pooled(bench.global_)}
    found["lexical"] = bench.pooled(bench.lexical(recipe.importance))
    cells = {}
    for width in WIDTHS:
        for name, count, policy in (
            ("tokens", None, "drop"),
            *((f"pooled to {count}", count, "ward") for count in COUNTS),
            *((f"merged to {count}", count, "merge") for count in COUNTS),
        ):
            units = recipe.units if policy == "merge" else "tokens"
            sides = [
                bench.units(side, units, recipe.importance, width, budget)
                for side, budget in (
                    (bench.queries, Budget()),
                    (bench.documents, Budget(count, policy=policy) if count else Budget()),
                )
            ]
            scores = rescore.maxsim_of_pools(sides[0], sides[1], bench.pools)
            cells[f"{name}, {width} wide"] = bench.pooled(scores)
            if policy == "merge":
                asked = bench.units(bench.queries, "tokens", recipe.importance, width, Budget())
                scores = rescore.maxsim_of_pools(asked, sides[1], bench.pools)
                cells[f"asked by tokens, {name}, {width} wide"] = bench.pooled(scores)
    return found, cells


def lines(bench: Bench, views: Views, cells: Views) -> Iterator[tuple[str, F64]]:
    """nDCG@10 of every query, by line."""
    for name, scores in (views | cells).items():
        yield name, bench.ndcg10(scores)
    alphas = bench.model.recipe.fusion
    for name, phrase in cells.items():
        if name.startswith("merged"):
            fused = fuse({view: {**views, "phrase": phrase}[view] for view in alphas}, alphas)
            yield f"hybrid, {name}", bench.ndcg10(fused)


def calibrated(scores: F64) -> F64:
    """Each query's scores with mean 0 and standard deviation 1 over its pool."""
    away = scores - scores.mean(axis=1, keepdims=True)
    result: F64 = away / np.maximum(away.std(axis=1, keepdims=True), 1e-9)
    return result


def try_fusion(benches: list[tuple[Bench, Views, Views]], cell: str) -> None:
    """Every pair of weights by macro, the best ten, what leaving a set out would choose, and
    whether calibrated scores would serve better."""
    best_of = {}
    for kind in ("raw", "calibrated"):
        found = {}
        pools = [
            (b, {**views, "phrase": cells[cell]})
            if kind == "raw"
            else (b, {n: calibrated(s) for n, s in {**views, "phrase": cells[cell]}.items()})
            for b, views, cells in benches
        ]
        for alpha in product(GLOBAL, LEXICAL):
            alphas = {"global": alpha[0], "phrase": 1.0, "lexical": alpha[1]}
            found[alpha] = [100 * b.ndcg10(fuse(views, alphas)) for b, views in pools]
        means = {alpha: np.array([own.mean() for own in sets]) for alpha, sets in found.items()}
        ranked = sorted(means, key=lambda own: -means[own].mean())
        best_of[kind] = {str(i): own / 100 for i, own in enumerate(found[ranked[0]])}
        print(f"{kind} fusion with phrases {cell}: global, lexical, each set, macro")
        for alpha in ranked[:10]:
            print(alpha, means[alpha].round(2).tolist(), round(float(means[alpha].mean()), 2))
        for left in range(len(benches)):
            others = [i for i in range(len(benches)) if i != left]
            best = max(means, key=lambda own: float(means[own][others].mean()))
            print(f"chosen without set {left}: {best}, there {means[best][left]:.2f}")
    d = paired_difference(best_of["calibrated"], best_of["raw"])
    print(f"calibrated minus raw: {100 * d.mean:+.2f} [{100 * d.low:.2f}, {100 * d.high:.2f}]")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--set", action="append", default=[], metavar="FOLDER:SPLIT")
    parser.add_argument("--fusion", action="store_true")
    options = parser.parse_args()
    table: dict[str, dict[str, dict[str, F64]]] = {}
    for source in options.models:
        model = HPlus(source, long="cut")
        measured = []
        for name in (*(f"{options.data / own}" for own in SETS), *options.set):
            folder, _, split = name.rpartition(":")
            data = sample(read_beir(Path(folder), split), QUERIES, seed=13)
            bench = Bench(model, data, options.cache)
            views, cells = views_of(bench)
            measured.append((bench, views, cells))
            for line, own in lines(bench, views, cells):
                table.setdefault(source, {}).setdefault(line, {})[folder] = own
        for line, by_set in table[source].items():
            values = [100 * float(own.mean()) for own in by_set.values()]
            print(f"{source}: {line}", *(f"{v:.2f}" for v in values), f"{np.mean(values):.2f}")
        if options.fusion:
            for cell in ("merged to 32, 384 wide", "merged to 32, 128 wide"):
                try_fusion(measured, cell)
    first, *others = options.models
    for other in others:
        for line, by_set in table[other].items():
            if line in table[first]:
                d = paired_difference(by_set, table[first][line])
                print(
                    f"{other} minus {first}: {line} "
                    f"{100 * d.mean:+.2f} [{100 * d.low:.2f}, {100 * d.high:.2f}]"
                )
    for source in options.models:
        for width, count in product(WIDTHS, COUNTS):
            merged = table[source][f"merged to {count}, {width} wide"]
            for rival in (
                f"tokens, {WIDTHS[0]} wide",
                f"pooled to {count}, {width} wide",
                f"asked by tokens, merged to {count}, {width} wide",
            ):
                d = paired_difference(merged, table[source][rival])
                print(
                    f"{source}: merged to {count}, {width} wide minus {rival} "
                    f"{100 * d.mean:+.2f} [{100 * d.low:.2f}, {100 * d.high:.2f}]"
                )


if __name__ == "__main__":
    main()
