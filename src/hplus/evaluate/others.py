"""Another system on a set: its scores, what it costs, and how one query is ranked, for a clock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hplus.errors import InputError
from hplus.evaluate.baselines import Baseline, MultiVectors, Side, encode
from hplus.evaluate.baselines.score import of_vectors
from hplus.evaluate.cost import Cost, maxsim_cost
from hplus.evaluate.data import RetrievalSet
from hplus.index.segment import Format, dequantise, quantise
from hplus.kernels import weighted_maxsim
from hplus.search.bm25 import BM25, terms
from hplus.types import F32, I64

# bm25s keeps a posting as a document's number and a score, four bytes each.
POSTING = 8
READS_PAIRS = "{} reads pairs of texts: it reranks a few candidates and cannot score a whole corpus"


@dataclass(frozen=True)
class Other:
    """What tables need of a system that is not ours."""

    scores: F32
    """Of every query with every document, f32[queries, documents]."""
    cost: Callable[[float], Cost]
    """Of ranking so many candidates a query."""
    rank: Callable[[int, I64], F32]
    """Scores one query, by its place, with candidates, on one thread."""
    file: float
    """Bytes a document of what has to be kept."""
    read: Callable[[list[str]], object]
    """Makes documents ready to be searched, as before a first query; nothing is kept."""


def other(
    baseline: Baseline,
    data: RetrievalSet,
    *,
    folder: Path | None = None,
    cache: Path | None = None,
    format: Format = "f16",
    threads: int = 1,
) -> Other:
    """A baseline on a set; options as in `encode`. Documents' vectors are counted and scored as
    `format` keeps them; of a multi-vector system there is no more than f16."""
    if baseline.kind == "cross-encoder":
        raise InputError(READS_PAIRS.format(baseline.name))
    if baseline.kind == "sparse":
        return _words(data)

    def vectors(texts: list[str], side: Side) -> F32 | MultiVectors:
        label = f"{baseline.name}, {side} side"
        return encode(
            baseline, texts, side, folder=folder, cache=cache, progress=label, threads=threads
        )

    queries = vectors(data.queries, "query")
    documents = _stored(vectors(data.documents, "document"), format)
    every = np.tile(np.arange(len(data.documents)), (len(data.queries), 1))
    found = of_vectors(queries, documents, every, threads=threads)
    # A dense system has one vector a text.
    (asked, rows), (stored, offsets) = (
        side if isinstance(side, MultiVectors) else (side, np.arange(len(side) + 1))
        for side in (queries, documents)
    )

    kept: Format = "f16" if format == "f32" and isinstance(documents, MultiVectors) else format

    def cost(pool: float) -> Cost:
        units, held = len(asked) / (len(rows) - 1), len(stored) / (len(offsets) - 1)
        return maxsim_cost(units, held, pool, baseline.width, kept)

    def rank(row: int, own: I64) -> F32:
        vectors = asked[rows[row] : rows[row + 1]].astype(np.float32)
        once = np.ones(len(vectors), np.float32)
        starts, ends = offsets[own], offsets[own + 1]
        return weighted_maxsim(vectors, once, np.asarray(stored), None, starts, ends)

    def read(texts: list[str]) -> object:
        return encode(baseline, texts, "document", folder=folder, threads=threads)

    begins = 0 if isinstance(documents, np.ndarray) else offsets.nbytes
    file = cost(0).bytes + begins / len(data.documents)
    return Other(found, cost, rank, file, read)


def _stored(documents: F32 | MultiVectors, format: Format) -> F32 | MultiVectors:
    if isinstance(documents, MultiVectors):
        if format != "int8":
            return documents
        rounded = dequantise(*quantise(documents.vectors.astype(np.float32), format))
        return MultiVectors(rounded.astype(np.float16), documents.offsets)
    return dequantise(*quantise(np.asarray(documents), format))


def _words(data: RetrievalSet) -> Other:
    """BM25 reads the postings of a query's terms, whatever the candidates."""
    corpus = BM25(data.documents)
    found = np.array([corpus.scores(query) for query in data.queries])
    cost = Cost(
        0.0,
        POSTING * corpus.postings / len(data.documents),
        float(np.mean([len(terms(query)) for query in data.queries])),
        float(np.mean([corpus.met(query) for query in data.queries])),
    )
    return Other(
        found,
        lambda _: cost,
        lambda row, _: corpus.scores(data.queries[row]),
        corpus.bytes / len(data.documents),
        BM25,
    )
