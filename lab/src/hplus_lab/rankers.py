"""Rankers: ways to score a query's candidates, our views and other systems behind one interface.

A ranker has its scores twice. `scores` were computed in bulk, the fastest way for a whole table;
`rank` scores one query on one thread from what an index keeps, for a clock. A test holds the two
together for every line of every protocol.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache, reduce
from operator import add
from pathlib import Path

import numpy as np

from hplus.errors import InputError
from hplus.evaluate import rescore
from hplus.evaluate.bm25 import BM25, stems
from hplus.evaluate.data import RetrievalSet
from hplus.kernels import weighted_maxsim
from hplus.storage.segment import F16, Array, Format, bytes_of, dequantise, quantise
from hplus.types import F32, F64, I64, Lexical, Units
from hplus.units.vectors import normalise, segment_sums
from hplus.views.fusion import fuse
from hplus_lab.baselines import Baseline, MultiVectors, Side, encode
from hplus_lab.baselines.score import of_vectors
from hplus_lab.cache import array_made_once
from hplus_lab.cost import Cost, lexical_cost, lexical_file, maxsim_cost, units_file

# bm25s keeps a posting as a document's number and a score, four bytes each.
POSTING = 8
READS_PAIRS = "{} reads pairs of texts: it reranks a few candidates and cannot score a whole corpus"


@dataclass(frozen=True)
class Ranker:
    """scores: of every query with every document, [queries, documents]; -inf where a query never
    meets a document. rank: scores of one query, by its row, with these candidates, on one thread.
    cost: of ranking so many candidates a query. file: bytes a document of what must be kept.
    encode: makes documents ready to be searched; None: the model's own encoder does. gate: scores
    of single vectors, where a system has them beside those it ranks by; they choose its own
    candidates.
    """

    scores: F32 | F64
    rank: Callable[[int, I64], F32 | F64]
    cost: Callable[[float], Cost]
    file: float
    encode: Callable[[list[str]], object] | None = None
    gate: F32 | None = None


def by_units(
    scores: F32,
    queries: Units,
    documents: Units,
    format: Format,
    *,
    asked: I64 | None = None,
    held: I64 | None = None,
) -> Ranker:
    """S_P over units in order of importance; asked, held i64[texts]: only so many of each text
    are kept, the others are dropped."""
    asked = np.diff(queries.offsets) if asked is None else asked
    held = np.diff(documents.offsets) if held is None else held
    starts, ends = documents.offsets[:-1], documents.offsets[:-1] + held
    vectors, units = float(held.mean()), float(asked.mean())

    @cache
    def stored() -> tuple[Array, F16 | None]:
        return (documents.vectors, None) if format == "f32" else quantise(documents.vectors, format)

    def rank(row: int, own: I64) -> F32:
        first = queries.offsets[row]
        rows = slice(first, first + asked[row])
        weights = queries.weights[rows]
        raw = weighted_maxsim(queries.vectors[rows], weights, *stored(), starts[own], ends[own])
        return raw / np.float32(weights.sum() or 1)

    return Ranker(
        scores,
        rank,
        lambda pool: maxsim_cost(units, vectors, pool, documents.width, format),
        units_file(documents, held, format),
    )


def by_global(scores: F32, queries: F32, documents: F32, format: Format) -> Ranker:
    """S_G, a document being a unit of its own; the whole corpus is met."""
    codes, scales = quantise(documents, format)
    width, starts = documents.shape[1], np.arange(len(documents))

    def rank(row: int, own: I64) -> F32:
        one = np.ones(1, np.float32)
        vector = queries[row : row + 1]
        return weighted_maxsim(vector, one, codes, scales, starts, starts + 1)[own]

    cost = maxsim_cost(1.0, 1.0, len(documents), width, format)
    return Ranker(scores, rank, lambda _: cost, bytes_of(1, width, format))


def by_lexical(queries: Lexical, documents: Lexical, vocabulary: int) -> Ranker:
    """S_L: the postings of a query's token ids are met, whatever the candidates."""
    postings, n = rescore.postings(documents, vocabulary), len(documents)

    def rank(row: int, own: I64) -> F32:
        ids = slice(queries.offsets[row], queries.offsets[row + 1])
        return rescore.lexical_of(queries.ids[ids], queries.weights[ids], postings, n)[own]

    cost = lexical_cost(queries, documents, vocabulary)
    scores = rescore.lexical(queries, documents, vocabulary)
    return Ranker(scores, rank, lambda _: cost, lexical_file(documents))


def fused(rankers: Mapping[str, Ranker], alphas: Mapping[str, float]) -> Ranker:
    """eq:fusion; costs and files are the sums of those of the views."""
    used = {view: rankers[view] for view, alpha in alphas.items() if alpha}
    weights = {view: alphas[view] for view in used}

    def rank(row: int, own: I64) -> F64:
        return fuse({v: r.rank(row, own).astype(np.float64) for v, r in used.items()}, weights)

    return Ranker(
        fuse({view: ranker.scores.astype(np.float64) for view, ranker in used.items()}, weights),
        rank,
        lambda pool: reduce(add, (ranker.cost(pool) for ranker in used.values())),
        sum(ranker.file for ranker in used.values()),
    )


def over_corpus(ranker: Ranker) -> Ranker:
    """The same where every document is met before candidates are chosen, as by a gate."""
    every = np.arange(ranker.scores.shape[1])
    return replace(
        ranker,
        rank=lambda row, own: ranker.rank(row, every)[own],
        cost=lambda _: ranker.cost(len(every)),
    )


def by_baseline(
    baseline: Baseline,
    data: RetrievalSet,
    *,
    folder: Path | None = None,
    cache: Path | None = None,
    format: Format = "f16",
    threads: int = 1,
) -> Ranker:
    """Another system; options as in `baselines.encode`. Documents' vectors are counted and scored
    as `format` keeps them; multi-vector systems are kept in f16 at most."""
    if baseline.kind == "cross-encoder":
        raise InputError(READS_PAIRS.format(baseline.name))
    if baseline.kind == "sparse":
        return _by_bm25(data)

    def vectors(texts: list[str], side: Side) -> F32 | MultiVectors:
        label = f"{baseline.name}, {side} side"
        return encode(
            baseline, texts, side, folder=folder, cache=cache, progress=label, threads=threads
        )

    queries = vectors(data.queries, "query")
    documents = _as_kept(vectors(data.documents, "document"), format)
    every = np.tile(np.arange(len(data.documents)), (len(data.queries), 1))
    scores = _scored_once(queries, documents, every, cache, threads)
    # A dense system has one vector a text.
    (asked, rows), (stored, offsets) = (
        side if isinstance(side, MultiVectors) else (side, np.arange(len(side) + 1))
        for side in (queries, documents)
    )
    several = isinstance(documents, MultiVectors)
    kept: Format = "f16" if several and format == "f32" else format
    units, held = len(asked) / (len(rows) - 1), len(stored) / (len(offsets) - 1)

    def rank(row: int, own: I64) -> F32:
        query = asked[rows[row] : rows[row + 1]].astype(np.float32)
        once = np.ones(len(query), np.float32)
        return weighted_maxsim(query, once, stored, None, offsets[own], offsets[own + 1])

    begins = offsets.nbytes / len(data.documents) if several else 0
    return Ranker(
        scores,
        rank,
        lambda pool: maxsim_cost(units, held, pool, baseline.width, kept),
        bytes_of(held, baseline.width, kept) + begins,
        lambda texts: encode(baseline, texts, "document", folder=folder, threads=threads),
        _mean_scores(queries, documents),
    )


def _scored_once(
    queries: F32 | MultiVectors,
    documents: F32 | MultiVectors,
    pools: I64,
    cache: Path | None,
    threads: int,
) -> F32:
    """MaxSim over a whole corpus takes minutes and is kept; a dot product is not."""

    def make() -> F32:
        return of_vectors(queries, documents, pools, threads=threads)

    if cache is None or not isinstance(queries, MultiVectors):
        return make()
    assert isinstance(documents, MultiVectors)  # both sides are of one kind
    return array_made_once(cache / "scores", [*queries, *documents], make)


def _mean_scores(queries: F32 | MultiVectors, documents: F32 | MultiVectors) -> F32 | None:
    """Of the means of a text's vectors, for systems that have no single vector of their own; a
    text without vectors scores 0."""
    sides = []
    for side in (queries, documents):
        if not isinstance(side, MultiVectors):
            return None
        filled = np.diff(side.offsets) > 0
        bounds = np.append(side.offsets[:-1][filled], side.offsets[-1])
        sums = np.zeros((len(filled), side.vectors.shape[1]), np.float32)
        sums[filled] = segment_sums(np.asarray(side.vectors, np.float32), bounds)
        sides.append(normalise(sums))
    scores: F32 = sides[0] @ sides[1].T
    return scores


def _as_kept(documents: F32 | MultiVectors, format: Format) -> F32 | MultiVectors:
    if isinstance(documents, MultiVectors):
        if format != "int8":
            return documents
        rounded = dequantise(*quantise(documents.vectors.astype(np.float32), format))
        return MultiVectors(rounded.astype(np.float16), documents.offsets)
    return dequantise(*quantise(np.asarray(documents), format))


def _by_bm25(data: RetrievalSet) -> Ranker:
    """BM25 reads the postings of a query's terms, whatever the candidates."""
    corpus, n = BM25(data.documents), len(data.documents)
    cost = Cost(
        0.0,
        POSTING * corpus.postings / n,
        float(np.mean([len(stems(query)) for query in data.queries])),
        float(np.mean([corpus.met(query) for query in data.queries])),
    )
    return Ranker(
        np.array([corpus.scores(query) for query in data.queries]),
        lambda row, own: corpus.scores(data.queries[row])[own],
        lambda _: cost,
        corpus.bytes / n,
        BM25,
    )
