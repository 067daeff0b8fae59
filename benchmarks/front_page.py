"""The README's table: what the built-in models give for the bytes an index keeps, beside BM25.

    python benchmarks/front_page.py EVAL --cache STATES --out docs/results

The four test sets, texts cut at 256 tokens, each view rescoring its model's own global top 1,000,
exponential gain; of a set with more than 500 queries a seeded sample. Tokens are weighted by the
same importance as phrases, and pooled to as many vectors by Ward's method. `front_page.jsonl` gets
the rows of every set, `front_page_differences.jsonl` the paired differences of their macro, with
intervals and Holm's correction over all of them. Finished sets stay in the cache.

    python benchmarks/front_page.py EVAL --cache STATES --out docs/results --others DIR

measures other encoders instead, over the whole corpus: the same queries and the same cut; their
weights are in DIR as docs/baselines.md says. `front_page_others.jsonl` gets their rows. What
`baselines.jsonl` in OUT has of the same queries, documents and cut is taken from there.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from hplus import Budget, HPlus
from hplus.evaluate import rescore
from hplus.evaluate.bench import Bench
from hplus.evaluate.bm25 import BM25
from hplus.evaluate.data import RetrievalSet, data_hash, read_beir, sample
from hplus.evaluate.metrics import ndcg
from hplus.evaluate.statistics import holm, paired_difference
from hplus.types import F64
from hplus.views.fusion import fuse

SETS = ("scifact", "nfcorpus", "feedbackqa", "medicalqa")
QUERIES, WIDTHS, COUNTS = 500, (384, 128), (32, 16)
AS_SHIPPED = "hybrid, phrases merged to 32, 384 wide"
WINDOW = 256
OTHERS = {
    "bge-small-en-v1.5": "one vector of 384",
    "answerai-colbert-small-v1-states": "tokens, all, 384 wide",
}


def lines(bench: Bench) -> Iterator[tuple[str, float, F64]]:
    """Of one model and set: the line, vectors per document, nDCG@10 of every query."""
    fusion = bench.model.recipe.fusion
    lexical = bench.pooled(bench.lexical("head"))
    global_ = bench.pooled(bench.global_)
    yield "global, one vector of 384", 1, bench.ndcg10(global_)
    yield "lexical", 0, bench.ndcg10(lexical)
    queries = bench.units(bench.queries, "tokens", "head", WIDTHS[0], Budget())
    for budget, name in [
        (Budget(), "all"),
        *((Budget(count, policy="ward"), f"pooled to {count}") for count in COUNTS),
    ]:
        documents = bench.units(bench.documents, "tokens", "head", WIDTHS[0], budget)
        found = bench.ndcg10(bench.pooled(rescore.maxsim_of_pools(queries, documents, bench.pools)))
        yield f"tokens, {name}, 384 wide", len(documents.weights) / len(bench.ids), found
    for width in WIDTHS:
        queries = bench.units(bench.queries, "crf", "head", width, Budget())
        for count in (*([None] if width == WIDTHS[0] else []), *COUNTS):
            budget = Budget() if count is None else Budget(count, policy="merge")
            documents = bench.units(bench.documents, "crf", "head", width, budget)
            vectors = len(documents.weights) / len(bench.ids)
            phrase = bench.pooled(rescore.maxsim_of_pools(queries, documents, bench.pools))
            name = f"{'all' if count is None else f'merged to {count}'}, {width} wide"
            yield f"phrases, {name}", vectors, bench.ndcg10(phrase)
            if count is not None:
                views = {"global": global_, "phrase": phrase, "lexical": lexical}
                fused = fuse({view: views[view] for view in fusion}, fusion)
                yield f"hybrid, phrases {name}", vectors + 1, bench.ndcg10(fused)


def as_shipped(bench: Bench) -> Iterator[tuple[str, float, F64]]:
    """The one line of the former default: what an index of it gives."""
    recipe = bench.model.recipe
    queries = bench.units(bench.queries, "crf", "head", WIDTHS[0], Budget())
    documents = bench.units(bench.documents, "crf", "head", WIDTHS[0], recipe.document_budget)
    phrase = bench.pooled(rescore.maxsim_of_pools(queries, documents, bench.pools))
    views = {
        "global": bench.pooled(bench.global_),
        "phrase": phrase,
        "lexical": bench.pooled(bench.lexical("head")),
    }
    fused = fuse({view: views[view] for view in recipe.fusion}, recipe.fusion)
    yield AS_SHIPPED, len(documents.weights) / len(bench.ids) + 1, bench.ndcg10(fused)


def bm25(data: RetrievalSet) -> F64:
    """nDCG@10 of BM25 over the whole corpus."""
    found, _ = BM25(data.documents).search(data.queries, k=10)
    return np.array(
        [
            ndcg([data.document_ids[i] for i in best], data.judgements[query])
            for query, best in zip(data.query_ids, found.tolist(), strict=True)
        ]
    )


def differences() -> Iterator[tuple[str, str]]:
    """What the issue of a default turns on: model:line against model:line."""
    yield f"small:{AS_SHIPPED}", f"mini:{AS_SHIPPED}"
    for line in (
        "global, one vector of 384",
        "lexical",
        "phrases, merged to 32, 384 wide",
        "tokens, all, 384 wide",
        "hybrid, phrases merged to 32, 128 wide",
        "hybrid, phrases merged to 16, 128 wide",
    ):
        yield f"small:{AS_SHIPPED}", f"small:{line}"
    yield f"small:{AS_SHIPPED}", "bm25"
    for count in COUNTS:
        merged = f"small:phrases, merged to {count}, 384 wide"
        yield merged, "small:tokens, all, 384 wide"
        yield merged, f"small:tokens, pooled to {count}, 384 wide"
        yield f"small:phrases, merged to {count}, 128 wide", merged


def recorded(out: Path, other: str, data: RetrievalSet) -> dict[str, Any] | None:
    """The row of a baseline that was measured on the same data before."""
    wanted = {"baseline": other, "data_hash": data_hash(data), "tokens": WINDOW}
    lines = (out / "baselines.jsonl").read_text().splitlines()
    for row in map(json.loads, lines):
        if all(row[key] == value for key, value in wanted.items()):
            return dict(row)
    return None


def write_others(options: argparse.Namespace) -> None:
    """A row for each set and other encoder, which the laboratory runs."""
    from hplus_lab.baselines import cut_at, named
    from hplus_lab.baselines.measure import measure

    rows: list[str] = []
    for other, line in OTHERS.items():
        for name in SETS:
            data = sample(read_beir(options.data / name, "test"), QUERIES, seed=13)
            found = recorded(options.out, other, data) or measure(
                cut_at(named(other), WINDOW),
                data,
                folder=options.others,
                cache=options.cache / "baselines",
            )
            row = {"set": name, "model": other, "line": line, "queries": found["queries"]}
            row["vectors"] = round(found["cost"]["vectors"], 1)
            rows.append(json.dumps(row | {key: found[key] for key in ("ndcg10", "low", "high")}))
            print(rows[-1], flush=True)
            # After every row: an encoder takes twenty minutes of a core.
            (options.out / "front_page_others.jsonl").write_text("\n".join(rows) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--others", type=Path)
    options = parser.parse_args()
    if options.others is not None:
        write_others(options)
        return
    values: dict[str, dict[str, F64]] = {}
    rows = []
    for name in SETS:
        data = sample(read_beir(options.data / name, "test"), QUERIES, seed=13)
        for source in ("small", "mini", "bm25"):
            model = None if source == "bm25" else HPlus(source, long="cut")
            mark = "bm25" if model is None else model.fingerprint[:12]
            kept = options.cache / f"front-page-{name}-{len(data.queries)}-{mark}.json"
            if not kept.exists():
                if model is None:
                    found = [("", 0.0, bm25(data).tolist())]
                else:
                    bench = Bench(model, data, options.cache)
                    made = lines(bench) if source == "small" else as_shipped(bench)
                    found = [(line, n, own.tolist()) for line, n, own in made]
                kept.write_text(json.dumps(found))
            for line, vectors, own in json.loads(kept.read_text()):
                values.setdefault(f"{source}:{line}".rstrip(":"), {})[name] = np.array(own)
                row = {"set": name, "model": source, "line": line, "vectors": round(vectors, 1)}
                row |= {"queries": len(own), "ndcg10": round(100 * float(np.mean(own)), 2)}
                rows.append(row | {"fingerprint": mark})
                print(json.dumps(rows[-1]), flush=True)
    pairs = list(differences())
    found = [paired_difference(values[ours], values[theirs]) for ours, theirs in pairs]
    corrected = holm([own.p for own in found])
    contrasts = [
        {
            "ours": ours,
            "theirs": theirs,
            **{k: round(100 * getattr(own, k), 2) for k in ("mean", "low", "high")},
            "p_holm": round(p, 4),
        }
        for (ours, theirs), own, p in zip(pairs, found, corrected, strict=True)
    ]
    for row in contrasts:
        print(json.dumps(row))
    for file, body in (("front_page", rows), ("front_page_differences", contrasts)):
        text = "\n".join(json.dumps(row) for row in body) + "\n"
        (options.out / f"{file}.jsonl").write_text(text)


if __name__ == "__main__":
    main()
