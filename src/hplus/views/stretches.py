"""A text too long to be read at once: one encoding from those of its stretches.

Each stretch is read like a text, its units are brought to what a budget may still need, and its
states are forgotten. So memory depends on the stretch and on the budget, not on the text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from hplus.types import F32, Coverage, Encoded, Units, concatenate_ragged, offsets_of
from hplus.units.select import Budget, shrink
from hplus.units.vectors import normalise
from hplus.views import lexical

# Characters of a stretch: some sixteen thousand tokens of English, 50 MB of states.
SIZE = 64_000
# Groups that the units of a stretch are merged to, if the budget is not larger.
GROUPS = 256


@dataclass(frozen=True)
class Stretch:
    """Where a stretch begins in its text, its encoding under `budget_of_stretch`, and the pooled
    states f32[1, d] with the number of states they are the mean of."""

    start: int
    encoded: Encoded
    pooled: F32
    states: int


def budget_of_stretch(budget: Budget) -> Budget:
    """What of a stretch is kept until all are read: enough for the budget of the whole text.

    The top B of all units are among the top B of each stretch. A share needs all units.
    """
    if budget.count is None or budget.share is not None:
        return Budget()
    if budget.policy == "drop":
        return budget
    return replace(budget, count=max(budget.count, GROUPS))


def join(stretches: Sequence[Stretch], budget: Budget, global_width: int) -> Encoded:
    """The whole text: the mean of all its states, its units under the budget, the largest weight of
    each token, offsets into the whole."""
    parts = [stretch.encoded for stretch in stretches]
    starts = [stretch.start for stretch in stretches]
    counted = np.array([stretch.states for stretch in stretches], np.float64)
    means = np.concatenate([stretch.pooled for stretch in stretches]).astype(np.float64)
    pooled = (counted @ means / max(1.0, counted.sum()))[None, :].astype(np.float32)
    coverage = concatenate_ragged([part.coverage for part in parts])
    whole = Encoded(
        global_=normalise(pooled[:, :global_width]),
        units=_one_text([part.units for part in parts], starts),
        lexical=lexical.join([part.lexical for part in parts]),
        dropped=_one_text([part.dropped for part in parts], starts),
        coverage=Coverage(
            tokens=coverage.tokens.sum(keepdims=True, dtype=np.int32),
            windows=coverage.windows.sum(keepdims=True, dtype=np.int32),
            cut=coverage.cut.sum(keepdims=True, dtype=np.int32),
            importance=_sum(coverage.importance),
            kept=_sum(coverage.kept),
        ),
    )
    small = shrink(whole, budget)
    return replace(small, dropped=_one_text([small.dropped], [0]))


def as_one_text(encoded: Encoded, budget: Budget) -> Encoded:
    """Stored passages of one document as its encoding; their offsets refer to the whole already."""
    if len(encoded) == 1:
        return encoded
    parts = [encoded[i] for i in range(len(encoded))]
    stretches = [
        Stretch(0, part, part.global_, max(1, int(part.coverage.tokens[0]))) for part in parts
    ]
    return join(stretches, budget, encoded.global_.shape[1])


def _one_text(parts: Sequence[Units], starts: Sequence[int]) -> Units:
    """Units of stretches as those of one text, by importance, ties by position."""
    shifted = [
        replace(part, spans=part.spans + np.int32(start))
        for part, start in zip(parts, starts, strict=True)
    ]
    units = concatenate_ragged(shifted)
    order = np.lexsort((units.spans[units.span_offsets[:-1], 0], -units.weights))
    return units.rows(order.astype(np.int64), offsets_of([len(order)]))


def _sum(values: F32) -> F32:
    total: F32 = values.sum(keepdims=True, dtype=np.float64).astype(np.float32)
    return total
