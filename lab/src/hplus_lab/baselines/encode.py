"""Texts -> a baseline's vectors, encoded once and kept on disk."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache as once
from pathlib import Path

import numpy as np

from hplus.errors import InputError
from hplus.texts import as_texts
from hplus.types import F32, offsets_of
from hplus_lab.baselines import inputs
from hplus_lab.baselines.baseline import Baseline, MultiVectors, Side
from hplus_lab.baselines.encoders import SentenceTransformersEncoder, load
from hplus_lab.baselines.pooling import counts, read_projections, vectors_of
from hplus_lab.baselines.stored import key_of, stored_rows
from hplus_lab.baselines.weights import hashes, verified


def encode(
    baseline: Baseline,
    texts: Sequence[str],
    side: Side,
    *,
    folder: Path | None = None,
    cache: Path | None = None,
    progress: str = "",
    threads: int = 1,
) -> F32 | MultiVectors:
    """Vectors of all texts: f32[n, d] of a dense model, `MultiVectors` of a multi-vector one.

    folder: where to look for weights, besides installed packages; cache: where vectors are kept;
    progress: the label of the bar, an empty one shows no bar.
    """
    if baseline.kind not in ("dense", "multi-vector"):
        raise InputError(
            f"{baseline.name} is a {baseline.kind} baseline and has no vectors; use its scores"
        )
    if side not in ("query", "document"):
        raise InputError(f'expected side "query" or "document", got {side!r}')
    checked = as_texts(texts)
    place = verified(baseline, folder=folder)
    key = key_of(baseline, hashes(baseline, place), side, checked)
    one_each = np.arange(len(checked) + 1)
    if baseline.weights.runner == "sentence-transformers":
        prompt = baseline.query_prompt if side == "query" else baseline.document_prompt
        # Loaded at the first text that is not stored yet.
        model = once(lambda: SentenceTransformersEncoder(baseline, place))

        def run_library(first: int, last: int) -> F32:
            return model().encode([prompt + text for text in checked[first:last]])

        return stored_rows(cache, key, one_each, baseline.width, np.float32, run_library, progress)
    encoder = load(baseline, place, threads=threads)
    projections = read_projections(baseline, place)

    def run(first: int, last: int) -> F32:
        some = inputs.of_texts(baseline, encoder.tokenizer, checked[first:last], side)
        return vectors_of(baseline, encoder.forward(some), some, projections, side)

    if baseline.kind == "dense":
        return stored_rows(cache, key, one_each, baseline.width, np.float32, run, progress)
    whole = inputs.of_texts(baseline, encoder.tokenizer, checked, side)
    offsets = offsets_of(counts(baseline, whole, side))
    rows = stored_rows(cache, key, offsets, baseline.width, np.float16, run, progress)
    return MultiVectors(rows, offsets)
