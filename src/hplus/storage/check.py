"""Encodings made elsewhere, checked before an index stores them.

A segment is written once and never changed: one that breaks the contracts of `types` would stop
the whole index from opening. So an encoding is cast where only precision is lost, and refused with
the document and the place otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from hplus.errors import InputError
from hplus.types import F32, I64, Bool, Coverage, Encoded, Lexical, Units, item_of_row

# Of the square of a vector's length: vectors that were stored as int8 lie within 0.02 of 1, narrow
# ones that were stored as int4 within 0.06 or so (experiments/LOG.md).
LEEWAY = 0.2

Array = npt.NDArray[Any]
Where = Callable[[int], str]
"""The words for a row of an array: whose it is, and its place there."""


def checked(encoded: Encoded, ids: Sequence[str], texts: Sequence[str] | None = None) -> Encoded:
    """The same encoding of these documents, every array of the type and shape in `types`.

    texts: if given, spans must stay within them.
    """
    if not isinstance(encoded, Encoded):
        raise InputError(f"expected an Encoded, got {type(encoded).__name__}")
    n = len(ids)
    each = np.arange(n + 1)
    lengths = np.full(n, np.iinfo(np.int32).max, np.int64)
    if texts is not None:
        lengths = np.array([len(text) for text in texts], np.int64)
    global_ = _array("global_", encoded.global_, np.float32, n, None)
    _check_vectors(global_, partial(_place, "global_", "row", ids, each))
    coverage = {}
    for name in ("tokens", "windows", "cut", "importance", "kept"):
        dtype = np.float32 if name in ("importance", "kept") else np.int32
        values = _array(f"coverage.{name}", getattr(encoded.coverage, name), dtype, n)
        where = partial(_place, f"coverage.{name}", "row", ids, each)
        _require((values >= 0) & np.isfinite(values), "a number of 0 or more", values, where)
        coverage[name] = values
    return Encoded(
        global_=global_,
        units=_units("units", encoded.units, None, ids, lengths),
        lexical=_lexical(encoded.lexical, ids),
        dropped=_units("dropped", encoded.dropped, 0, ids, lengths),
        coverage=Coverage(**coverage),
    )


def _units(name: str, units: Units, width: int | None, ids: Sequence[str], lengths: I64) -> Units:
    weights = _array(f"{name}.weights", units.weights, np.float32, None)
    offsets = _offsets(f"{name}.offsets", units.offsets, len(ids), len(weights))
    spans = _array(f"{name}.spans", units.spans, np.int32, None, 2)
    span_offsets = _offsets(f"{name}.span_offsets", units.span_offsets, len(weights), len(spans))
    vectors = _array(f"{name}.vectors", units.vectors, np.float32, len(weights), width)
    where = partial(_place, name, "unit", ids, offsets)
    if width is None:
        _check_vectors(vectors, where)
    _check_weights(weights, where)
    rising = np.append(False, weights[1:] > weights[:-1])[: len(weights)]
    rising[offsets[:-1][offsets[:-1] < len(weights)]] = False
    _require(~rising, "no more weight than the unit before it", weights, where)
    counts = np.diff(span_offsets)
    _require(counts > 0, "a span or more", counts, where)
    unit = item_of_row(span_offsets)
    starts, ends = spans[:, 0], spans[:, 1]
    longest = lengths[item_of_row(offsets)[unit]]
    inside = (starts >= 0) & (starts <= ends) & (ends <= longest)
    _require(inside, "a span within the text", spans, lambda span: where(int(unit[span])))
    return Units(vectors, weights, offsets, spans, span_offsets)


def _lexical(lexical: Lexical, ids: Sequence[str]) -> Lexical:
    tokens = _array("lexical.ids", lexical.ids, np.int32, None)
    weights = _array("lexical.weights", lexical.weights, np.float32, len(tokens))
    offsets = _offsets("lexical.offsets", lexical.offsets, len(ids), len(tokens))
    where = partial(_place, "lexical", "token", ids, offsets)
    _check_weights(weights, where)
    _require(tokens >= 0, "a token id of 0 or more", tokens, where)
    stuck = np.append(False, tokens[1:] <= tokens[:-1])[: len(tokens)]
    stuck[offsets[:-1][offsets[:-1] < len(tokens)]] = False
    _require(~stuck, "a larger token id than the one before it", tokens, where)
    return Lexical(tokens, weights, offsets)


def _check_vectors(vectors: F32, where: Where) -> None:
    """Unit length, or zeros: a text without tokens, a prefix of columns that were all zero."""
    squares = np.einsum("ij,ij->i", vectors, vectors)
    good = np.abs(squares - 1) <= LEEWAY
    odd = np.flatnonzero(~good)
    good[odd] = ~vectors[odd].any(axis=1)
    _require(good, "a vector of unit length", np.sqrt(squares), where)


def _check_weights(weights: F32, where: Where) -> None:
    _require((weights > 0) & np.isfinite(weights), "a positive, finite weight", weights, where)


def _array(name: str, values: Any, dtype: type, *shape: int | None) -> Array:
    """An array of this type and shape; None in the shape stands for any length."""
    try:
        found = np.asarray(values)
    except (ValueError, TypeError) as error:
        raise InputError(f"{name}: expected an array, got {error}") from None
    whole = issubclass(dtype, np.integer)
    if found.size and found.dtype.kind not in ("iu" if whole else "iuf"):
        raise InputError(f"{name}: expected {np.dtype(dtype)}, got {found.dtype}")
    if found.ndim != len(shape) or any(
        want not in (None, got) for want, got in zip(shape, found.shape, strict=True)
    ):
        wanted = ", ".join("any" if want is None else str(want) for want in shape)
        raise InputError(f"{name}: expected shape [{wanted}], got {list(found.shape)}")
    if found.size and whole:
        limits, least, most = np.iinfo(dtype), int(found.min()), int(found.max())
        if least < limits.min or most > limits.max:
            raise InputError(f"{name}: expected {np.dtype(dtype)}, got {least} to {most}")
    with np.errstate(over="ignore", under="ignore"):  # what overflows is refused as infinite
        return found.astype(dtype, copy=False)


def _offsets(name: str, values: Any, items: int, rows: int) -> I64:
    offsets: I64 = _array(name, values, np.int64, items + 1)
    good = np.append(offsets[0] == 0, offsets[1:] >= offsets[:-1])
    good[-1] &= offsets[-1] == rows
    expected = f"offsets that rise from 0 to {rows}"
    _require(good, expected, offsets, lambda place: f"{name}[{place}]")
    return offsets


def _require(good: Bool, expected: str, found: Array, where: Where) -> None:
    if not good.all():
        row = int(np.argmin(good))
        raise InputError(f"{where(row)}: expected {expected}, got {found[row]}")


def _place(name: str, kind: str, ids: Sequence[str], offsets: I64, row: int) -> str:
    document = int(np.searchsorted(offsets, row, side="right")) - 1
    return f"{name} of document {ids[document]!r}, {kind} {row - offsets[document]}"
