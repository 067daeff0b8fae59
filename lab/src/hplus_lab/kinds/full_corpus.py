"""Both branches on their own over all documents, and the union of their candidates."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from hplus_lab.experiment import Experiment, Pools, union
from hplus_lab.kinds.kind import Kind
from hplus_lab.line import Line
from hplus_lab.rankers import Ranker, over_corpus


def lines(x: Experiment) -> Iterator[Line]:
    every, views = x.every, x.views(x.every)
    phrase, beside = views["phrase"], x.beside_phrases(every)
    branch = x.best(phrase)
    both = union([x.gate, branch])
    searched = {**views, "phrase": over_corpus(phrase)}
    size = float(np.mean([len(own) for own in both]))
    yield x.line("global", views["global"], x.gate, {"view": "global"}, x.describe(x.gate))
    rows: list[tuple[str, str, Ranker, Pools, dict[str, float]]] = [
        ("phrase", "global pool", phrase, x.gate, {}),
        ("phrase", "full corpus", phrase, every, x.describe(branch)),
        *((view, "full corpus", ranker, every, {}) for view, ranker in beside.items()),
        ("lexical", "full corpus", views["lexical"], every, {}),
        ("hybrid", "global pool", x.hybrid(views), x.gate, {}),
        ("hybrid", "union", x.hybrid(searched), both, {"candidates": size}),
    ]
    for view, pool, ranker, pools, facts in rows:
        yield x.line(f"{view}, {pool}", ranker, pools, {"view": view, "pool": pool}, facts)


KIND = Kind(lines, edition=2)
