"""multilingual-e5-small, one encoder for both languages, beside hplus-zh and hplus-small.

    python experiments/two_languages.py EVAL E5 xquad-zh:test zh --cache STATES

E5: the encoder converted in int8 with its prompts,

    HPlus(FOLDER, query_prompt="query: ", document_prompt="passage: ") -> hplus.convert.convert

nDCG@10 on a seeded sample (`some` of benchmarks/precision.py) by the global view and by all tokens,
every query token counting once, since e5 has no heads; the built-in model's tokens weighted by its
head too. Differences are e5's minus the other's, with 95 % intervals over queries.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

from hplus import Budget, HPlus
from hplus.evaluate.bench import Bench
from hplus.evaluate.data import RetrievalSet, read_beir
from hplus.evaluate.statistics import paired_difference
from hplus.types import F64
from precision import some

QUERIES, DOCUMENTS = 150, 240


def lines(model: HPlus, data: RetrievalSet, cache: Path) -> dict[str, F64]:
    """nDCG@10 of every query."""
    bench = Bench(model, data, cache)
    found = {"global": bench.global_}
    for name, kind in (("tokens", "uniform"), ("weighted tokens", model.recipe.importance)):
        found[name], _ = bench.phrase("tokens", kind, model.dim, Budget(), Budget())
    return {name: bench.ndcg10(bench.pooled(scores)) for name, scores in found.items()}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("e5", type=Path)
    parser.add_argument("set")
    parser.add_argument("other")
    parser.add_argument("--cache", type=Path, default=Path("states"))
    options = parser.parse_args()
    name, split = options.set.split(":")
    data = some(read_beir(options.data / name, split), QUERIES, DOCUMENTS)
    ours = lines(HPlus(options.e5, long="cut"), data, options.cache)
    theirs = lines(HPlus(options.other, long="cut"), data, options.cache)
    for line, other in (("global", "global"), ("tokens", "tokens"), ("tokens", "weighted tokens")):
        found = paired_difference({name: ours[line]}, {name: theirs[other]})
        row = {"set": options.set, "e5": line, options.other: other, "queries": len(data.queries)}
        row |= {"documents": len(data.documents)}
        row |= {
            "ndcg10": [round(100 * float(own.mean()), 2) for own in (ours[line], theirs[other])]
        }
        row |= {k: round(100 * getattr(found, k), 2) for k in ("mean", "low", "high")}
        print(json.dumps(row), flush=True)
