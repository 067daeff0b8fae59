"""Products of one vector with many rows of int8, in the order of the rows.

The vector becomes codes of 16 bits as in `maxsim`, whose compiled kernels give the same products to
the last bit; the rest is exact, in C with AVX512-VNNI or AVX2, in portable C and in numpy alike.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from hplus.kernels.maxsim import compiled, implementation
from hplus.types import F32, I64

try:
    from hplus.kernels import _products
except ImportError:
    _products = None  # type: ignore[assignment]

I8 = npt.NDArray[np.int8]
F16 = npt.NDArray[np.float16]
# The largest code of a query: 127 * 256 + 127, two signed digits.
MAX_CODE = 32_639
# Rows that numpy converts at a time.
_BLOCK = 8_192


def products(
    query: F32, rows: I8, places: I64, scales: F16 | None = None, *, kernel: str | None = None
) -> F32:
    """scales[p] * <query, rows[p]> for every p of `places`, f32[m]; query f32[r], rows i8[n, r],
    contiguous, scales f16[n], or None for 1.

    kernel: "C, AVX512", "C, AVX2", "C, portable" or "numpy"; by default `implementation()`.

    >>> rows = np.array([[3, 4], [5, 6]], np.int8)
    >>> products(np.array([1, 2], np.float32), rows, np.array([1, 0])).round(2).tolist()
    [17.0, 11.0]
    """
    largest = min(MAX_CODE, (2**31 - 1) // (128 * max(1, len(query))))
    step = np.float32(float(np.abs(query).max(initial=0)) / largest)
    codes = np.rint(query.astype(np.float64) * (1 / float(step) if step > 0 else 0.0))
    codes = np.clip(codes, -largest, largest).astype(np.int16)
    kernel = implementation() if kernel is None else kernel
    if _products is None or kernel == "numpy":
        sums = _sums(codes, rows, places)
    else:
        sums = np.empty(len(places), np.int32)
        _, level = compiled(kernel)
        _products.products(codes, rows, np.ascontiguousarray(places), sums, level)
    found = sums.astype(np.float32)
    if scales is not None:
        found *= scales[places]
    return found * step


def _sums(codes: npt.NDArray[np.int16], rows: I8, places: I64) -> npt.NDArray[np.int32]:
    """Float64 holds these integers exactly, and has a fast product."""
    if len(places) and not (places.min() >= 0 and places.max() < len(rows)):
        raise ValueError(f"a place is not in 0:{len(rows)}")
    found = [
        rows[places[first : first + _BLOCK]].astype(np.float64) @ codes.astype(np.float64)
        for first in range(0, len(places), _BLOCK)
    ]
    return np.concatenate([np.empty(0), *found]).astype(np.int32)
