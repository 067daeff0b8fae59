"""Random units as long as a corpus' own: lengths drawn from the histogram of its units."""

from __future__ import annotations

import numpy as np

from hplus.types import F64, I64, Bool, Tokens
from hplus.units.rules import random_lengths


def length_histogram(begins: Bool, tokens: Tokens) -> F64:
    """Share of units of 1, 2, … tokens."""
    lengths = np.diff(np.append(np.flatnonzero(begins), len(tokens.ids)))
    counts = np.bincount(lengths, minlength=2)[1:]
    return counts / max(int(counts.sum()), 1)


def histogram_random(tokens: Tokens, histogram: F64, seed: int) -> Bool:
    """Units whose lengths follow the histogram: histogram[l - 1] is the share of length l."""
    probabilities = histogram / histogram.sum()

    def draw(random: np.random.Generator, n: int) -> I64:
        return 1 + random.choice(len(probabilities), n, p=probabilities).astype(np.int64)

    return random_lengths(tokens, seed, draw)
