"""The importance head by ranking: the lexical and the weighted-interaction objective together.

The states are frozen, so everything but the importance is a constant that is computed once: the
best similarity of each query unit with each document of its group, and which tokens of a document
the query shares. What is left to learn is one vector and a bias, in seconds an epoch.
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
from hplus.states_file import StoredStates
from hplus.train.loop import Schedule, fit
from hplus.train.losses.interaction import interaction_scores
from hplus.train.losses.lexical import lexical_scores
from hplus.train.losses.ranking import nce
from hplus.types import F32, I32, I64, Bool
from hplus.units.partition import partition
from hplus.units.pool import pool

BATCH = 64
TAU_INTERACTION = 0.02
TAU_LEXICAL = 0.3
# softplus(BIAS) = 1: training starts from uniform weights.
BIAS = 0.5413249


@dataclass(frozen=True)
class Group:
    """One query with its documents, the positive first.

    query [n, d], query_ids [n], unit [n]: its tokens; best [m, g]: of each query unit the largest
    similarity with each document; document [k, d], document_ids [k], place [k]: the tokens, of
    the document at `place`, whose ids the query has.
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
        scores: Tensor = softplus(self.read(states)[..., 0])  # eq:unit_importance
        return scores


def train_importance(
    groups: Sequence[Group], *, validation: int, schedule: Schedule, folder: Path
) -> tuple[ImportanceHead, list[dict[str, float]]]:
    """The head of the best epoch and its curve; the last `validation` groups are not trained on."""
    module = _Head(groups[0].query.shape[1])
    training, held_out = groups[:-validation], groups[-validation:]
    batches = [training[i : i + BATCH] for i in range(0, len(training), BATCH)]

    def loss(batch: object) -> Tensor:
        interaction, lexical = _scores(module, batch)  # type: ignore[arg-type]
        return nce(interaction, TAU_INTERACTION) + nce(lexical, TAU_LEXICAL)

    def validate() -> dict[str, float]:
        parts = [_scores(module, held_out[i : i + BATCH]) for i in range(0, len(held_out), BATCH)]
        interaction, lexical = (torch.cat([part[i] for part in parts]) for i in range(2))
        losses = float(nce(interaction, TAU_INTERACTION)), float(nce(lexical, TAU_LEXICAL))
        return {
            "loss": sum(losses),
            "interaction_loss": losses[0],
            "lexical_loss": losses[1],
            "interaction_first": float((interaction.argmax(dim=1) == 0).double().mean()),
            "lexical_first": float((lexical.argmax(dim=1) == 0).double().mean()),
        }

    digest = hashlib.sha256()
    for group in groups:
        digest.update(group.best.numpy().tobytes() + group.query_ids.numpy().tobytes())
    curve = fit(
        module,
        batches,
        loss,
        validate,
        schedule,
        folder,
        name="importance",
        data=digest.hexdigest(),
    )
    weight: F32 = module.read.weight.detach()[0].numpy().astype(np.float32)
    return ImportanceHead(weight, float(module.read.bias.detach())), curve


def make_groups(
    queries: StoredStates,
    documents: StoredStates,
    query_begins: Bool,
    document_begins: Bool,
    groups: I64,
) -> list[Group]:
    """All that training needs of each query, from frozen states and a partition into units."""
    made: list[Group] = []
    with show_progress("matching units", len(groups)) as bar:
        for row, members in enumerate(groups.tolist()):
            tokens, states, vectors, unit = _one(queries, query_begins, row)
            best, parts = [], []
            for place, member in enumerate(members):
                d_ids, d_states, d_vectors, _ = _one(documents, document_begins, member)
                best.append(
                    (vectors @ d_vectors.T).max(axis=1, initial=-1)
                    if len(d_ids)
                    else np.zeros(len(vectors), np.float32)
                )
                shared = np.flatnonzero(np.isin(d_ids, tokens))
                parts.append((d_states[shared], d_ids[shared], np.full(len(shared), place)))
            d_states, d_ids, places = (
                np.concatenate(column) for column in zip(*parts, strict=True)
            )
            made.append(
                Group(
                    query=torch.from_numpy(states),
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


def _one(stored: StoredStates, begins: Bool, row: int) -> tuple[I32, F32, F32, I64]:
    """Token ids, states, unit vectors and the unit of each token of one text."""
    first, last = stored.tokens.offsets[row], stored.tokens.offsets[row + 1]
    states = stored.states[first:last].astype(np.float32)
    cut = partition(begins[first:last], np.array([0, last - first]))
    unit = np.cumsum(begins[first:last], dtype=np.int64) - 1
    return stored.tokens.ids[first:last], states, pool(states, cut, states.shape[1]), unit


def _scores(module: _Head, batch: Sequence[Group]) -> tuple[Tensor, Tensor]:
    """Interaction and lexical scores of a batch of groups, [b, g] each."""
    query = _padded([group.query for group in batch])
    inside = torch.arange(query.shape[1]) < torch.tensor([[len(g.query)] for g in batch])
    importance = module(query) * inside
    unit = _padded([group.unit for group in batch])
    interaction = interaction_scores(importance, unit, _padded([group.best for group in batch]))
    size = batch[0].best.shape[1]
    document = _by_place(batch, size, module)
    ids = _padded([group.query_ids for group in batch], -1)
    return interaction, lexical_scores(importance, ids, *document)


def _by_place(batch: Sequence[Group], size: int, module: _Head) -> tuple[Tensor, Tensor]:
    """Importance [b, g, k] and ids [b, g, k] of the shared tokens of each document."""
    weights = module(torch.cat([group.document for group in batch]))
    own = weights.split([len(group.document) for group in batch])
    importance, ids = [], []
    for group, values in zip(batch, own, strict=True):
        for place in range(size):
            rows = group.place == place
            importance.append(values[rows])
            ids.append(group.document_ids[rows])
    shape = (len(batch), size, -1)
    return _padded(importance).view(shape), _padded(ids, -2).view(shape)


def _padded(parts: Sequence[Tensor], value: float = 0.0) -> Tensor:
    return pad_sequence(list(parts), batch_first=True, padding_value=value)
