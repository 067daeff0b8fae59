"""How long scoring and encoding take here: kept in files of their own, results have no times."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping

import numpy as np

from hplus.evaluate import rescore
from hplus.evaluate.lab import Lab
from hplus.evaluate.others import Other
from hplus.kernels import weighted_maxsim
from hplus.types import I64
from hplus.units.select import Kept
from hplus.views import global_
from hplus.views.fusion import fuse

# Queries and documents that are timed, spread over the set.
QUERIES = 50
DOCUMENTS = 32
ONE = np.ones(1, np.float32)

Scorer = Callable[[int], object]
"""Scores one query, by its row, with its candidates, on one thread."""


def times(lab: Lab, others: Mapping[str, Other] | None = None) -> dict[str, float]:
    """Documents encoded a second, and milliseconds to score one query on one thread: median and
    95th percentile, of every view, width, pool size and budget of the protocol."""
    found = {"documents encoded a second": encode_rate(lab)}
    for name, score in _timed(lab, others or {}):
        for measure, value in latency(score, len(lab.gate)).items():
            found[f"{name}: {measure}"] = value
    return found


def encode_rate(lab: Lab) -> float:
    """Documents a second, states of all tokens, with the model's threads."""
    texts = lab.bench.data.documents
    places = np.linspace(0, len(texts) - 1, min(DOCUMENTS, len(texts))).astype(int)
    chosen = [texts[place] for place in places]
    lab.bench.model.states(chosen[:2])  # warms
    started = time.perf_counter()
    lab.bench.model.states(chosen)
    return len(chosen) / (time.perf_counter() - started)


def latency(score: Scorer, queries: int) -> dict[str, float]:
    """Milliseconds a query, of QUERIES out of so many."""
    rows = np.linspace(0, queries - 1, min(QUERIES, queries)).astype(int)
    spent = []
    for row in [rows[0], *rows]:  # the first one twice: it warms
        started = time.perf_counter()
        score(int(row))
        spent.append(1000 * (time.perf_counter() - started))
    return {f"p{share}_ms": float(np.quantile(spent[1:], share / 100)) for share in (50, 95)}


def _timed(lab: Lab, others: Mapping[str, Other]) -> Iterator[tuple[str, Scorer]]:
    """What the lines of a protocol score, each by its name."""
    kind, dim = lab.protocol.kind, lab.bench.model.dim
    n, gate = len(lab.bench.ids), lab.gate.shape[1]
    widths = {min(width, dim) for width in lab.protocol.widths} | {dim}
    for width in sorted(widths) if kind == "widths" else [lab.gate_width]:
        yield f"global, {width} wide, {n:,} documents", _global(lab, width)
    if kind in ("views", "full-corpus", "fusion"):
        yield f"lexical, {n:,} documents", _lexical(lab)
        yield f"hybrid, {lab.width} wide, {gate:,} candidates, all units", _hybrid(lab)
    for width in sorted(widths) if kind == "widths" else [lab.width]:
        yield from _locals(lab, width)
        lab.forget()
    for name, other in others.items():
        searches = name in lab.protocol.sources
        pools = np.tile(np.arange(n), (len(lab.gate), 1)) if searches else lab.gate
        what = f"{n:,} documents" if searches else f"{gate:,} candidates"
        yield f"{name}, {what}", _other(other, pools)


def _other(other: Other, pools: I64) -> Scorer:
    return lambda row: other.rank(row, pools[row])


def _global(lab: Lab, width: int) -> Scorer:
    """S_G over the whole corpus, a document being a unit of its own."""
    queries, documents = (global_.represent(side.mean, width) for side in lab.sides)
    starts = np.arange(len(documents))
    return lambda row: weighted_maxsim(
        queries[row : row + 1], ONE, documents, None, starts, starts + 1
    )


def _lexical(lab: Lab) -> Scorer:
    """S_L over the whole corpus: the postings of a query's token ids."""
    queries, documents = (lab.bench.terms_of(side, lab.importance) for side in lab.sides)
    ids, weights, offsets = queries
    vocabulary = lab.bench.model.checkpoint.backbone.tokenizer.vocabulary
    found = rescore.postings(documents, vocabulary)

    def score(row: int) -> object:
        own = slice(offsets[row], offsets[row + 1])
        return rescore.lexical_of(ids[own], weights[own], found, len(lab.bench.ids))

    return score


def _hybrid(lab: Lab) -> Scorer:
    """The views of the recipe and their sum; sorting the gate's candidates is not in it."""
    alphas, pools = lab.bench.model.recipe.fusion, np.sort(lab.gate, axis=1)
    queries, documents = (lab.kept(side, lab.units, lab.width) for side in lab.sides)
    every = {
        "global": _global(lab, lab.gate_width),
        "phrase": _local(queries, documents, pools, documents.offsets[1:]),
        "lexical": _lexical(lab),
    }

    def score(row: int) -> object:
        found = {view: np.asarray(every[view](row), np.float64) for view in alphas}
        pooled = {
            view: scores if view == "phrase" else scores[pools[row]]
            for view, scores in found.items()
        }
        return fuse(pooled, alphas)

    return score


def _locals(lab: Lab, width: int) -> Iterator[tuple[str, Scorer]]:
    """Phrase and token at every budget and pool size."""
    protocol, n = lab.protocol, len(lab.bench.ids)
    for name, units, kind in (("phrase", lab.units, ""), ("token", "tokens", "uniform")):
        queries, documents = (lab.kept(side, units, width, kind) for side in lab.sides)
        for count in (*protocol.budgets, None):
            kept = "all" if count is None else f"at most {count}"
            cap = documents.offsets[-1] if count is None else count
            ends = np.minimum(documents.offsets[1:], documents.offsets[:-1] + cap)
            sizes = {min(size, n) for size in protocol.pools}
            for size in sorted(sizes | {n} if protocol.kind == "full-corpus" else sizes):
                every = np.tile(np.arange(n), (len(lab.gate), 1))
                pools = lab.gate[:, :size] if size <= lab.gate.shape[1] else every
                label = f"{name}, {width} wide, {size:,} candidates, {kept} units"
                yield label, _local(queries, documents, pools, ends)


def _local(queries: Kept, documents: Kept, pools: I64, ends: I64) -> Scorer:
    """S_P of a query's pool, read in the order of the file; ends: of each document's units."""
    pools = np.sort(pools, axis=1)

    def score(row: int) -> object:
        own = slice(queries.offsets[row], queries.offsets[row + 1])
        places = pools[row]
        return weighted_maxsim(
            queries.vectors[own],
            queries.weights[own],
            documents.vectors,
            None,
            documents.offsets[places],
            ends[places],
        )

    return score
