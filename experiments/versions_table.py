"""A new version of a model beside its former one and BM25, line by line, on the same queries:

    python experiments/versions_table.py NEW FORMER --cache STATES --queries 500 \
        ../shared/data/eval/scifact:test ../shared/data/eval/nfcorpus:test …

nDCG@10 over each model's own global top 1,000, texts cut at the window, float32 vectors: global,
lexical, all weighted tokens, tokens pooled and phrases merged to 32 and 16 at the whole width and
at 128 columns, and the hybrid of the model's own weights with each. Then paired differences, macro
of the sets: of every line from the former version's, of phrases from pooled tokens and from all
weighted tokens, of the hybrid and of the lexical view from BM25.
"""

from __future__ import annotations

import argparse
from itertools import product
from pathlib import Path

import numpy as np

from hplus import Budget, HPlus
from hplus.evaluate import rescore
from hplus.evaluate.bench import Bench
from hplus.evaluate.bm25 import BM25
from hplus.evaluate.data import RetrievalSet, read_beir, sample
from hplus.evaluate.metrics import ndcg
from hplus.evaluate.statistics import paired_difference
from hplus.types import F64
from hplus.units.select import narrow
from hplus.views.fusion import fuse

COUNTS, NARROW = (32, 16), 128
Lines = dict[str, dict[str, F64]]
"""nDCG@10 of every query by line and set."""


def measured(bench: Bench) -> dict[str, F64]:
    """Every line of one model on one set."""
    recipe, dim = bench.model.recipe, bench.model.dim
    views = {
        "global": bench.pooled(bench.global_),
        "lexical": bench.pooled(bench.lexical(recipe.importance)),
    }
    found = dict(views)
    for kind, rule, policy in (("tokens pooled", "tokens", "ward"), ("phrases", "crf", "merge")):
        asked = bench.units(bench.queries, rule, recipe.importance, dim, Budget())
        if rule == "tokens":
            every = bench.units(bench.documents, rule, recipe.importance, dim, Budget())
            scores = rescore.maxsim_of_pools(asked, every, bench.pools, threads=2)
            found["all tokens"] = bench.pooled(scores)
        for count, width in product(COUNTS, (dim, NARROW)):
            budget = Budget(count, policy=policy)
            # As an index of that width merges them.
            given = bench.units(bench.documents, rule, recipe.importance, width, budget)
            scores = rescore.maxsim_of_pools(narrow(asked, width), given, bench.pools, threads=2)
            phrase = found[f"{kind} to {count} x {width}"] = bench.pooled(scores)
            if kind == "phrases":
                fused = fuse({**views, "phrase": phrase}, recipe.fusion)
                found[f"hybrid to {count} x {width}"] = fused
    return {line: bench.ndcg10(scores) for line, scores in found.items()}


def bm25(data: RetrievalSet) -> F64:
    """The baseline, over the whole corpus."""
    found, _ = BM25(data.documents).search(data.queries, k=10)
    return np.array(
        [
            ndcg([data.document_ids[i] for i in best], data.judgements[query])
            for query, best in zip(data.query_ids, found.tolist(), strict=True)
        ]
    )


def difference(first: dict[str, F64], second: dict[str, F64]) -> str:
    """The paired difference of two lines."""
    found = paired_difference(first, second)
    return f"{100 * found.mean:+.2f} [{100 * found.low:.2f}, {100 * found.high:.2f}]"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("new")
    parser.add_argument("former")
    parser.add_argument("sets", nargs="+", metavar="FOLDER:SPLIT")
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--queries", type=int, default=500)
    options = parser.parse_args()
    lines: dict[str, Lines] = {"former": {}, "new": {}}
    baseline: dict[str, F64] = {}
    for name in options.sets:
        folder, _, split = name.rpartition(":")
        data = sample(read_beir(Path(folder), split), options.queries, seed=13)
        baseline[name] = bm25(data)
        for version, source in (("former", options.former), ("new", options.new)):
            bench = Bench(HPlus(source, long="cut"), data, options.cache)
            for line, own in measured(bench).items():
                lines[version].setdefault(line, {})[name] = own
    for version, table in (("", {"BM25": baseline}), *lines.items()):
        for line, by_set in table.items():
            values = [100 * float(own.mean()) for own in by_set.values()]
            print(f"{version} {line}:", *(f"{v:.1f}" for v in values), f"{np.mean(values):.2f}")
    new, former = lines["new"], lines["former"]
    for line in new:
        print(f"{line}, new minus former: {difference(new[line], former[line])}")
    for line in new:
        rivals = []
        if line.startswith("phrases"):
            rivals = [(own, new[own]) for own in (f"tokens pooled{line[7:]}", "all tokens")]
        if line.startswith(("hybrid", "lexical")):
            rivals = [("BM25", baseline), ("all tokens", new["all tokens"])]
        for rival, by_set in rivals:
            print(f"{line} minus {rival}: {difference(new[line], by_set)}")


if __name__ == "__main__":
    main()
