"""The README's table: what the built-in models give for the bytes an index keeps, beside BM25.

    python benchmarks/front_page.py EVAL --cache STATES --out docs/results

The four test sets, texts cut at 256 tokens, each view rescoring its model's own global top 1,000,
exponential gain; of a set with more than 500 queries a seeded sample. Tokens are weighted by the
same importance as phrases, and pooled to as many vectors by Ward's method. `front_page.jsonl` gets
the rows of every set, `front_page_differences.jsonl` the paired differences of their macro, with
intervals and Holm's correction over all of them. Finished sets stay in the cache.

    python benchmarks/front_page.py EVAL --cache STATES --out docs/results --others DIR

measures other encoders instead, over the whole corpus: the same queries and the same cut; their
weights are in DIR as docs/baselines.md says. `front_page_others.jsonl` gets their rows, and what is
in the cache of them is in the differences of a later run. `--former DIR` measures an older version
of hplus-small beside the present one.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from hplus import Budget, HPlus
from hplus.evaluate import rescore
from hplus.evaluate.bench import Bench
from hplus.evaluate.bm25 import BM25
from hplus.evaluate.data import RetrievalSet, read_beir, sample
from hplus.evaluate.metrics import ndcg
from hplus.evaluate.statistics import holm, interval, paired_difference
from hplus.storage.segment import dequantise, quantise
from hplus.train.validation import ndcg10
from hplus.types import F64, Units
from hplus.views.fusion import fuse

SETS = ("scifact", "nfcorpus", "feedbackqa", "medicalqa")
QUERIES, WIDTHS, COUNTS = 500, (384, 128), (32, 16)
INT4 = (384, 256)
"""Widths in four bits; 256 have the bytes of 128 in eight."""
AS_SHIPPED = "hybrid, phrases merged to 32, 384 wide"
WINDOW = 256
ANSWERAI = "answerai-colbert-small-v1-states"
OTHERS = {"bge-small-en-v1.5": "one vector of 384", ANSWERAI: "tokens, all, 384 wide"}
FORMER = "small-v1"


def lines(bench: Bench) -> Iterator[tuple[str, float, F64]]:
    """Of one model and set: the line, vectors per document, nDCG@10 of every query."""
    fusion = bench.model.recipe.fusion
    lexical = bench.pooled(bench.lexical("head"))
    global_ = bench.pooled(bench.global_)
    yield "global, one vector of 384", 1, bench.ndcg10(global_)
    yield "lexical", 0, bench.ndcg10(lexical)
    for width in WIDTHS:
        queries = bench.units(bench.queries, "tokens", "head", width, Budget())
        for budget, name in [
            (Budget(), "all"),
            *((Budget(count, policy="ward"), f"pooled to {count}") for count in COUNTS),
        ]:
            documents = bench.units(bench.documents, "tokens", "head", width, budget)
            scores = bench.pooled(rescore.maxsim_of_pools(queries, documents, bench.pools))
            vectors = len(documents.weights) / len(bench.ids)
            yield f"tokens, {name}, {width} wide", vectors, bench.ndcg10(scores)
    for width, format in (*((own, "") for own in WIDTHS), *((own, "int4") for own in INT4)):
        queries = bench.units(bench.queries, "crf", "head", width, Budget())
        for count in (*([None] if width == WIDTHS[0] and not format else []), *COUNTS):
            budget = Budget() if count is None else Budget(count, policy="merge")
            documents = bench.units(bench.documents, "crf", "head", width, budget)
            vectors = len(documents.weights) / len(bench.ids)
            line = f"{'all' if count is None else f'merged to {count}'}, {width} wide"
            if format:
                documents, line = in_int4(bench, documents, width), f"{line}, {format}"
            phrase = bench.pooled(rescore.maxsim_of_pools(queries, documents, bench.pools))
            yield f"phrases, {line}", vectors, bench.ndcg10(phrase)
            if count is not None:
                views = {"global": global_, "phrase": phrase, "lexical": lexical}
                fused = fuse({view: views[view] for view in fusion}, fusion)
                yield f"hybrid, phrases {line}", vectors + 1, bench.ndcg10(fused)


def in_int4(bench: Bench, documents: Units, width: int) -> Units:
    """Units as an index of int4 has them."""
    mean = bench.model.checkpoint.mean
    taken_off = None if mean is None else mean[:width]
    codes, scales = quantise(documents.vectors, "int4", taken_off)
    return replace(documents, vectors=dequantise(codes, scales, taken_off))


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


def differences(known: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """What the choice of a default turns on: model:line against model:line, both known."""
    narrow = [f"hybrid, phrases merged to {count}, 128 wide" for count in COUNTS]
    tokens = "tokens, all, 384 wide"
    wanted = [(f"small:{AS_SHIPPED}", f"mini:{AS_SHIPPED}")]
    wanted += [
        (f"small:{AS_SHIPPED}", f"small:{line}")
        for line in (
            "global, one vector of 384",
            "lexical",
            "phrases, merged to 32, 384 wide",
            tokens,
            *narrow,
        )
    ]
    wanted += [(f"small:{AS_SHIPPED}", "bm25"), ("small:lexical", "bm25")]
    for width in WIDTHS:
        for count in COUNTS:
            merged = f"small:phrases, merged to {count}, {width} wide"
            wanted.append((merged, f"small:{tokens}"))
            wanted.append((merged, f"small:tokens, pooled to {count}, {width} wide"))
    few = f"merged to {COUNTS[1]}, {WIDTHS[0]} wide, int4"
    for count in COUNTS:  # the same bytes
        four, eight = f"merged to {count}, 256 wide, int4", f"merged to {count}, 128 wide"
        for kind in ("phrases,", "hybrid, phrases"):
            for rival in (f"{kind} {eight}", tokens):
                wanted.append((f"small:{kind} {four}", f"small:{rival}"))
    wanted += [
        (f"small:phrases, {few}", f"small:{line}")
        for line in (
            f"phrases, merged to {COUNTS[1]}, {WIDTHS[1]} wide",
            f"phrases, merged to {COUNTS[1]}, {WIDTHS[0]} wide",
            f"tokens, pooled to {COUNTS[1]}, {WIDTHS[0]} wide",
            tokens,
        )
    ]
    wanted.append((f"small:hybrid, phrases {few}", f"small:{AS_SHIPPED}"))
    for line in (AS_SHIPPED, *narrow, f"hybrid, phrases {few}"):
        wanted += [(f"small:{line}", f"small:{tokens}"), (f"small:{line}", f"{ANSWERAI}:{tokens}")]
    own = sorted(line for line in known if line.startswith("small:"))
    wanted += [(line, line.replace("small:", f"{FORMER}:")) for line in own]
    for pair in dict.fromkeys(wanted):
        if set(pair) <= set(known):
            yield pair


def others_file(cache: Path, other: str, name: str, queries: int) -> Path:
    """Where the figures of another encoder are kept, query by query."""
    return cache / f"front-page-{name}-{queries}-{other}.json"


def write_others(options: argparse.Namespace) -> None:
    """A row for each set and other encoder, which the laboratory runs."""
    from hplus_lab.baselines import cut_at, named
    from hplus_lab.rankers import by_baseline

    rows: list[str] = []
    for other, line in OTHERS.items():
        for name in SETS:
            data = sample(read_beir(options.data / name, "test"), QUERIES, seed=13)
            kept = others_file(options.cache, other, name, len(data.queries))
            if not kept.exists():
                ranker = by_baseline(
                    cut_at(named(other), WINDOW),
                    data,
                    folder=options.others,
                    cache=options.cache / "baselines",
                )
                vectors = ranker.cost(len(data.documents)).vectors
                kept.write_text(json.dumps([vectors, ndcg10(data, ranker.scores).tolist()]))
            vectors, own = json.loads(kept.read_text())
            found = interval({name: np.array(own)})
            row = {"set": name, "model": other, "line": line, "queries": len(own)}
            row |= {"vectors": round(vectors, 1), "ndcg10": round(100 * found.mean, 2)}
            row |= {"low": round(100 * found.low, 2), "high": round(100 * found.high, 2)}
            rows.append(json.dumps(row))
            print(rows[-1], flush=True)
            # After every row: an encoder takes twenty minutes of a core.
            (options.out / "front_page_others.jsonl").write_text("\n".join(rows) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--others", type=Path)
    parser.add_argument("--former", type=Path)
    options = parser.parse_args()
    if options.others is not None:
        write_others(options)
        return
    values: dict[str, dict[str, F64]] = {}
    rows = []
    sources = {"small": "small", "mini": "mini", "bm25": ""}
    if options.former is not None:
        sources[FORMER] = str(options.former)
    for name in SETS:
        data = sample(read_beir(options.data / name, "test"), QUERIES, seed=13)
        for source, place in sources.items():
            model = HPlus(place, window=WINDOW, long="cut") if place else None
            mark = "bm25" if model is None else model.fingerprint[:12]
            kept = options.cache / f"front-page-{name}-{len(data.queries)}-{mark}.json"
            if not kept.exists():
                if model is None:
                    found = [("", 0.0, bm25(data).tolist())]
                else:
                    bench = Bench(model, data, options.cache)
                    made = as_shipped(bench) if source == "mini" else lines(bench)
                    found = [(line, n, own.tolist()) for line, n, own in made]
                kept.write_text(json.dumps(found))
            for line, vectors, own in json.loads(kept.read_text()):
                values.setdefault(f"{source}:{line}".rstrip(":"), {})[name] = np.array(own)
                row = {"set": name, "model": source, "line": line, "vectors": round(vectors, 1)}
                row |= {"queries": len(own), "ndcg10": round(100 * float(np.mean(own)), 2)}
                rows.append(row | {"fingerprint": mark})
                print(json.dumps(rows[-1]), flush=True)
        for other, line in OTHERS.items():
            kept = others_file(options.cache, other, name, len(data.queries))
            if kept.exists():
                own = np.array(json.loads(kept.read_text())[1])
                values.setdefault(f"{other}:{line}", {})[name] = own
    pairs = list(differences(values))
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
