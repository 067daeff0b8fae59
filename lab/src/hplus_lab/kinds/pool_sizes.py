"""Pool-sensitivity: the first K candidates of the gate, for several K."""

from __future__ import annotations

from collections.abc import Iterator

from hplus_lab import paper
from hplus_lab.experiment import Experiment
from hplus_lab.kinds.kind import Curve, Kind
from hplus_lab.line import At, Line
from hplus_lab.paper import Printed

VIEWS = ("weighted token", "unweighted token", "pooled token", "phrase")
# Of these the paper has the tokens and phrases as it weighs them, by importance.
PRINTED = {"weighted token": "token", "phrase": "phrase"}


def name(view: str, count: int) -> str:
    return f"{view} {count}"


def lines(x: Experiment) -> Iterator[Line]:
    views = {**x.beside_phrases(x.gate), "phrase": x.phrase_ranker(x.gate)}
    for count in x.protocol.pools:
        own = x.gate[:, :count]
        facts = x.describe(own)
        for view in VIEWS:
            at: At = {"view": view, "pool": count}
            yield x.line(name(view, count), views[view], own, at, facts)


def printed(label: str, _: bool) -> list[Printed]:
    table = paper.table(label)
    macros = {
        name(view, row["pool"]): row[there] for row in table.rows for view, there in PRINTED.items()
    }
    return [Printed(label, table.tasks, macros=macros)]


KIND = Kind(
    lines,
    edition=2,
    several=("pools",),
    curve=Curve("pool", "K, candidates of the global gate", ("view",), facts=("recall", "oracle")),
    paper=printed,
)
