"""What the units are worth: nDCG@10 of the frozen backbone and of a trained model, side by side.

    python benchmarks/quality.py ../shared/data/eval --cache /tmp/states --out docs/results

One protocol: texts cut at 256 tokens, the model's own global top 1,000 rescored, exponential gain,
the same units for query and document. Frozen rows weigh by idf over the corpus. `quality.jsonl`
gets the rows of every set, `differences.jsonl` the paired differences on the macro of all sets,
with intervals. Of a set with more than 500 queries a seeded sample is taken: about twenty minutes
on two cores once the states are in the cache; `--queries 3000` takes them all and over an hour.
Finished sets stay in the cache too: a run that was stopped continues with the next one.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from hplus import Budget, HPlus
from hplus.evaluate import rescore
from hplus.evaluate.bench import Bench
from hplus.evaluate.data import read_beir, sample
from hplus.evaluate.statistics import paired_difference
from hplus.heads.importance import fit_idf
from hplus.types import F32, F64, Units, item_of_row
from hplus.units.select import spend
from hplus.views.fusion import fuse
from hplus.views.global_ import represent

TEST = ("scifact:test", "nfcorpus:test", "feedbackqa:test", "medicalqa:test")
BUDGETS = (4, 8, 16, 32, 64, 128)
RIVAL_BUDGETS = (16, 32)
ALL = Budget()
WIDTHS = (384, 128)


@dataclass(frozen=True)
class Row:
    """One line of the table: which units, weights, width and budget."""

    view: str
    units: str = ""
    weights: str = ""
    width: int = 0
    budget: str = ""


def measure(bench: Bench) -> Iterator[tuple[Row, float, F64]]:
    """Every row on one set: what it is, vectors per document, nDCG@10 of every query."""
    model = bench.model
    ids, offsets = bench.documents.tokens.ids, bench.documents.tokens.offsets
    idf = fit_idf(ids, offsets, model.checkpoint.backbone.tokenizer.vocabulary)
    corpus = replace(model.checkpoint, idf=idf)
    model.checkpoint = corpus  # "idf" means idf over this corpus from here on
    for width in WIDTHS:
        sides = (represent(side.pooled, width) for side in (bench.queries, bench.documents))
        queries, documents = sides
        narrow: F32 = queries @ documents.T
        own = np.argsort(-narrow, axis=1, kind="stable")[:, : bench.pools.shape[1]]
        kept, bench.pools = bench.pools, own
        yield Row("global", width=width), 1, bench.ndcg10(bench.pooled(narrow))
        bench.pools = kept
    lexical = {kind: bench.lexical(kind) for kind in ("idf", "head")}
    for kind, scores in lexical.items():
        yield Row("lexical", weights=kind), 0, bench.ndcg10(bench.pooled(scores))

    def rows(
        units: str, kinds: tuple[str, ...], width: int, budgets: list[Budget]
    ) -> Iterator[Any]:
        """Documents are weighed by the first kind, queries by each in turn.

        *uniform*, as in the paper, counts every query unit once, *length* by its tokens.
        """
        token_weights = ["uniform" if kind == "length" else kind for kind in kinds]
        sides = [bench.units(bench.queries, units, kind, width, ALL) for kind in token_weights]
        # In order of importance the units differ from kind to kind: take them in reading order.
        by_place = [in_reading_order(side) for side in sides]
        everything = bench.units(bench.documents, units, kinds[0], width, ALL)
        for budget in budgets:
            documents = everything if budget == ALL else under(budget, everything)
            weightings = [
                np.ones_like(side.weights) if kind == "uniform" else side.weights
                for kind, side in zip(kinds, by_place, strict=True)
            ]
            found = rescore.maxsim_by(by_place[0], documents, weightings)
            vectors = len(documents.weights) / len(bench.ids)
            for kind, scores in zip(kinds, found, strict=True):
                row = Row("phrase", units, kind, width, str(budget))
                yield row, vectors, bench.ndcg10(bench.pooled(scores))
                if units == "crf" and kind == "head":
                    fusion = model.recipe.fusion
                    views = {"global": bench.global_, "phrase": scores, "lexical": lexical["head"]}
                    pooled = {view: bench.pooled(views[view]) for view in fusion}
                    fused = bench.ndcg10(fuse(pooled, fusion))
                    yield replace(row, view="hybrid"), vectors, fused

    drops = [Budget(count) for count in BUDGETS]
    merges = [Budget(count, policy="merge") for count in BUDGETS]
    pooled = [Budget(count, policy="ward") for count in RIVAL_BUDGETS]
    for width in WIDTHS:
        full = width == WIDTHS[0]
        some = [ALL, *merges, *drops] if full else [ALL, *merges[2:4]]
        yield from rows("crf", ("head", "idf", "uniform", "length"), width, some)
        yield from rows("tokens", ("idf", "uniform"), width, [ALL, *(pooled if full else [])])
        yield from rows("words", ("idf",), width, [ALL])
        yield from rows("runs", ("idf",), width, [ALL])


def in_reading_order(units: Units) -> Units:
    """Units with one span each, sorted by place within each text."""
    order = np.lexsort((units.spans[:, 0], item_of_row(units.offsets)))
    return units.rows(order, units.offsets)


def under(budget: Budget, units: Units) -> Units:
    """All units of the documents under a budget."""
    return spend(budget, units)[0]


def contrasts() -> Iterator[tuple[str, Row, Row]]:
    """The differences that the project has bars for."""

    def phrase(units: str, weights: str, budget: Budget = ALL, width: int = 384) -> Row:
        return Row("phrase", units, weights, width, str(budget))

    for weights in ("uniform", "idf"):
        token = phrase("tokens", weights)
        yield f"all units - tokens ({weights})", phrase("crf", "head"), token
        for count in BUDGETS:
            merged = phrase("crf", "head", Budget(count, policy="merge"))
            yield f"merged to {count} - tokens ({weights})", merged, token
        for count in RIVAL_BUDGETS:
            merged = phrase("crf", "head", Budget(count, policy="merge"))
            pooled = phrase("tokens", weights, Budget(count, policy="ward"))
            yield f"merged to {count} - token pooling to {count} ({weights})", merged, pooled
    yield "learned weights - uniform", phrase("crf", "head"), phrase("crf", "uniform")
    yield "learned weights - length", phrase("crf", "head"), phrase("crf", "length")
    yield "learned weights - idf", phrase("crf", "head"), phrase("crf", "idf")
    for count in (16, 32):
        budget = Budget(count, policy="merge")
        ours = phrase("crf", "head", budget)
        yield f"merged to {count}: learned - uniform", ours, phrase("crf", "uniform", budget)
        yield f"merged to {count}: learned - length", ours, phrase("crf", "length", budget)
        yield f"merged to {count}: learned - idf", ours, phrase("crf", "idf", budget)
        yield f"merged to {count} - dropped to {count}", ours, phrase("crf", "head", Budget(count))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--sets", nargs="+", default=TEST)
    parser.add_argument("--model", default="mini")
    parser.add_argument("--queries", type=int, default=500, help="of each set, at most; seeded")
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    values: dict[Row, dict[str, F64]] = {}
    lines = []
    for name, split in (item.split(":") for item in options.sets):
        model = HPlus(options.model, long="cut")
        fingerprint = model.fingerprint
        data = sample(read_beir(options.data / name, split), options.queries, seed=13)
        kept = options.cache / f"quality-{name}-{split}-{len(data.queries)}-{fingerprint}.json"
        if not kept.exists():  # a run that was stopped continues with the next set
            found = [
                [vars(row), n, list(ndcg)]
                for row, n, ndcg in measure(Bench(model, data, options.cache))
            ]
            kept.write_text(json.dumps(found))
        for row, vectors, ndcg in json.loads(kept.read_text()):
            values.setdefault(Row(**row), {})[name] = np.array(ndcg)
            line = {"set": name, "split": split, **row, "vectors": round(vectors, 1)}
            line |= {
                "queries": len(data.queries),
                "ndcg10": round(100 * float(np.mean(ndcg)), 2),
                "model": fingerprint[:12],
            }
            lines.append(line)
            print(json.dumps(line), flush=True)
    differences = []
    for what, ours, theirs in contrasts():
        found = paired_difference(values[ours], values[theirs])
        line = {"difference": what, **{k: round(100 * v, 2) for k, v in vars(found).items()}}
        differences.append(line | {"p": found.p, "sets": len(values[ours])})
        print(json.dumps(differences[-1]), flush=True)
    options.out.mkdir(parents=True, exist_ok=True)
    for file, rows in (("quality.jsonl", lines), ("differences.jsonl", differences)):
        (options.out / file).write_text("\n".join(json.dumps(row) for row in rows) + "\n")


if __name__ == "__main__":
    main()
