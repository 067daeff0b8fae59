"""Every system over its own candidates: the best of its own single vectors.

A system with several vectors a text and no single one, as ColBERT, chooses by the mean of its
vectors; BM25 by its own scores.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from hplus_lab.experiment import Experiment
from hplus_lab.kinds import views
from hplus_lab.kinds.kind import Kind
from hplus_lab.line import Line
from hplus_lab.rankers import over_corpus


def lines(x: Experiment) -> Iterator[Line]:
    yield from views.own_lines(x)
    for name in x.protocol.rankers:
        ranker = x.baseline(name)
        if ranker.gate is None:  # it has met every document to find its candidates
            own, ranker = x.best(ranker), over_corpus(ranker)
        else:
            own = x.best(replace(ranker, scores=ranker.gate))
        yield x.line(name, ranker, own, {"view": name}, x.describe(own))


KIND = Kind(
    lines,
    check=views.check,
    uses=("baselines",),
    inputs=views.inputs,
    sizes=True,
)
