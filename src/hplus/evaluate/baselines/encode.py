"""Texts -> a baseline's vectors, encoded once and kept on disk."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache as once
from pathlib import Path
from typing import Any

import numpy as np

from hplus.errors import InputError
from hplus.evaluate.baselines import inputs
from hplus.evaluate.baselines.baseline import Baseline, MultiVectors, Side
from hplus.evaluate.baselines.cache import key_of, stored_rows
from hplus.evaluate.baselines.load import load
from hplus.evaluate.baselines.pooling import counts, read_projections, vectors_of
from hplus.evaluate.baselines.weights import hashes, verified
from hplus.texts import as_texts
from hplus.types import F32, offsets_of


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

    folder: where weights are looked for besides installed packages; cache: where vectors are kept;
    progress: what to call the work beside the bar, nothing shows none.
    """
    if baseline.kind not in ("dense", "multi-vector"):
        raise InputError(
            f"{baseline.name} is a {baseline.kind} baseline without vectors; ask for its scores"
        )
    if side not in ("query", "document"):
        raise InputError(f'side "query" or "document" expected, {side!r} came')
    checked = as_texts(texts)
    place = verified(baseline, folder=folder)
    key = key_of(baseline, hashes(baseline, place), side, checked)
    if baseline.weights.runner == "sentence-transformers":
        return _by_sentence_transformers(baseline, checked, side, place, cache, key, progress)
    encoder = load(baseline, place, threads=threads)
    projections = read_projections(baseline, place)

    def run(first: int, last: int) -> F32:
        some = inputs.of_texts(baseline, encoder.tokenizer, checked[first:last], side)
        return vectors_of(baseline, encoder.forward(some), some, projections, side)

    if baseline.kind == "dense":
        one_each = np.arange(len(checked) + 1)
        return stored_rows(cache, key, one_each, baseline.width, np.float32, run, progress)
    whole = inputs.of_texts(baseline, encoder.tokenizer, checked, side)
    offsets = offsets_of(counts(baseline, whole, side))
    rows = stored_rows(cache, key, offsets, baseline.width, np.float16, run, progress)
    return MultiVectors(rows, offsets)


def _by_sentence_transformers(
    baseline: Baseline,
    texts: list[str],
    side: Side,
    place: Path,
    cache: Path | None,
    key: str,
    progress: str,
) -> F32:
    """The library's own tokenising and pooling: it is the peer here, not only its weights."""
    prompt = baseline.query_prompt if side == "query" else baseline.document_prompt

    @once
    def model() -> Any:
        import sentence_transformers

        found = sentence_transformers.SentenceTransformer(
            str(place), device="cpu", local_files_only=True, trust_remote_code=False
        )
        found.max_seq_length = baseline.max_tokens
        return found

    def run(first: int, last: int) -> F32:
        rows: F32 = model().encode(
            [prompt + text for text in texts[first:last]],
            batch_size=8,
            normalize_embeddings=baseline.normalise,
            show_progress_bar=False,
        )
        return rows

    one_each = np.arange(len(texts) + 1)
    return stored_rows(cache, key, one_each, baseline.width, np.float32, run, progress)
