"""Token vectors for the late-interaction loss. Training only: the index never stores them."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.functional import normalize


class TokenProjection(nn.Module):
    """norm(W_T h + b_T): states [..., d] -> unit vectors [..., width]."""

    def __init__(self, d: int, width: int) -> None:
        super().__init__()
        self.project = nn.Linear(d, width)

    def forward(self, states: Tensor) -> Tensor:
        """Unit vectors of token states; padding comes out as unit vectors too: mask it later."""
        # Normalised in float32, since half precision leaves lengths off by a thousandth.
        return normalize(self.project(states).float(), dim=-1)  # eq:token_projection
