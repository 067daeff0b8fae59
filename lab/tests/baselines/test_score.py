"""Scores against plain loops; the probe, on real weights where HPLUS_BASELINES names them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from baseline_rows import (
    DENSE,
    MULTI,
    TEXTS,
    unit,
)
from hplus.errors import InputError
from hplus.evaluate.bm25 import BM25
from hplus.evaluate.data import demo_folder, read_beir
from hplus.types import offsets_of
from hplus_lab.baselines import (
    BASELINES,
    Baseline,
    MultiVectors,
    available,
    named,
    probe,
    rerank,
    scores,
)
from hplus_lab.baselines.score import maxsim


@settings(deadline=None, max_examples=30)
@given(
    st.integers(0, 2**32 - 1),
    st.lists(st.integers(1, 5), min_size=1, max_size=4),
    st.lists(st.integers(0, 6), min_size=1, max_size=5),
)
def test_maxsim_is_a_triple_loop(seed: int, asked: list[int], told: list[int]) -> None:
    random = np.random.default_rng(seed)
    sides = []
    for lengths in (asked, told):
        rows = unit(random.normal(size=(sum(lengths), 8))).astype(np.float16)
        sides.append(MultiVectors(rows, offsets_of(lengths)))
    queries, documents = sides
    pools = random.integers(0, len(told), (len(asked), 3))
    expected = np.zeros(pools.shape)
    for q, pool in enumerate(pools):
        for k, d in enumerate(pool):
            rows = documents.vectors[documents.offsets[d] : documents.offsets[d + 1]].astype("f8")
            for token in queries.vectors[queries.offsets[q] : queries.offsets[q + 1]].astype("f8"):
                expected[q, k] += max((float(token @ row) for row in rows), default=0.0)
    np.testing.assert_allclose(maxsim(queries, documents, pools), expected, atol=1e-4)


def test_bm25_is_our_bm25() -> None:
    data = read_beir(demo_folder("en"))
    found = scores(named("bm25"), data.queries[:5], data.documents)
    corpus = BM25(data.documents)
    np.testing.assert_array_equal(found, [corpus.scores(query) for query in data.queries[:5]])
    pools, best = corpus.search(data.queries[:5], 7)
    np.testing.assert_array_equal(
        rerank(named("bm25"), data.queries[:5], data.documents, pools), best
    )


@pytest.mark.parametrize("row", [DENSE, MULTI], ids=["dense", "multi-vector"])
def test_a_pool_is_part_of_all_scores(folder: Path, row: Baseline) -> None:
    every = scores(row, TEXTS[:3], TEXTS, folder=folder)
    assert every.shape == (3, len(TEXTS))
    pools = np.array([[6, 0], [2, 2], [1, 5]])
    np.testing.assert_array_equal(
        rerank(row, TEXTS[:3], TEXTS, pools, folder=folder), np.take_along_axis(every, pools, 1)
    )


@pytest.mark.parametrize(
    ("pools", "sentence"),
    [
        (np.zeros((2, 1), np.int64), r"expected pools i64\[1, k\], got int64 of shape \(2, 1\)"),
        (np.zeros((1, 1), np.float32), "float32"),
        (np.full((1, 1), 2), "name documents 2 to 2, but there are 2"),
        (np.full((1, 1), -1), "there are 2"),
    ],
)
def test_pools_that_do_not_fit(pools: Any, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        rerank(named("bm25"), ["heart"], ["heart", "kidney"], pools)


def test_the_probe_on_bm25() -> None:
    relevant, unrelated = probe(named("bm25"))
    assert relevant > unrelated == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in BASELINES if name != "bm25"])
def test_the_probe_on_real_weights(name: str) -> None:
    """Over the weights in the folder that HPLUS_BASELINES names, and installed packages."""
    place = Path(os.environ["HPLUS_BASELINES"]) if "HPLUS_BASELINES" in os.environ else None
    found = available(named(name), folder=place)
    if not found:
        pytest.skip(found.missing)
    relevant, unrelated = probe(named(name), folder=place)
    assert relevant > unrelated
