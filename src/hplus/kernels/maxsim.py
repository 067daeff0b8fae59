"""Ragged importance-weighted MaxSim: the kernel of the phrase view (eq:phrase_score).

One function, chosen once at import: C with AVX-512 VNNI (int8 and int4 alone; other formats as
AVX2), with AVX2, with ARM's dot product (int8 and int4 alone; other formats portable), portable C,
and numpy where nothing could be compiled. HPLUS_KERNELS=AVX2, =portable or =numpy forces a slower
one. All are tested against reference.py; ARM's, under an emulator, against portable C.

In each of them a document's score does not depend, to the last bit, on the other documents or on
the number of threads. Between them scores differ by rounding; for int8 and int4 vectors the
compiled ones also turn each unit of the query into 16-bit codes, whose step is the unit's largest
number / L, L = min(32639, floor((2^31 - 1) / (128 r))), so that

    |error| <= sum_i |weights[i]| * step_i / 2 * max_u |scales[u]| * sum_k |vectors[u, k]|.

For unit vectors that is below 2e-4 of the sum of the weights at r = 128, and usually about 1e-6.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from types import ModuleType

import numpy as np

from hplus.kernels import numpy_
from hplus.kernels.int4 import columns as columns_of
from hplus.kernels.reference import Mean, Rows, Scales
from hplus.kernels.threads import each_of, shares
from hplus.types import F32, I64

try:
    from hplus.kernels import _maxsim
except ImportError:
    _maxsim = None  # type: ignore[assignment]

Kernel = Callable[[F32, F32 | None, Rows, Scales | None, I64, I64, Mean | None], F32]
"""Scores f32[n]; without weights the maxima themselves, f32[n, q]."""

# The widest query: sums of products of 16-bit and 8-bit codes must fit 32 bits.
MAX_WIDTH = 65_536


def weighted_maxsim(
    query: F32,
    weights: F32,
    vectors: Rows,
    scales: Scales | None,
    starts: I64,
    ends: I64,
    mean: Mean | None = None,
    *,
    threads: int = 1,
    kernel: str | None = None,
) -> F32:
    """Scores of n documents, f32[n]: the sum over query units i of weights[i] times the maximum
    over the document's rows u of scales[u] * <query[i], vectors[u, :r]>, plus shares[u] *
    <query[i], mean[:r]> if a mean was taken off them; 0 without rows.

    query f32[q, r], weights f32[q]; vectors f32, f16 or int8 [M, R] or u8 [M, R / 2] (codes of four
    bits, `int4`), R >= r, with contiguous rows, also a read-only memory map; scales f32 or f16 [M],
    or None for 1; document j has the rows starts[j]:ends[j] (i64), in any order, and any rows may
    occur more than once. Up to `threads` threads share the documents if there is enough to do.
    `kernel` is one of KERNELS, by default `implementation()`.

    >>> vectors = np.eye(3, dtype=np.float32)
    >>> query, weights = vectors[:2], np.array([2, 1], np.float32)
    >>> starts, ends = np.array([0, 2, 3]), np.array([2, 3, 3])
    >>> weighted_maxsim(query, weights, vectors, None, starts, ends).tolist()
    [3.0, 0.0, 0.0]
    """
    _check(query, weights, vectors, scales, starts, ends, mean, threads)
    run = KERNELS[implementation() if kernel is None else kernel]
    query, weights = plain(query), plain(weights)
    starts, ends = np.ascontiguousarray(starts), np.ascontiguousarray(ends)
    scales = None if scales is None else np.ascontiguousarray(scales)
    parts = each_of(
        lambda part: run(query, weights, vectors, scales, starts[part], ends[part], mean),
        shares(starts, ends, threads, query.size),
    )
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def maxima(
    query: F32,
    vectors: Rows,
    scales: Scales | None,
    starts: I64,
    ends: I64,
    mean: Mean | None = None,
    *,
    kernel: str | None = None,
) -> F32:
    """What `weighted_maxsim` weighs and sums: the maximum of every query unit over the rows of
    every document, f32[n, q]; 0 without rows. On one thread.

    >>> vectors = np.eye(3, dtype=np.float32)
    >>> maxima(vectors[:2], vectors, None, np.array([0, 2, 3]), np.array([2, 3, 3])).tolist()
    [[1.0, 1.0], [0.0, 0.0], [0.0, 0.0]]
    """
    _check(query, None, vectors, scales, starts, ends, mean, 1)
    run = KERNELS[implementation() if kernel is None else kernel]
    scales = None if scales is None else np.ascontiguousarray(scales)
    starts, ends = np.ascontiguousarray(starts), np.ascontiguousarray(ends)
    return run(plain(query), None, vectors, scales, starts, ends, mean)


def implementation() -> str:
    """Which of KERNELS is used: "C, AVX512", "C, AVX2", "C, dot product", "C, portable" or
    "numpy"."""
    return _CHOSEN


def plain(array: F32) -> F32:
    """Contiguous and aligned, as C reads it."""
    return np.ascontiguousarray(array) if array.flags.aligned else array.copy()


def _check(
    query: F32,
    weights: F32 | None,
    vectors: Rows,
    scales: Scales | None,
    starts: I64,
    ends: I64,
    mean: Mean | None,
    threads: int,
) -> None:
    _is(query, "query", "an f32 matrix", 2, "f4")
    if weights is not None:
        _is(weights, "weights", "an f32 vector", 1, "f4")
    _is(vectors, "vectors", "an f32, f16, int8 or int4 matrix", 2, "f4", "f2", "i1", "u1")
    if scales is not None:
        _is(scales, "scales", "an f32 or f16 vector or None", 1, "f4", "f2")
    _is(starts, "starts", "an i64 vector", 1, "i8")
    _is(ends, "ends", "an i64 vector", 1, "i8")
    (units, width), rows, columns = query.shape, len(vectors), columns_of(vectors)
    if width > min(columns, MAX_WIDTH):
        raise ValueError(
            f"query has {width} columns, vectors have {columns}; a query may have as many as "
            f"the vectors and at most {MAX_WIDTH}"
        )
    if vectors.size and vectors.shape[1] > 1 and vectors.strides[1] != vectors.itemsize:
        raise ValueError("the rows of vectors must be contiguous; use np.ascontiguousarray")
    if weights is not None and len(weights) != units:
        raise ValueError(f"query has {units} units, but there are {len(weights)} weights")
    if scales is not None and len(scales) != rows:
        raise ValueError(f"vectors have {rows} rows, but there are {len(scales)} scales")
    if mean is not None:
        _is(mean.vector, "mean", "an f32 vector", 1, "f4")
        if len(mean.vector) < width:
            raise ValueError(f"query has {width} columns, but the mean {len(mean.vector)}")
        if mean.shares is not None:
            _is(mean.shares, "shares", "an f32 vector or None", 1, "f4")
            if len(mean.shares) != rows:
                raise ValueError(f"vectors have {rows} rows, but {len(mean.shares)} shares")
    if len(starts) != len(ends):
        raise ValueError(f"{len(starts)} starts, but {len(ends)} ends")
    wrong = (starts < 0) | (ends < starts) | (ends > rows)
    if wrong.any():
        j = int(wrong.argmax())
        raise ValueError(
            f"document {j} has rows {starts[j]}:{ends[j]}; they must lie in 0:{rows}, start first"
        )
    if threads < 1:
        raise ValueError(f"threads must be at least 1, not {threads}")


def _is(array: object, name: str, what: str, axes: int, *types: str) -> None:
    if not isinstance(array, np.ndarray):
        raise ValueError(f"{name} must be {what}, not a {type(array).__name__}")
    dtype = array.dtype
    if array.ndim != axes or dtype.str[1:] not in types or not dtype.isnative:
        raise ValueError(f"{name} must be {what}, not {dtype} with {array.ndim} axes")


def compiled(kernel: str) -> tuple[ModuleType | None, int]:
    """The extension and the level at which a kernel runs it; no extension for numpy.

    >>> compiled("numpy")
    (None, 0)
    """
    return (_maxsim, _NAMES.index(kernel)) if kernel in _NAMES else (None, 0)


def _kernels() -> dict[str, Kernel]:
    """Those that this machine can run, fastest first."""

    def at(level: int) -> Kernel:
        def score(
            query: F32,
            weights: F32 | None,
            vectors: Rows,
            scales: Scales | None,
            starts: I64,
            ends: I64,
            mean: Mean | None,
        ) -> F32:
            each = 1 if weights is not None else len(query)
            scores = np.empty(len(starts) * each, np.float32)
            vector, shares = mean or (None, None)
            _maxsim.score(
                query, weights, vectors, scales, starts, ends, vector, shares, scores, level
            )
            return scores if weights is not None else scores.reshape(len(starts), each)

        return score

    kernels = {name: at(level) for level, name in enumerate(_NAMES)}
    return dict(reversed(kernels.items())) | {"numpy": numpy_.weighted_maxsim}


def _compiled_names(level: int, sets: str) -> tuple[str, ...]:
    """Slowest first: the levels up to the highest that this processor has.

    >>> _compiled_names(1, "AVX2, AVX512")
    ('C, portable', 'C, AVX2')
    """
    return tuple(f"C, {name}" for name in ("portable", *sets.split(", "))[: level + 1])


def _choose(wanted: str) -> str:
    for name in KERNELS:
        if name.endswith(wanted):
            return name
    raise ValueError(
        f"HPLUS_KERNELS is {wanted!r}, but this installation has: {', '.join(KERNELS)}; "
        "unset it, or set it to AVX2, portable or numpy"
    )


_NAMES = () if _maxsim is None else _compiled_names(_maxsim.LEVEL, _maxsim.SETS)
KERNELS = _kernels()
_CHOSEN = _choose(os.environ.get("HPLUS_KERNELS", ""))
