"""The global view is a normalised mean at any width, and its score a cosine."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hplus.views.global_ import represent, score


def cosine(a: list[float], b: list[float]) -> float:
    def dot(x: list[float], y: list[float]) -> float:
        return math.fsum(u * v for u, v in zip(x, y, strict=True))

    return dot(a, b) / math.sqrt(dot(a, a) * dot(b, b))


@settings(deadline=None, max_examples=80)
@given(st.integers(0, 2**32 - 1), st.integers(0, 6), st.integers(1, 8))
def test_score_is_the_cosine_of_prefixes(seed: int, documents: int, width: int) -> None:
    """eq:global_view."""
    means = np.random.default_rng(seed).normal(size=(1 + documents, 8)).astype(np.float32)
    vectors = represent(means, width)
    assert vectors.shape == (1 + documents, width)
    assert vectors.dtype == np.float32
    scores = score(vectors[:1], vectors[1:])
    assert scores.dtype == np.float64
    expected = [cosine(means[0, :width].tolist(), mean[:width].tolist()) for mean in means[1:]]
    assert scores.tolist() == pytest.approx(expected, abs=1e-6)


def test_a_text_without_tokens_has_no_direction_and_scores_nothing() -> None:
    vectors = represent(np.array([[0, 0], [3, 4]], np.float32), 2)
    np.testing.assert_array_equal(vectors, np.array([[0, 0], [0.6, 0.8]], np.float32))
    assert score(vectors[:1], vectors).tolist() == [0, 0]
    assert score(vectors[1:], vectors).tolist() == pytest.approx([0, 1])
