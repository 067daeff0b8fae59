"""eq:lexical_training_score of a group: repeated token ids are summed."""

from __future__ import annotations

import torch
from torch import Tensor


def lexical_scores(
    query: Tensor, query_ids: Tensor, document: Tensor, document_ids: Tensor
) -> Tensor:
    """S~_L of each document of the group, [b, g], on a logarithmic scale.

    query [b, n] and document [b, g, m] are importances (0 at padding) with their ids. The raw score
    grows with the lengths of both texts and with the weights, so no temperature would fit all
    queries; one fits the logarithm.
    """
    same = query_ids[:, None, :, None] == document_ids[:, :, None, :]  # [b, g, n, m]
    matched = torch.where(same, document[:, :, None, :], 0.0).sum(dim=3)  # w~_d of query tokens
    raw = (query[:, None, :] * matched).sum(dim=2)
    return torch.log1p(raw)
