"""Plain document budgets, what a user pays for; queries keep all their units."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from hplus.types import I64, Units, item_of_row
from hplus.units.select import Budget, Joins, Policy, bring_to, within
from hplus_lab.cost import units_file
from hplus_lab.experiment import Experiment
from hplus_lab.kinds.kind import Curve, Kind
from hplus_lab.line import Line

POLICIES: tuple[Policy, ...] = ("drop", "merge")
TOKENS = ("weighted tokens", "unweighted tokens")


def lines(x: Experiment) -> Iterator[Line]:
    """Beside each adaptive budget, one of importance to be reached, stands the fixed one that keeps
    as many units on the whole; beside both, as many clusters of tokens, met by a query's tokens
    weighted as phrases are, and by each of them counting once."""
    model = [x.units_of(side, x.units, x.width) for side in x.sides]
    asked, tokens = (x.units_of(side, "tokens", x.width, "uniform") for side in x.sides)
    sides = {
        "model": model,
        "weighted tokens": [x.units_of(x.bench.queries, "tokens", x.width), tokens],
        "unweighted tokens": [asked, tokens],
    }
    joins: tuple[Joins, Joins] = ({}, {})

    def line(
        name: str, rule: str, counts: I64 | None = None, policy: Policy = "drop", **at: int | float
    ) -> Line:
        queries, documents = sides[rule]
        known = joins[rule == "model"]
        kept = documents if counts is None else bring_to(counts, policy, documents, known)
        ranker = x.unit_ranker(queries, kept, x.gate, keep=rule == "unweighted tokens")
        if counts is not None and policy == "drop":  # what is dropped is in the file
            ranker = replace(ranker, file=units_file(documents, counts, x.protocol.format))
        return x.line(f"{rule}, {name}", ranker, x.gate, {"rule": rule, "policy": policy, **at})

    yield line("all", "model")
    for rule in TOKENS:
        yield line("all", rule)
    units, single = (np.diff(documents.offsets) for documents in (model[1], tokens))
    for count in x.protocol.budgets:
        for policy in POLICIES:
            few = np.minimum(units, count)
            yield line(f"{policy} to {count}", "model", few, policy, budget=count)
        few = np.minimum(single, count)
        for rule in TOKENS:
            yield line(f"ward to {count}", rule, few, "ward", budget=count)
    for share in x.protocol.shares:
        adaptive = adaptive_counts(share, model[1])
        fixed = fixed_counts(units, int(adaptive.sum()), x.protocol.seeds[0])
        label = f"{share:.0%} of importance"
        for policy in POLICIES:
            yield line(f"{policy} to {label}", "model", adaptive, policy, share=share)
            yield line(f"{policy} fixed, as {label}", "model", fixed, policy, as_share=share)
        for rule in TOKENS:
            yield line(f"ward as {label}", rule, adaptive, "ward", as_share=share)


def adaptive_counts(share: float, units: Units) -> I64:
    """Units of each text, in order of importance, that reach a share of its importance."""
    paid = within(Budget(share=share), units.weights, units.offsets)
    return np.bincount(item_of_row(units.offsets)[paid], minlength=len(units))


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


KIND = Kind(
    lines,
    counts="budget",
    edition=4,
    curve=Curve("budget", "B, units kept of a document at most", ("rule", "policy")),
    sizes=True,
)
