"""eq:retrieval_head_loss, its contrastive part: the positive against the rest of its group."""

from __future__ import annotations

import torch
from torch import Tensor


def nce(scores: Tensor, tau: float) -> Tensor:
    """Mean of -log softmax(S / tau) at the positive: scores [b, g], the positive in column 0;
    -inf where there is no document.

    >>> round(float(nce(torch.tensor([[1.0, 0.0]]), tau=1.0)), 4)
    0.3133
    """
    return -torch.log_softmax(scores / tau, dim=1)[:, 0].mean()
