"""One baseline on one set: nDCG@10 (exponential gain) and what it costs in f16.

Vectors and BM25 search the whole corpus; a cross-encoder reranks BM25's top 100.
"""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from hplus.evaluate.bm25 import BM25
from hplus.evaluate.data import RetrievalSet, data_hash
from hplus.evaluate.metrics import ndcg
from hplus.evaluate.statistics import interval
from hplus.types import F32, F64, I64
from hplus_lab.baselines.baseline import Baseline
from hplus_lab.baselines.score import rerank
from hplus_lab.rankers import by_baseline

POOL = 100


def measure(
    baseline: Baseline,
    data: RetrievalSet,
    *,
    folder: Path | None = None,
    cache: Path | None = None,
    threads: int = 1,
) -> dict[str, Any]:
    """What one baseline does on one set; options as in `encode`."""
    begun = time.perf_counter()
    found: F32 | F64
    if baseline.kind == "cross-encoder":
        pools, _ = BM25(data.documents).search(data.queries, POOL)
        found = rerank(
            baseline,
            data.queries,
            data.documents,
            pools,
            folder=folder,
            cache=cache,
            threads=threads,
        )
        cost = None
    else:
        documents = len(data.documents)
        pools = np.tile(np.arange(documents), (len(data.queries), 1))
        ranker = by_baseline(baseline, data, folder=folder, cache=cache, threads=threads)
        found, cost = ranker.scores, asdict(ranker.cost(documents))
    spread = interval({"queries": _ndcg10(data, pools, found)})
    return {
        "baseline": baseline.name,
        "data_hash": data_hash(data),
        "documents": len(data.documents),
        "queries": len(data.queries),
        "pool": f"BM25 top {POOL}" if baseline.kind == "cross-encoder" else "full corpus",
        "tokens": baseline.max_tokens if baseline.kind != "sparse" else None,
        "ndcg10": round(100 * spread.mean, 2),
        "low": round(100 * spread.low, 2),
        "high": round(100 * spread.high, 2),
        "cost": cost,
        "seconds": round(time.perf_counter() - begun, 1),
    }


def _ndcg10(data: RetrievalSet, pools: I64, scores: F32 | F64) -> F64:
    """nDCG@10 of every query, f64[queries]; ties are broken by document id."""
    names = np.array(data.document_ids)
    values = np.empty(len(data.queries))
    for row, query in enumerate(data.query_ids):
        own = names[pools[row]]
        best = np.lexsort((own, -scores[row]))[:10]
        values[row] = ndcg(own[best].tolist(), data.judgements[query])
    return values
