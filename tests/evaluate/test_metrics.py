"""Every measure equals trec_eval's, through pytrec_eval; ties and missing queries by hand."""

from __future__ import annotations

import doctest
import math
from itertools import permutations
from random import Random

import numpy as np
import pytest
import pytrec_eval
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hplus.errors import InputError
from hplus.evaluate import metrics
from hplus.evaluate.metrics import (
    average_precision,
    measure,
    ndcg,
    oracle_ndcg,
    ranking_of,
    recall,
    reciprocal_rank,
)

many = settings(deadline=None, max_examples=150)
DOCUMENTS = [f"d{i}" for i in range(15)]
all_rankings = st.permutations(DOCUMENTS).flatmap(
    lambda order: st.integers(1, len(order)).map(lambda n: order[:n])
)
all_grades = st.dictionaries(st.sampled_from([*DOCUMENTS, "x", "y"]), st.integers(0, 3), min_size=1)
depths = st.sampled_from([1, 3, 5, 10, 100])


def trec(ranking: list[str], grades: dict[str, int], name: str) -> float:
    """trec_eval's value of one ranking; its scores fall by 1, so nothing ties."""
    evaluator = pytrec_eval.RelevanceEvaluator({"q": grades}, {name})
    run = {document: float(-rank) for rank, document in enumerate(ranking)}
    return float(evaluator.evaluate({"q": run})["q"][name.replace(".", "_")])


def trec_ndcg(ranking: list[str], grades: dict[str, int], depth: int) -> float:
    """trec_eval's ndcg_cut: linear gain."""
    return trec(ranking, grades, f"ndcg_cut.{depth}")


@many
@given(all_rankings, all_grades, depths)
def test_linear_gain_equals_trec_eval(
    ranking: list[str], grades: dict[str, int], depth: int
) -> None:
    found = ndcg(ranking, grades, depth=depth, gain="linear")
    assert found == pytest.approx(trec_ndcg(ranking, grades, depth), abs=1e-9)


@many
@given(all_rankings, all_grades, depths)
@example(["d0"], {"d0": 3, "x": 2}, 10)
def test_exponential_gain_equals_trec_eval_on_mapped_grades(
    ranking: list[str], grades: dict[str, int], depth: int
) -> None:
    gains = {document: 2**grade - 1 for document, grade in grades.items()}
    assert ndcg(ranking, grades, depth=depth) == pytest.approx(
        trec_ndcg(ranking, gains, depth), abs=1e-9
    )


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


@many
@given(all_rankings, all_grades, depths)
def test_recall_equals_trec_eval(ranking: list[str], grades: dict[str, int], depth: int) -> None:
    assert recall(ranking, grades, depth=depth) == pytest.approx(
        trec(ranking, grades, f"recall.{depth}")
    )
    top = {name: int(0 < grade == max(grades.values())) for name, grade in grades.items()}
    expected = trec(ranking, top, f"recall.{depth}")
    assert recall(ranking, grades, depth=depth, top_grade=True) == pytest.approx(expected)


@many
@given(all_rankings, all_grades, depths)
def test_reciprocal_rank_equals_trec_eval(
    ranking: list[str], grades: dict[str, int], depth: int
) -> None:
    assert reciprocal_rank(ranking, grades) == pytest.approx(trec(ranking, grades, "recip_rank"))
    found = reciprocal_rank(ranking, grades, depth=depth)
    assert found == pytest.approx(trec(ranking[:depth], grades, "recip_rank"))


@many
@given(all_rankings, all_grades, depths)
def test_average_precision_equals_trec_eval(
    ranking: list[str], grades: dict[str, int], depth: int
) -> None:
    assert average_precision(ranking, grades) == pytest.approx(trec(ranking, grades, "map"))
    found = average_precision(ranking, grades, depth=depth)
    assert found == pytest.approx(trec(ranking, grades, f"map_cut.{depth}"))


def test_worked_examples() -> None:
    """Relevant at ranks 2 and 4, one of the best grade at 4, one more of it not found."""
    ranking, grades = ["n", "a", "m", "b"], {"a": 1, "b": 3, "c": 3, "m": 0}
    assert recall(ranking, grades, depth=3) == pytest.approx(1 / 3)
    assert recall(ranking, grades, depth=4) == pytest.approx(2 / 3)
    assert recall(ranking, grades, depth=3, top_grade=True) == 0
    assert recall(ranking, grades, depth=4, top_grade=True) == 1 / 2
    assert reciprocal_rank(ranking, grades) == 1 / 2
    assert reciprocal_rank(ranking, grades, depth=2) == 1 / 2
    assert reciprocal_rank(ranking, grades, depth=1) == 0
    assert average_precision(ranking, grades) == pytest.approx((1 / 2 + 2 / 4) / 3)
    assert average_precision(ranking, grades, depth=3) == pytest.approx(1 / 2 / 3)


@pytest.mark.parametrize("grades", [{}, {"a": 0}, {"a": -1, "b": -2}])
def test_where_nothing_is_relevant_everything_is_zero(grades: dict[str, int]) -> None:
    names = ["ndcg@10", "ndcg-linear@10", "recall@10", "recall-top@10", "mrr", "map"]
    found = measure({"q": {"a": 2.0, "b": 1.0}}, {"q": grades}, names)
    assert [values.tolist() for values in found.values.values()] == [[0.0]] * len(names)
    assert oracle_ndcg(["a", "b"], grades) == 0


def test_negative_grades_count_as_zero() -> None:
    ranking, grades, plain = ["bad", "a"], {"bad": -2, "a": 1, "c": 1}, {"bad": 0, "a": 1, "c": 1}
    assert reciprocal_rank(ranking, grades) == reciprocal_rank(ranking, plain) == 1 / 2
    assert average_precision(ranking, grades) == average_precision(ranking, plain) == 1 / 4
    assert recall(ranking, grades, depth=2) == recall(ranking, plain, depth=2) == 1 / 2
    assert ndcg(ranking, grades) == ndcg(ranking, plain)
    assert oracle_ndcg(ranking, grades) == oracle_ndcg(["a"], grades)


@many
@given(
    st.lists(st.sampled_from([*"abcde"]), unique=True, max_size=5),
    st.dictionaries(st.sampled_from([*"abcdxy"]), st.integers(-1, 3)),
    st.sampled_from([1, 3, 10]),
    st.sampled_from(["exponential", "linear"]),
)
def test_oracle_is_the_best_of_all_orders(
    pool: list[str], grades: dict[str, int], depth: int, gain: metrics.Gain
) -> None:
    best = max(ndcg(order, grades, depth=depth, gain=gain) for order in permutations(pool))
    assert oracle_ndcg(pool, grades, depth=depth, gain=gain) == pytest.approx(best)
    assert oracle_ndcg(set(pool), grades, depth=depth, gain=gain) == pytest.approx(best)


def test_a_document_twice_in_the_pool_counts_once() -> None:
    assert oracle_ndcg(["a", "a"], {"a": 1, "b": 1}) == oracle_ndcg(["a"], {"a": 1, "b": 1})


TREC = {
    "recall@3": "recall.3",
    "mrr": "recip_rank",
    "map": "map",
    "map@5": "map_cut.5",
    "ndcg-linear@5": "ndcg_cut.5",
}


@many
@given(st.lists(st.tuples(all_rankings, all_grades), min_size=1, max_size=4), st.randoms())
def test_a_whole_run_equals_trec_eval(
    queries: list[tuple[list[str], dict[str, int]]], random: Random
) -> None:
    run = {
        f"q{i}": {document: float(-rank) for rank, document in enumerate(ranking)}
        for i, (ranking, _) in enumerate(queries)
    }
    judgements = {f"q{i}": grades for i, (_, grades) in enumerate(queries)}
    expected = pytrec_eval.RelevanceEvaluator(judgements, set(TREC.values())).evaluate(run)
    gains = {q: {d: 2**g - 1 for d, g in own.items()} for q, own in judgements.items()}
    mapped = pytrec_eval.RelevanceEvaluator(gains, {"ndcg_cut.10"}).evaluate(run)
    for scores in run.values():  # The order in which documents are listed must not matter.
        items = list(scores.items())
        random.shuffle(items)
        scores.clear()
        scores.update(items)
    found = measure(run, judgements, [*TREC, "ndcg@10"])
    assert found.missing == []
    for name, theirs in TREC.items():
        values = [expected[query][theirs.replace(".", "_")] for query in judgements]
        assert found.values[name] == pytest.approx(values, abs=1e-9)
    values = [mapped[query]["ndcg_cut_10"] for query in judgements]
    assert found.values["ndcg@10"] == pytest.approx(values, abs=1e-9)


def test_ties_fall_by_id_ascending() -> None:
    run = {"q": {"b": 1.0, "c": 2.0, "a10": 1.0, "a9": 1.0, "B": 1.0}}
    assert ranking_of(run, "q") == ["c", "B", "a10", "a9", "b"]
    found = measure(run, {"q": {"a9": 1}}, ["mrr", "recall@3", "recall@4"])
    assert {name: values.item() for name, values in found.values.items()} == {
        "mrr": 1 / 4,
        "recall@3": 0.0,
        "recall@4": 1.0,
    }


def test_a_query_that_the_run_lacks_counts_zero_and_is_named() -> None:
    judgements = {"z": {"a": 1}, "lost": {"a": 1}, "b": {"a": 1}, "empty": {"a": 1}}
    run = {"b": {"x": 2.0, "a": 1.0}, "unjudged": {"a": math.nan}, "z": {"a": 1.0}, "empty": {}}
    found = measure(run, judgements, ["mrr@10", "ndcg@10"])
    assert found.missing == ["lost"]  # "empty" ran and found nothing
    assert found.values["mrr@10"].tolist() == [1.0, 0.0, 0.5, 0.0]
    assert found.values["ndcg@10"].dtype == np.float64
    assert found.values["ndcg@10"].tolist() == [1.0, 0.0, 1 / math.log2(3), 0.0]
    assert measure({}, judgements, ["map"]).missing == list(judgements)


def test_names_set_gain_and_cut() -> None:
    ranking = [f"d{i:02}" for i in range(20)]
    run = {"q": {document: float(-rank) for rank, document in enumerate(ranking)}}
    grades = {"d01": 1, "d04": 3, "d12": 3, "d15": 2}
    expected = {
        "ndcg@3": ndcg(ranking, grades, depth=3),
        "ndcg@10": ndcg(ranking, grades),
        "ndcg-linear@10": ndcg(ranking, grades, gain="linear"),
        "recall@5": 0.5,
        "recall-top@5": 0.5,
        "recall-top@13": 1.0,
        "mrr@1": 0.0,
        "mrr": 0.5,
        "map": (1 / 2 + 2 / 5 + 3 / 13 + 4 / 16) / 4,
        "map@10": (1 / 2 + 2 / 5) / 4,
    }
    found = measure(run, {"q": grades}, list(expected)).values
    assert list(found) == list(expected)
    for name, value in expected.items():
        assert found[name] == pytest.approx([value]), name


@pytest.mark.parametrize(
    "name", ["ndcg", "recall", "ndcg@0", "mrr@-1", "map@", "p@10", "NDCG@10", "ndcg@10 ", "", "@5"]
)
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(InputError, match=r"known: ndcg@N, .*, mrr, map, mrr@N, map@N") as caught:
        measure({}, {"q": {"a": 1}}, [name])
    assert repr(name) in str(caught.value)


@pytest.mark.parametrize("depth", [0, -1])
def test_a_depth_is_one_or_more(depth: int) -> None:
    for value in (ndcg, oracle_ndcg, recall, reciprocal_rank, average_precision):
        with pytest.raises(InputError, match=f"expected a depth of 1 or more, got {depth}"):
            value(["a"], {"a": 1}, depth=depth)


@pytest.mark.parametrize("score", [math.nan, math.inf, -math.inf])
def test_a_score_that_is_not_a_number_is_refused(score: float) -> None:
    with pytest.raises(InputError, match=rf"query 'q': document 'b' has the score {score}"):
        measure({"q": {"a": 1.0, "b": score}}, {"q": {"a": 1}}, ["map"])


def test_judgements_are_needed() -> None:
    with pytest.raises(InputError, match="at least one judged query"):
        measure({"q": {"a": 1.0}}, {}, ["map"])


def test_the_examples() -> None:
    assert doctest.testmod(metrics) == doctest.TestResults(failed=0, attempted=9)
