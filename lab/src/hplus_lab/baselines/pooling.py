"""States of the tokens -> the vectors a baseline compares: pooling, projection, width, norm."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np

from hplus.backbones.files import read_weights
from hplus.errors import BackboneError
from hplus.types import F32, I64, offsets_of
from hplus.units.select import cluster, join
from hplus.units.vectors import normalise
from hplus_lab.baselines.baseline import Baseline, Side
from hplus_lab.baselines.inputs import Sequences

LinearLayer = tuple[F32, F32 | None]


def vectors_of(
    baseline: Baseline,
    states: F32,
    inputs: Sequences,
    projections: Sequence[LinearLayer],
    side: Side,
) -> F32:
    """States f32[T, d] -> one row per text; of a multi-vector model, `counts` rows per text."""
    rows = pooled(states, inputs, baseline.pooling)
    for weight, bias in projections:
        rows = rows @ weight.T + (0 if bias is None else bias)
    if rows.shape[1] < baseline.width:
        raise BackboneError(
            f"expected vectors of width {baseline.width} from {baseline.name}, got width "
            f"{rows.shape[1]}; the folder holds another model"
        )
    rows = np.ascontiguousarray(rows[:, : baseline.width], np.float32)
    if baseline.normalise:
        rows = normalise(rows)
    if baseline.late.pool_factor > 1 and side == "document":
        ends = offsets_of(_kept(inputs))
        rows = np.concatenate(
            [_clustered(rows[a:b], baseline.late.pool_factor) for a, b in pairwise(ends.tolist())]
        )
    return rows


def pooled(states: F32, inputs: Sequences, pooling: str) -> F32:
    """The pooling alone: f32[n, d], or f32[kept, d] for "token".

    A mean is over attended tokens only, so never over the [MASK]s a query was expanded with.
    """
    if pooling == "token":
        return states[inputs.kept]
    first, last = inputs.offsets[:-1], inputs.offsets[1:]
    if pooling == "cls":
        return states[first]
    if pooling == "last":
        return states[last - 1]
    seen = np.where(inputs.attended[:, None], states, np.float32(0))
    sums = np.add.reduceat(seen, first, axis=0, dtype=np.float64)
    count = np.add.reduceat(inputs.attended.astype(np.int64), first)
    mean: F32 = (sums / count[:, None]).astype(np.float32)
    return mean


def counts(baseline: Baseline, inputs: Sequences, side: Side) -> I64:
    """How many vectors each text of a multi-vector model will have, i64[n]."""
    kept, factor = _kept(inputs), baseline.late.pool_factor
    if factor == 1 or side == "query":
        return kept
    return np.where(kept > 1, 1 + np.maximum((kept - 1) // factor, 1), kept)


def read_projections(baseline: Baseline, place: Path) -> list[LinearLayer]:
    """The linear layers of the folder: a matrix and, where there is one, a bias each."""
    found: list[LinearLayer] = []
    for name in baseline.weights.projections:
        tensors = read_weights(place / name)
        matrices = [tensor for tensor in tensors.values() if tensor.ndim == 2]
        biases = [tensor for tensor in tensors.values() if tensor.ndim == 1]
        if len(matrices) != 1 or len(biases) > 1:
            shapes = {key: tensor.shape for key, tensor in tensors.items()}
            raise BackboneError(
                f"expected one matrix and at most one bias in {place / name}, got {shapes}"
            )
        found.append((matrices[0], biases[0] if biases else None))
    return found


def _kept(inputs: Sequences) -> I64:
    before = np.concatenate([[0], np.cumsum(inputs.kept)]).astype(np.int64)
    kept: I64 = before[inputs.offsets[1:]] - before[inputs.offsets[:-1]]
    return kept


def _clustered(vectors: F32, factor: int) -> F32:
    """Token pooling: the first vector as it is, the rest as normalised means of their clusters."""
    if len(vectors) < 2:
        return vectors
    rest = vectors[1:]
    count = max(len(rest) // factor, 1)
    group = cluster(join(rest), count) if count < len(rest) else np.arange(len(rest))
    means = np.zeros((count, vectors.shape[1]), np.float32)
    np.add.at(means, group, rest)
    return np.concatenate([vectors[:1], normalise(means)])
