"""What an average document of an index scores for a query: where the bars of the page begin.

A similarity says little by itself. hplus-small gives phrases that have nothing in common 0.75, so
bars that begin at zero are long for every document. How far a document stands out from the others
is what a person looks for; the scores themselves stay as they are.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hplus.search.engine import Engine
from hplus.search.local import LocalEngine
from hplus.search.searcher import alphas_of, fitted
from hplus.types import F64, Encoded, Search
from hplus.views import fusion, phrase

SAMPLED = 64
LEAST = 16
"""Documents below which the average would be made of the hits themselves."""


@dataclass(frozen=True)
class Average:
    """The means over sampled documents.

    shares: of each view, as in an `Explanation`; similarities f64[q]: what each unit of the query
    matches best, in the order of its units; gives f64[q]: what that adds, in sum the phrase share.
    """

    documents: int
    query: Encoded
    shares: dict[str, float]
    similarities: F64
    gives: F64


def sample(engine: LocalEngine) -> Encoded | None:
    """Documents spread evenly over an index (passages, where they are divided), encoded; None if
    there are too few."""
    living = zip(engine.snapshot.permitted(None), engine.snapshot.first.tolist(), strict=False)
    documents = np.concatenate([np.empty(0, np.int64), *(place + first for place, first in living)])
    if len(documents) < LEAST:
        return None
    chosen = np.linspace(0, len(documents) - 1, min(SAMPLED, len(documents))).astype(np.int64)
    return engine.read(documents[chosen], None)


def average(engine: Engine, request: Search, query: Encoded, documents: Encoded) -> Average:
    """What sampled documents score, on average, for a request whose query is encoded."""
    alphas = alphas_of(engine, request)
    query = fitted(engine, request, query)
    documents = documents.at(budget=request.budget, width=query.units.width)
    views = fusion.score(query, documents, alphas).views()
    best = [
        phrase.best_matches(phrase.similarities(query.units, documents.units, i))
        for i in range(len(documents))
    ]
    similarities: F64 = np.array(best, np.float64).mean(axis=0)
    scale = alphas.get("phrase", 0.0) / phrase.scale(query.units)
    return Average(
        documents=len(documents),
        query=query,
        shares={view: alpha * float(views[view].mean()) for view, alpha in alphas.items()},
        similarities=similarities,
        gives=scale * query.units.weights * similarities,
    )
