"""BIO tags -> a complete partition of the tokens into units.

A partition is one boolean per token, `begins`: True where a unit begins. The CRF, every rule and
the terminology override all give that. Nothing can be lost, since every token belongs to the unit
that began last.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hplus.heads.crf import B, I, O
from hplus.types import I32, I64, U8, Bool, Tokens


@dataclass(frozen=True)
class Partition:
    """Units of a batch: unit s is tokens bounds[s]:bounds[s + 1]; text i has units
    offsets[i]:offsets[i + 1]. bounds i64[U + 1], offsets i64[n + 1]."""

    bounds: I64
    offsets: I64


def begins_of_tags(tags: U8, offsets: I64) -> Bool:
    """Where units begin: at B, at O, at a text's first token, and at an I that follows an O.

    >>> begins_of_tags(np.array([1, 2, 0, 2, 2], np.uint8), np.array([0, 5])).astype(int).tolist()
    [1, 0, 1, 1, 0]
    """
    begins: Bool = tags != I
    begins[1:] |= tags[:-1] == O
    return _texts_begin(begins, offsets)


def tags_of_begins(begins: Bool) -> U8:
    """The same partition as BIO: single tokens O, longer units B I … I."""
    ends = np.r_[begins[1:], True]
    tags = np.where(begins, np.where(ends, O, B), I)
    return tags.astype(np.uint8)


def keep_characters_whole(begins: Bool, tokens: Tokens) -> Bool:
    """No unit ends inside a character: byte-level tokens of one emoji, the digits of one "½"."""
    shares = np.zeros(len(begins), np.bool_)
    shares[1:] = tokens.spans[1:, 0] < tokens.spans[:-1, 1]
    whole: Bool = begins & ~shares
    return _texts_begin(whole, tokens.offsets)


def partition(begins: Bool, offsets: I64) -> Partition:
    """The units that `begins` marks."""
    bounds = np.append(np.flatnonzero(begins), len(begins)).astype(np.int64)
    return Partition(bounds, np.searchsorted(bounds, offsets).astype(np.int64))


def spans_of_units(tokens: Tokens, units: Partition) -> I32:
    """The characters from each unit's first token to its last: i32[U, 2]."""
    starts = tokens.spans[units.bounds[:-1], 0]
    ends = tokens.spans[units.bounds[1:] - 1, 1]
    return np.stack([starts, ends], axis=1).astype(np.int32)


def _texts_begin(begins: Bool, offsets: I64) -> Bool:
    begins[offsets[:-1][np.diff(offsets) > 0]] = True
    return begins
