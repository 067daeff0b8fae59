"""What each line of a table does for one query, for a clock, and what it keeps on disk.

Scoring takes as long whatever the numbers in the vectors are. So nothing is cut or clustered anew
here: units at hand stand for those of a line, as many in every text. Lines that do the same work
share a scorer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product

import numpy as np

from hplus.evaluate import rescore
from hplus.evaluate.cost import bytes_of, lexical_file, units_file
from hplus.evaluate.exact import ABLATED, ABLATIONS, SPACES, counted
from hplus.evaluate.experiments import (
    POLICIES,
    VIEWS,
    combinations_of_views,
    fixed_counts,
    shared_candidates,
)
from hplus.evaluate.lab import Lab
from hplus.evaluate.others import Other
from hplus.index.segment import F16, Array, quantise
from hplus.kernels import weighted_maxsim
from hplus.types import F32, I32, I64, Bool, item_of_row
from hplus.units import controls
from hplus.units.partition import partition, spans_of_units
from hplus.units.select import Budget, Kept, bring_to, within
from hplus.views import global_
from hplus.views.fusion import fuse

ONE = np.ones(1, np.float32)

Pools = Sequence[I64] | I64
Scorer = Callable[[int], F32]
"""Scores one query, by its row, with its candidates, on one thread."""


@dataclass(frozen=True)
class Work:
    """How a line scores, and the bytes a document has in the file that it reads."""

    score: Scorer
    file: float


Works = Iterator[tuple[str, Work]]


def workloads(lab: Lab, others: Mapping[str, Other] | None = None) -> Works:
    """Every line of a protocol by its name."""
    kinds: dict[str, Callable[[Lab], Works]] = {
        "views": _views,
        "widths": _widths,
        "pool-sizes": _pool_sizes,
        "full-corpus": _full_corpus,
        "shared-pool": partial(_shared_pool, others=others or {}),
        "fusion": _fusions,
        "exact-count": _exact_count,
        "ablations": _ablations,
        "projection": _projection,
        "budgets": _budgets,
    }
    yield from kinds[lab.protocol.kind](lab)


def _views(lab: Lab) -> Works:
    own = _three(lab)
    yield from own.items()
    yield "hybrid", _together(lab, own, lab.bench.model.recipe.fusion)
    if lab.units != lab.rule:
        yield "phrase, model alone", _local(lab, lab.rule)
    yield "token", _token(lab)


def _widths(lab: Lab) -> Works:
    dim = lab.bench.model.dim
    narrower = [(str(width), width) for width in lab.protocol.widths if width < dim]
    for label, width in [*narrower, ("full", dim)]:
        own = lab.bench.gate(lab.global_scores(width), lab.protocol.pools[0])
        yield f"global {label}", _global(lab, width)
        for gate, pools in (("own", own), ("frozen", lab.gate)):
            yield f"token {label}, {gate} gate", _token(lab, width, pools)
            yield f"phrase {label}, {gate} gate", _local(lab, lab.units, width, pools)
        lab.forget()


def _pool_sizes(lab: Lab) -> Works:
    for count in lab.protocol.pools:
        own = lab.gate[:, :count]
        yield f"token {count}", _token(lab, lab.width, own)
        yield f"phrase {count}", _local(lab, lab.units, lab.width, own)


def _full_corpus(lab: Lab) -> Works:
    every = np.tile(np.arange(len(lab.bench.ids)), (len(lab.gate), 1))
    gated, alphas = _three(lab), lab.bench.model.recipe.fusion
    whole = {**gated, "phrase": _local(lab, lab.units, lab.width, every)}
    yield "global", gated["global"]
    yield "phrase, global pool", gated["phrase"]
    yield "phrase, full corpus", whole["phrase"]
    yield "token, full corpus", _token(lab, lab.width, every)
    yield "lexical, full corpus", gated["lexical"]
    yield "hybrid, global pool", _together(lab, gated, alphas)
    # Both branches meet every document; how many of them are summed then hardly matters.
    yield "hybrid, union", _together(lab, whole, alphas, every)


def _shared_pool(lab: Lab, others: Mapping[str, Other]) -> Works:
    """Over the union of candidates; systems that give candidates, over the corpus."""
    union = [np.sort(own) for own in shared_candidates(lab, others)]
    every = [np.arange(len(lab.bench.ids))] * len(union)
    yield "global", _global(lab, lab.gate_width)
    yield "token", _token(lab, lab.width, union)
    yield "phrase", _local(lab, lab.units, lab.width, union)
    for name, other in others.items():
        met = every if name in lab.protocol.sources else union
        yield name, Work(_other(other, met), other.file)


def _fusions(lab: Lab) -> Works:
    own = _three(lab)
    for name in combinations_of_views():
        used = [VIEWS[view] for view in name.split("+")]
        yield name, own[used[0]] if len(used) == 1 else _together(lab, own, dict.fromkeys(used, 1))


def _exact_count(lab: Lab) -> Works:
    """Tokens stand for the units of every rule, its first seed for all."""
    counts, tokens = counted(lab, lab.protocol.groupings), lab.bench.documents.tokens
    spans = {
        rule: _spans(lab, counts.cuts[names[0]][1])
        for rule, names in counts.runs.items()
        if names[0] in counts.cuts
    }
    spans["pooled"] = tokens.spans
    queries, documents = _tokens(lab)
    for at, budget in enumerate(lab.protocol.budgets):
        held, kept = counts.held[:, at], bring_to(counts.held[:, at], "drop", documents)
        spans["chunks"] = _spans(lab, controls.equal_chunks(tokens, held))
        scorer = partial(_maxsim, stored=_stored(lab, kept), pools=lab.gate)
        joint = scorer(bring_to(counts.asked[:, at], "drop", queries))
        for side, (rule, natural) in product(lab.protocol.sides, counts.natural.items()):
            alone = side != "joint"
            score = scorer(bring_to(natural[0], "drop", queries)) if alone else joint
            lost = 0 if rule == "pooled" else len(spans[rule]) - len(kept.weights)
            file = _file(lab, lab.width, len(kept.weights), spans[rule], lost)
            yield f"{rule}, {side} {budget}", Work(score, file)


def _ablations(lab: Lab) -> Works:
    counts = counted(lab, ABLATED)
    (queries, documents), held = _tokens(lab), counts.held[:, 0]
    kept = bring_to(held, "drop", documents)
    asked = bring_to(counts.asked[:, 0], "drop", queries)
    score = _maxsim(asked, _stored(lab, kept), lab.gate)
    for own in ABLATIONS:
        spans = _spans(lab, counts.cuts[own.rule][1])
        lost = len(spans) - len(kept.weights)
        yield own.line, Work(score, _file(lab, lab.width, len(kept.weights), spans, lost))


def _projection(lab: Lab) -> Works:
    counts = counted(lab, lab.protocol.groupings)
    queries, documents = _tokens(lab)
    spans = {rule: _spans(lab, cut[1]) for rule, cut in counts.cuts.items()}
    works: dict[tuple[str, int], Work] = {}
    for at, budget in enumerate(lab.protocol.budgets):
        kept = bring_to(counts.held[:, at], "drop", documents)
        asked = bring_to(counts.asked[:, at], "drop", queries)
        score = _maxsim(asked, _stored(lab, kept), lab.gate)
        for rule, own in spans.items():
            lost = len(own) - len(kept.weights)
            file = _file(lab, lab.width, len(kept.weights), own, lost)
            works[rule, budget] = Work(score, file)
    for space, rule, budget in product(SPACES, spans, lab.protocol.budgets):
        yield f"{rule}, {space} {budget}", works[rule, budget]


def _budgets(lab: Lab) -> Works:
    """The first units stand for merged ones."""
    model = [lab.kept(side, lab.units, lab.width) for side in lab.sides]
    tokens = _tokens(lab)

    def work(units: Sequence[Kept], counts: I64, policy: str) -> Work:
        asked, held = units
        kept = bring_to(counts, "drop", held)
        lost = len(kept.dropped_weights) if policy == "drop" else 0
        file = _file(lab, lab.width, len(kept.weights), held.spans, lost)
        return Work(_maxsim(asked, _stored(lab, kept), lab.gate), file)

    units, pooled = (np.diff(held.offsets) for _, held in (model, tokens))
    yield "model, all", work(model, units, "drop")
    yield "tokens, all", work(tokens, pooled, "drop")
    for count in lab.protocol.budgets:
        for policy in POLICIES:
            yield f"model, {policy} to {count}", work(model, np.minimum(units, count), policy)
        yield f"tokens, ward to {count}", work(tokens, np.minimum(pooled, count), "ward")
    for share in lab.protocol.shares:
        held = model[1]
        paid = within(Budget(share=share), held.weights, held.offsets)
        adaptive = np.bincount(item_of_row(held.offsets)[paid], minlength=len(units))
        fixed = fixed_counts(units, int(adaptive.sum()), lab.protocol.seeds[0])
        label = f"{share:.0%} of importance"
        for policy in POLICIES:
            yield f"model, {policy} to {label}", work(model, adaptive, policy)
            yield f"model, {policy} fixed, as {label}", work(model, fixed, policy)
        yield f"tokens, ward as {label}", work(tokens, adaptive, "ward")


def _three(lab: Lab) -> dict[str, Work]:
    return {
        "global": _global(lab, lab.gate_width),
        "phrase": _local(lab, lab.units),
        "lexical": _lexical(lab),
    }


def _global(lab: Lab, width: int) -> Work:
    """S_G over the whole corpus, a document being a unit of its own."""
    queries, documents = (global_.represent(side.mean, width) for side in lab.sides)
    codes, scales = quantise(documents, lab.protocol.format)
    starts = np.arange(len(documents))

    def score(row: int) -> F32:
        return weighted_maxsim(queries[row : row + 1], ONE, codes, scales, starts, starts + 1)

    return Work(score, bytes_of(1, width, lab.protocol.format))


def _lexical(lab: Lab) -> Work:
    """S_L over the whole corpus: the postings of a query's token ids."""
    queries, documents = (lab.bench.terms_of(side, lab.importance) for side in lab.sides)
    ids, weights, offsets = queries
    vocabulary = lab.bench.model.checkpoint.backbone.tokenizer.vocabulary
    found = rescore.postings(documents, vocabulary)

    def score(row: int) -> F32:
        own = slice(offsets[row], offsets[row + 1])
        return rescore.lexical_of(ids[own], weights[own], found, len(lab.bench.ids))

    return Work(score, lexical_file(documents))


def _local(
    lab: Lab, units: str, width: int = 0, pools: Pools | None = None, kind: str = ""
) -> Work:
    """S_P of all units; by default the protocol's width, and candidates of the gate."""
    width = width or lab.width
    queries, documents = (lab.kept(side, units, width, kind) for side in lab.sides)
    pools = lab.gate if pools is None else pools
    file = _file(lab, width, len(documents.weights), documents.spans, 0)
    return Work(_maxsim(queries, _stored(lab, documents), pools), file)


def _token(lab: Lab, width: int = 0, pools: Pools | None = None) -> Work:
    return _local(lab, "tokens", width, pools, "uniform")


def _tokens(lab: Lab) -> list[Kept]:
    return [lab.kept(side, "tokens", lab.width, "uniform") for side in lab.sides]


def _together(
    lab: Lab, views: Mapping[str, Work], alphas: Mapping[str, float], pools: Pools | None = None
) -> Work:
    """Views and their sum for candidates, ascending (by default those of the gate); finding the
    best of the gate is not in it."""
    pools = np.sort(lab.gate, axis=1) if pools is None else pools

    def score(row: int) -> F32:
        found = {view: views[view].score(row) for view in alphas}
        pooled = {
            view: (scores if view == "phrase" else scores[pools[row]]).astype(np.float64)
            for view, scores in found.items()
        }
        return fuse(pooled, alphas).astype(np.float32)

    return Work(score, sum(views[view].file for view in alphas))


def _other(other: Other, pools: Pools) -> Scorer:
    return lambda row: other.rank(row, pools[row])


@dataclass(frozen=True)
class _Stored:
    """Documents' units as a format keeps them."""

    codes: Array
    scales: F16 | None
    offsets: I64


def _stored(lab: Lab, kept: Kept) -> _Stored:
    codes, scales = quantise(kept.vectors, lab.protocol.format)
    return _Stored(codes, scales, kept.offsets)


def _maxsim(queries: Kept, stored: _Stored, pools: Pools) -> Scorer:
    """Normalised S_P of a query's pool, in ascending order."""
    ordered = [np.sort(own) for own in pools]

    def score(row: int) -> F32:
        own = slice(queries.offsets[row], queries.offsets[row + 1])
        places, weights = ordered[row], queries.weights[own]
        starts, ends = stored.offsets[places], stored.offsets[places + 1]
        vectors = queries.vectors[own]
        raw = weighted_maxsim(vectors, weights, stored.codes, stored.scales, starts, ends)
        scores: F32 = raw / np.float32(weights.sum() or 1)
        return scores

    return score


def _spans(lab: Lab, cut: Bool) -> I32:
    """Where the documents' units stand."""
    tokens = lab.bench.documents.tokens
    return spans_of_units(tokens, partition(cut, tokens.offsets))


def _file(lab: Lab, width: int, kept: int, spans: I32, dropped: int) -> float:
    return units_file(len(lab.bench.ids), kept, dropped, spans, width, lab.protocol.format)
