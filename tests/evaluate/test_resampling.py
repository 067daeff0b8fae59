"""Intervals of many lines equal those of each one alone."""

from __future__ import annotations

import doctest

import numpy as np
import pytest

from hplus.errors import InputError
from hplus.evaluate import resampling
from hplus.evaluate.resampling import intervals
from hplus.evaluate.statistics import interval
from hplus.types import F64


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


def test_blocks_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    given = lines({"a": 33, "b": 12})
    whole = intervals(given, resamples=999)
    monkeypatch.setattr(resampling, "_BLOCK", 1000)
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
    with pytest.raises(InputError, match="task 'a' needs a number a query"):
        intervals({"line": {"a": np.array(values)}})


def test_the_examples() -> None:
    assert doctest.testmod(resampling).failed == 0
