"""The global head at every width: eq:global_view inside eq:stage1 and eq:retrieval_head_loss."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn.functional import normalize


def global_scores(queries: Tensor, documents: Tensor, width: int) -> Tensor:
    """S_G at width r, [b, D], of means of states [b, d] and [D, d]."""
    return normalize(queries[:, :width], dim=1) @ normalize(documents[:, :width], dim=1).T


def over_widths(loss: Callable[[int], Tensor], widths: Sequence[int]) -> Tensor:
    """The loss averaged over the widths R."""
    return torch.stack([loss(width) for width in widths]).mean()
