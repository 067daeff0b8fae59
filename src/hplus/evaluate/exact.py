"""Units under exact counts: which rule cuts best, and which reading of importance chooses best."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import NamedTuple

import numpy as np

from hplus.checkpoint import read_projection
from hplus.errors import InputError
from hplus.evaluate import rescore
from hplus.evaluate.controlled import feasible_counts, maxsim_of_prefixes
from hplus.evaluate.cost import Cost, bytes_of
from hplus.evaluate.lab import ALL, Lab, Line
from hplus.states_file import StoredStates
from hplus.types import F32, F64, I64, Bool, item_of_row
from hplus.units import controls
from hplus.units.partition import partition, spans_of_units
from hplus.units.pool import normalise, pool, segment_sums, unit_importance
from hplus.units.select import Budget, Kept, bring_to, spend

RANDOM = ("random", "histogram", "shuffled")
# Groupings with as many units as are asked for; where nothing is asked, as many as these have.
MADE_TO_COUNT = {"chunks": "model", "pooled": "tokens"}
ABLATED = ("model", "tokens")
SPACES = ("raw", "projected")


@dataclass(frozen=True)
class Counts:
    """How each grouping of a protocol cuts the texts, and how many units it keeps.

    runs: grouping -> its name once a seed. cuts: name -> where units of queries and of documents
    begin. asked i64[queries, budgets] and held i64[documents, budgets]: the least over all names.
    natural: grouping -> a query's own units, i64[seeds, queries], where only documents have a
    budget.
    """

    runs: dict[str, list[str]]
    cuts: dict[str, list[Bool]]
    asked: I64
    held: I64
    natural: dict[str, I64]


def counted(lab: Lab, groupings: Sequence[str]) -> Counts:
    """C_x(B) of every text."""
    runs = {rule: seeded(lab, rule) for rule in groupings}
    cuts = {
        name: [begins(lab, side, name) for side in lab.sides]
        for names in runs.values()
        for name in names
        if name not in MADE_TO_COUNT
    }
    asked, held = (
        feasible_counts([lengths(cut[i], side) for cut in cuts.values()], lab.protocol.budgets)
        for i, side in enumerate(lab.sides)
    )
    own = lab.bench.queries
    natural = {
        rule: np.stack([lengths(begins(lab, own, MADE_TO_COUNT.get(n, n)), own) for n in names])
        for rule, names in runs.items()
    }
    return Counts(runs, cuts, asked, held, natural)


def exact_count(lab: Lab) -> Iterator[Line]:
    """Every rule with the same number of units in every text (eq:exact_count).

    Random rules run with every seed and are averaged query by query; the counts are the least
    over all rules and all seeds. "chunks" and "pooled" have as many units as they are asked for:
    equal parts of the whole text, and its tokens clustered (Ward), the token pooling of others.
    """
    budgets, sides = lab.protocol.budgets, lab.protocol.sides
    counts = counted(lab, lab.protocol.groupings)
    asked, held = counts.asked, counts.held
    importance = [lab.bench.importance(side, lab.importance) for side in lab.sides]
    every = np.full_like(asked, np.iinfo(np.int32).max)
    for rule, names in counts.runs.items():
        values: dict[tuple[str, int], list[F64]] = {}
        for name in names:
            if name == "chunks":
                both = [list(_chunks(lab, side, asked, held, importance)) for side in sides]
            elif name == "pooled":
                both = _pooled(lab, sides, asked, held)
            else:
                queries, documents = _units(lab, counts.cuts[name], importance)
                own = [asked if side == "joint" else every for side in sides]
                both = maxsim_of_prefixes(
                    queries, documents, held, own, lab.gate, threads=lab.bench.model.threads
                )
            for side, found in zip(sides, both, strict=True):
                for at, scores in enumerate(found):
                    values.setdefault((side, at), []).append(lab.values(scores, lab.gate))
        for (side, at), several in values.items():
            units = asked[:, at] if side == "joint" else counts.natural[rule]
            cost = _cost(lab, units, held[:, at])
            yield Line(f"{rule}, {side} {budgets[at]}", np.mean(several, axis=0), cost)


class Ablation(NamedTuple):
    """One way to choose and weigh units: by sum, mean or max of their tokens' importance, or
    "uniform"."""

    line: str
    rule: str
    selection: str = "sum"
    weighting: str = "sum"


ABLATIONS = (
    *(Ablation(f"{rule}, sum", rule) for rule in ABLATED),
    *(Ablation(f"{rule}, query uniform", rule, weighting="uniform") for rule in ABLATED),
    *(Ablation(f"model, query {way}", "model", weighting=way) for way in ("mean", "max")),
    *(Ablation(f"model, selection {way}", "model", selection=way) for way in ("mean", "max")),
)


def ablations(lab: Lab) -> Iterator[Line]:
    """Query weights and choice of units. All keep the same number of units in every text."""
    counts = counted(lab, ABLATED)
    for own in ABLATIONS:
        sides = [
            _weighed(lab, side, cut, own.selection, own.weighting)
            for side, cut in zip(lab.sides, counts.cuts[own.rule], strict=True)
        ]
        (scores,) = _of_prefixes(lab, counts, *sides)
        yield lab.line(own.line, scores, lab.gate, _cost(lab, counts.asked, counts.held))


def projections(lab: Lab) -> Iterator[Line]:
    """Raw states, and those of the token projection in their place (eq:token_projection), cut
    alike and with the same number of units in every text."""
    projection = read_projection(lab.bench.model.checkpoint.source)
    if projection is None:
        raise InputError(f"{lab.bench.model.recipe.name} has no token projection")
    counts = counted(lab, lab.protocol.groupings)
    for space, rule in product(SPACES, lab.protocol.groupings):
        sides = [
            _weighed(lab, side, cut, "sum", "sum", projection if space == "projected" else None)
            for side, cut in zip(lab.sides, counts.cuts[rule], strict=True)
        ]
        for at, scores in enumerate(_of_prefixes(lab, counts, *sides)):
            cost = _cost(lab, counts.asked[:, at], counts.held[:, at])
            yield lab.line(f"{rule}, {space} {lab.protocol.budgets[at]}", scores, lab.gate, cost)


def seeded(lab: Lab, rule: str) -> list[str]:
    """A random rule once a seed, as RULE-SEED; any other as it is."""
    return [f"{rule}-{seed}" for seed in lab.protocol.seeds] if rule in RANDOM else [rule]


def begins(lab: Lab, side: StoredStates, name: str) -> Bool:
    """Where the units of a grouping begin.

    "histogram" draws lengths as the model's units of the documents have them; "shuffled" puts a
    text's own lengths in another order.
    """
    rule, _, seed = name.partition("-")
    if name == "model":
        return lab.bench.begins(side, lab.units)
    if rule == "shuffled":
        return controls.shuffled(lab.bench.begins(side, lab.units), side.tokens, int(seed))
    if rule == "histogram":
        documents = lab.bench.documents
        own = lab.bench.begins(documents, lab.units)
        histogram = controls.length_histogram(own, documents.tokens)
        return controls.histogram_random(side.tokens, histogram, int(seed))
    return controls.rule(name)(side.tokens)


def _units(lab: Lab, cut: Sequence[Bool], importance: Sequence[F32]) -> tuple[Kept, Kept]:
    most = Budget(max(lab.protocol.budgets))
    queries, documents = (
        rescore.units_of(side, own, weights, lab.width, budget)
        for side, own, weights, budget in zip(lab.sides, cut, importance, (ALL, most), strict=True)
    )
    return queries, replace(documents, vectors=lab.as_stored(documents.vectors))


def _chunks(lab: Lab, side: str, asked: I64, held: I64, importance: Sequence[F32]) -> Iterator[F32]:
    """Equal chunks: exactly C_x(B) of the whole text, cut anew for every budget.

    Where only documents have a budget, a query has as many chunks as the model finds units.
    """
    natural = lengths(begins(lab, lab.bench.queries, "model"), lab.bench.queries)
    for b in range(asked.shape[1]):
        wanted = asked[:, b] if side == "joint" else natural
        queries, documents = (
            rescore.units_of(
                states, controls.equal_chunks(states.tokens, count), weights, lab.width, ALL
            )
            for states, count, weights in zip(
                lab.sides, (wanted, held[:, b]), importance, strict=True
            )
        )
        for kept, count in ((queries, wanted), (documents, held[:, b])):
            assert (np.diff(kept.offsets) == count).all()  # eq:exact_count, for every text
        yield lab.scores(queries, documents)


def _pooled(lab: Lab, sides: Sequence[str], asked: I64, held: I64) -> list[list[F32]]:
    """Tokens clustered to exactly C_x(B); where only documents have a budget, a query keeps all."""
    queries, documents = (lab.kept(side, "tokens", lab.width) for side in lab.sides)
    joins: tuple[dict[int, I64], dict[int, I64]] = ({}, {})
    found: list[list[F32]] = [[] for _ in sides]
    for b in range(asked.shape[1]):
        few = bring_to(held[:, b], "ward", documents, joins[1])
        for side, scores in zip(sides, found, strict=True):
            joint = side == "joint"
            own = bring_to(asked[:, b], "ward", queries, joins[0]) if joint else queries
            scores.append(lab.scores(own, few))
    return found


def _cost(lab: Lab, asked: I64, held: I64) -> Cost:
    """Of so many units a query and a document."""
    vectors, units = float(held.mean()), float(asked.mean())
    size = bytes_of(vectors, lab.width, lab.protocol.format)
    return Cost(vectors, size, units, units * vectors * lab.width * lab.gate.shape[1])


def lengths(cut: Bool, side: StoredStates) -> I64:
    """Units of each text."""
    return np.diff(partition(cut, side.tokens.offsets).offsets)


def _of_prefixes(
    lab: Lab, counts: Counts, asked: tuple[Kept, F32], held: tuple[Kept, F32]
) -> list[F32]:
    """Scores of the gate at every budget of both sides."""
    (queries, weights), (documents, _) = asked, held
    documents = replace(documents, vectors=lab.as_stored(documents.vectors))
    threads = lab.bench.model.threads
    (found,) = maxsim_of_prefixes(
        queries, documents, counts.held, [counts.asked], lab.gate, weights=weights, threads=threads
    )
    return found


def _weighed(
    lab: Lab,
    side: StoredStates,
    cut: Bool,
    selection: str,
    weighting: str,
    projection: tuple[F32, F32] | None = None,
) -> tuple[Kept, F32]:
    """Units in the order of one reading of their tokens' importance, and weights by another."""
    importance, width = lab.bench.importance(side, lab.importance), lab.width
    units = partition(cut, side.tokens.offsets)
    sums = unit_importance(importance, units)
    ways: dict[str, F32] = {
        "sum": sums,
        "mean": (sums / np.diff(units.bounds)).astype(np.float32),
        "max": np.maximum.reduceat(importance, units.bounds[:-1]),
        "uniform": np.ones_like(sums),
    }
    if projection is None:
        vectors = pool(side.states[:, :width].astype(np.float32), units, width)
    else:  # affine: the mean of the projections is the projection of the mean
        matrix, bias = (part[:width] for part in projection)
        means = segment_sums(side.states.astype(np.float32), units.bounds)
        means /= np.diff(units.bounds).astype(np.float32)[:, None]
        vectors = normalise(means @ matrix.T + bias)
    chosen = ways[selection]
    kept = spend(ALL, vectors, chosen, spans_of_units(side.tokens, units), units.offsets)
    order = np.lexsort((-chosen, item_of_row(units.offsets)))
    return kept, ways[weighting][order]
