"""What the frozen backbone reaches, untrained: nDCG@10 by document units and budget.

    python benchmarks/quality.py ../shared/data/eval --cache /tmp/states --out frozen.jsonl

Own global top-100 rescored; texts cut at 256 tokens; query weights are idf over the corpus;
queries are cut like the documents. States are encoded once a set (about 5 minutes each on two
cores) and cached; each row then takes seconds.
"""

from __future__ import annotations

import argparse
import json
import sys
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np

from hplus import Budget, HPlus
from hplus.evaluate.data import RetrievalSet, read_beir
from hplus.evaluate.metrics import ndcg
from hplus.heads.importance import fit_idf
from hplus.types import F32, F64, I32, I64, Tokens, TokenStates, offsets_of
from hplus.units import controls
from hplus.units.partition import partition, spans_of_units
from hplus.units.pool import normalise, pool, unit_importance
from hplus.units.select import Kept, spend
from hplus.views import lexical
from hplus.views.fusion import fuse

POOL = 100
Units = tuple[F32, F32, I32, I64]
Terms = tuple[I32, F32, I64]
UNITS = ("tokens", "words", "whitespace", "runs")
DROPS = [Budget(count) for count in (64, 32, 16, 8)]
MERGES = [Budget(count, policy="merge") for count in (64, 32, 16)]
POOLINGS = [Budget(count, policy="ward") for count in (64, 32, 16)]
# (units, width, budget, query weights)
ROWS = [
    (units, width, budget, weights)
    for width in (128, 384)
    for units in UNITS
    for budget in [Budget(), *DROPS, *MERGES, *(POOLINGS if units == "tokens" else [])]
    for weights in (("idf", "uniform") if budget == Budget() else ("idf",))
    if units != "whitespace" or budget == Budget()
]
FUSION = {"phrase": 1.0, "global": 0.5, "lexical": 0.2}


def states(model: HPlus, texts: list[str], cache: Path) -> TokenStates:
    """Token states of all texts, from the cache or encoded now."""
    names = ("ids", "spans", "offsets", "states", "mean")
    files = [cache / f"{name}.npy" for name in names]
    if not all(file.exists() for file in files):
        cache.mkdir(parents=True, exist_ok=True)
        parts = []
        for first in range(0, len(texts), 256):
            parts.append(model.states(texts[first : first + 256]))
            print(f"\r{cache.name}: {first + 256:,} of {len(texts):,}", end="", file=sys.stderr)
        offsets = offsets_of(np.concatenate([np.diff(p.tokens.offsets) for p in parts]))
        arrays = {
            "ids": np.concatenate([p.tokens.ids for p in parts]),
            "spans": np.concatenate([p.tokens.spans for p in parts]),
            "offsets": offsets,
            "states": np.concatenate([p.states for p in parts]),
            "mean": np.concatenate([p.mean for p in parts]),
        }
        for name, file in zip(names, files, strict=True):
            np.save(file, arrays[name])
    ids, spans, offsets, values, mean = (np.load(file) for file in files)
    tokens = Tokens(tuple(texts), ids, spans, offsets)
    nothing = np.empty(0)
    return TokenStates(tokens, values, mean, nothing.astype(np.uint8), nothing.astype(np.float32))


def pooled(side: TokenStates, units: str, width: int, importance: F32) -> Units:
    """Vectors, importance, spans and offsets of all units, before any budget."""
    cut = partition(controls.rule(units)(side.tokens), side.tokens.offsets)
    vectors = pool(side.states, cut, width)
    return (
        vectors,
        unit_importance(importance, cut),
        spans_of_units(side.tokens, cut),
        cut.offsets,
    )


def phrase_scores(query: Kept, documents: Kept, pools: I64, uniform: bool) -> F64:
    """Normalised S_P of every query with the documents of its pool: f64[queries, POOL]."""
    scores = np.zeros(pools.shape)
    for q, candidates in enumerate(pools):
        rows = slice(query.offsets[q], query.offsets[q + 1])
        weights = np.ones_like(query.weights[rows]) if uniform else query.weights[rows]
        weights = weights / max(weights.sum(), 1e-9)
        vectors = query.vectors[rows]
        for i, d in enumerate(candidates):
            units = documents.vectors[documents.offsets[d] : documents.offsets[d + 1]]
            scores[q, i] = weights @ (vectors @ units.T).max(axis=1) if len(units) else 0
    return scores


def lexical_scores(queries: Terms, documents: Terms, pools: I64) -> F64:
    """Normalised S_L of every query with the documents of its pool."""
    (q_ids, q_weights, q_offsets), (d_ids, d_weights, d_offsets) = queries, documents
    scores = np.zeros(pools.shape)
    for q, pool_ in enumerate(pools):
        rows = slice(q_offsets[q], q_offsets[q + 1])
        table = np.zeros(int(d_ids.max()) + 1)
        table[q_ids[rows]] = q_weights[rows]
        norm = float((q_weights[rows] ** 2).sum())
        for i, d in enumerate(pool_):
            own = slice(d_offsets[d], d_offsets[d + 1])
            scores[q, i] = table[d_ids[own]] @ d_weights[own] / norm
    return scores


def evaluate(data: RetrievalSet, pools: I64, scores: F64) -> dict[str, F64]:
    """Per-query nDCG@10 by both gains."""
    ids = np.array(data.document_ids)
    values: dict[str, list[float]] = {"exponential": [], "linear": []}
    for q, name in enumerate(data.query_ids):
        names = ids[pools[q]]
        order = np.lexsort((names, -scores[q]))
        for gain in values:
            values[gain].append(ndcg(names[order][:10].tolist(), data.judgements[name], gain=gain))  # type: ignore[arg-type]
    return {gain: np.array(v) for gain, v in values.items()}


def run(name: str, split: str, folder: Path, cache: Path, rows: list[Any]) -> list[dict[str, Any]]:
    """Every row on one set."""
    data = read_beir(folder / name, split)
    model = HPlus(long="cut")
    documents = states(model, data.documents, cache / name)
    queries = states(model, data.queries, cache / f"{name}-{split}-queries")
    idf = fit_idf(documents.tokens.ids, documents.tokens.offsets, 30_522)
    d_importance = idf.importance(documents.tokens.ids)
    q_importance = idf.importance(queries.tokens.ids)
    results = []

    def record(vectors: float, scores: F64, pool_: I64, **what: object) -> None:
        values = evaluate(data, pool_, scores)
        row = {
            "set": name, "split": split, **what, "vectors": round(vectors, 1),
            **{f"ndcg10_{gain}": round(100 * float(v.mean()), 2) for gain, v in values.items()},
        }  # fmt: skip
        results.append(row)
        print(json.dumps(row), flush=True)

    pools = {}
    for width in (128, 384):
        g_d, g_q = (normalise(side.mean[:, :width]) for side in (documents, queries))
        all_scores = g_q @ g_d.T
        pools[width] = np.argsort(-all_scores, axis=1, kind="stable")[:, :POOL]
        scores = np.take_along_axis(all_scores, pools[width], 1).astype(float)
        record(1, scores, pools[width], view="global", width=width)
    candidates, global_scores = pools[384], scores
    l_d = lexical.represent(documents.tokens, d_importance, None)
    l_q = lexical.represent(queries.tokens, q_importance, None)
    lexical_ = lexical_scores(l_q, l_d, candidates)
    record(0, lexical_, candidates, view="lexical")
    for (units, width), group in groupby(rows, key=itemgetter(0, 1)):
        of_queries = pooled(queries, units, width, q_importance)
        of_documents = pooled(documents, units, width, d_importance)
        q = spend(Budget(), *of_queries)
        for _, _, budget, weights in group:
            d = spend(budget, *of_documents)
            s = phrase_scores(q, d, candidates, weights == "uniform")
            vectors = len(d.weights) / len(data.documents)
            what = {"units": units, "width": width, "budget": str(budget), "weights": weights}
            record(vectors, s, candidates, view="phrase", **what)
            if weights == "idf":
                views = {"phrase": s, "global": global_scores, "lexical": lexical_}
                record(vectors, fuse(views, FUSION), candidates, view="hybrid", **what)
    return results


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--sets", nargs="+", default=["scifact:test", "nfcorpus:test"])
    parser.add_argument("--units", nargs="+", default=UNITS, choices=UNITS)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    rows = [row for row in ROWS if row[0] in options.units]
    found = [
        row
        for item in options.sets
        for row in run(*item.split(":"), options.data, options.cache, rows)
    ]
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text("\n".join(json.dumps(row) for row in found) + "\n")
