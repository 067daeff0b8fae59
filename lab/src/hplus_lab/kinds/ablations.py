"""Query weights and choice of units, with the same number of units in every text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from hplus.states_file import StoredStates
from hplus.types import F32, Bool, Units
from hplus.units.partition import Partition, partition
from hplus.units.vectors import unit_importance, unit_vectors
from hplus_lab import paper
from hplus_lab.equal_counts import counted, in_order, rank_prefixes
from hplus_lab.experiment import Experiment
from hplus_lab.kinds.kind import Kind
from hplus_lab.line import At, Line
from hplus_lab.paper import Delta, Printed
from hplus_lab.protocol import Protocol

RULES = ("model", "tokens")


class Ablation(NamedTuple):
    """One way to choose and weigh units: by sum, mean or max of their tokens' importance, or
    "uniform"."""

    line: str
    rule: str
    selection: str = "sum"
    weighting: str = "sum"


ABLATIONS = (
    *(Ablation(f"{rule}, sum", rule) for rule in RULES),
    *(Ablation(f"{rule}, query uniform", rule, weighting="uniform") for rule in RULES),
    *(Ablation(f"model, query {way}", "model", weighting=way) for way in ("mean", "max")),
    *(Ablation(f"model, selection {way}", "model", selection=way) for way in ("mean", "max")),
)
# The paper's contrasts, and our lines.
CONTRASTS = {
    "Phrase query: sum vs. uniform": ("model, sum", "model, query uniform"),
    "Token query: sum vs. uniform": ("tokens, sum", "tokens, query uniform"),
    "Uniform query: Phrase vs. Token": ("model, query uniform", "tokens, query uniform"),
    "Phrase selection: sum vs. mean": ("model, sum", "model, selection mean"),
    "Phrase selection: sum vs. max": ("model, sum", "model, selection max"),
}


def lines(x: Experiment) -> Iterator[Line]:
    counts = counted(x, RULES)
    for name, rule, selection, weighting in ABLATIONS:
        queries, documents = (
            _units(x, side, begins, selection, weighting)
            for side, begins in zip(x.sides, counts.begins[rule], strict=True)
        )
        ((_, _, ranker),) = rank_prefixes(x, counts, queries, documents, ("joint",))
        at: At = {"rule": rule, "selection": selection, "weighting": weighting}
        yield x.line(name, ranker, x.gate, at)


def _units(
    x: Experiment, side: StoredStates, begins: Bool, selection: str, weighting: str
) -> Units:
    """Units in the order of one reading of their tokens' importance, weighed by another."""
    units = partition(begins, side.tokens.offsets)
    importance = x.bench.importance(side, x.importance)
    vectors = unit_vectors(side.states[:, : x.width].astype(np.float32), units, x.width)
    chosen, weights = (_reading(way, importance, units) for way in (selection, weighting))
    return in_order(side, units, vectors, weights, chosen)


def _reading(way: str, importance: F32, units: Partition) -> F32:
    """Of each unit, from its tokens' importance."""
    sums = unit_importance(importance, units)
    ways: dict[str, F32] = {
        "sum": sums,
        "mean": (sums / np.diff(units.bounds)).astype(np.float32),
        "max": np.maximum.reduceat(importance, units.bounds[:-1]),
        "uniform": np.ones_like(sums),
    }
    return ways[way]


def check(protocol: Protocol) -> list[str]:
    complaints = []
    if len(protocol.budgets) > 1:
        complaints.append("ablations measures one of budgets, not several")
    if protocol.groupings != RULES:
        complaints.append(f"groupings of ablations are {', '.join(RULES)}")
    if protocol.sides != ("joint",):
        complaints.append("sides of ablations are joint")
    return complaints


def printed(label: str, _: bool) -> list[Printed]:
    table = paper.table(f"{label}:b")
    differences = {
        CONTRASTS[row["contrast"]]: Delta(row["difference"], row["low"], row["high"])
        for row in table.rows
    }
    return [Printed(table.label, table.tasks, differences=differences)]


KIND = Kind(lines, counts="exact", states=("budgets",), check=check, edition=3, paper=printed)
