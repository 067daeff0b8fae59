"""The bootstrap equals scipy's and the normal interval; Holm equals statsmodels'."""

from __future__ import annotations

import math
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.multitest import multipletests

from hplus.errors import InputError
from hplus.evaluate import statistics
from hplus.evaluate.statistics import (
    Difference,
    Interval,
    holm,
    interval,
    intervals,
    paired_difference,
    resampled_sums,
)
from hplus.types import F64


def scores(seed: int, n: int, shift: float = 0.0) -> F64:
    return np.random.default_rng(seed).beta(2, 2, n) + shift


def test_one_task_equals_scipy() -> None:
    ours, theirs = scores(1, 80, 0.05), scores(2, 80)
    expected = stats.bootstrap(
        (ours, theirs),
        lambda a, b, axis: np.mean(a - b, axis=axis),
        paired=True,
        method="percentile",
        n_resamples=40_000,
        rng=np.random.default_rng(3),
    )
    found = paired_difference({"t": ours}, {"t": theirs}, resamples=40_000)
    # An end of the interval has a Monte Carlo error of about 0.013 standard errors.
    slack = 0.07 * expected.standard_error
    assert found.mean == pytest.approx((ours - theirs).mean())
    assert found.low == pytest.approx(expected.confidence_interval.low, abs=slack)
    assert found.high == pytest.approx(expected.confidence_interval.high, abs=slack)
    below = np.mean(expected.bootstrap_distribution <= 0)
    assert found.p == pytest.approx(2 * min(below, 1 - below), abs=0.01)


def test_the_interval_of_one_system_equals_scipy() -> None:
    values, resamples = scores(4, 60), 20_000
    expected = stats.bootstrap(
        (values,),
        np.mean,
        method="percentile",
        n_resamples=resamples,
        rng=np.random.default_rng(5),
    )
    found = interval({"t": values}, resamples=resamples)
    # The Monte Carlo error of a quantile, of both sides, four times over.
    density = stats.norm.pdf(stats.norm.ppf(0.025)) / expected.standard_error
    slack = 4 * math.sqrt(2 * 0.025 * 0.975 / resamples) / density
    assert found.mean == pytest.approx(values.mean())
    assert found.low == pytest.approx(expected.confidence_interval.low, abs=slack)
    assert found.high == pytest.approx(expected.confidence_interval.high, abs=slack)


def test_many_queries_give_the_normal_interval() -> None:
    """The variance of a macro mean is the mean of the tasks' variances, over their number."""
    sizes = {"large": 3000, "small": 500}
    values = {task: scores(n, n, shift=n / 1000) for task, n in sizes.items()}
    variance = sum(array.var() / len(array) for array in values.values()) / len(values) ** 2
    found = interval(values, resamples=20_000)
    mean = sum(array.mean() for array in values.values()) / 2
    assert found.mean == pytest.approx(mean)
    error = math.sqrt(variance)
    assert found.low == pytest.approx(mean - 1.96 * error, abs=0.08 * error)
    assert found.high == pytest.approx(mean + 1.96 * error, abs=0.08 * error)


def test_p_equals_the_normal_test() -> None:
    difference = scores(5, 2000)
    difference += 1.5 * difference.std() / math.sqrt(2000) - difference.mean()
    found = paired_difference({"t": difference}, {"t": np.zeros(2000)}, resamples=40_000)
    assert found.p == pytest.approx(2 * stats.norm.sf(1.5), abs=0.01)


def test_every_task_weighs_the_same() -> None:
    ours = {"a": np.array([1.0, 0.0, 0.5]), "b": np.array([0.2])}
    theirs = {"a": np.array([0.4, 0.3, 0.2]), "b": np.array([0.6])}
    # a: (0.6 - 0.3 + 0.3) / 3 = 0.2; b: -0.4; together -0.1.
    assert paired_difference(ours, theirs).mean == pytest.approx(-0.1)
    assert interval(ours).mean == pytest.approx(0.35)


def test_queries_are_drawn_within_their_task() -> None:
    """Tasks whose values are constant have no spread, however far apart they are."""
    values = {"a": np.full(7, 0.25), "b": np.full(3, 0.75)}
    assert interval(values) == Interval(0.5, 0.5, 0.5)


def test_two_queries_follow_the_binomial() -> None:
    """Means of draws from {0, 1}: 0, 1/2, 1 with probability 1/4, 1/2, 1/4."""
    draws = resampled_sums([np.array([0.0, 1.0])], 40_000, np.random.default_rng(0))[0]
    shares = np.bincount(draws.astype(np.int64), minlength=3) / len(draws)
    assert shares == pytest.approx([0.25, 0.5, 0.25], abs=0.01)


def test_columns_see_the_same_draws() -> None:
    column = scores(1, 9)
    sums = resampled_sums([column, 2 * column], 50, np.random.default_rng(0))
    np.testing.assert_allclose(sums[1], 2 * sums[0])
    assert len(np.unique(sums[0])) > 40


def test_a_resample_may_span_several_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    column = np.ones(10)
    for block in (1, 25, 1000):
        monkeypatch.setattr(statistics, "_BLOCK", block)
        sums = resampled_sums([column], 101, np.random.default_rng(0))
        assert (sums == 10).all()
        assert sums.shape == (1, 101)


def test_p_is_never_zero_and_never_above_one() -> None:
    ones, zeros = {"t": np.ones(5)}, {"t": np.zeros(5)}
    assert paired_difference(ones, zeros, resamples=999) == Difference(1, 1, 1, 2 / 1000)
    assert paired_difference(zeros, ones, resamples=999) == Difference(-1, -1, -1, 2 / 1000)
    assert paired_difference(ones, ones) == Difference(0, 0, 0, 1)


def test_what_cancels_but_for_rounding_is_a_tie() -> None:
    """0.1 + 0.2 - 0.3 is 5.6e-17 in floats."""
    ours = {"a": np.array([0.1]), "b": np.array([0.2]), "c": np.array([0.0])}
    theirs = {"a": np.array([0.0]), "b": np.array([0.0]), "c": np.array([0.3])}
    assert paired_difference(ours, theirs).p == 1


def test_the_other_way_round_is_the_negative() -> None:
    ours, theirs = {"t": scores(1, 50)}, {"t": scores(2, 50)}
    there, back = paired_difference(ours, theirs), paired_difference(theirs, ours)
    assert (back.mean, back.low, back.high) == pytest.approx((-there.mean, -there.high, -there.low))
    assert back.p == there.p


def test_the_seed_decides_and_the_order_of_tasks_does_not() -> None:
    ours = {task: scores(i, 20 + i) for i, task in enumerate("cab")}
    theirs = {task: scores(i + 9, 20 + i) for i, task in enumerate("cab")}
    found = paired_difference(ours, theirs, resamples=500)
    backwards = dict(reversed(list(ours.items())))
    assert paired_difference(backwards, theirs, resamples=500) == found
    assert interval(backwards, resamples=500) == interval(ours, resamples=500)
    assert paired_difference(ours, theirs, resamples=500, seed=14) != found


def test_an_interval_is_a_difference_from_nothing() -> None:
    values = {"a": scores(1, 30), "b": scores(2, 40)}
    found = paired_difference(values, {task: 0 * array for task, array in values.items()})
    assert interval(values) == Interval(found.mean, found.low, found.high)


def test_two_thousand_queries_take_seconds() -> None:
    started = time.process_time()
    paired_difference({"t": scores(1, 2000)}, {"t": scores(2, 2000)})
    assert time.process_time() - started < 10


def test_holm_on_a_worked_example() -> None:
    # Sorted 0.005, 0.01, 0.03, 0.04 times 4, 3, 2, 1: 0.02, 0.03, 0.06, 0.04; never falling.
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])


@pytest.mark.parametrize(
    ("given_", "expected"),
    [
        ([], []),
        ([0.2], [0.2]),
        ([0.5, 0.6], [1, 1]),
        ([0.02, 0.02], [0.04, 0.04]),
        ([0, 1], [0, 1]),
    ],
)
def test_holm_at_the_edges(given_: list[float], expected: list[float]) -> None:
    assert holm(given_) == pytest.approx(expected)


@settings(deadline=None, max_examples=100)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_lies_between_none_and_bonferroni(p_values: list[float]) -> None:
    corrected = holm(p_values)
    for p, q in zip(p_values, corrected, strict=True):
        assert p <= q <= min(1, p * len(p_values)) or q == pytest.approx(p)
        # Step-down by its definition: the largest over all p up to this one.
        steps = (min(1, r * sum(s >= r for s in p_values)) for r in p_values if r <= p)
        assert q == pytest.approx(max(steps))


@pytest.mark.parametrize("n", [1, 2, 8, 30])
@pytest.mark.parametrize("exponent", [1, 4])
def test_holm_equals_statsmodels(n: int, exponent: int) -> None:
    """Rounded, so that some tie; to a power, so that some stay below 1."""
    p_values = (np.random.default_rng(n).random(n).round(1) ** exponent).tolist()
    assert holm(p_values) == pytest.approx(multipletests(p_values, method="holm")[1].tolist())


@pytest.mark.parametrize("p", [-0.1, 1.1, math.nan])
def test_holm_wants_probabilities(p: float) -> None:
    with pytest.raises(InputError, match="between 0 and 1"):
        holm([0.5, p])


@pytest.mark.parametrize(
    ("ours", "theirs", "message"),
    [
        ({"a": [1.0, 2.0, 3.0]}, {"a": [1.0, 2.0]}, "task 'a' has 3 queries on our side and 2"),
        ({"a": [1.0], "b": [1.0]}, {"a": [1.0], "c": [1.0]}, r"only one side has \['b', 'c'\]"),
        ({"a": []}, {"a": []}, r"task 'a': expected one value .* shape \(0,\)"),
        ({"a": [[1.0]]}, {"a": [[1.0]]}, r"shape \(1, 1\)"),
        (
            {"a": [1.0, math.nan]},
            {"a": [1.0, 2.0]},
            "task 'a': expected finite values, got nan at query 1",
        ),
        ({}, {}, "at least one task"),
    ],
)
def test_errors_name_the_task(
    ours: dict[str, list[float]], theirs: dict[str, list[float]], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        paired_difference(
            {task: np.array(values) for task, values in ours.items()},
            {task: np.array(values) for task, values in theirs.items()},
        )


def test_errors_of_an_interval() -> None:
    with pytest.raises(InputError, match="at least one task"):
        interval({})
    with pytest.raises(InputError, match="expected 1 resample or more, got 0"):
        interval({"a": np.ones(2)}, resamples=0)


# Many lines at once


def lines(sizes: dict[str, int], count: int = 4) -> dict[str, dict[str, F64]]:
    rng = np.random.default_rng(5)
    return {
        f"line {i}": {task: rng.uniform(0, 1, n) for task, n in sizes.items()} for i in range(count)
    }


@pytest.mark.parametrize("sizes", [{"b": 30, "a": 7, "c": 1}, {"one": 200}])
def test_many_equal_one_by_one(sizes: dict[str, int]) -> None:
    given = lines(sizes)
    found = intervals(given)
    assert list(found) == list(given)
    for name, values in given.items():
        assert vars(found[name]) == pytest.approx(vars(interval(values)), abs=1e-9)


def test_blocks_do_not_matter_to_many(monkeypatch: pytest.MonkeyPatch) -> None:
    given = lines({"a": 33, "b": 12})
    whole = intervals(given, resamples=999)
    monkeypatch.setattr(statistics, "_BLOCK", 1000)
    assert intervals(given, resamples=999) == whole
    assert whole != intervals(given, resamples=999, seed=14)


def test_lines_must_have_the_same_queries() -> None:
    given = lines({"a": 3})
    given["other"] = {"a": np.zeros(4)}
    with pytest.raises(InputError, match="'other' has other tasks or queries"):
        intervals(given)
    assert intervals({}) == {}


@pytest.mark.parametrize("values", [[], [0.5, np.nan], [np.inf]])
def test_every_query_needs_a_number(values: list[float]) -> None:
    with pytest.raises(InputError, match="task 'a': expected a finite value per query"):
        intervals({"line": {"a": np.array(values)}})
