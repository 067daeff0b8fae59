"""Equal counts (eq:exact_count): every rule keeps the same feasible number of units in every text.

C_x(B) is the least of B and of the number of units that any rule, under any seed, finds in the text
x; each rule keeps its C_x(B) most important ones. Units come in order of importance, so that every
budget is a prefix of the same list.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from hplus.evaluate.rescore import each_query
from hplus.kernels import maxima
from hplus.states_file import StoredStates
from hplus.types import F32, F64, I64, Bool, Units
from hplus.units import rules
from hplus.units.partition import Partition, partition, spans_of_units
from hplus.units.select import order_of_importance
from hplus_lab.experiment import Experiment, Pools
from hplus_lab.length_histogram import histogram_random, length_histogram
from hplus_lab.rankers import Ranker, by_units

RANDOM = ("random", "histogram", "shuffled")
# Groupings with as many units as are asked for; where nothing is asked, as many as these have.
MADE_TO_COUNT = {"chunks": "model", "pooled": "tokens"}


@dataclass(frozen=True)
class Counts:
    """How each grouping divides the texts, and how many units it keeps.

    seeded: grouping -> its name for each seed. begins: name -> where units of queries and of
    documents begin. asked i64[queries, budgets] and held i64[documents, budgets]: C_x(B).
    """

    seeded: dict[str, list[str]]
    begins: dict[str, tuple[Bool, Bool]]
    asked: I64
    held: I64


def counted(x: Experiment, groupings: Sequence[str]) -> Counts:
    """C_x(B) of every text over these groupings."""
    seeded = {rule: with_seeds(x, rule) for rule in groupings}
    every = {
        name: (begins(x, x.bench.queries, name), begins(x, x.bench.documents, name))
        for names in seeded.values()
        for name in names
        if name not in MADE_TO_COUNT
    }
    asked, held = (
        feasible_counts([lengths(begins[i], side) for begins in every.values()], x.protocol.budgets)
        for i, side in enumerate(x.sides)
    )
    return Counts(seeded, every, asked, held)


def with_seeds(x: Experiment, rule: str) -> list[str]:
    """A random rule for each seed, as RULE-SEED; any other as it is."""
    return [f"{rule}-{seed}" for seed in x.protocol.seeds] if rule in RANDOM else [rule]


def begins(x: Experiment, side: StoredStates, name: str) -> Bool:
    """Where the units of a grouping begin.

    "histogram" draws lengths as the model's units of the documents have them; "shuffled" puts a
    text's own lengths in another order.
    """
    rule, _, seed = name.partition("-")
    if name == "model":
        return x.bench.begins(side, x.units)
    if rule == "shuffled":
        return rules.shuffled(x.bench.begins(side, x.units), side.tokens, int(seed))
    if rule == "histogram":
        documents = x.bench.documents
        histogram = length_histogram(x.bench.begins(documents, x.units), documents.tokens)
        return histogram_random(side.tokens, histogram, int(seed))
    return rules.rule(name)(side.tokens)


def lengths(begins: Bool, side: StoredStates) -> I64:
    """Units of each text."""
    return np.diff(partition(begins, side.tokens.offsets).offsets)


def feasible_counts(natural: Sequence[I64], budgets: Sequence[int]) -> I64:
    """C_x(B) of every text, i64[texts, budgets]; natural: units of each text by each rule.

    >>> feasible_counts([np.array([5, 2]), np.array([3, 9])], [2, 4]).tolist()
    [[2, 3], [2, 2]]
    """
    least = np.min(np.stack(natural), axis=0)
    counts: I64 = np.minimum(least[:, None], np.asarray(budgets, np.int64))
    return counts


def in_order(side: StoredStates, units: Partition, vectors: F32, weights: F32, by: F32) -> Units:
    """Units in the order of one reading of their importance, weighed by another."""
    spans = spans_of_units(side.tokens, units)
    whole = Units(vectors, weights, units.offsets, spans, np.arange(len(weights) + 1))
    return whole.rows(order_of_importance(by, units.offsets), units.offsets)


def rank_prefixes(
    x: Experiment, counts: Counts, queries: Units, documents: Units, sides: Sequence[str]
) -> Iterator[tuple[str, int, Ranker]]:
    """Side, budget and what ranks under them: the first C_x(B) units of documents, and of queries
    too where the side is "joint"; both in order of importance."""
    every = np.broadcast_to(np.diff(queries.offsets)[:, None], counts.asked.shape)
    asked = [counts.asked if side == "joint" else every for side in sides]
    stored = replace(documents, vectors=x.as_stored(documents.vectors))
    scores = maxsim_of_prefixes(queries, stored, counts.held, asked, x.gate, threads=x.threads)
    for (way, side), (at, budget) in product(enumerate(sides), enumerate(x.protocol.budgets)):
        ranker = by_units(
            scores[way][at],
            queries,
            documents,
            x.protocol.format,
            asked=asked[way][:, at],
            held=counts.held[:, at],
        )
        yield side, budget, ranker


def maxsim_of_prefixes(
    queries: Units,
    documents: Units,
    held: I64,
    asked: Sequence[I64],
    pools: Pools,
    *,
    threads: int = 1,
) -> list[list[F32]]:
    """Normalised S_P of each query's candidates with the first units of each text, for each of
    several ways to count a query's units and each budget: f32[queries, documents], else -inf.

    Both sides in order of importance; held i64[documents, budgets], budgets ascending, and each of
    asked i64[queries, budgets].
    """
    shape = (len(queries), len(documents))
    budgets = range(held.shape[1])
    scores = [[np.full(shape, -np.inf, np.float32) for _ in budgets] for _ in asked]

    def one(row: int, own: I64) -> None:
        units = slice(queries.offsets[row], queries.offsets[row + 1])
        best = _maxima_of_prefixes(queries.vectors[units], documents, held, own)
        for way, budget in product(range(len(asked)), budgets):
            count = asked[way][row, budget]
            weights = queries.weights[units][:count].astype(np.float64)
            total = weights.sum()
            raw = best[:, budget, :count] @ weights
            scores[way][budget][row, own] = raw / total if total > 0 else 0

    each_query(one, pools, threads)
    return scores


def _maxima_of_prefixes(query: F32, documents: Units, held: I64, own: I64) -> F64:
    """Of every query unit over the first units of some documents, f64[documents, budgets, q].

    Every unit is met once: a prefix has the maxima of the one before it and of what it adds.
    """
    ends = documents.offsets[own][:, None] + held[own]  # [documents, budgets]
    starts = np.concatenate([documents.offsets[own][:, None], ends[:, :-1]], axis=1)
    found = maxima(query, documents.vectors, None, starts.ravel(), ends.ravel())
    found = found.reshape(*ends.shape, len(query))
    found[ends == starts] = -np.inf
    best = np.maximum.accumulate(found, axis=1)
    best[held[own] == 0] = 0
    return best.astype(np.float64)
