"""Other systems as rankers: equal scores however they are ranked, and costs counted by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hplus import InputError
from hplus.evaluate.data import RetrievalSet
from hplus_lab.baselines import Baseline, MultiVectors, Weights, encode, named, scores
from hplus_lab.cost import Cost
from hplus_lab.rankers import by_baseline, over_corpus

HEARTS = RetrievalSet(
    ["1", "2", "3"],
    ["heart failure", "kidney disease", "the failing heart, heart of hearts"],
    ["a", "b"],
    ["failing hearts", "kidney heart and liver"],
    {"a": {"3": 1}, "b": {"2": 1}},
)
OURS = Weights("transformers", "tiny")
DENSE = Baseline("dense", "dense", 32, "mean", OURS, "")
MULTI = replace(DENSE, name="multi", kind="multi-vector", pooling="token")


@pytest.fixture
def folder(tiny_folder: Path, tmp_path: Path) -> Path:
    (tmp_path / "tiny").symlink_to(tiny_folder)
    return tmp_path


def test_bm25_costs_its_postings() -> None:
    found = by_baseline(named("bm25"), HEARTS)
    # heart, failur | kidney, diseas | fail, heart: six postings of eight bytes in three documents;
    # "fail heart" meets 1 + 2 of them, "kidney heart liver" 1 + 2 + 0.
    assert found.cost(3) == Cost(0.0, 6 * 8 / 3, 2.5, 3.0)
    assert found.cost(3) == found.cost(1)
    for row, scored in enumerate(found.scores):
        np.testing.assert_array_equal(found.rank(row, np.arange(3)), scored)


@pytest.mark.parametrize("row", [DENSE, MULTI], ids=["dense", "multi-vector"])
def test_vectors_cost_what_they_hold(folder: Path, row: Baseline) -> None:
    found = by_baseline(row, HEARTS, folder=folder, format="f32")
    expected = scores(row, HEARTS.queries, HEARTS.documents, folder=folder)
    np.testing.assert_array_equal(found.scores, expected)
    sides = (encode(row, HEARTS.queries, "query", folder=folder),
             encode(row, HEARTS.documents, "document", folder=folder))  # fmt: skip
    units, vectors = (
        len(side.vectors) / (len(side.offsets) - 1) if isinstance(side, MultiVectors) else 1.0
        for side in sides
    )
    assert (vectors > 1) == (row is MULTI)
    cost = found.cost(2)
    number = 2 if row is MULTI else 4  # of several vectors there is no more than f16
    assert (cost.vectors, cost.bytes, cost.query_units) == (vectors, vectors * 32 * number, units)
    begins = 8 * (len(HEARTS.documents) + 1) / len(HEARTS.documents) if row is MULTI else 0
    assert found.file == pytest.approx(cost.bytes + begins)
    assert cost.multiplications == pytest.approx(2 * units * vectors * 32)
    for format in ("f16", "int8"):
        coarse = by_baseline(row, HEARTS, folder=folder, format=format)
        assert (coarse.cost(2).bytes < cost.bytes) == (row is DENSE or format == "int8")
        np.testing.assert_allclose(coarse.scores, expected, rtol=2e-2)
        assert (np.abs(coarse.scores - expected).max() > 0) == (row is DENSE or format == "int8")
    some = np.array([2, 0])
    np.testing.assert_allclose(found.rank(1, some), expected[1, some], rtol=2e-3)
    whole = over_corpus(found)
    np.testing.assert_allclose(whole.rank(1, some), expected[1, some], rtol=2e-3)
    assert whole.cost(1) == whole.cost(2) == found.cost(3)


def test_what_reads_pairs_has_no_scores_of_a_corpus() -> None:
    with pytest.raises(InputError, match="reads pairs of texts"):
        by_baseline(named("ms-marco-minilm-l12-v2"), HEARTS)
