"""Pooling, projection and clustering against plain loops."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from baseline_rows import (
    DENSE,
    MULTI,
    TEXTS,
    unit,
)
from hplus.backbones.tokenizer import Tokenizer
from hplus.errors import BackboneError
from hplus.types import offsets_of
from hplus_lab.baselines import (
    LateInteraction,
    inputs,
)
from hplus_lab.baselines.pooling import counts, pooled, vectors_of


def test_pooling_is_a_loop(tokenizer: Tokenizer) -> None:
    found = inputs.of_texts(
        replace(MULTI, late=LateInteraction(query_tokens=12, expand=True)),
        tokenizer,
        TEXTS,
        "query",
    )
    states = np.random.default_rng(0).normal(size=(len(found.ids), 5)).astype(np.float32)
    spans = [slice(a, b) for a, b in pairwise(found.offsets.tolist())]
    means = [states[s][found.attended[s]].mean(axis=0) for s in spans]
    np.testing.assert_allclose(pooled(states, found, "mean"), means, atol=1e-6)
    np.testing.assert_array_equal(pooled(states, found, "cls"), [states[s][0] for s in spans])
    np.testing.assert_array_equal(pooled(states, found, "last"), [states[s][-1] for s in spans])
    np.testing.assert_array_equal(pooled(states, found, "token"), states)


def test_projection_prefix_and_length(tokenizer: Tokenizer) -> None:
    random = np.random.default_rng(1)
    found = inputs.of_texts(DENSE, tokenizer, TEXTS, "query")
    states = random.normal(size=(len(found.ids), 5)).astype(np.float32)
    a, b = (random.normal(size=shape).astype(np.float32) for shape in ((7, 5), (6, 7)))
    bias = random.normal(size=6).astype(np.float32)
    mean = pooled(states, found, "mean")
    row = replace(DENSE, width=4)
    expected = (mean @ a.T @ b.T + bias)[:, :4]
    layers = [(a, None), (b, bias)]
    raw = vectors_of(replace(row, normalise=False), states, found, layers, "query")
    np.testing.assert_allclose(raw, expected, rtol=1e-5)
    np.testing.assert_allclose(
        vectors_of(row, states, found, layers, "query"), unit(expected), atol=1e-6
    )
    with pytest.raises(BackboneError, match="expected vectors of width 32 from tiny, got width 6"):
        vectors_of(DENSE, states, found, layers, "query")


@pytest.mark.parametrize("factor", [2, 5, 100])
def test_token_pooling_keeps_the_first_and_the_counts(tokenizer: Tokenizer, factor: int) -> None:
    row = replace(MULTI, width=6, late=LateInteraction(pool_factor=factor))
    found = inputs.of_texts(row, tokenizer, TEXTS, "document")
    states = np.random.default_rng(2).normal(size=(len(found.ids), 6)).astype(np.float32)
    lengths = counts(row, found, "document")
    vectors = vectors_of(row, states, found, [], "document")
    assert len(vectors) == lengths.sum()
    tokens = np.diff(found.offsets)
    np.testing.assert_array_equal(lengths, 1 + np.maximum((tokens - 1) // factor, 1))
    starts = offsets_of(lengths)[:-1]
    np.testing.assert_allclose(vectors[starts], unit(states[found.offsets[:-1]]), atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    np.testing.assert_array_equal(counts(row, found, "query"), tokens)
    np.testing.assert_allclose(vectors_of(row, states, found, [], "query"), unit(states), atol=1e-6)
