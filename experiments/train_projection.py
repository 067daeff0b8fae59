"""A token projection on frozen states, by late interaction: for the ablation "projected".

    python experiments/train_projection.py PAIRS… --apart-from SET… --sample 150 --cache states \
        --model mini --work WORK --into lab/src/hplus_lab/data/mini

eq:token_projection with the contrastive part of its loss: every query token meets the best token of
the passage, at full width and at the first 128 columns, as the ablation reads them. It starts from
the identity, raw states; the backbone stays as it is. projection.json beside the tensors has both
losses, of raw states and of every epoch. A run that was stopped goes on after its last epoch.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
from safetensors.numpy import save
from torch import Tensor, nn
from torch.nn.functional import normalize
from torch.nn.utils.rnn import pad_sequence

from hplus import HPlus
from hplus.evaluate.data import texts_of
from hplus.states_file import StoredStates, stored_states
from hplus.teach.duplicates import collect
from hplus.train.loop import Schedule, fit
from hplus.train.losses.contrastive import nce
from hplus.train.pairs import read_pairs
from hplus.types import I64
from hplus_lab.projection import TokenProjection

BATCH = 16
# Beside four hard negatives of a query.
RANDOM = 4
WIDTH = 128
TAU = 0.05
# Of the queries, held out to choose the epoch.
VALIDATION = 0.1
SCHEDULE = Schedule(epochs=4, learning_rate=2e-4, patience=2)


class Projection(nn.Module):
    """The head, at the start the identity."""

    def __init__(self, d: int) -> None:
        super().__init__()
        self.head = TokenProjection(d, d)
        nn.init.eye_(self.head.project.weight)
        nn.init.zeros_(self.head.project.bias)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("pairs", nargs="+", type=Path)
    parser.add_argument("--apart-from", action="append", type=Path, default=[], metavar="SET")
    parser.add_argument("--sample", type=int, default=150, help="pairs of each file")
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True, help="what resuming needs")
    parser.add_argument("--model", default="mini", help="whose states it is trained on")
    parser.add_argument("--into", type=Path, required=True, help="its folder, see kinds/projection")
    options = parser.parse_args()
    model = HPlus(options.model, long="cut")
    against = collect(text for folder in options.apart_from for text in texts_of(folder))
    pairs = read_pairs(options.pairs, sample=options.sample, apart_from=against, others=RANDOM)
    queries = stored_states(model, pairs.queries, options.cache, side="query", progress="queries")
    documents = stored_states(model, pairs.documents, options.cache, progress="passages")
    module = Projection(model.dim)
    asked = np.flatnonzero(np.diff(queries.tokens.offsets))
    order = np.random.default_rng(SCHEDULE.seed).permutation(asked)
    held_out = order[: int(VALIDATION * len(order))]
    training = order[len(held_out) :]

    def loss(rows: I64) -> Tensor:
        full, first = scores(module, queries, documents, rows, pairs.groups[rows])
        return (nce(full, TAU) + nce(first, TAU)) / 2

    def validate() -> dict[str, float]:
        parts = [
            scores(module, queries, documents, rows, pairs.groups[rows]) for rows in some(held_out)
        ]
        full, first = (torch.cat([part[i] for part in parts]) for i in range(2))
        return {
            "loss": float(nce(full, TAU) + nce(first, TAU)) / 2,
            "first": float((full.argmax(dim=1) == 0).double().mean()),
            f"first_at_{WIDTH}": float((first.argmax(dim=1) == 0).double().mean()),
        }

    with torch.no_grad():
        start = validate()
    text = json.dumps([pairs.queries, pairs.documents, pairs.groups.tolist()])
    digest = hashlib.sha256(text.encode()).hexdigest()
    curve = fit(
        module, some(training), loss, validate, SCHEDULE,
        options.work / "projection.safetensors", data=digest,
    )  # fmt: skip
    head = module.head.project
    tensors = {"project.weight": head.weight, "project.bias": head.bias}
    data = save(
        {name: value.detach().numpy().astype(np.float16) for name, value in tensors.items()}
    )
    options.into.mkdir(parents=True, exist_ok=True)
    (options.into / "projection.safetensors").write_bytes(data)
    about = {
        "sha256": hashlib.sha256(data).hexdigest(),
        "about": f"of {options.model}: trained after its heads, for the protocol `projection`",
        "pairs": pairs.report,
        "schedule": asdict(SCHEDULE),
        "raw_states": start,
        "curve": curve,
    }
    text = json.dumps(about, indent=2, ensure_ascii=False) + "\n"
    (options.into / "projection.json").write_text(text, "utf-8")
    print(json.dumps({"raw_states": start, "curve": curve}, indent=1))


def some(rows: I64) -> list[I64]:
    """Batches, each a few queries."""
    return [rows[first : first + BATCH] for first in range(0, len(rows), BATCH)]


def scores(
    module: Projection, queries: StoredStates, documents: StoredStates, rows: I64, groups: I64
) -> tuple[Tensor, Tensor]:
    """Mean over the query's tokens of the best similarity with each document of its group, [b, g]
    at full width and at the first columns. All passages of the batch meet all its queries: one
    product costs less than gathering every group's own."""
    met, places = np.unique(groups, return_inverse=True)
    places = places.reshape(groups.shape)
    told, inside = _padded(documents, met)
    asked, counted = _padded(queries, rows)
    told, asked = module.head.project(told), module.head.project(asked)
    both = []
    for width in (told.shape[-1], WIDTH):
        told_vectors, asked_vectors = (normalize(x[..., :width], dim=-1) for x in (told, asked))
        similar = asked_vectors.flatten(0, 1) @ told_vectors.flatten(0, 1).T  # [b q, m t]
        similar = similar.unflatten(1, inside.shape).masked_fill(~inside, -1)
        best = similar.amax(dim=2).unflatten(0, counted.shape) * counted[..., None]  # [b, q, m]
        mean = best.sum(dim=1) / counted.sum(dim=1, keepdim=True)
        both.append(mean.gather(1, torch.from_numpy(places)))
    return both[0], both[1]


def _padded(stored: StoredStates, rows: I64) -> tuple[Tensor, Tensor]:
    """States f32[texts, longest, d] of some texts, and which places are theirs."""
    offsets = stored.tokens.offsets
    parts = [
        torch.from_numpy(stored.states[offsets[row] : offsets[row + 1]].astype(np.float32))
        for row in rows
    ]
    lengths = torch.tensor([[len(part)] for part in parts])
    states = pad_sequence(parts, batch_first=True)
    return states, torch.arange(states.shape[1]) < lengths


if __name__ == "__main__":
    main()
