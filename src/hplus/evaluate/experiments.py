"""The experiments: one function a kind of protocol, each a series of lines of per-query values.

All pool the same cached token states; what differs is where units begin, how they weigh, how many
stay, how wide they are, and which candidates they rank.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from itertools import combinations, product
from operator import add

import numpy as np

from hplus.errors import InputError
from hplus.evaluate import pools as candidates
from hplus.evaluate.beir import Bench
from hplus.evaluate.cost import Cost
from hplus.evaluate.exact import ablations, exact_count, projections
from hplus.evaluate.lab import Lab, Line
from hplus.evaluate.others import Other
from hplus.evaluate.protocol import Protocol
from hplus.types import F32, I64
from hplus.units.select import Budget, Kept, Policy, bring_to, spend

POLICIES: tuple[Policy, ...] = ("drop", "merge")
VIEWS = {"G": "global", "P": "phrase", "L": "lexical"}


def run(
    lab: Lab,
    alphas: Mapping[str, Mapping[str, float]] | None = None,
    others: Mapping[str, Other] | None = None,
) -> Iterator[Line]:
    """Every line of a protocol on one set.

    alphas: of the fusions, tuned on dev data. others: systems of a shared pool that are not ours.
    """
    kind = lab.protocol.kind
    if kind == "fusion":
        yield from fusions(lab, alphas or {})
    elif kind == "shared-pool":
        yield from shared_pool(lab, others or {})
    else:
        kinds = {
            "views": views,
            "widths": widths,
            "pool-sizes": pool_sizes,
            "full-corpus": full_corpus,
            "exact-count": exact_count,
            "ablations": ablations,
            "projection": projections,
            "budgets": budgets,
        }
        yield from kinds[kind](lab)


def views(lab: Lab) -> Iterator[Line]:
    """Broad-deployed: each view over the same own global candidates."""
    own, costs = view_scores(lab)
    alphas = lab.bench.model.recipe.fusion
    yield lab.global_line("global", lab.gate_width, lab.global_, lab.gate)
    yield lab.line("phrase", own["phrase"], lab.gate, costs["phrase"])
    yield Line("hybrid", lab.fused(own, alphas, lab.gate), total(costs, alphas))
    yield lab.line("lexical", own["lexical"], lab.gate, costs["lexical"])
    if lab.units != lab.rule:
        alone, cost = lab.local(lab.rule, lab.width)
        yield lab.line("phrase, model alone", alone, lab.gate, cost)
    token, cost = lab.token(lab.width)
    yield lab.line("token", token, lab.gate, cost)


def widths(lab: Lab) -> Iterator[Line]:
    """Dimensional: the gate of the same width, and the gate frozen at the protocol's."""
    dim, count = lab.bench.model.dim, lab.protocol.pools[0]
    narrower = [(str(width), width) for width in lab.protocol.widths if width < dim]
    for label, width in [*narrower, ("full", dim)]:
        scores = lab.global_scores(width)
        own = lab.bench.gate(scores, count)
        both = candidates.union([own, lab.gate])
        yield lab.global_line(f"global {label}", width, scores, own)
        for name, (local, cost) in (
            ("token", lab.token(width, both)),
            ("phrase", lab.local(lab.units, width, pools=both)),
        ):
            yield lab.line(f"{name} {label}, own gate", local, own, cost)
            yield lab.line(f"{name} {label}, frozen gate", local, lab.gate, cost)
        lab.forget()


def pool_sizes(lab: Lab) -> Iterator[Line]:
    """Pool-sensitivity: the first K candidates; recall and oracle of each pool."""
    systems = {"token": lab.token(lab.width), "phrase": lab.local(lab.units, lab.width)}
    for count in lab.protocol.pools:
        own = lab.gate[:, :count]
        facts = candidates.describe(lab.bench, own)
        share = own.shape[1] / lab.gate.shape[1]
        for name, (scores, cost) in systems.items():
            spent = replace(cost, multiplications=cost.multiplications * share)
            yield lab.line(f"{name} {count}", scores, own, spent, facts)


def full_corpus(lab: Lab) -> Iterator[Line]:
    """Both branches on their own over all documents, and the union of their candidates."""
    n = len(lab.bench.ids)
    every = np.tile(np.arange(n), (len(lab.bench.data.queries), 1))
    scores, cost = lab.local(lab.units, lab.width, pools=every)
    token, token_cost = lab.token(lab.width, every)
    lexical, lexical_cost = lab.lexical()
    branch = lab.bench.gate(scores, lab.protocol.pools[0])
    union = candidates.union([lab.gate, branch])
    whole = n / lab.gate.shape[1]
    full, token_full = (
        replace(spent, multiplications=spent.multiplications * whole)
        for spent in (cost, token_cost)
    )
    own = {"global": lab.global_, "phrase": scores, "lexical": lexical}
    costs = {"global": lab.global_cost, "phrase": cost, "lexical": lexical_cost}
    alphas = lab.bench.model.recipe.fusion
    yield lab.global_line("global", lab.gate_width, lab.global_, lab.gate)
    yield lab.line("phrase, global pool", scores, lab.gate, cost)
    facts = candidates.describe(lab.bench, branch)
    yield lab.line("phrase, full corpus", scores, every, full, facts)
    yield lab.line("token, full corpus", token, every, token_full)
    yield lab.line("lexical, full corpus", lexical, every, lexical_cost)
    yield Line("hybrid, global pool", lab.fused(own, alphas, lab.gate), total(costs, alphas))
    size = float(np.mean([len(found) for found in union]))
    spent = total({**costs, "phrase": full}, alphas)
    yield Line("hybrid, union", lab.fused(own, alphas, union), spent, {"candidates": size})


def shared_pool(lab: Lab, others: Mapping[str, Other]) -> Iterator[Line]:
    """Every system ranks exactly the same candidates."""
    lab.pool = union = shared_candidates(lab, others)
    facts = candidates.describe(lab.bench, union)
    scores, cost = lab.local(lab.units, lab.width, pools=union)
    token, token_cost = lab.token(lab.width, union)
    share = facts["candidates"] / lab.gate.shape[1]
    yield lab.line("global", lab.global_, union, lab.global_cost, facts)
    for name, own, spent in (("token", token, token_cost), ("phrase", scores, cost)):
        spent = replace(spent, multiplications=spent.multiplications * share)
        yield lab.line(name, own, union, spent, facts)
    for name, other in others.items():
        # What gives candidates has met every document, as our own gate has.
        met = len(lab.bench.ids) if name in lab.protocol.sources else facts["candidates"]
        yield lab.line(name, other.scores, union, other.cost(met), facts)


def shared_candidates(lab: Lab, others: Mapping[str, Other]) -> list[I64]:
    """The union of the gates of all sources."""
    lacking = [name for name in lab.protocol.sources if name != "global" and name not in others]
    if lacking:
        raise InputError(
            f"protocol {lab.protocol.name} unites candidates of {', '.join(lab.protocol.sources)}; "
            f"{lacking[0]} is missing: give --baselines DIR with its weights"
        )
    count = lab.protocol.pools[0]
    gates = [
        lab.gate if name == "global" else lab.bench.gate(others[name].scores, count)
        for name in lab.protocol.sources
    ]
    return candidates.union(gates)


def budgets(lab: Lab) -> Iterator[Line]:
    """Plain document budgets, what a user pays for; queries keep all their units.

    Beside each adaptive budget, one of importance to be reached, stands the fixed one that keeps
    as many units on the whole.
    """
    queries, documents = (lab.kept(side, lab.units, lab.width) for side in lab.sides)
    tokens, every = (lab.kept(side, "tokens", lab.width, "uniform") for side in lab.sides)

    joins: dict[int, dict[int, I64]] = {id(documents): {}, id(every): {}}

    def line(name: str, asked: Kept, held: Kept) -> Line:
        cost = lab.cost(asked, held, lab.width)
        scores = lab.scores(asked, held, once=asked is tokens)
        return lab.line(name, scores, lab.gate, cost)

    def spent(held: Kept, budget: Budget) -> Kept:
        known = joins[id(held)]
        return spend(budget, held.vectors, held.weights, held.spans, held.offsets, known)

    yield line("model, all", queries, documents)
    yield line("tokens, all", tokens, every)
    for count in lab.protocol.budgets:
        for policy in POLICIES:
            held = spent(documents, Budget(count, policy=policy))
            yield line(f"model, {policy} to {count}", queries, held)
        pooled = spent(every, Budget(count, policy="ward"))
        yield line(f"tokens, ward to {count}", tokens, pooled)
    for share in lab.protocol.shares:
        for policy in POLICIES:
            adaptive = spent(documents, Budget(share=share, policy=policy))
            counts = fixed_counts(
                np.diff(documents.offsets), len(adaptive.weights), lab.protocol.seeds[0]
            )
            fixed = bring_to(counts, policy, documents, joins[id(documents)])
            label = f"{share:.0%} of importance"
            yield line(f"model, {policy} to {label}", queries, adaptive)
            yield line(f"model, {policy} fixed, as {label}", queries, fixed)
        # As many clusters of tokens as the adaptive budget leaves units, text by text.
        own = np.diff(adaptive.offsets)
        yield line(
            f"tokens, ward as {label}", tokens, bring_to(own, "ward", every, joins[id(every)])
        )


def fusions(lab: Lab, alphas: Mapping[str, Mapping[str, float]]) -> Iterator[Line]:
    """The seven combinations of views."""
    own, costs = view_scores(lab)
    for name in combinations_of_views():
        if "+" in name and name not in alphas:
            raise InputError(f"no weights for {name}: they are tuned on dev data, give --dev")
        weights = alphas[name] if "+" in name else {VIEWS[name]: 1.0}
        facts = {f"alpha {view}": alpha for view, alpha in weights.items()}
        yield Line(name, lab.fused(own, weights, lab.gate), total(costs, weights), facts)


def combinations_of_views() -> list[str]:
    """G, P, L, G+P, G+L, P+L, G+P+L."""
    return ["+".join(some) for n in (1, 2, 3) for some in combinations(VIEWS, n)]


def view_scores(lab: Lab) -> tuple[dict[str, F32], dict[str, Cost]]:
    """Of every query with the documents of its pool, and what each view costs."""
    phrase, cost = lab.local(lab.units, lab.width)
    lexical, postings = lab.lexical()
    scores = {"global": lab.global_, "phrase": phrase, "lexical": lexical}
    return scores, {"global": lab.global_cost, "phrase": cost, "lexical": postings}


def total(costs: Mapping[str, Cost], views: Iterable[str]) -> Cost:
    """Of these views together."""
    return reduce(add, (costs[view] for view in views))


def tune(benches: Sequence[Bench], protocol: Protocol) -> dict[str, dict[str, float]]:
    """Weights of every combination of views, the best macro on dev sets: 1 for the phrase view
    (or else the first), those of the protocol's grid for the others."""
    labs = [Lab(bench, protocol) for bench in benches]
    scores = [view_scores(lab)[0] for lab in labs]
    best: dict[str, dict[str, float]] = {}
    for name in combinations_of_views()[len(VIEWS) :]:
        of = [VIEWS[view] for view in name.split("+")]
        anchor = "phrase" if "phrase" in of else of[0]
        others = [view for view in of if view != anchor]
        tried = [
            {anchor: 1.0, **dict(zip(others, values, strict=True))}
            for values in product(protocol.grid, repeat=len(others))
        ]
        macros = [
            np.mean(
                [
                    lab.fused(own, alphas, lab.gate).mean()
                    for lab, own in zip(labs, scores, strict=True)
                ]
            )
            for alphas in tried
        ]
        best[name] = tried[int(np.argmax(macros))]
    return best


def fixed_counts(lengths: I64, total: int, seed: int) -> I64:
    """Units of each text under one fixed budget for all, `total` of them together: the smallest
    that reaches it, with one unit less in as many texts, drawn by the seed, as it goes beyond.

    >>> fixed_counts(np.array([1, 5, 9]), 6, seed=13).tolist()
    [1, 3, 2]
    """
    budget = 1
    while np.minimum(lengths, budget).sum() < min(total, lengths.sum()):
        budget += 1
    counts = np.minimum(lengths, budget)
    full = np.flatnonzero(lengths >= budget)
    less = np.random.default_rng(seed).permutation(full)[: int(counts.sum()) - total]
    counts[less] -= 1
    return counts
