"""eq:phrase_score as written, one document after another: the reference for the fast kernels."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from hplus.kernels.int4 import numbers
from hplus.types import F32, I64

# u8: codes of four bits, two a byte (int4.py).
Rows = npt.NDArray[np.float32 | np.float16 | np.int8 | np.uint8]
Scales = npt.NDArray[np.float32 | np.float16]


class Mean(NamedTuple):
    """What was taken off the vectors before they were rounded: shares[u] * vector belongs to row u.

    vector f32[R]; shares f32[M], or None: 1 for every row whose scale is not 0.
    """

    vector: F32
    shares: F32 | None = None


def weighted_maxsim(
    query: F32,
    weights: F32,
    vectors: Rows,
    scales: Scales | None,
    starts: I64,
    ends: I64,
    mean: Mean | None = None,
) -> F32:
    """As `hplus.kernels.weighted_maxsim`."""
    best = maxima(query, vectors, scales, starts, ends, mean).astype(np.float64)
    scores: F32 = (best @ weights.astype(np.float64)).astype(np.float32)
    return scores


def maxima(
    query: F32,
    vectors: Rows,
    scales: Scales | None,
    starts: I64,
    ends: I64,
    mean: Mean | None = None,
) -> F32:
    """As `hplus.kernels.maxima`."""
    best = np.zeros((len(starts), len(query)), np.float32)
    for document, (start, end) in enumerate(zip(starts, ends, strict=True)):
        if start == end:
            continue
        units = numbers(vectors[start:end], query.shape[1])
        if scales is not None:
            units = units * scales[start:end, None]
        if mean is not None:
            shares = shares_of(mean, scales, start, end)
            units = units + shares[:, None] * mean.vector[: query.shape[1]]
        best[document] = (query @ units.T).max(axis=1)
    return best


def shares_of(mean: Mean, scales: Scales | None, start: int, end: int) -> F32:
    """The shares that these rows have of the mean."""
    if mean.shares is not None:
        return mean.shares[start:end]
    if scales is None:
        return np.ones(end - start, np.float32)
    shares: F32 = (scales[start:end] != 0).astype(np.float32)
    return shares
