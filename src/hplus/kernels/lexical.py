"""The lists of a query's tokens, added up: raw S_L of all documents of a segment
(eq:lexical_score).

Compiled, or by `np.bincount` where nothing could be compiled. Both add a document's products in the
order of the lists, in f64, and are equal to the last bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from hplus.kernels.maxsim import implementation
from hplus.types import F64, I64

try:
    from hplus.kernels import _lexical
except ImportError:
    _lexical = None  # type: ignore[assignment]


def add_lists(
    count: int,
    documents: npt.NDArray[Any],
    weights: npt.NDArray[np.float16],
    starts: I64,
    ends: I64,
    factors: F64,
) -> F64:
    """Sums of n documents, f64[n]: for each list t, factors[t] * weights[i] is added to
    documents[i], u8, u16 or u32, for the postings i from starts[t] to ends[t].

    A document that is not one of the `count` is a ValueError.

    >>> documents, weights = np.array([0, 2, 2], np.uint8), np.array([1, 2, 3], np.float16)
    >>> add_lists(3, documents, weights, np.array([0, 2]), np.array([2, 3]), np.array([1.0, 0.5]))
    array([1. , 0. , 3.5])
    """
    if _lexical is not None and implementation() != "numpy":
        sums = np.zeros(count)
        _lexical.add(sums, documents, weights, starts, ends, factors)
        return sums
    bounds = list(zip(starts.tolist(), ends.tolist(), strict=True))
    listed = np.concatenate([documents[:0], *(documents[a:b] for a, b in bounds)])
    own = np.concatenate([weights[:0], *(weights[a:b] for a, b in bounds)])
    totals = np.bincount(listed, own * np.repeat(factors, ends - starts), minlength=count)
    if len(totals) > count:
        raise ValueError(f"document {len(totals) - 1} of {count}")
    return totals.astype(np.float64)
