"""Pools of candidates: what a gate lets through, how good any ranking of it could be."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from hplus.evaluate.array_cache import made_once
from hplus.evaluate.metrics import oracle_ndcg, recall
from hplus.types import F32, I64

if TYPE_CHECKING:
    from hplus.evaluate.beir import Bench

# A pool of more than this share of the corpus gates little: its figures say so.
DEGENERATE = 0.5


def best(scores: F32, ids: npt.NDArray[Any], count: int, folder: Path) -> I64:
    """The best documents of each query, i64[queries, count]; ties by id.

    Kept in `folder` under the hash of scores, ids and count: every protocol that asks for the same
    candidates reads the same file.
    """
    names = "\0".join([str(count), *ids.tolist()]).encode("utf-8", "surrogatepass")

    def make() -> I64:
        by_id = np.argsort(ids, kind="stable")
        order = np.argsort(-scores[:, by_id], axis=1, kind="stable")[:, :count]
        return np.ascontiguousarray(by_id[order])

    return made_once(folder, [names, scores], make)


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
