"""eq:lexical_training_score: repeated token ids are summed."""

from __future__ import annotations

from typing import Literal

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


def lexical_matrix(
    query: Tensor,
    query_ids: Tensor,
    document: Tensor,
    document_ids: Tensor,
    *,
    repeats: Literal["sum", "max"] = "sum",
) -> Tensor:
    """S~_L of every query with every document of a batch, [b, D], raw (eq:lexical_training_score).

    query [b, n] and document [D, m] are importances (0 at padding) with their ids. repeats: of
    a token id, its importances are summed as in the paper, or their maximum counts as at inference.
    """
    known, places = torch.unique(query_ids, return_inverse=True)  # only these can match
    found = torch.searchsorted(known, document_ids).clamp_max(len(known) - 1)
    document = document * (known[found] == document_ids)
    how = "sum" if repeats == "sum" else "amax"
    weights = [
        own.new_zeros(len(own), len(known)).scatter_reduce(1, at, own, how)
        for own, at in ((query, places), (document, found))
    ]
    return weights[0] @ weights[1].T
