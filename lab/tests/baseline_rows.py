"""Rows of baselines whose weights a test makes, and short ways to use them."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from hplus_lab.baselines import (
    Baseline,
    MultiVectors,
    Weights,
    encode,
    inputs,
)

TEXTS = [
    "type 2 diabetes of the heart",
    "",
    "chronic kidney disease, acute; insulin therapy!",
    "the heart failure of a patient " * 12,
    "糖尿病患者的治疗",
    "cell protein gene",
    "dose",
]
DENSE = Baseline(
    "tiny", "dense", 32, "mean", Weights("transformers", "test/tiny"), "none", max_tokens=40
)
MULTI = replace(
    DENSE,
    kind="multi-vector",
    pooling="token",
    query_marker="diabetes",
    document_marker="disease",
)


def unit(rows: Any) -> Any:
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


def dense(baseline: Baseline, texts: list[str], side: Any, **options: Any) -> Any:
    found = encode(baseline, texts, side, **options)
    assert not isinstance(found, MultiVectors)
    return found


def multi(baseline: Baseline, texts: list[str], side: Any, **options: Any) -> MultiVectors:
    found = encode(baseline, texts, side, **options)
    assert isinstance(found, MultiVectors)
    return found


def sequences(found: inputs.Sequences) -> list[list[int]]:
    return [found.ids[a:b].tolist() for a, b in pairwise(found.offsets.tolist())]


def packaged(name: str = "baseline_weights_of_a_test") -> Baseline:
    files = (("model.onnx", "0" * 64), ("tokenizer.json", "1" * 64))
    weights = Weights("onnx", "some==1.0", f"{name}/models/small", files=files)
    return replace(DENSE, name="small", weights=weights)


def write_packaged(place: Path) -> Path:
    place.mkdir(parents=True)
    for name in ("model.onnx", "tokenizer.json"):
        (place / name).write_bytes(b"other")
    return place


def pinned(row: Baseline, place: Path) -> Baseline:
    files = tuple(
        (name, hashlib.sha256((place / name).read_bytes()).hexdigest())
        for name, _ in row.weights.files
    )
    return replace(row, weights=replace(row.weights, files=files))
