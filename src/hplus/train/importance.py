"""The importance head by ranking: the lexical and the weighted-interaction objective together.

The states are frozen, so everything but the importance is a constant that is computed once: the
best similarity of each query unit with each document of its group, and which tokens of a document
the query shares. What is left to learn is one vector and a bias, in seconds per epoch.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import softplus
from torch.nn.utils.rnn import pad_sequence

from hplus.heads.importance import ImportanceHead
from hplus.progress import show_progress
from hplus.states_file import F16, StoredStates
from hplus.train.loop import Schedule, fit
from hplus.train.losses.contrastive import nce
from hplus.train.losses.interaction import interaction_scores
from hplus.train.losses.lexical import lexical_scores
from hplus.types import F32, I32, I64, Bool
from hplus.units.partition import partition
from hplus.units.vectors import unit_vectors

BATCH = 64
TAU_INTERACTION = 0.05
TAU_LEXICAL = 0.3
# Ranking spreads the weights as far as its own negatives reward; the square root of what it learns
# serves other collections better (experiments/LOG.md). So the losses see squares: the lexical loss
# that of u(t), the interaction that of a(s), the sum that search uses.
SHARPNESS = 2
# The interaction changes little with the weights and would be drowned by the lexical loss.
INTERACTION = 5.0
# softplus(BIAS) = 1: training starts from uniform weights.
BIAS = 0.5413249


@dataclass(frozen=True)
class Group:
    """One query with its documents, the positive first.

    query f16[n, d], query_ids [n], unit [n]: its tokens; best [m, g]: the largest similarity of
    each query unit with each document; document f16[k, d], document_ids [k], place [k]: the tokens
    of the document at `place` whose ids the query has.
    """

    query: Tensor
    query_ids: Tensor
    unit: Tensor
    best: Tensor
    document: Tensor
    document_ids: Tensor
    place: Tensor


class _Head(nn.Module):
    def __init__(self, d: int) -> None:
        super().__init__()
        self.read = nn.Linear(d, 1)
        nn.init.zeros_(self.read.weight)
        nn.init.constant_(self.read.bias, BIAS)

    def forward(self, states: Tensor) -> Tensor:
        """u(t) of eq:unit_importance; the states are stored in half precision."""
        scores: Tensor = softplus(self.read(states.float())[..., 0])
        return scores


def train_importance(
    groups: Sequence[Group], *, validation: int, schedule: Schedule, file: Path
) -> tuple[ImportanceHead, list[dict[str, float]]]:
    """The head of the best epoch and its curve; the last `validation` groups are not trained on."""
    module = _Head(groups[0].query.shape[1])
    training, held_out = groups[:-validation], groups[-validation:]
    batches, others = (
        [_batch(part[i : i + BATCH]) for i in range(0, len(part), BATCH)]
        for part in (training, held_out)
    )

    def loss(batch: _Batch) -> Tensor:
        interaction, lexical = _scores(module, batch)
        return INTERACTION * nce(interaction, TAU_INTERACTION) + nce(lexical, TAU_LEXICAL)

    def validate() -> dict[str, float]:
        parts = [_scores(module, batch) for batch in others]
        interaction, lexical = (torch.cat([part[i] for part in parts]) for i in range(2))
        losses = float(nce(interaction, TAU_INTERACTION)), float(nce(lexical, TAU_LEXICAL))
        return {
            "loss": INTERACTION * losses[0] + losses[1],
            "interaction_loss": losses[0],
            "lexical_loss": losses[1],
            "interaction_first": float((interaction.argmax(dim=1) == 0).double().mean()),
            "lexical_first": float((lexical.argmax(dim=1) == 0).double().mean()),
        }

    digest = hashlib.sha256()
    for group in groups:
        digest.update(group.best.numpy().tobytes() + group.query_ids.numpy().tobytes())
    curve = fit(module, batches, loss, validate, schedule, file, data=digest.hexdigest())
    weight: F32 = module.read.weight.detach()[0].numpy().astype(np.float32)
    return ImportanceHead(weight, float(module.read.bias.detach())), curve


def make_groups(
    queries: StoredStates,
    documents: StoredStates,
    query_begins: Bool,
    document_begins: Bool,
    groups: I64,
) -> list[Group]:
    """What training needs for each query, from frozen states and a partition into units."""
    made: list[Group] = []
    pooled = [_one(documents, document_begins, row)[2] for row in range(len(documents.tokens))]
    d_offsets = documents.tokens.offsets
    with show_progress("matching units", len(groups)) as bar:
        for row, members in enumerate(groups.tolist()):
            tokens, inner, vectors, unit = _one(queries, query_begins, row)
            best, parts = [], []
            for place, member in enumerate(members):
                d_vectors, first = pooled[member], d_offsets[member]
                d_ids = documents.tokens.ids[first : d_offsets[member + 1]]
                best.append(
                    (vectors @ d_vectors.T).max(axis=1, initial=-1)
                    if len(d_ids)
                    else np.zeros(len(vectors), np.float32)
                )
                shared = np.flatnonzero(np.isin(d_ids, tokens))
                d_states = documents.inner[first + shared]
                parts.append((d_states, d_ids[shared], np.full(len(shared), place)))
            d_states, d_ids, places = (
                np.concatenate(column) for column in zip(*parts, strict=True)
            )
            made.append(
                Group(
                    query=torch.from_numpy(inner),
                    query_ids=torch.from_numpy(tokens.astype(np.int64)),
                    unit=torch.from_numpy(unit),
                    best=torch.from_numpy(np.stack(best, axis=1)),
                    document=torch.from_numpy(d_states),
                    document_ids=torch.from_numpy(d_ids.astype(np.int64)),
                    place=torch.from_numpy(places),
                )
            )
            bar.advance(1)
    return made


def _one(stored: StoredStates, begins: Bool, row: int) -> tuple[I32, F16, F32, I64]:
    """Token ids, inner states, unit vectors and the unit of each token of one text."""
    first, last = stored.tokens.offsets[row], stored.tokens.offsets[row + 1]
    states = stored.states[first:last].astype(np.float32)
    units = partition(begins[first:last], np.array([0, last - first]))
    unit = np.cumsum(begins[first:last], dtype=np.int64) - 1
    inner = stored.inner[first:last]
    return stored.tokens.ids[first:last], inner, unit_vectors(states, units, states.shape[1]), unit


@dataclass(frozen=True)
class _Batch:
    """Groups side by side, padded; only the states of document tokens stay flat, and `position`
    says where each belongs in [b, g, k]."""

    query: Tensor
    inside: Tensor
    query_ids: Tensor
    unit: Tensor
    best: Tensor
    document: Tensor
    position: Tensor
    document_ids: Tensor


def _batch(groups: Sequence[Group]) -> _Batch:
    size = groups[0].best.shape[1]
    query = _padded([group.query for group in groups])
    lengths = torch.tensor([[len(group.query)] for group in groups])
    document = torch.cat([group.document_ids for group in groups])
    # Row of each token in [b, g], then its rank among the tokens of that document.
    row = torch.cat([i * size + group.place for i, group in enumerate(groups)])
    counts = torch.bincount(row, minlength=len(groups) * size)
    order = torch.argsort(row, stable=True)
    rank = torch.empty_like(row)
    rank[order] = torch.arange(len(row)) - (counts.cumsum(0) - counts)[row[order]]
    longest = max(1, int(counts.max()))
    position = row * longest + rank
    ids = torch.full((len(groups) * size * longest,), -2)
    ids[position] = document
    return _Batch(
        query=query,
        inside=torch.arange(query.shape[1]) < lengths,
        query_ids=_padded([group.query_ids for group in groups], -1),
        unit=_padded([group.unit for group in groups]),
        best=_padded([group.best for group in groups]),
        document=torch.cat([group.document for group in groups]),
        position=position,
        document_ids=ids.view(len(groups), size, longest),
    )


def _scores(module: _Head, batch: _Batch) -> tuple[Tensor, Tensor]:
    """Interaction and lexical scores of a batch of groups, [b, g] each."""
    importance = module(batch.query) * batch.inside
    interaction = interaction_scores(importance, batch.unit, batch.best, SHARPNESS)
    places = importance.new_zeros(batch.document_ids.numel())
    document = places.index_put((batch.position,), module(batch.document))
    shaped = document.view(batch.document_ids.shape)
    lexical = lexical_scores(
        importance**SHARPNESS, batch.query_ids, shaped**SHARPNESS, batch.document_ids
    )
    return interaction, lexical


def _padded(parts: Sequence[Tensor], value: float = 0.0) -> Tensor:
    return pad_sequence(list(parts), batch_first=True, padding_value=value)
