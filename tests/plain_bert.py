"""BERT in a few lines of plain numpy, one text at a time: the oracle of both precisions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

erf = np.vectorize(math.erf)


def states(weights: Mapping[str, Any], heads: int, ids: Any, epsilon: float = 1e-12) -> list[Any]:
    """The states after every layer, f64[n, d] each; int8 weights with scales as in `int8.py`."""
    words = _dequantised(weights, "embeddings.word_embeddings")[ids]
    x = words + weights["embeddings.position_embeddings.weight"][: len(ids)]
    x = x + weights["embeddings.token_type_embeddings.weight"][0]
    x = _norm(weights, "embeddings.LayerNorm", x, epsilon)
    found, i = [], 0
    while f"encoder.layer.{i}.output.dense.bias" in weights:
        name = f"encoder.layer.{i}"
        q, k, v = _product(
            weights, [f"{name}.attention.self.{p}" for p in ("query", "key", "value")], x
        )
        parts = []
        for head in range(heads):
            columns = slice(head * q.shape[1] // heads, (head + 1) * q.shape[1] // heads)
            scores = q[:, columns] @ k[:, columns].T / math.sqrt(q.shape[1] // heads)
            share = np.exp(scores - scores.max(axis=1, keepdims=True))
            parts.append(share / share.sum(axis=1, keepdims=True) @ v[:, columns])
        (out,) = _product(weights, [f"{name}.attention.output.dense"], np.hstack(parts))
        x = _norm(weights, f"{name}.attention.output.LayerNorm", x + out, epsilon)
        (up,) = _product(weights, [f"{name}.intermediate.dense"], x)
        (down,) = _product(weights, [f"{name}.output.dense"], up * (1 + erf(up / math.sqrt(2))) / 2)
        x = _norm(weights, f"{name}.output.LayerNorm", x + down, epsilon)
        found.append(x)
        i += 1
    if "rotation" in weights:
        found[-1] = x @ weights["rotation"]
    return found


def _product(weights: Mapping[str, Any], names: list[str], x: Any) -> list[Any]:
    """x W + b; with int8 weights x is rounded to 256 steps of the range of the whole text."""
    if weights[f"{names[0]}.weight"].dtype == np.int8:
        low, high = min(0.0, float(x.min())), max(0.0, float(x.max()))
        step = (high - low) / 255
        zero = np.clip(np.rint(-low / step), 0, 255)
        x = (np.clip(np.rint(x / step) + zero, 0, 255) - zero) * step
    return [x @ _dequantised(weights, name).T + weights[f"{name}.bias"] for name in names]


def _dequantised(weights: Mapping[str, Any], name: str) -> Any:
    weight = weights[f"{name}.weight"].astype(np.float64)
    scale = weights.get(f"{name}.scale")
    return weight if scale is None else weight * scale[:, None]


def _norm(weights: Mapping[str, Any], name: str, x: Any, epsilon: float) -> Any:
    centred = x - x.mean(axis=1, keepdims=True)
    scaled = centred / np.sqrt(x.var(axis=1, keepdims=True) + epsilon)
    return scaled * weights[f"{name}.weight"] + weights[f"{name}.bias"]
