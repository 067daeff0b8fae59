"""States of a unit's tokens -> one vector (eq:phrase_pool), their importance -> one weight.

Segment sums over the flat arrays: no loop over units.
"""

from __future__ import annotations

import numpy as np

from hplus.types import F32, I64
from hplus.units.partition import Partition

LONG_UNIT = 64
"""Above this many tokens in a unit, summing unit by unit is faster than row by row."""


def normalise(vectors: F32) -> F32:
    """Rows of length one; a row of zeros stays zero."""
    norms = np.sqrt(np.einsum("ij,ij->i", vectors, vectors))
    tiny = norms < 1e-15
    if tiny.any():  # squares this small are lost in float32
        vectors = vectors * np.where(tiny, np.float32(1e30), np.float32(1))[:, None]
        norms = np.sqrt(np.einsum("ij,ij->i", vectors, vectors))
    return np.divide(vectors, np.where(norms > 0, norms, 1)[:, None], dtype=np.float32)


def segment_sums(rows: F32, bounds: I64) -> F32:
    """Sums of rows bounds[s]:bounds[s + 1], none of them empty: f32[U, r].

    Units are short, so adding up all first rows, then all second rows, and so on, is four times as
    fast as np.add.reduceat, which is used where units are long.
    """
    starts, lengths = bounds[:-1], np.diff(bounds)
    longest = int(lengths.max(initial=0))
    if longest > LONG_UNIT:
        return np.add.reduceat(rows, starts, axis=0)
    sums = rows[starts]
    for k in range(1, longest):
        longer = np.flatnonzero(lengths > k)
        sums[longer] += rows[starts[longer] + k]
    return sums


def unit_vectors(states: F32, units: Partition, width: int) -> F32:
    """eq:phrase_pool: the normalised mean of each unit's states at width r, f32[U, r]."""
    # The mean and the sum point the same way, and only the direction is kept.
    return normalise(segment_sums(states[:, :width], units.bounds))


def unit_importance(importance: F32, units: Partition) -> F32:
    """a(s) of eq:unit_importance: the sum over the unit's tokens, f32[U]."""
    if len(units.bounds) == 1:
        return np.empty(0, np.float32)
    sums = np.add.reduceat(importance, units.bounds[:-1], dtype=np.float64)
    return sums.astype(np.float32)
