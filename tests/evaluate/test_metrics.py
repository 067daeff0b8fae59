"""nDCG equals trec_eval's, through pytrec_eval."""

from __future__ import annotations

import math

import pytest
import pytrec_eval
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hplus.evaluate.metrics import ndcg

many = settings(deadline=None, max_examples=150)
DOCUMENTS = [f"d{i}" for i in range(15)]
all_rankings = st.permutations(DOCUMENTS).flatmap(
    lambda order: st.integers(1, len(order)).map(lambda n: order[:n])
)
all_grades = st.dictionaries(st.sampled_from([*DOCUMENTS, "x", "y"]), st.integers(0, 3), min_size=1)
cuts = st.sampled_from([1, 3, 5, 10, 100])


def trec_ndcg(ranking: list[str], grades: dict[str, int], cut: int) -> float:
    """trec_eval's ndcg_cut: linear gain."""
    evaluator = pytrec_eval.RelevanceEvaluator({"q": grades}, {f"ndcg_cut.{cut}"})
    run = {document: float(-rank) for rank, document in enumerate(ranking)}
    return float(evaluator.evaluate({"q": run})["q"][f"ndcg_cut_{cut}"])


@many
@given(all_rankings, all_grades, cuts)
def test_linear_gain_equals_trec_eval(ranking: list[str], grades: dict[str, int], cut: int) -> None:
    found = ndcg(ranking, grades, cut=cut, gain="linear")
    assert found == pytest.approx(trec_ndcg(ranking, grades, cut), abs=1e-9)


@many
@given(all_rankings, all_grades, cuts)
@example(["d0"], {"d0": 3, "x": 2}, 10)
def test_exponential_gain_equals_trec_eval_on_mapped_grades(
    ranking: list[str], grades: dict[str, int], cut: int
) -> None:
    gains = {document: 2**grade - 1 for document, grade in grades.items()}
    assert ndcg(ranking, grades, cut=cut) == pytest.approx(trec_ndcg(ranking, gains, cut), abs=1e-9)


def test_a_worked_example() -> None:
    grades = {"a": 2, "b": 1}
    got = 1 / math.log2(2) + 3 / math.log2(4)  # b first, a third
    ideal = 3 / math.log2(2) + 1 / math.log2(3)
    assert ndcg(["b", "n", "a"], grades) == pytest.approx(got / ideal)


def test_the_default_is_exponential_at_ten() -> None:
    ranking = DOCUMENTS[:12]
    assert ndcg(ranking, {"d9": 1}) == pytest.approx(1 / math.log2(11))
    assert ndcg(ranking, {"d10": 1}) == 0
    assert ndcg(["d1", "d0"], {"d0": 2, "d1": 1}) < ndcg(
        ["d1", "d0"], {"d0": 2, "d1": 1}, gain="linear"
    )


@pytest.mark.parametrize("grades", [{}, {"d0": 0}, {"d0": -1}])
def test_nothing_relevant_is_zero(grades: dict[str, int]) -> None:
    assert ndcg(DOCUMENTS, grades) == 0


def test_a_negative_grade_gains_nothing() -> None:
    assert ndcg(["bad", "d0"], {"bad": -2, "d0": 1}) == ndcg(["other", "d0"], {"d0": 1})


def test_an_empty_ranking_is_zero() -> None:
    assert ndcg([], {"d0": 1}) == 0
