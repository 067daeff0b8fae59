"""Teacher distillation: eq:teacher_distribution and the divergence of eq:retrieval_head_loss."""

from __future__ import annotations

import torch
from torch import Tensor


def teacher_divergence(teacher: Tensor, scores: Tensor, tau: float) -> Tensor:
    """Mean of KL(pi* || pi_h) over the groups: teacher logits t [b, g], student scores S_h [b, g].

    Where a group has fewer documents, teacher and scores are minus infinity.

    >>> t = torch.tensor([[2.0, 0.0]])
    >>> float(teacher_divergence(t, 0.1 * t, tau=0.1)), float(teacher_divergence(t, t, 0.1)) > 1
    (0.0, True)
    """
    target = torch.log_softmax(teacher, dim=1)  # log pi*
    student = torch.log_softmax(scores / tau, dim=1)  # log pi_h
    difference = (target - student).masked_fill(teacher == -torch.inf, 0.0)
    return (target.exp() * difference).sum(dim=1).mean()


def min_max(scores: Tensor) -> Tensor:
    """Scores of each group brought to [0, 1]; minus infinity, no document, stays.

    Not in the paper. It makes up for the squeezed cosines of some encoders, and needs a larger tau.
    """
    there = scores > -torch.inf
    low = scores.masked_fill(~there, torch.inf).amin(dim=1, keepdim=True)
    high = scores.amax(dim=1, keepdim=True)
    # The gradient of infinity over the range would be none.
    own = torch.where(there, scores, low)
    return ((own - low) / (high - low).clamp_min(1e-6)).masked_fill(~there, -torch.inf)


def spread(scores: Tensor) -> Tensor:
    """Standard deviation of the scores in each group, [b, g] -> [b]; minus infinity is no document.

    >>> spread(torch.tensor([[3.0, 1.0], [5.0, -torch.inf]]))
    tensor([1., 0.])
    """
    there = scores > -torch.inf
    counts = there.sum(dim=1, keepdim=True).clamp_min(1)
    own = scores.masked_fill(~there, 0.0)
    means = own.sum(dim=1, keepdim=True) / counts
    return ((own - means).masked_fill(~there, 0.0).square().sum(dim=1) / counts[:, 0]).sqrt()
