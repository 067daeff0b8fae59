"""One baseline on one set: a JSON line of nDCG@10 (exponential gain) and what it costs in f16.

    python -m hplus.evaluate.baselines bge-small-en-v1.5 scifact --baselines DIR --cache states
    python -m hplus.evaluate.baselines --list --baselines DIR

Vectors and BM25 search the whole corpus; a cross-encoder rereads BM25's top 100.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np

from hplus.errors import HPlusError
from hplus.evaluate.baselines import BASELINES, available, cut_at, named, rerank
from hplus.evaluate.data import RetrievalSet, read_beir
from hplus.evaluate.metrics import ndcg
from hplus.evaluate.others import other
from hplus.evaluate.results import data_hash
from hplus.evaluate.statistics import interval
from hplus.search.bm25 import BM25
from hplus.types import F32, F64, I64

POOL = 100


def main(arguments: list[str] | None = None) -> int:
    """The command; 2 on bad usage or missing weights."""
    parser = argparse.ArgumentParser(prog="python -m hplus.evaluate.baselines")
    parser.add_argument("name", nargs="?", help="a baseline, see --list")
    parser.add_argument("set", nargs="?", type=Path, help="a BEIR folder, plain or gz")
    parser.add_argument("--split", default="test", help="whose judgements count")
    parser.add_argument("--queries", type=int, help="only the first so many queries")
    parser.add_argument("--tokens", type=int, help="cut texts here instead of where the card says")
    parser.add_argument("--baselines", type=Path, metavar="DIR", help="where the weights are")
    parser.add_argument("--cache", type=Path, metavar="DIR", help="keep what was encoded")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--list", action="store_true", help="all baselines, and what is missing")
    options = parser.parse_args(arguments)
    if options.list:
        for row in BASELINES.values():
            found = available(row, folder=options.baselines)
            print(f"{row.name:34} {row.kind:14} {row.width:5}  {found.missing or 'ready'}")
        return 0
    if options.set is None:
        parser.error("a baseline and a set are needed, or --list")
    try:
        print(json.dumps(measure(options)))
    except HPlusError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 2
    return 0


def measure(options: argparse.Namespace) -> dict[str, object]:
    """The line of one baseline on one set."""
    baseline = named(options.name)
    if options.tokens:
        baseline = cut_at(baseline, options.tokens)
    data = read_beir(options.set, options.split)
    asked = slice(options.queries)
    queries, ids = data.queries[asked], data.query_ids[asked]
    begun = time.perf_counter()
    where = {"folder": options.baselines, "cache": options.cache, "threads": options.threads}
    if baseline.kind == "cross-encoder":
        pools, _ = BM25(data.documents).search(queries, POOL)
        label = baseline.name
        found = rerank(baseline, queries, data.documents, pools, progress=label, **where)
        cost = None
    else:
        n = len(data.documents)
        searched = other(baseline, replace(data, queries=queries, query_ids=ids), **where)
        found, cost = searched.scores, asdict(searched.cost(n))
        pools = np.tile(np.arange(n), (len(queries), 1))
    values = ndcg10(data, ids, pools, found)
    spread = interval({options.set.name: values})
    return {
        "baseline": baseline.name,
        "set": options.set.name,
        "split": options.split,
        "data_hash": data_hash(replace(data, queries=queries, query_ids=ids)),
        "documents": len(data.documents),
        "queries": len(queries),
        "pool": f"BM25 top {POOL}" if baseline.kind == "cross-encoder" else "full corpus",
        "tokens": baseline.max_tokens if baseline.kind != "sparse" else None,
        "ndcg10": round(100 * spread.mean, 2),
        "low": round(100 * spread.low, 2),
        "high": round(100 * spread.high, 2),
        "cost": cost,
        "seconds": round(time.perf_counter() - begun, 1),
    }


def ndcg10(data: RetrievalSet, query_ids: list[str], pools: I64, found: F32) -> F64:
    """nDCG@10 of every query, ties by document id."""
    names = np.array(data.document_ids)
    values = np.empty(len(query_ids))
    for row, query in enumerate(query_ids):
        own = names[pools[row]]
        best = np.lexsort((own, -found[row]))[:10]
        values[row] = ndcg(own[best].tolist(), data.judgements[query])
    return values


if __name__ == "__main__":
    sys.exit(main())
