"""The kernel where there is no compiled one: BLAS products and `maximum.reduceat`.

Maxima are taken over blocks of documents, so memory stays within a few MB however many and however
long they are. Each document has a product of its own: BLAS may round differently in a product of
another shape, and a document's score must not depend on its neighbours.
"""

from __future__ import annotations

import numpy as np

from hplus.kernels.int4 import numbers
from hplus.kernels.reference import Mean, Rows, Scales, shares_of
from hplus.types import F32, I64, offsets_of

# Products held at a time, and numbers converted to f32 at a time: 2 MB.
_BLOCK = 1 << 19


def weighted_maxsim(
    query: F32,
    weights: F32 | None,
    vectors: Rows,
    scales: Scales | None,
    starts: I64,
    ends: I64,
    mean: Mean | None = None,
) -> F32:
    """As `hplus.kernels.weighted_maxsim`, or without weights `maxima`; BLAS may use threads of its
    own."""
    units, width = query.shape
    block = max(1, _BLOCK // max(units, width, 1))  # rows
    vectors = np.asarray(vectors)  # slices of a memmap are slow
    products = np.empty((units, block), np.float32)
    best = np.zeros((units, len(starts)), np.float32)
    best[:, ends > starts] = -np.inf
    held: list[tuple[int, int, int]] = []  # document, and the rows whose products are held
    filled = 0
    met = None if mean is None else query @ mean.vector[:width]

    def take_maxima() -> None:
        documents = [document for document, _, _ in held]
        if scales is not None:
            products[:, :filled] *= np.concatenate([scales[a:b] for _, a, b in held])
        if mean is not None and met is not None:
            shares = np.concatenate([shares_of(mean, scales, a, b) for _, a, b in held])
            products[:, :filled] += met[:, None] * shares
        first = offsets_of([b - a for _, a, b in held])[:-1]
        maxima = np.maximum.reduceat(products[:, :filled], first, axis=1)
        best[:, documents] = np.maximum(best[:, documents], maxima)

    with np.errstate(all="ignore"):  # the compiled kernels do not warn either
        for document, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
            for a in range(start, end, block):  # one piece, unless longer than a block
                b = min(a + block, end)
                if filled + b - a > block:
                    take_maxima()
                    held, filled = [], 0
                rows = numbers(vectors[a:b], width)
                np.matmul(query, rows.T, out=products[:, filled : filled + b - a])
                held.append((document, a, b))
                filled += b - a
        if held:
            take_maxima()
        if weights is None:
            return np.ascontiguousarray(best.T)
        scores = np.zeros(len(starts))
        for weight, maxima in zip(weights.astype(np.float64), best, strict=True):
            scores += weight * maxima
        return scores.astype(np.float32)
