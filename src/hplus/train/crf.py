"""The CRF on labelled texts and frozen states: eq:seg_loss per token."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from hplus.errors import InputError
from hplus.heads.crf import CRF, emissions, viterbi
from hplus.heads.crf_torch import LinearChainCRF
from hplus.states_file import F16
from hplus.train.loop import Schedule, fit
from hplus.types import I64, U8
from hplus.units.partition import begins_of_tags

# Tokens in a batch, padding included: a few milliseconds of matrix products.
BATCH = 8_192


@dataclass(frozen=True)
class Tagged:
    """Texts with their states f16[T, d], tags u8[T] and offsets i64[n + 1]."""

    states: F16
    tags: U8
    offsets: I64


def train_crf(
    training: Tagged,
    validation: Tagged,
    *,
    hidden: int,
    schedule: Schedule,
    file: Path,
) -> tuple[CRF, list[dict[str, float]]]:
    """The CRF of the best epoch, and the curve: loss per token and F1 of units on `validation`."""
    for what, some in (("training", training), ("validation", validation)):
        if len(some.tags) == 0:
            raise InputError(f"none of the texts with {what} labels has tokens")
    torch.manual_seed(schedule.seed)
    module = LinearChainCRF(training.states.shape[1], hidden)
    batches = _batches(training.offsets)

    def loss(batch: object) -> Tensor:
        assert isinstance(batch, np.ndarray)
        states, tags, mask = _padded(training, batch)
        likelihood = module.log_likelihood(module.emissions(states, mask), tags, mask)
        return -likelihood.sum() / mask.sum()

    def validate() -> dict[str, float]:
        total = 0.0
        for batch in _batches(validation.offsets):
            states, tags, mask = _padded(validation, batch)
            likelihood = module.log_likelihood(module.emissions(states, mask), tags, mask)
            total -= float(likelihood.sum())
        crf = module.to_numpy()
        return {"loss": total / len(validation.tags), "f1": units_f1(crf, validation)}

    digest = hashlib.sha256()
    for part in (training, validation):
        digest.update(part.tags.tobytes() + part.offsets.tobytes() + part.states[:64].tobytes())
    curve = fit(module, batches, loss, validate, schedule, file, data=digest.hexdigest())
    return module.to_numpy(), curve


def units_f1(crf: CRF, tagged: Tagged) -> float:
    """F1 of the units of two tokens or more, exact at both ends."""
    scores = emissions(crf, tagged.states.astype(np.float32), tagged.offsets)
    tags, _ = viterbi(crf, scores, tagged.offsets)
    found, gold = (_long_units(t, tagged.offsets) for t in (tags, tagged.tags))
    both = len(np.intersect1d(found, gold, assume_unique=True))
    return 2 * both / max(1, len(found) + len(gold))


def _long_units(tags: U8, offsets: I64) -> I64:
    """First token and length of each longer unit, as one number."""
    starts = np.flatnonzero(begins_of_tags(tags, offsets))
    ends = np.append(starts[1:], len(tags))
    longer = ends - starts > 1
    return starts[longer] * np.int64(1 << 20) + (ends - starts)[longer]


def _batches(offsets: I64) -> list[I64]:
    """Texts of similar length together, at most BATCH tokens; texts without tokens are left out."""
    lengths = np.diff(offsets)
    order = np.argsort(lengths, kind="stable")
    order = order[lengths[order] > 0]
    batches: list[I64] = []
    rows: list[int] = []
    for row in order.tolist():
        if rows and (len(rows) + 1) * int(lengths[row]) > BATCH:
            batches.append(np.array(rows))
            rows = []
        rows.append(row)
    return [*batches, np.array(rows)] if rows else batches


def _padded(tagged: Tagged, rows: Sequence[int] | I64) -> tuple[Tensor, Tensor, Tensor]:
    """States [b, n, d], tags [b, n] and mask [b, n] of these texts."""
    lengths = np.diff(tagged.offsets)[rows]
    width = int(lengths.max())
    states = torch.zeros(len(rows), width, tagged.states.shape[1])
    tags = torch.zeros(len(rows), width, dtype=torch.long)
    mask = torch.arange(width)[None, :] < torch.from_numpy(lengths)[:, None]
    for place, row in enumerate(rows):
        first, last = tagged.offsets[row], tagged.offsets[row + 1]
        states[place, : last - first] = torch.from_numpy(tagged.states[first:last].astype("f4"))
        tags[place, : last - first] = torch.from_numpy(tagged.tags[first:last].astype("i8"))
    return states, tags, mask
