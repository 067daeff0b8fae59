"""Other people's retrievers behind one small interface: what H+ is measured against.

A `Baseline` is a row of facts (`table.py`); functions do the rest, whatever its kind:

    available(baseline)                       are its weights here? if not, how to get them
    encode(baseline, texts, "query")          vectors, kept on disk
    scores(baseline, queries, documents)      every query with every document
    rerank(baseline, queries, documents, pools)
    probe(baseline)                           scores of a relevant and an unrelated passage

Weights come from a folder that the caller names or from an installed package; nothing here reaches
the network, runs code of a model repository or unpickles.
"""

from hplus_lab.baselines.baseline import Baseline, LateInteraction, MultiVectors, Side, Weights
from hplus_lab.baselines.encode import encode
from hplus_lab.baselines.score import probe, rerank, scores
from hplus_lab.baselines.table import BASELINES, cut_at, named
from hplus_lab.baselines.weights import Availability, available

__all__ = [
    "BASELINES",
    "Availability",
    "Baseline",
    "LateInteraction",
    "MultiVectors",
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
