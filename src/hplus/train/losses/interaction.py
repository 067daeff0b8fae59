"""The weighted interaction of a group: eq:phrase_score, normalised by the query's importance.

The states are frozen, so each query unit's best similarity with each document is a constant; what
is learned is how much the unit counts.
"""

from __future__ import annotations

from torch import Tensor


def interaction_scores(
    importance: Tensor, unit: Tensor, best: Tensor, sharpness: float = 1
) -> Tensor:
    """S_P of each document of the group, [b, g], each unit weighing a(s) to the power `sharpness`.

    importance [b, n] of the query's tokens (0 at padding), unit [b, n] the unit of each token,
    best [b, m, g] the largest similarity of each query unit with each document.
    """
    weights = importance.new_zeros(best.shape[:2]).scatter_add(1, unit, importance)  # a(s), [b, m]
    weights = weights**sharpness
    total = (weights[:, :, None] * best).sum(dim=1)
    return total / weights.sum(dim=1, keepdim=True)
