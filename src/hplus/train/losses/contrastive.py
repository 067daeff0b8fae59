"""The contrastive part of eq:retrieval_head_loss and of eq:stage1: the positive against the rest.

A document that must not count as a negative (a copy of the positive, another positive of the same
query, padding) has the score minus infinity.
"""

from __future__ import annotations

import torch
from torch import Tensor


def nce(scores: Tensor, tau: float, positive: Tensor | None = None) -> Tensor:
    """Mean of -log softmax(S / tau) at the positive: scores [b, D], positive i64[b] its column,
    None the first.

    >>> round(float(nce(torch.tensor([[1.0, 0.0]]), tau=1.0)), 4)
    0.3133
    """
    logs = torch.log_softmax(scores / tau, dim=1)
    if positive is None:
        return -logs[:, 0].mean()
    return -logs.gather(1, positive[:, None]).mean()
