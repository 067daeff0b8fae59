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
from pathlib import Path

import numpy as np

from hplus import Budget, HPlus
from hplus.evaluate.data import RetrievalSet, read_beir
from hplus.evaluate.metrics import ndcg
from hplus.heads.importance import fit_idf
from hplus.types import F32, F64, Tokens, TokenStates, item_of_row, offsets_of
from hplus.units import controls
from hplus.units.pool import normalise
from hplus.units.select import Kept
from hplus.views import lexical, phrase

POOL = 100
# (units, budget, width, weights): the rows of DESIGN's table, and both widths of each.
UNITS = ("tokens", "words", "runs")
MERGES = [Budget(count, policy="merge") for count in (64, 32, 16)]
ROWS = [
    *((units, Budget(), width, "idf") for width in (384, 128) for units in (*UNITS, "whitespace")),
    *((units, Budget(), 128, "uniform") for units in UNITS),
    *((units, Budget(b), 128, "idf") for b in (64, 32, 16, 8) for units in UNITS),
    *((units, budget, w, "idf") for w in (128, 384) for budget in MERGES for units in UNITS),
    *(("tokens", Budget(b, policy="ward"), w, "idf") for w in (128, 384) for b in (64, 32, 16)),
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


def represent(side: TokenStates, units: str, budget: Budget, width: int, importance: F32) -> Kept:
    begins = controls.rule(units)(side.tokens)
    return phrase.represent(
        side.tokens, side.states, importance, begins, width=width, budget=budget
    )


def phrase_scores(query: Kept, documents: Kept, pools: np.ndarray, uniform: bool) -> F64:
    """Normalised S_P of every query with the documents of its pool: f64[queries, POOL]."""
    scores = np.zeros(pools.shape)
    for q, pool in enumerate(pools):
        rows = slice(query.offsets[q], query.offsets[q + 1])
        lengths = np.diff(documents.offsets)[pool]
        ends = offsets_of(lengths)
        of = item_of_row(ends)
        units = documents.offsets[:-1][pool][of] + np.arange(ends[-1]) - ends[of]
        similarity = query.vectors[rows] @ documents.vectors[units].T
        weights = np.ones_like(query.weights[rows]) if uniform else query.weights[rows]
        best = phrase.best_matches(similarity, ends)
        scores[q] = weights @ best / max(weights.sum(), 1e-9)
    return scores


def lexical_scores(queries, documents, pools) -> F64:  # type: ignore[no-untyped-def]
    (q_ids, q_weights, q_offsets), (d_ids, d_weights, d_offsets) = queries, documents
    scores = np.zeros(pools.shape)
    for q, pool in enumerate(pools):
        rows = slice(q_offsets[q], q_offsets[q + 1])
        table = np.zeros(int(d_ids.max()) + 1)
        table[q_ids[rows]] = q_weights[rows]
        norm = float((q_weights[rows] ** 2).sum())
        for i, d in enumerate(pool):
            own = slice(d_offsets[d], d_offsets[d + 1])
            scores[q, i] = table[d_ids[own]] @ d_weights[own] / norm
    return scores


def evaluate(data: RetrievalSet, pools: np.ndarray, scores: F64) -> dict[str, F64]:
    """Per-query nDCG@10 by both gains."""
    ids = np.array(data.document_ids)
    values: dict[str, list[float]] = {"exponential": [], "linear": []}
    for q, name in enumerate(data.query_ids):
        names = ids[pools[q]]
        order = np.lexsort((names, -scores[q]))
        for gain in values:
            values[gain].append(ndcg(names[order][:10].tolist(), data.judgements[name], gain=gain))  # type: ignore[arg-type]
    return {gain: np.array(v) for gain, v in values.items()}


def run(name: str, split: str, folder: Path, cache: Path, rows: list) -> list[dict]:  # type: ignore[type-arg]
    data = read_beir(folder / name, split)
    model = HPlus(long="cut")
    documents = states(model, data.documents, cache / name)
    queries = states(model, data.queries, cache / f"{name}-{split}-queries")
    idf = fit_idf(documents.tokens.ids, documents.tokens.offsets, 30_522)
    d_importance = idf.importance(documents.tokens.ids)
    q_importance = idf.importance(queries.tokens.ids)
    results = []

    def record(vectors: float, scores: F64, pool: np.ndarray, **what: object) -> None:
        values = evaluate(data, pool, scores)
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
    pool, global_scores = pools[384], scores
    l_d = lexical.represent(documents.tokens, d_importance, None)
    l_q = lexical.represent(queries.tokens, q_importance, None)
    lexical_ = lexical_scores(l_q, l_d, pool)
    record(0, lexical_, pool, view="lexical")
    for units, budget, width, weights in rows:
        q = represent(queries, units, Budget(), width, q_importance)
        d = represent(documents, units, budget, width, d_importance)
        s = phrase_scores(q, d, pool, weights == "uniform")
        vectors = len(d.weights) / len(data.documents)
        what = {"units": units, "budget": str(budget), "width": width, "weights": weights}
        record(vectors, s, pool, view="phrase", **what)
        if weights == "idf":
            fused = (
                FUSION["phrase"] * s
                + FUSION["global"] * global_scores
                + FUSION["lexical"] * lexical_
            )
            record(vectors, fused, pool, view="hybrid", **what)
    return results


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--sets", nargs="+", default=["scifact:test", "nfcorpus:test"])
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    found = [
        row
        for item in options.sets
        for row in run(*item.split(":"), options.data, options.cache, ROWS)
    ]
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text("\n".join(json.dumps(row) for row in found) + "\n")
