"""Broad-deployed: each view over the same candidates, those of the model's own global view."""

from __future__ import annotations

from collections.abc import Iterator

from hplus_lab import paper
from hplus_lab.experiment import Experiment
from hplus_lab.kinds.kind import Kind
from hplus_lab.line import Line
from hplus_lab.paper import Printed

VIEWS = ("global", "phrase", "hybrid", "lexical")


def lines(x: Experiment) -> Iterator[Line]:
    views = x.views(x.gate)
    views["hybrid"] = x.hybrid(views)
    for view in VIEWS:
        facts = x.describe(x.gate) if view == "global" else {}
        yield x.line(view, views[view], x.gate, {"view": view}, facts)
    if x.units != x.model_units:
        alone = x.phrase_ranker(x.gate, x.model_units)
        yield x.line("phrase, model alone", alone, x.gate, {"view": "phrase, model alone"})
    yield x.line("token", x.token_ranker(x.gate), x.gate, {"view": "token"})


def printed(label: str, _: bool) -> list[Printed]:
    table = paper.table(label)
    everything = next(row for row in table.summary if row["task"] == "all")
    by_task = {view: table.by_task(view) for view in VIEWS}
    return [Printed(label, table.tasks, by_task, {view: everything[view] for view in VIEWS})]


KIND = Kind(lines, edition=2, gains=True, sizes=True, paper=printed)
