"""Each view over the same candidates, those of the model's own global view; beside them the same
encoder's tokens, its single vector, and other systems, the last two over the whole corpus."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hplus.errors import InputError
from hplus.model import HPlus
from hplus_lab import paper
from hplus_lab.baselines import available, named
from hplus_lab.experiment import Experiment, Inputs
from hplus_lab.kinds.kind import Kind
from hplus_lab.line import Line
from hplus_lab.paper import Printed
from hplus_lab.protocol import Protocol
from hplus_lab.rankers import READS_PAIRS, over_corpus

VIEWS = ("global", "phrase", "hybrid", "lexical")


def lines(x: Experiment) -> Iterator[Line]:
    """dense: the encoder as a retriever by one vector, at full width and in float32."""
    yield from own_lines(x)
    yield x.line("dense", x.dense_ranker, x.every, {"view": "dense"})
    for name in x.protocol.rankers:
        yield x.line(name, over_corpus(x.baseline(name)), x.every, {"view": name})


def own_lines(x: Experiment) -> Iterator[Line]:
    """Of the model, over its own candidates."""
    views = x.views(x.gate)
    views["hybrid"] = x.hybrid(views)
    for view in VIEWS:
        facts = x.describe(x.gate) if view == "global" else {}
        yield x.line(view, views[view], x.gate, {"view": view}, facts)
    if x.units != x.model_units:
        alone = x.phrase_ranker(x.gate, x.model_units)
        yield x.line("phrase, model alone", alone, x.gate, {"view": "phrase, model alone"})
    for view, ranker in x.beside_phrases(x.gate).items():
        yield x.line(view, ranker, x.gate, {"view": view})


def inputs(protocol: Protocol, _: HPlus, given: Inputs) -> list[str]:
    """Whether the other systems are there."""
    return needs(protocol, protocol.rankers, given)


def needs(protocol: Protocol, others: Sequence[str], given: Inputs) -> list[str]:
    """Other systems must be there and score a whole corpus; nothing else of them makes a cell."""
    for name in others:
        if named(name).kind == "cross-encoder":
            raise InputError(f"protocol {protocol.name}: {READS_PAIRS.format(name)}")
        there = available(named(name), folder=given.baselines)
        if not there:
            raise InputError(f"protocol {protocol.name}: {there.missing}")
    return []


def check(protocol: Protocol) -> list[str]:
    if len(protocol.budgets) > 1:
        return [f"{protocol.kind} measures one of budgets, not several"]
    return []


def printed(label: str, _: bool) -> list[Printed]:
    table = paper.table(label)
    everything = next(row for row in table.summary if row["task"] == "all")
    by_task = {view: table.by_task(view) for view in VIEWS}
    return [Printed(label, table.tasks, by_task, {view: everything[view] for view in VIEWS})]


KIND = Kind(
    lines,
    edition=3,
    check=check,
    uses=("baselines",),
    inputs=inputs,
    gains=True,
    sizes=True,
    paper=printed,
)
