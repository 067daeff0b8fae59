"""The student scored as it will be used: units pooled, merged to a budget, weighted MaxSim.

Not in the paper, whose phrase view is never trained as such. Which units merge is decided by
`units.select` on states without gradient, exactly as at inference; the gradient flows through the
means, and through the importance that weighs them.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from hplus.types import F32, I64
from hplus.units.select import cluster, join


def pooled_units(
    states: Tensor, importance: Tensor, unit: Tensor, units: int, width: int
) -> tuple[Tensor, Tensor]:
    """eq:phrase_pool and eq:unit_importance: vectors [U, r] and a(s) [U].

    states [T, d] and importance [T] of the tokens, unit i64[T] the unit of each.
    """
    sums = states.new_zeros(units, width).index_add(0, unit, states[:, :width])
    weights = importance.new_zeros(units).index_add(0, unit, importance)
    return normalize(sums, dim=1, eps=1e-9), weights


def merged(vectors: Tensor, weights: Tensor, groups: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Means of the groups by importance, [count, r], and the groups' importance [count]."""
    weighted = vectors * weights[:, None]
    means = vectors.new_zeros(count, vectors.shape[1]).index_add(0, groups, weighted)
    totals = weights.new_zeros(count).index_add(0, groups, weights)
    return normalize(means, dim=1, eps=1e-9), totals


def ward_groups(vectors: F32, weights: F32, offsets: I64, budget: int | None) -> tuple[I64, I64]:
    """The group of each unit, i64[U], and the groups' offsets i64[n + 1], by Ward on vectors and
    importance without gradient; None keeps every unit by itself."""
    lengths = np.diff(offsets)
    counts = lengths if budget is None else np.minimum(lengths, budget)
    bounds = np.r_[0, np.cumsum(counts)].astype(np.int64)
    groups = np.empty(len(vectors), np.int64)
    for text, (first, last) in enumerate(pairwise(offsets.tolist())):
        if last - first <= counts[text]:
            own: I64 = np.arange(last - first)
        else:
            own = cluster(join(vectors[first:last], weights[first:last]), int(counts[text]))
        groups[first:last] = bounds[text] + own
    return groups, bounds


def padded(flat: Tensor, offsets: I64) -> tuple[Tensor, Tensor]:
    """Rows of n items, [R, …] with offsets i64[n + 1], side by side: [n, m, …] and mask [n, m]."""
    lengths = np.diff(offsets)
    m = int(lengths.max(initial=0))
    place = np.minimum(offsets[:-1, None] + np.arange(m), max(0, len(flat) - 1))
    mask = torch.from_numpy(np.arange(m) < lengths[:, None]).to(flat.device)
    rows = torch.from_numpy(place).to(flat.device)
    return flat[rows] * mask.view(*mask.shape, *[1] * (flat.ndim - 1)), mask
