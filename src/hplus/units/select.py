"""Budgets: which units are kept (eq:topb_selection) and what becomes of the rest.

*drop* is the paper's: the top B units by importance stay. *merge* is ours: the units are
clustered into B groups, each the mean of its members by the square root of their importance, and
nothing is lost: eq:importance_preservation holds under any budget. *ward* takes plain means of the
same clusters; on single tokens that is the token pooling of other late-interaction libraries, the
rival every table needs.

Units always come out in order of importance, largest first, ties by position; so, with drop, a
smaller budget is a prefix.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from numbers import Real
from typing import Literal

import numpy as np

from hplus.errors import BudgetError
from hplus.types import F32, F64, I32, I64, Bool, Encoded, item_of_row, offsets_of, rows_of
from hplus.units.pool import normalise, segment_sums

Policy = Literal["drop", "merge", "ward"]


@dataclass(frozen=True)
class Budget:
    """At most `count` units, or as many as reach `share` of the importance, or both
    (count as cap); None and None keep everything.

    >>> Budget(16, policy="merge")
    >>> Budget(64, share=0.9)
    """

    count: int | None = None
    share: float | None = None
    policy: Policy = "drop"

    def __post_init__(self) -> None:
        if self.count is not None and (type(self.count) is not int or self.count < 1):
            raise BudgetError(f"budget {self.count!r} asked; a budget is a count of 1 unit or more")
        if self.share is not None and not (isinstance(self.share, Real) and 0 < self.share <= 1):
            raise BudgetError(f"share {self.share!r} asked; a share of importance lies in (0, 1]")
        if self.policy not in ("drop", "merge", "ward"):
            raise BudgetError(f"policy {self.policy!r} asked; known: drop, merge, ward")

    def __str__(self) -> str:
        if self.count is None and self.share is None:
            return "all units"
        parts = [f"{self.count} units"] if self.count is not None else []
        parts += [f"{self.share:.0%} of importance"] if self.share is not None else []
        return f"{self.policy} to {' or '.join(parts)}"


@dataclass(frozen=True)
class Kept:
    """Units after a budget, with the same fields as in `Encoded`."""

    vectors: F32
    weights: F32
    offsets: I64
    spans: I32
    span_offsets: I64
    dropped_weights: F32
    dropped_offsets: I64
    dropped_spans: I32
    dropped_span_offsets: I64


def order_of_importance(weights: F32, offsets: I64) -> I64:
    """Rows of each text sorted by falling weight, ties by position; texts stay in place."""
    return np.lexsort((-weights, item_of_row(offsets))).astype(np.int64)


def within(budget: Budget, weights: F32, offsets: I64, lost: F64 | float = 0.0) -> Bool:
    """Which units of a batch, already in order of importance, the budget pays for.

    lost f64[n]: importance of units that an earlier budget dropped; a share is one of all.
    """
    text = item_of_row(offsets)
    paid = np.ones(len(weights), np.bool_)
    if budget.count is not None:
        paid &= np.arange(len(weights)) - offsets[text] < budget.count
    if budget.share is not None:
        total, before = _sums(weights, offsets)
        total = total + lost
        # A unit is needed while those before it fall short of the share.
        paid &= before < budget.share * total[text] * (1 - 1e-9)
    return paid


def spend(
    budget: Budget,
    vectors: F32,
    weights: F32,
    spans: I32,
    offsets: I64,
    joins: dict[int, I64] | None = None,
) -> Kept:
    """Units in reading order, one span each -> what the budget keeps, in order of importance.

    joins: filled with how the units of each text cluster. Where several budgets are tried on the
    same units, the dictionary of the first spares the others the work.
    """
    order = order_of_importance(weights, offsets)
    vectors, weights, spans = vectors[order], weights[order], spans[order]
    one_each = np.arange(len(weights) + 1, dtype=np.int64)
    paid = within(budget, weights, offsets)
    if budget.policy == "drop" or bool(paid.all()):
        return _drop(paid, vectors, weights, offsets, spans, one_each)
    counts = np.bincount(item_of_row(offsets)[paid], minlength=len(offsets) - 1)
    return _regroup(budget.policy, counts, vectors, weights, offsets, spans, one_each, joins)


def bring_to(counts: I64, policy: Policy, kept: Kept, joins: dict[int, I64] | None = None) -> Kept:
    """Units of each text, in order of importance, brought to at most counts[text] of them."""
    units = (kept.vectors, kept.weights, kept.offsets, kept.spans, kept.span_offsets)
    text = item_of_row(kept.offsets)
    paid = np.arange(len(text)) - kept.offsets[text] < counts[text]
    if policy == "drop" or bool(paid.all()):
        return _drop(paid, *units)
    return _regroup(policy, np.minimum(counts, np.diff(kept.offsets)), *units, joins)


def narrow(encoded: Encoded, width: int) -> Encoded:
    """The same units at a smaller width: a prefix of the columns, renormalised."""
    stored = encoded.vectors.shape[1]
    if not 1 <= width <= stored:
        raise BudgetError(f"width {width} asked, but the encoding keeps {stored}; ask for less")
    if width == stored:
        return encoded
    return replace(encoded, vectors=normalise(encoded.vectors[:, :width]))


def _keep(encoded: Encoded, paid: Bool) -> Encoded:
    """Only the units that are paid for; the others join those dropped before."""
    kept = _drop(
        paid,
        encoded.vectors,
        encoded.weights,
        encoded.offsets,
        encoded.spans,
        encoded.span_offsets,
    )
    sums, _ = _sums(kept.weights, kept.offsets)
    # What this budget leaves out weighs more than what an earlier one did: it comes first.
    text = np.concatenate([item_of_row(kept.dropped_offsets), item_of_row(encoded.dropped_offsets)])
    order = np.argsort(text, kind="stable")
    lengths = np.concatenate(
        [np.diff(kept.dropped_span_offsets), np.diff(encoded.dropped_span_offsets)]
    )
    rows, span_offsets = rows_of(offsets_of(lengths), order)
    return replace(
        encoded,
        vectors=kept.vectors,
        weights=kept.weights,
        offsets=kept.offsets,
        spans=kept.spans,
        span_offsets=kept.span_offsets,
        dropped_weights=np.concatenate([kept.dropped_weights, encoded.dropped_weights])[order],
        dropped_offsets=kept.dropped_offsets + encoded.dropped_offsets,
        dropped_spans=np.concatenate([kept.dropped_spans, encoded.dropped_spans])[rows],
        dropped_span_offsets=span_offsets,
        coverage=replace(encoded.coverage, kept=sums.astype(np.float32)),
    )


def shrink(encoded: Encoded, budget: Budget) -> Encoded:
    """A stored encoding under a smaller budget by any policy, from its vectors alone.

    Of an encoding that kept every unit, or dropped some, this is what a fresh encoding under the
    budget gives.
    """
    lost, _ = _sums(encoded.dropped_weights, encoded.dropped_offsets)
    paid = within(budget, encoded.weights, encoded.offsets, lost)
    if budget.policy == "drop" or bool(paid.all()):
        return _keep(encoded, paid)
    kept = _regroup(
        budget.policy,
        np.bincount(item_of_row(encoded.offsets)[paid], minlength=len(encoded)),
        encoded.vectors,
        encoded.weights,
        encoded.offsets,
        encoded.spans,
        encoded.span_offsets,
    )
    merged = {name: value for name, value in vars(kept).items() if not name.startswith("dropped")}
    return replace(encoded, **merged)


def join(vectors: F32) -> I64:
    """The joins of the m units of one text, nearest first, i64[m - 1, 2]: row k makes cluster m + k
    of two others. Ward's method on cosine distances, as in sentence-transformers'
    HierarchicalTokenPooling and in PyLate after 1.3.4.
    """
    # Imported here: most texts at hand fit their budget, and the import takes a third of a second.
    from scipy.cluster.hierarchy import linkage
    from scipy.spatial.distance import squareform

    distances = np.clip(1 - vectors @ vectors.T, 0, 2)
    tree = linkage(squareform(distances, checks=False), method="ward")
    joins: I64 = tree[:, :2].astype(np.int64)
    return joins


def cluster(joins: I64, count: int) -> I64:
    """Group of each unit of one text, i64[m], exactly `count` groups: all but the last joins."""
    n = len(joins) + 1
    root = np.arange(2 * n - count)
    for k in reversed(range(n - count)):
        root[joins[k]] = root[n + k]
    groups: I64 = np.unique(root[:n], return_inverse=True)[1]
    return groups


def _regroup(
    policy: Policy,
    counts: I64,
    vectors: F32,
    weights: F32,
    offsets: I64,
    spans: I32,
    span_offsets: I64,
    joins: dict[int, I64] | None = None,
) -> Kept:
    """Units of each text -> counts[text] groups."""
    group = np.zeros(len(weights), np.int64)
    base = 0
    joins = {} if joins is None else joins
    for text, (first, last) in enumerate(pairwise(offsets.tolist())):
        if last - first <= counts[text]:
            groups = np.arange(last - first, dtype=np.int64)
        else:
            if text not in joins:
                joins[text] = join(vectors[first:last])
            groups = cluster(joins[text], int(counts[text]))
        group[first:last] = base + groups
        base += int(counts[text])
    group_offsets = offsets_of(counts)

    # Full importance lets one rare word speak for its group, none lets function words: between.
    pull = np.sqrt(weights) if policy == "merge" else np.ones_like(weights)
    by_member = np.argsort(group, kind="stable")
    members = np.searchsorted(group[by_member], np.arange(base + 1))
    means = normalise(segment_sums((vectors * pull[:, None])[by_member], members))
    # A unit that is alone in its group stays what it is, to the last bit.
    alone = np.flatnonzero(np.diff(members) == 1)
    means[alone] = vectors[by_member[members[alone]]]
    totals = np.bincount(group, weights, minlength=base).astype(np.float32)
    first_start = np.full(base, np.iinfo(np.int64).max)
    np.minimum.at(first_start, group, spans[span_offsets[:-1], 0].astype(np.int64))
    order = np.lexsort((first_start, -totals, item_of_row(group_offsets)))

    rank = np.empty(base, np.int64)
    rank[order] = np.arange(base)
    lengths = np.diff(span_offsets)
    owner = np.repeat(rank[group], lengths)  # for every span the group that has it
    by_group = np.lexsort((spans[:, 0], owner))
    return Kept(
        vectors=means[order],
        weights=totals[order],
        offsets=group_offsets,
        spans=spans[by_group],
        span_offsets=offsets_of(np.bincount(owner, minlength=base)),
        dropped_weights=np.empty(0, np.float32),
        dropped_offsets=np.zeros(len(offsets), np.int64),
        dropped_spans=np.empty((0, 2), np.int32),
        dropped_span_offsets=np.zeros(1, np.int64),
    )


def _drop(
    paid: Bool, vectors: F32, weights: F32, offsets: I64, spans: I32, span_offsets: I64
) -> Kept:
    text = item_of_row(offsets)
    lengths = np.diff(span_offsets)
    of_paid = np.repeat(paid, lengths)
    return Kept(
        vectors=vectors[paid],
        weights=weights[paid],
        offsets=offsets_of(np.bincount(text[paid], minlength=len(offsets) - 1)),
        spans=spans[of_paid],
        span_offsets=offsets_of(lengths[paid]),
        dropped_weights=weights[~paid],
        dropped_offsets=offsets_of(np.bincount(text[~paid], minlength=len(offsets) - 1)),
        dropped_spans=spans[~of_paid],
        dropped_span_offsets=offsets_of(lengths[~paid]),
    )


def _sums(weights: F32, offsets: I64) -> tuple[F64, F64]:
    """Total weight of each text, and for each unit the weight of those before it in its text."""
    before = np.empty(len(weights))
    totals = np.zeros(len(offsets) - 1)
    for text, (first, last) in enumerate(pairwise(offsets.tolist())):
        running = np.cumsum(weights[first:last], dtype=np.float64)
        before[first:last] = running - weights[first:last]
        totals[text] = running[-1] if last > first else 0
    return totals, before
