"""eq:lexical_training_score: repeated token ids are summed; and the score of a lexical head."""

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
    known, (of_query, of_document) = _shared(query_ids, document_ids)
    how = "sum" if repeats == "sum" else "amax"
    left = _by_id(query, of_query, known, how)
    return left @ _by_id(document, of_document, known, how).T


def saturated_matrix(
    worth: Tensor, query_ids: Tensor, counted: Tensor, document_ids: Tensor, halves: Tensor
) -> Tensor:
    """The lexical head's scores (`hplus.heads.lexical`), [b, D], as shares of the query's own.

    worth [b, n]: the table's values of the query's tokens; counted [D, m]: what each occurrence in
    a document counts, both 0 at padding; halves [D]: the frequency that gives half of a weight.
    """
    known, (of_query, of_document) = _shared(query_ids, document_ids)
    left = _by_id(worth, of_query, known, "amax")
    frequency = _by_id(counted, of_document, known, "sum")
    scores = left @ (frequency / (frequency + halves[:, None])).T
    return scores / left.sum(dim=1, keepdim=True).clamp_min(1e-6)


Places = tuple[Tensor, Tensor]


def _shared(query_ids: Tensor, document_ids: Tensor) -> tuple[int, tuple[Places, Places]]:
    """How many ids the queries have (no other can match), and the place among them of each token
    of both sides, with whether it has one."""
    known, places = torch.unique(query_ids, return_inverse=True)
    found = torch.searchsorted(known, document_ids).clamp_max(len(known) - 1)
    here = torch.ones_like(places, dtype=torch.bool)
    return len(known), ((places, here), (found, known[found] == document_ids))


def _by_id(weights: Tensor, places: Places, count: int, how: str) -> Tensor:
    """Weights of tokens, [n, m], as those of ids, [n, count]."""
    at, here = places
    return weights.new_zeros(len(weights), count).scatter_reduce(1, at, weights * here, how)
