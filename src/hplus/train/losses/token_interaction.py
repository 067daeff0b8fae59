"""Late interaction of tokens in training: eq:token_projection and eq:token_training_score."""

from __future__ import annotations

import torch
from torch import Tensor


def weighted_maxsim(queries: Tensor, weights: Tensor, documents: Tensor, mask: Tensor) -> Tensor:
    """Sum of weights times best similarities over the sum of the weights, [b, D].

    queries [b, m, r] with weights [b, m] (0 at padding); documents [D, k, r] with mask bool[D, k].
    A document without vectors scores 0. With equal weights this is eq:token_training_score.
    """
    b, m, _ = queries.shape
    D, k, _ = documents.shape
    flat = documents.reshape(D * k, -1)
    padding = ~mask.reshape(D * k)
    filled = mask.any(dim=1)
    scores = []
    # Query by query: the similarities are dropped once their maxima are known.
    for query, weight in zip(queries, weights, strict=True):
        similar = (query @ flat.T).masked_fill(padding, -torch.inf).view(m, D, k)
        best = similar.amax(dim=2).masked_fill(~filled, 0.0)
        scores.append(weight @ best / weight.sum().clamp_min(1e-9))
    return torch.stack(scores) if scores else queries.new_zeros(b, D)


def token_scores(queries: Tensor, q_mask: Tensor, documents: Tensor, d_mask: Tensor) -> Tensor:
    """S_T of projected tokens: every query token counts the same."""
    return weighted_maxsim(queries, q_mask.to(queries.dtype), documents, d_mask)
