"""A baseline's scores: of every query with every document, or of each query's pool.

Dense: the dot product. Multi-vector: MaxSim, every query token counting once. Sparse: BM25.
Cross-encoder: its logit, one pass per pair, so only pools are affordable.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np

from hplus.errors import InputError
from hplus.evaluate.bm25 import BM25
from hplus.kernels.maxsim import weighted_maxsim
from hplus.texts import as_texts
from hplus.types import F32, I64
from hplus_lab.baselines import inputs
from hplus_lab.baselines.baseline import Baseline, MultiVectors, Side
from hplus_lab.baselines.encode import encode
from hplus_lab.baselines.encoders import load
from hplus_lab.baselines.stored import key_of, stored_rows
from hplus_lab.baselines.weights import hashes, verified

QUERY = "Which drug is the first-line treatment of type 2 diabetes?"
RELEVANT = (
    "Metformin is the first-line drug for the treatment of type 2 diabetes, particularly in people "
    "who are overweight; it lowers the production of glucose in the liver."
)
UNRELATED = (
    "The Eiffel Tower is a wrought-iron lattice tower on the Champ de Mars in Paris, built for the "
    "World's Fair of 1889 and the most visited monument with an entrance fee."
)


def scores(
    baseline: Baseline,
    queries: Sequence[str],
    documents: Sequence[str],
    *,
    folder: Path | None = None,
    cache: Path | None = None,
    threads: int = 1,
) -> F32:
    """Every query with every document, f32[queries, documents]; options as in `encode`."""
    every = np.tile(np.arange(len(documents), dtype=np.int64), (len(queries), 1))
    return rerank(baseline, queries, documents, every, folder=folder, cache=cache, threads=threads)


def rerank(
    baseline: Baseline,
    queries: Sequence[str],
    documents: Sequence[str],
    pools: I64,
    *,
    folder: Path | None = None,
    cache: Path | None = None,
    threads: int = 1,
) -> F32:
    """The scores of each query's pool, f32[queries, k]; pools i64[queries, k] of documents."""
    asked, corpus = as_texts(queries), as_texts(documents)
    _check(pools, len(asked), len(corpus))
    if baseline.kind == "sparse":
        bm25 = BM25(corpus)
        rows = [bm25.scores(query)[pool] for query, pool in zip(asked, pools, strict=True)]
        return np.array(rows, np.float32).reshape(pools.shape)
    if baseline.kind == "cross-encoder":
        pairs = [(q, corpus[d]) for q, pool in zip(asked, pools, strict=True) for d in pool]
        return _read_pairs(baseline, pairs, folder, cache, threads).reshape(pools.shape)

    def vectors(texts: list[str], side: Side) -> F32 | MultiVectors:
        label = f"{baseline.name}, {side} side"
        return encode(
            baseline, texts, side, folder=folder, cache=cache, progress=label, threads=threads
        )

    return of_vectors(vectors(asked, "query"), vectors(corpus, "document"), pools, threads=threads)


def probe(baseline: Baseline, *, folder: Path | None = None) -> tuple[float, float]:
    """The scores of a relevant and of an unrelated passage, for a question about metformin.

    The first must be larger. That finds gross errors of prompt, pooling, checkpoint or
    initialisation; it measures no quality.
    """
    ((relevant, unrelated),) = scores(baseline, [QUERY], [RELEVANT, UNRELATED], folder=folder)
    return float(relevant), float(unrelated)


def of_vectors(
    queries: F32 | MultiVectors, documents: F32 | MultiVectors, pools: I64, *, threads: int = 1
) -> F32:
    """The scores of each query's pool from the vectors of `encode`."""
    if isinstance(queries, MultiVectors):
        assert isinstance(documents, MultiVectors)  # both sides are of one kind
        return maxsim(queries, documents, pools, threads=threads)
    assert not isinstance(documents, MultiVectors)
    return np.take_along_axis(queries @ documents.T, pools, axis=1)


def maxsim(queries: MultiVectors, documents: MultiVectors, pools: I64, *, threads: int = 1) -> F32:
    """Sums over the query's tokens of the best similarity in the document, f32[queries, k].

    A document without vectors scores 0.
    """
    found = np.zeros(pools.shape, np.float32)
    for row, (first, last) in enumerate(pairwise(queries.offsets.tolist())):
        vectors = np.asarray(queries.vectors[first:last], np.float32)
        once = np.ones(len(vectors), np.float32)
        starts, ends = documents.offsets[pools[row]], documents.offsets[pools[row] + 1]
        stored = np.asarray(documents.vectors)
        found[row] = weighted_maxsim(vectors, once, stored, None, starts, ends, threads=threads)
    return found


def _read_pairs(
    baseline: Baseline,
    pairs: list[tuple[str, str]],
    folder: Path | None,
    cache: Path | None,
    threads: int,
) -> F32:
    """The logit of every pair, f32[pairs, 1]."""
    place = verified(baseline, folder=folder)
    encoder = load(baseline, place, threads=threads)

    def run(first: int, last: int) -> F32:
        return encoder.forward(inputs.of_pairs(baseline, encoder.tokenizer, pairs[first:last]))

    key = key_of(baseline, hashes(baseline, place), "pairs", (text for p in pairs for text in p))
    one_each = np.arange(len(pairs) + 1)
    return stored_rows(cache, key, one_each, 1, np.float32, run, f"{baseline.name}, pairs")


def _check(pools: I64, queries: int, documents: int) -> None:
    if pools.ndim != 2 or len(pools) != queries or pools.dtype != np.int64:
        raise InputError(
            f"expected pools i64[{queries}, k], got {pools.dtype} of shape {pools.shape}"
        )
    if pools.size and not 0 <= pools.min() <= pools.max() < documents:
        raise InputError(
            f"pools name documents {pools.min()} to {pools.max()}, but there are {documents}"
        )
