"""Every rule with the same number of units in every text (eq:exact_count)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import numpy as np

from hplus.evaluate import rescore
from hplus.units import rules
from hplus.units.select import Joins, bring_to
from hplus_lab import paper
from hplus_lab.cost import mean_cost
from hplus_lab.equal_counts import Counts, begins, counted, lengths, rank_prefixes
from hplus_lab.experiment import ALL, Experiment
from hplus_lab.kinds.kind import Curve, Kind
from hplus_lab.line import At, Line
from hplus_lab.paper import Delta, PaperTable, Printed
from hplus_lab.protocol import Protocol
from hplus_lab.rankers import Ranker

# The paper's rules, and ours.
RULES = {
    "Token": "tokens",
    "Whole word": "whitespace",
    "Fixed bigram": "ngrams-2",
    "Equal chunks": "chunks",
    "Random spans": "random",
    "Phrase": "model",
    "Length-histogram random": "histogram",
    "Within-text shuffle": "shuffled",
}
Found = Iterator[tuple[str, int, Ranker]]
"""Side, budget, and what ranks under them."""


def name(rule: str, side: str, budget: int) -> str:
    return f"{rule}, {side} {budget}"


def lines(x: Experiment) -> Iterator[Line]:
    """Random rules run with every seed and are averaged query by query; a clock runs the first
    seed. "chunks" and "pooled" have as many units as they are asked for: equal parts of the whole
    text, and its tokens clustered (Ward), the token pooling of others.
    """
    counts = counted(x, x.protocol.groupings)
    for rule, seeds in counts.seeded.items():
        found: dict[tuple[str, int], list[Line]] = {}
        for own in seeds:
            make = _chunks if own == "chunks" else _pooled if own == "pooled" else _prefixes
            for side, budget, ranker in make(x, counts, own):
                at: At = {"rule": rule, "side": side, "budget": budget}
                line = x.line(name(rule, side, budget), ranker, x.gate, at)
                several = found.setdefault((side, budget), [])
                several.append(replace(line, score=None, candidates=()) if several else line)
        for key in product(x.protocol.sides, x.protocol.budgets):
            first, *others = found[key]
            values = np.mean([line.values for line in (first, *others)], axis=0)
            cost = mean_cost([line.cost for line in (first, *others)])
            yield replace(first, values=values, cost=cost)


def _prefixes(x: Experiment, counts: Counts, own: str) -> Found:
    """The most important units of both sides."""
    queries, documents = (
        rescore.units_of(side, begins, x.bench.importance(side, x.importance), x.width, ALL)
        for side, begins in zip(x.sides, counts.begins[own], strict=True)
    )
    yield from rank_prefixes(x, counts, queries, documents, x.protocol.sides)


def _chunks(x: Experiment, counts: Counts, _: str) -> Found:
    """Equal chunks: exactly C_x(B) of the whole text, divided anew for every budget.

    Where only documents have a budget, a query has as many chunks as the model finds units.
    """
    natural = lengths(begins(x, x.bench.queries, "model"), x.bench.queries)
    for side, (at, budget) in product(x.protocol.sides, enumerate(x.protocol.budgets)):
        asked = counts.asked[:, at] if side == "joint" else natural
        queries, documents = (
            rescore.units_of(
                states,
                rules.equal_chunks(states.tokens, count),
                x.bench.importance(states, x.importance),
                x.width,
                ALL,
            )
            for states, count in zip(x.sides, (asked, counts.held[:, at]), strict=True)
        )
        yield side, budget, x.unit_ranker(queries, documents, x.gate)


def _pooled(x: Experiment, counts: Counts, _: str) -> Found:
    """Tokens clustered to exactly C_x(B); where only documents have a budget, a query keeps all."""
    queries, documents = (x.units_of(side, "tokens", x.width) for side in x.sides)
    joins: tuple[Joins, Joins] = ({}, {})
    for at, budget in enumerate(x.protocol.budgets):
        few = bring_to(counts.held[:, at], "ward", documents, joins[1])
        for side in x.protocol.sides:
            joint = side == "joint"
            own = bring_to(counts.asked[:, at], "ward", queries, joins[0]) if joint else queries
            yield side, budget, x.unit_ranker(own, few, x.gate)


def check(protocol: Protocol) -> list[str]:
    if set(protocol.groupings) <= {"chunks", "pooled"}:
        return ["chunks and pooled take their counts from other groupings; state one"]
    return []


def printed(label: str, cjk: bool) -> list[Printed]:
    """Beside the table itself the same sweep with all rules, without texts that have no spaces
    between words (cjk: ours have some), and the controls of boundaries."""
    return [
        *([] if cjk else [_sweep(paper.table("tab:lowbudget_en15"))]),
        _transfers(paper.table(f"{label}:b")),
        _sweep(paper.table("tab:lowbudget_full19")),
        _boundary_controls(paper.table("tab:boundary_controls_full")),
    ]


def _sweep(table: PaperTable) -> Printed:
    macros = {
        name(RULES[row["unit"]], "joint", int(budget)): value
        for row in table.rows
        for budget, value in row.items()
        if budget != "unit"
    }
    return Printed(table.label, table.tasks, macros=macros)


def _transfers(table: PaperTable) -> Printed:
    controls_ = {"tokens": "token", "ngrams-2": "bigram", "random": "random"}
    differences = {}
    for row in table.rows:
        for rule, word in controls_.items():
            column = f"phrase_minus_{word}"
            delta = Delta(row[column], row[f"{column}_low"], row[f"{column}_high"])
            differences[_joint(rule, row["budget"])] = delta
    return Printed(table.label, table.tasks, differences=differences)


def _boundary_controls(table: PaperTable) -> Printed:
    differences = {
        _joint(RULES[row["control"]], row["budget"]): Delta(
            row["difference"], row["low"], row["high"]
        )
        for row in table.rows
    }
    family = "boundary placement"
    return Printed(table.label, table.tasks, differences=differences, family=family)


def _joint(rule: str, budget: int) -> tuple[str, str]:
    return name("model", "joint", budget), name(rule, "joint", budget)


KIND = Kind(
    lines,
    counts="exact",
    states=("budgets", "sides", "groupings"),
    check=check,
    edition=2,
    curve=Curve(
        "budget",
        "B, units kept of a text at most",
        ("rule",),
        (
            "side",
            {
                "joint": "Budget on queries and documents",
                "document": "Budget on documents only",
            },
        ),
    ),
    paper=printed,
)
