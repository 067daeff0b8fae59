"""Codes of four bits, two a byte: that of an even column in the low four bits, that of the next one
in the high ones, each 8 more than it stands for."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

I8 = npt.NDArray[np.int8]
U8 = npt.NDArray[np.uint8]
# The largest code; the smallest is its negative, so that the codes of -x are those of x, negative.
MOST = 7


def packed(codes: I8) -> U8:
    """Codes from -8 to 7, i8[M, R] with an even R, as u8[M, R / 2].

    >>> packed(np.array([[1, -7, 0, 7]], np.int8)).tolist()
    [[25, 248]]
    """
    shifted = (codes + 8).astype(np.uint8)
    both: U8 = shifted[:, ::2] | shifted[:, 1::2] * np.uint8(16)
    return both


def split(rows: U8) -> I8:
    """The codes of such rows.

    >>> split(np.array([[25, 248]], np.uint8)).tolist()
    [[1, -7, 0, 7]]
    """
    codes = np.empty((len(rows), 2 * rows.shape[1]), np.int8)
    codes[:, ::2], codes[:, 1::2] = rows & 15, rows >> 4
    codes -= 8
    return codes


def columns(rows: np.ndarray) -> int:
    """How many numbers a row has, in whatever format.

    >>> columns(np.zeros((5, 64), np.uint8)), columns(np.zeros((5, 64), np.int8))
    (128, 64)
    """
    return int(rows.shape[1]) * (2 if rows.dtype == np.uint8 else 1)


def numbers(rows: np.ndarray, width: int) -> npt.NDArray[np.float32]:
    """The first columns of rows of any format, f32[M, width]; scales are not applied."""
    if rows.dtype == np.uint8:
        rows = split(rows[:, : (width + 1) // 2])
    return rows[:, :width].astype(np.float32, copy=False)
