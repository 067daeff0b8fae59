"""Pools of candidates: what a gate lets through, how good any ranking of it could be."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from hplus.evaluate.beir import Bench
from hplus.evaluate.metrics import oracle_ndcg, recall
from hplus.types import I64

# A pool of more than this share of the corpus gates little: its figures say so.
DEGENERATE = 0.5


def describe(bench: Bench, pools: Sequence[I64] | I64) -> dict[str, float]:
    """Size, recall and oracle nDCG@10 of the pools, means over queries; degenerate: 1 where they
    hold most of the corpus."""
    found = [bench.ids[own].tolist() for own in pools]
    judged = [bench.data.judgements[name] for name in bench.data.query_ids]
    size = float(np.mean([len(own) for own in found]))
    recalls = [recall(own, grades, cut=len(own)) for own, grades in zip(found, judged, strict=True)]
    oracles = [oracle_ndcg(own, grades, cut=10) for own, grades in zip(found, judged, strict=True)]
    return {
        "candidates": size,
        "recall": float(np.mean(recalls)),
        "oracle": float(np.mean(oracles)),
        "degenerate": float(size > DEGENERATE * len(bench.ids)),
    }


def union(parts: Sequence[I64]) -> list[I64]:
    """The union of several pools, query by query, ascending (eq:candidate_union)."""
    return [np.unique(np.concatenate(rows)).astype(np.int64) for rows in zip(*parts, strict=True)]


def pool_hash(bench: Bench, pools: Sequence[I64]) -> str:
    """Of the candidates' ids, query by query: equal hashes, equal candidates."""
    digest = hashlib.sha256()
    for name, own in zip(bench.data.query_ids, pools, strict=True):
        ids = sorted(bench.ids[own].tolist())
        digest.update("\0".join([name, *ids, "\n"]).encode("utf-8", "surrogatepass"))
    return digest.hexdigest()
