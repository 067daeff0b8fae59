"""The seven combinations of views, with weights tuned on dev data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, product

import numpy as np

from hplus.errors import InputError
from hplus.evaluate.bench import Bench
from hplus.evaluate.data import data_hash, sample
from hplus.model import HPlus
from hplus_lab import paper
from hplus_lab.experiment import Experiment, Inputs
from hplus_lab.kinds.kind import Kind
from hplus_lab.line import Line
from hplus_lab.paper import Printed
from hplus_lab.protocol import Protocol
from hplus_lab.rankers import fused

VIEWS = {"G": "global", "P": "phrase", "L": "lexical"}
# G, P, L, G+P, G+L, P+L, G+P+L
COMBINATIONS = ["+".join(some) for n in (1, 2, 3) for some in combinations(VIEWS, n)]
Alphas = dict[str, float]


def lines(x: Experiment) -> Iterator[Line]:
    views, tuned = x.views(x.gate), tune(_dev(x))
    for name in COMBINATIONS:
        alphas = tuned[name]
        facts = {f"alpha {view}": alpha for view, alpha in alphas.items()}
        yield x.line(name, fused(views, alphas), x.gate, {"views": name}, facts)


def tune(dev: Sequence[Experiment]) -> dict[str, Alphas]:
    """The weights of every combination that give the best macro on dev sets: 1 for the phrase view
    (or else the first), those of the grid for the others. A view alone needs none."""
    views = [x.views(x.gate) for x in dev]
    best: dict[str, Alphas] = {}
    for name in COMBINATIONS:
        used = [VIEWS[letter] for letter in name.split("+")]
        anchor = "phrase" if "phrase" in used else used[0]
        rest = [view for view in used if view != anchor]
        grid = dev[0].protocol.grid if rest else ()
        tried = [
            {anchor: 1.0, **dict(zip(rest, values, strict=True))}
            for values in product(grid, repeat=len(rest))
        ]
        macros = [
            np.mean(
                [
                    x.values(fused(own, alphas).scores, x.gate).mean()
                    for x, own in zip(dev, views, strict=True)
                ]
            )
            for alphas in (tried if rest else ())
        ]
        best[name] = tried[int(np.argmax(macros)) if rest else 0]
    return best


def _dev(x: Experiment) -> list[Experiment]:
    """The dev sets under the same protocol."""
    protocol, bench = x.protocol, x.bench
    chosen = [sample(own, protocol.dev_sample, protocol.seeds[0]) for _, own in x.inputs.dev]
    return [
        Experiment(Bench(bench.model, own, bench.cache, bench.terms), protocol) for own in chosen
    ]


def inputs(protocol: Protocol, _: HPlus, given: Inputs) -> list[str]:
    if not given.dev:
        raise InputError(
            f"protocol {protocol.name} tunes its weights on dev data: give --dev DIR:SPLIT, or "
            "`dev` in the config"
        )
    return [data_hash(found) for _, found in given.dev]


def printed(label: str, _: bool) -> list[Printed]:
    table = paper.table(label)
    macros = {row["views"]: row["ndcg@10"] for row in table.rows}
    return [Printed(label, table.tasks, macros=macros)]


KIND = Kind(lines, states=("grid",), inputs=inputs, uses=("dev",), paper=printed)
