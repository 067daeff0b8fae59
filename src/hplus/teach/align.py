"""Marked strings -> characters -> BIO tags of tokens.

A cursor moves through the text from left to right, so that a teacher's second "cell" is the second
one in the text. A string that does not occur after the cursor is dropped and counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from hplus.heads.crf import B, I, O
from hplus.types import U8, Span, Tokens
from hplus.units.words import words


def find_segments(text: str, segments: Sequence[str]) -> tuple[list[Span], int]:
    """Where the segments occur, in their order, and how many were not found.

    >>> find_segments("cell by cell", ["cell", "cell", "cells"])
    ([Span(start=0, end=4), Span(start=8, end=12)], 1)
    """
    spans: list[Span] = []
    cursor = 0
    for segment in segments:
        wanted = segment.strip()
        at = text.find(wanted, cursor) if wanted else -1
        if at < 0:
            continue
        cursor = at + len(wanted)
        spans.append(Span(at, cursor))
    return spans, len(segments) - len(spans)


def tags_of_units(tokens: Tokens, units: Sequence[Sequence[Span]]) -> U8:
    """BIO tags, u8[T], from the units of each text, in characters and in reading order.

    The first token of a unit is B, the others I; a token outside all units is O. A token that
    straddles an edge belongs to the first unit it touches, as with the terminology. Outside the
    units, a word of several tokens is B I …, since its pieces mean nothing alone.
    """
    tags = np.full(len(tokens.ids), O, np.uint8)
    for text, own, (first, last) in zip(
        tokens.texts, units, pairwise(tokens.offsets.tolist()), strict=True
    ):
        starts, ends = tokens.spans[first:last, 0], tokens.spans[first:last, 1]
        free = np.ones(last - first, np.bool_)
        _mark(tags[first:last], free, starts, ends, own, alone=B)
        # Tags of Chinese must not depend on whether a dictionary is installed.
        _mark(tags[first:last], free, starts, ends, words(text, han="characters"), alone=O)
    return tags


def _mark(
    tags: U8,
    free: np.ndarray,
    starts: np.ndarray,
    ends: np.ndarray,
    spans: Sequence[Span],
    alone: int,
) -> None:
    """Give each span the free tokens it touches; one token by itself is tagged `alone`."""
    firsts = np.searchsorted(ends, [span.start for span in spans], side="right")
    lasts = np.searchsorted(starts, [span.end for span in spans], side="left")
    for first, last in zip(firsts.tolist(), lasts.tolist(), strict=True):
        rows = np.arange(first, last)[free[first:last]]
        if len(rows) == 0 or (np.diff(rows) != 1).any():
            continue
        tags[rows] = I
        tags[rows[0]] = B if len(rows) > 1 else alone
        free[rows] = False
