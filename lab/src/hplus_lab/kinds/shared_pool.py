"""Every system ranks exactly the same candidates: the union of several systems' own."""

from __future__ import annotations

from collections.abc import Iterator

from hplus.model import HPlus
from hplus.types import I64
from hplus_lab import paper
from hplus_lab.experiment import Experiment, Inputs, union
from hplus_lab.kinds.kind import Kind
from hplus_lab.kinds.views import needs
from hplus_lab.line import Line
from hplus_lab.paper import Printed
from hplus_lab.protocol import Protocol
from hplus_lab.rankers import over_corpus

# The paper's systems that are ours, and our lines.
OURS = {"H+ Embedding MRL Token": "weighted token", "H+ Embedding MRL Phrase (CRF-only)": "phrase"}


def lines(x: Experiment) -> Iterator[Line]:
    pools = candidates(x)
    facts = x.describe(pools)
    own = {
        "global": x.global_ranker(x.gate_width),
        **x.beside_phrases(pools),
        "phrase": x.phrase_ranker(pools),
    }
    for name, ranker in own.items():
        yield x.line(name, ranker, pools, {"system": name}, facts)
    for name in baselines(x.protocol):
        ranker = x.baseline(name)
        # What gives candidates has met every document, as our own gate has.
        ranker = over_corpus(ranker) if name in x.protocol.sources else ranker
        yield x.line(name, ranker, pools, {"system": name}, facts)


def candidates(x: Experiment) -> list[I64]:
    """The union of the gates of all sources."""
    sources = x.protocol.sources
    return union([x.gate if name == "global" else x.best(x.baseline(name)) for name in sources])


def baselines(protocol: Protocol) -> list[str]:
    """All systems of the protocol that are not ours."""
    return [name for name in (*protocol.sources, *protocol.rankers) if name != "global"]


def inputs(protocol: Protocol, _: HPlus, given: Inputs) -> list[str]:
    return needs(protocol, baselines(protocol), given)


def printed(label: str, _: bool) -> list[Printed]:
    table = paper.table(label)
    rows = {OURS[row["system"]]: row for row in table.rows if row["system"] in OURS}
    by_task = {line: {task: row[task] for task in table.tasks} for line, row in rows.items()}
    macros = {line: row["macro"] for line, row in rows.items()}
    return [Printed(label, table.tasks, by_task, macros)]


KIND = Kind(
    lines,
    states=("sources",),
    inputs=inputs,
    uses=("baselines",),
    candidates=candidates,
    edition=3,
    sizes=True,
    paper=printed,
)
