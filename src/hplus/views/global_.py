"""Global view: one vector per text, pooled from its states (eq:global_view)."""

from __future__ import annotations

import numpy as np

from hplus.types import F32, F64
from hplus.units.vectors import normalise


def represent(pooled: F32, width: int) -> F32:
    """eq:global_view: the pooled states, normalised at width r, f32[n, r]; zeros without tokens."""
    return normalise(pooled[:, :width])


def score(query: F32, documents: F32) -> F64:
    """S_G, a cosine: query f32[1, r], documents f32[n, r] -> f64[n]."""
    # Row by row, not by BLAS: a document's score must not depend on the other documents.
    scores: F64 = np.einsum("ij,j->i", documents, query[0]).astype(np.float64)
    return scores
