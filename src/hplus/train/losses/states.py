"""Token states of a larger model as the target of a smaller one with the same tokenizer.

Not in the paper. It needs no labels, and the student inherits every view at once, since all three
are read from the states.
"""

from __future__ import annotations

from torch import Tensor


def states_distance(states: Tensor, target: Tensor) -> Tensor:
    """The share of the target's variance that the student leaves: the squared distance of the
    states [T, d], over that of the target from its mean.

    >>> import torch
    >>> target = torch.tensor([[1.0, 0.0], [3.0, 0.0]])
    >>> [float(states_distance(x, target)) for x in (target, target.mean(0).expand(2, 2))]
    [0.0, 1.0]
    """
    left = (states - target).square().sum()
    return left / (target - target.mean(dim=0)).square().sum().clamp_min(1e-9)
