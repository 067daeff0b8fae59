"""How long scoring and encoding take here: kept in files of their own, results have no times."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from hplus.evaluate import rescore
from hplus.evaluate.experiments import shared_candidates
from hplus.evaluate.lab import Lab
from hplus.evaluate.others import Other
from hplus.index.segment import quantise
from hplus.kernels import weighted_maxsim
from hplus.types import F32, I64
from hplus.units.select import Kept
from hplus.views import global_
from hplus.views.fusion import fuse

# Queries and documents that are timed, spread over the set.
QUERIES = 50
DOCUMENTS = 32
ONE = np.ones(1, np.float32)
EVERY = "all documents"
# Raised when something else is timed than before: times of the old way are taken again.
TIMED = 2

# The local views: units ("" as the protocol cuts them) and importance ("" as the model weighs).
LOCAL = (("phrase", "", ""), ("token", "tokens", "uniform"))

Scorer = Callable[[int], F32]
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
    widths = {min(width, dim) for width in lab.protocol.widths} | {dim}
    for width in sorted(widths) if kind == "widths" else [lab.gate_width]:
        yield f"global, {width} wide, {EVERY}", _global(lab, width)
    if kind in ("views", "full-corpus", "fusion"):
        yield f"lexical, {EVERY}", _lexical(lab)
        gate = f"top {max(lab.protocol.pools):,}"
        yield f"hybrid, {lab.width} wide, {gate}, all units", _hybrid(lab)
    if kind == "shared-pool":
        yield from _of_shared_pool(lab, others)
        return
    for width in sorted(widths) if kind == "widths" else [lab.width]:
        yield from _locals(lab, width)
        lab.forget()


def _of_shared_pool(lab: Lab, others: Mapping[str, Other]) -> Iterator[tuple[str, Scorer]]:
    """Over the union of candidates; systems that give candidates, over the corpus."""
    union = [np.sort(own) for own in shared_candidates(lab, others)]
    every = [np.arange(len(lab.bench.ids))] * len(union)
    for name, units, kind in LOCAL:
        queries, documents = (
            lab.kept(side, units or lab.units, lab.width, kind) for side in lab.sides
        )
        score = _local(lab, queries, documents, union, documents.offsets[1:])
        yield f"{name}, {lab.width} wide, the shared pool, all units", score
    for name, other in others.items():
        if name in lab.protocol.sources:
            yield f"{name}, {EVERY}", _other(other, every)
        else:
            yield f"{name}, the shared pool", _other(other, union)


def _other(other: Other, pools: Sequence[I64]) -> Scorer:
    return lambda row: other.rank(row, pools[row])


def _global(lab: Lab, width: int) -> Scorer:
    """S_G over the whole corpus, a document being a unit of its own."""
    queries, documents = (global_.represent(side.mean, width) for side in lab.sides)
    codes, scales = quantise(documents, lab.protocol.format)
    starts = np.arange(len(documents))
    return lambda row: weighted_maxsim(
        queries[row : row + 1], ONE, codes, scales, starts, starts + 1
    )


def _lexical(lab: Lab) -> Scorer:
    """S_L over the whole corpus: the postings of a query's token ids."""
    queries, documents = (lab.bench.terms_of(side, lab.importance) for side in lab.sides)
    ids, weights, offsets = queries
    vocabulary = lab.bench.model.checkpoint.backbone.tokenizer.vocabulary
    found = rescore.postings(documents, vocabulary)

    def score(row: int) -> F32:
        own = slice(offsets[row], offsets[row + 1])
        return rescore.lexical_of(ids[own], weights[own], found, len(lab.bench.ids))

    return score


def _hybrid(lab: Lab) -> Scorer:
    """The views of the recipe and their sum for the gate's candidates, ascending; finding the best
    of the gate is not in it."""
    alphas, pools = lab.bench.model.recipe.fusion, np.sort(lab.gate, axis=1)
    queries, documents = (lab.kept(side, lab.units, lab.width) for side in lab.sides)
    every = {
        "global": _global(lab, lab.gate_width),
        "phrase": _local(lab, queries, documents, pools, documents.offsets[1:]),
        "lexical": _lexical(lab),
    }

    def score(row: int) -> F32:
        found = {view: every[view](row) for view in alphas}
        pooled = {
            view: (scores if view == "phrase" else scores[pools[row]]).astype(np.float64)
            for view, scores in found.items()
        }
        return fuse(pooled, alphas).astype(np.float32)

    return score


def _locals(lab: Lab, width: int) -> Iterator[tuple[str, Scorer]]:
    """Phrase and token at every budget and pool size."""
    protocol = lab.protocol
    for name, units, kind in LOCAL:
        queries, documents = (lab.kept(side, units or lab.units, width, kind) for side in lab.sides)
        for count in (*protocol.budgets, None):
            kept = "all" if count is None else f"at most {count}"
            cap = documents.offsets[-1] if count is None else count
            ends = np.minimum(documents.offsets[1:], documents.offsets[:-1] + cap)
            pools = {f"top {size:,}": lab.gate[:, :size] for size in protocol.pools}
            if protocol.kind == "full-corpus":
                pools[EVERY] = np.tile(np.arange(len(lab.bench.ids)), (len(lab.gate), 1))
            for which, own in pools.items():
                label = f"{name}, {width} wide, {which}, {kept} units"
                yield label, _local(lab, queries, documents, np.sort(own, axis=1), ends)


def _local(
    lab: Lab, queries: Kept, documents: Kept, pools: Sequence[I64] | I64, ends: I64
) -> Scorer:
    """Normalised S_P of a query's pool, in ascending order; ends: of each document's units."""
    codes, scales = quantise(documents.vectors, lab.protocol.format)

    def score(row: int) -> F32:
        own = slice(queries.offsets[row], queries.offsets[row + 1])
        places, weights = pools[row], queries.weights[own]
        starts = documents.offsets[places]
        raw = weighted_maxsim(queries.vectors[own], weights, codes, scales, starts, ends[places])
        scores: F32 = raw / np.float32(weights.sum() or 1)
        return scores

    return score
