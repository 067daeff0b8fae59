"""Budgets: which units are kept (eq:topb_selection) and what becomes of the rest.

*drop* is the paper's: the top B units by importance stay. *merge* is ours: Ward's method clusters
the units into B groups with importance as their mass, and each group is the mean of its members by
importance. So the vectors of a text lose as little as they can where it matters, function words
take no groups of their own, and the importance of a text stays the same: eq:importance_preservation
holds under any budget. *ward* counts every unit once; on single tokens that is the token pooling of
other late-interaction libraries, which every table compares with.

Clustering takes memory and time with the square of the units, so those of a long text are merged
window by window, and the groups again; a text of one window is clustered as a whole.

Units always come out in order of importance, largest first, ties by position; so, with drop, a
smaller budget is a prefix.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from numbers import Real
from typing import Literal

import numpy as np

from hplus.arguments import whole
from hplus.errors import BudgetError
from hplus.kernels import ward
from hplus.types import (
    F32,
    F64,
    I64,
    Bool,
    Encoded,
    Units,
    concatenate_ragged,
    item_of_row,
    offsets_of,
)
from hplus.units.vectors import normalise, segment_sums

Policy = Literal["drop", "merge", "ward"]
Joins = dict[tuple[Policy, int], I64]
# Units that are clustered at once: a text of 20 KB, in 100 MB and under half a second.
WINDOW = 2_048
# A window that is not the whole text is merged to this part of its units.
PART = 8


@dataclass(frozen=True)
class Budget:
    """At most `count` units, or as many as reach `share` of the importance, or both
    (count as cap); None and None keep everything.

    >>> print(Budget(16, policy="merge"))
    merge to 16 units
    >>> print(Budget(64, share=0.9))
    drop to 64 units or 90% of importance
    """

    count: int | None = None
    share: float | None = None
    policy: Policy = "drop"

    def __post_init__(self) -> None:
        if self.count is not None:
            count = whole("a budget's count of units", self.count, 1, BudgetError)
            object.__setattr__(self, "count", count)  # frozen for everyone else
        if self.share is not None and not (isinstance(self.share, Real) and 0 < self.share <= 1):
            raise BudgetError(f"expected a share of importance in (0, 1], got {self.share!r}")
        if not isinstance(self.policy, str) or self.policy not in ("drop", "merge", "ward"):
            raise BudgetError(f"unknown policy {self.policy!r}; known: drop, merge, ward")

    def __str__(self) -> str:
        if self.count is None and self.share is None:
            return "all units"
        parts = [f"{self.count} units"] if self.count is not None else []
        parts += [f"{self.share:.0%} of importance"] if self.share is not None else []
        return f"{self.policy} to {' or '.join(parts)}"


def budget_of(budget: object, usual: Budget) -> Budget:
    """A budget, or a count under the usual policy; None is the usual budget."""
    if budget is None:
        return usual
    if isinstance(budget, Budget):
        return budget
    return replace(usual, count=whole("budget", budget, 1, BudgetError), share=None)


def order_of_importance(weights: F32, offsets: I64) -> I64:
    """Rows of each text sorted by falling weight, ties by position; texts stay in place."""
    return np.lexsort((-weights, item_of_row(offsets))).astype(np.int64)


def within(budget: Budget, weights: F32, offsets: I64, lost: F64 | float = 0.0) -> Bool:
    """Which units of a batch, already in order of importance, fit the budget.

    lost f64[n]: importance of units that an earlier budget dropped; a share refers to the total.
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


def spend(budget: Budget, units: Units, joins: Joins | None = None) -> tuple[Units, Units]:
    """Units in reading order -> what the budget keeps and what it drops, by importance.

    joins: to be filled with how the units of each text cluster under a policy. Pass the same one
    for several budgets on the same units, and they are clustered once.
    """
    units = units.rows(order_of_importance(units.weights, units.offsets), units.offsets)
    paid = within(budget, units.weights, units.offsets)
    if budget.policy == "drop" or bool(paid.all()):
        return top_b(units, paid)
    return merge(units, _counted(paid, units.offsets), budget.policy, joins), _none(len(units))


def bring_to(counts: I64, policy: Policy, units: Units, joins: Joins | None = None) -> Units:
    """Units of each text, in order of importance, brought to at most counts[text] of them."""
    text = item_of_row(units.offsets)
    paid = np.arange(len(text)) - units.offsets[text] < counts[text]
    if policy == "drop" or bool(paid.all()):
        return top_b(units, paid)[0]
    return merge(units, np.minimum(counts, np.diff(units.offsets)), policy, joins)


def narrow(units: Units, width: int) -> Units:
    """The same units at a smaller width: a prefix of the columns, renormalised."""
    if not 1 <= whole("width", width, 1, BudgetError) <= units.width:
        raise BudgetError(f"width {width} requested, but the encoding keeps {units.width}")
    if width == units.width:
        return units
    return replace(units, vectors=normalise(units.vectors[:, :width]))


def shrink(encoded: Encoded, budget: Budget) -> Encoded:
    """A stored encoding under a smaller budget by any policy, from its vectors alone.

    If the encoding kept every unit or dropped some, the result equals a fresh encoding under the
    budget.
    """
    units, before = encoded.units, encoded.dropped
    lost, _ = _sums(before.weights, before.offsets)
    paid = within(budget, units.weights, units.offsets, lost)
    if budget.policy != "drop" and not bool(paid.all()):
        return replace(encoded, units=merge(units, _counted(paid, units.offsets), budget.policy))
    kept, dropped = top_b(units, paid)
    sums, _ = _sums(kept.weights, kept.offsets)
    coverage = replace(encoded.coverage, kept=sums.astype(np.float32))
    return replace(encoded, units=kept, dropped=_after(dropped, before), coverage=coverage)


def join(vectors: F32, masses: F32 | None = None) -> I64:
    """The joins of the m units of one text, nearest first, i64[m - 1, 2] (`kernels.clustering`).

    With masses, cosine distances are the squared distances of unit vectors that they are (up to a
    factor of two). Without, every unit counts once and they are taken for distances, as
    sentence-transformers' HierarchicalTokenPooling and PyLate after 1.3.4 do.
    """
    distances = (vectors @ vectors.T).astype(np.float64)
    np.clip(np.subtract(1, distances, out=distances), 0, 2, out=distances)
    if masses is None:
        return ward(np.square(distances, out=distances), np.ones(len(vectors)))
    return ward(distances, masses.astype(np.float64) / (float(masses.max(initial=0)) or 1.0))


def cluster(joins: I64, count: int) -> I64:
    """Group of each unit of one text, i64[m], exactly `count` groups: all but the last joins."""
    name = np.arange(len(joins) + 1)
    done = joins[: len(name) - count]
    name[done[:, 1]] = done[:, 0]
    while not np.array_equal(name, name[name]):
        name = name[name]
    groups: I64 = np.unique(name, return_inverse=True)[1]
    return groups


def merge(units: Units, counts: I64, policy: Policy = "merge", joins: Joins | None = None) -> Units:
    """Units of each text -> counts[text] groups, each a mean of its members.

    Above WINDOW units in a text the members are groups of neighbours, which are merged like units.
    """
    whole = np.diff(units.offsets)
    units = _by_windows(units, counts, policy)
    whole = whole == np.diff(units.offsets)
    vectors, weights, offsets = units.vectors, units.weights, units.offsets
    spans, span_offsets = units.spans, units.span_offsets
    group = np.zeros(len(weights), np.int64)
    base = 0
    joins = {} if joins is None else joins
    for text, (first, last) in enumerate(pairwise(offsets.tolist())):
        if last - first <= counts[text]:
            groups = np.arange(last - first, dtype=np.int64)
        else:
            # The windows of a long text depend on its count: other budgets cannot share them.
            known = joins if whole[text] else {}
            if (policy, text) not in known:
                masses = weights[first:last] if policy == "merge" else None
                known[policy, text] = join(vectors[first:last], masses)
            groups = cluster(known[policy, text], int(counts[text]))
        group[first:last] = base + groups
        base += int(counts[text])
    group_offsets = offsets_of(counts)

    pull = np.ones_like(weights)
    if policy == "merge":  # by a power of two, which changes no mean, so that no square overflows
        own, largest = item_of_row(offsets), np.zeros(len(offsets) - 1, np.float32)
        np.maximum.at(largest, own, weights)
        pull = np.ldexp(weights, -np.frexp(largest)[1][own])
    by_member = np.argsort(group, kind="stable")
    members = np.searchsorted(group[by_member], np.arange(base + 1))
    means = normalise(segment_sums((vectors * pull[:, None])[by_member], members))
    # A unit that is alone in its group stays as it is, to the last bit.
    alone = np.flatnonzero(np.diff(members) == 1)
    means[alone] = vectors[by_member[members[alone]]]
    totals = np.bincount(group, weights, minlength=base).astype(np.float32)
    first_start = np.full(base, np.iinfo(np.int64).max)
    np.minimum.at(first_start, group, spans[span_offsets[:-1], 0].astype(np.int64))
    order = np.lexsort((first_start, -totals, item_of_row(group_offsets)))

    rank = np.empty(base, np.int64)
    rank[order] = np.arange(base)
    lengths = np.diff(span_offsets)
    owner = np.repeat(rank[group], lengths)  # the group of each span
    by_group = np.lexsort((spans[:, 0], owner))
    return Units(
        vectors=means[order],
        weights=totals[order],
        offsets=group_offsets,
        spans=spans[by_group],
        span_offsets=offsets_of(np.bincount(owner, minlength=base)),
    )


def _by_windows(units: Units, counts: I64, policy: Policy) -> Units:
    """Texts of more than WINDOW units brought to WINDOW groups or to their counts, whichever is
    more; the others stay as they are."""
    while True:
        lengths = np.diff(units.offsets)
        long = (lengths > WINDOW) & (lengths > counts)
        if not long.any():
            return units
        starts = units.spans[units.span_offsets[:-1], 0]
        order = np.lexsort((starts, item_of_row(units.offsets))).astype(np.int64)  # reading order
        windows: list[int] = []
        ends, wanted = [np.zeros(1, np.int64)], []
        for first, length, count, divided in zip(
            units.offsets[:-1].tolist(), lengths.tolist(), counts.tolist(), long, strict=True
        ):
            windows.append(-(-length // WINDOW) if divided else 1)
            groups = max(count, -(-length // PART)) if divided else length
            edges = np.arange(windows[-1] + 1) * length // windows[-1]
            ends.append(first + edges[1:])
            wanted.append(np.diff(edges * groups // max(1, length)))
        parts = units.rows(order, np.concatenate(ends))
        merged = merge(parts, np.concatenate(wanted), policy)
        units = replace(merged, offsets=merged.offsets[offsets_of(windows)])


def top_b(units: Units, paid: Bool) -> tuple[Units, Units]:
    """eq:topb_selection: the units within the budget, and the others without their vectors."""
    kept = units.rows(np.flatnonzero(paid), offsets_of(_counted(paid, units.offsets)))
    bare = replace(units, vectors=units.vectors[:, :0])
    return kept, bare.rows(np.flatnonzero(~paid), offsets_of(_counted(~paid, units.offsets)))


def _after(dropped: Units, before: Units) -> Units:
    """Units that two budgets dropped, text by text. The later budget's weigh more: they lead."""
    both = concatenate_ragged([dropped, before])
    text = np.concatenate([item_of_row(dropped.offsets), item_of_row(before.offsets)])
    return both.rows(np.argsort(text, kind="stable"), dropped.offsets + before.offsets)


def _counted(paid: Bool, offsets: I64) -> I64:
    """How many units of each text are marked."""
    return np.bincount(item_of_row(offsets)[paid], minlength=len(offsets) - 1)


def _none(texts: int) -> Units:
    """No units, for `texts` texts."""
    return Units(
        np.empty((0, 0), np.float32),
        np.empty(0, np.float32),
        np.zeros(texts + 1, np.int64),
        np.empty((0, 2), np.int32),
        np.zeros(1, np.int64),
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
