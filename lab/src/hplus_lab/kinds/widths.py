"""Dimensional: local views at several widths, with a gate of the same width and with the gate
frozen at the protocol's."""

from __future__ import annotations

from collections.abc import Iterator

from hplus_lab import paper
from hplus_lab.experiment import Experiment, union
from hplus_lab.kinds.kind import Curve, Kind
from hplus_lab.line import At, Line
from hplus_lab.paper import Delta, Printed


def name(view: str, width: str, gate: str = "") -> str:
    """width: in columns, or "full"."""
    return f"{view} {width}, {gate} gate" if gate else f"{view} {width}"


def lines(x: Experiment) -> Iterator[Line]:
    dim = x.bench.model.dim
    narrower = [(str(width), width) for width in x.protocol.widths if width < dim]
    for label, width in [*narrower, ("full", dim)]:
        everywhere = x.global_ranker(width)
        own = x.best(everywhere)
        at: At = {"view": "global", "width": width}
        yield x.line(name("global", label), everywhere, own, at, x.describe(own))
        both = union([own, x.gate])
        beside = {**x.beside_phrases(both, width), "phrase": x.phrase_ranker(both, width=width)}
        for view, local in beside.items():
            for gate, pools in (("own", own), ("frozen", x.gate)):
                at = {"view": view, "width": width, "gate": f"{gate} gate"}
                yield x.line(name(view, label, gate), local, pools, at)
        x.forget()


def printed(label: str, _: bool) -> list[Printed]:
    """The paper's full width is 1,024; ours is the model's own."""
    table = paper.table(label)
    macros: dict[str, float] = {}
    differences = {}
    for row in table.rows:
        gate = "" if row["view"] == "global" else "own"
        view = {"token": "weighted token"}.get(row["view"], row["view"])
        narrow, full = (name(view, width, gate) for width in ("128", "full"))
        macros |= {narrow: row["width_128"], full: row["width_1024"]}
        differences[full, narrow] = Delta(row["difference"], row["low"], row["high"])
    return [Printed(label, table.tasks, macros=macros, differences=differences)]


KIND = Kind(
    lines,
    edition=2,
    several=("widths",),
    curve=Curve("width", "Columns of a vector", ("view", "gate")),
    sizes=True,
    paper=printed,
)
