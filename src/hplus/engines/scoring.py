"""Exact scores of stored encodings by our own kernel, for engines that cannot give them."""

from __future__ import annotations

import numpy as np

from hplus.kernels import weighted_maxsim
from hplus.types import F64, Units
from hplus.units.select import narrow


def phrase_scores(query: Units, documents: Units, budget: int | None) -> F64:
    """Raw S_P (eq:phrase_score) of n documents at the query's width, f64[n]; budget: B_d."""
    own = narrow(documents, query.width)
    starts, ends = own.offsets[:-1], own.offsets[1:]
    if budget is not None:
        ends = np.minimum(ends, starts + budget)  # units lie in order of importance
    scores = weighted_maxsim(query.vectors, query.weights, own.vectors, None, starts, ends)
    return scores.astype(np.float64)
