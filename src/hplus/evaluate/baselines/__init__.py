"""Other people's retrievers behind one small interface: what H+ is measured against.

A `Baseline` is a row of facts (`table.py`); functions do the rest, whatever its kind:

    available(baseline)                       are its weights here? else how to get them
    encode(baseline, texts, "query")          vectors, kept on disk
    scores(baseline, queries, documents)      every query with every document
    rerank(baseline, queries, documents, pools)
    probe(baseline)                           a relevant passage above an unrelated one?

Weights come from a folder that the caller names or from an installed package; nothing here reaches
the network, runs code of a model repository or unpickles.
"""

from hplus.evaluate.baselines.baseline import Baseline, Late, MultiVectors, Side, Weights
from hplus.evaluate.baselines.encode import encode
from hplus.evaluate.baselines.probe import Probe, probe
from hplus.evaluate.baselines.score import rerank, scores
from hplus.evaluate.baselines.table import BASELINES, cut_at, named
from hplus.evaluate.baselines.weights import Availability, available

__all__ = [
    "BASELINES",
    "Availability",
    "Baseline",
    "Late",
    "MultiVectors",
    "Probe",
    "Side",
    "Weights",
    "available",
    "cut_at",
    "encode",
    "named",
    "probe",
    "rerank",
    "scores",
]
