"""eq:phrase_score as written, one document after another: the reference for the fast kernels."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from hplus.types import F32, I64

Rows = npt.NDArray[np.float32 | np.float16 | np.int8]
Scales = npt.NDArray[np.float32 | np.float16]


def weighted_maxsim(
    query: F32, weights: F32, vectors: Rows, scales: Scales | None, starts: I64, ends: I64
) -> F32:
    """As `hplus.kernels.weighted_maxsim`."""
    best = maxima(query, vectors, scales, starts, ends).astype(np.float64)
    scores: F32 = (best @ weights.astype(np.float64)).astype(np.float32)
    return scores


def maxima(query: F32, vectors: Rows, scales: Scales | None, starts: I64, ends: I64) -> F32:
    """As `hplus.kernels.maxima`."""
    best = np.zeros((len(starts), len(query)), np.float32)
    for document, (start, end) in enumerate(zip(starts, ends, strict=True)):
        if start == end:
            continue
        units = vectors[start:end, : query.shape[1]].astype(np.float32)
        if scales is not None:
            units *= scales[start:end, None]
        best[document] = (query @ units.T).max(axis=1)
    return best
