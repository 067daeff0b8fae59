"""Tallies by hand and by brute force; the bootstrap over texts by its identities."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from hplus.errors import InputError
from hplus.types import Span
from hplus_lab.audit.tally import Measure, Tally, measure_difference, overlapping, tally, total

MEASURES: list[Measure] = ["f1", "precision", "recall"]
ACUTE, KIDNEY, INJURY = Span(0, 5), Span(6, 12), Span(13, 19)
AFTER, HEART, SURGERY = Span(20, 25), Span(26, 31), Span(32, 39)


def tally_of(marked: list[Span], units: list[Span]) -> Tally:
    return tally(set(marked), overlapping(marked, units))


@pytest.mark.parametrize(
    ("marked", "units", "expected"),
    [
        # Both found; "after" lies outside the marks and does not count.
        ([Span(0, 19), Span(26, 39)], [Span(0, 19), AFTER, Span(26, 39)], (2, 2, 2)),
        # Nested marks: a partition has the inner or the outer span, never both.
        ([Span(0, 19), KIDNEY], [Span(0, 19), AFTER, HEART, SURGERY], (2, 1, 1)),
        ([Span(0, 19), KIDNEY], [ACUTE, KIDNEY, INJURY, Span(20, 39)], (2, 3, 1)),
        # Crossing marks.
        ([Span(0, 12), Span(6, 19)], [ACUTE, Span(6, 19), AFTER], (2, 2, 1)),
        # A unit larger than the mark.
        ([Span(6, 19)], [Span(0, 19), AFTER], (1, 1, 0)),
        ([KIDNEY, SURGERY], [Span(0, 39)], (2, 1, 0)),
        # Several units in one mark.
        ([Span(0, 19)], [ACUTE, KIDNEY, INJURY, AFTER], (1, 3, 0)),
        # One character off is not a hit.
        ([Span(0, 19)], [Span(0, 18)], (1, 1, 0)),
        # Nothing marked, nothing predicted.
        ([], [ACUTE, KIDNEY], (0, 0, 0)),
        ([Span(0, 19)], [], (1, 0, 0)),
        # Marked twice is marked once.
        ([Span(0, 19), Span(0, 19)], [Span(0, 19)], (1, 1, 1)),
    ],
)
def test_worked_examples(marked: list[Span], units: list[Span], expected: tuple[int, ...]) -> None:
    assert tally_of(marked, units) == expected


def test_measures_are_of_all_texts_together() -> None:
    found = total([Tally(4, 3, 2), Tally(1, 2, 1), Tally(0, 0, 0), Tally(1, 0, 0)])
    assert found == (6, 5, 3)
    assert found.precision == pytest.approx(3 / 5)
    assert found.recall == pytest.approx(3 / 6)
    assert found.f1 == pytest.approx(2 * 3 / 11)


def test_where_nothing_is_marked_or_predicted_nothing_is_wrong() -> None:
    assert total([]) == (0, 0, 0)
    assert [total([]).measure(name) for name in MEASURES] == [1, 1, 1]
    assert [Tally(2, 0, 0).measure(name) for name in MEASURES] == [0, 1, 0]
    assert [Tally(0, 2, 0).measure(name) for name in MEASURES] == [0, 0, 1]


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[Span], list[Span]]:
    """Any marks, and units that do not overlap, over twelve characters."""
    ends = st.integers(0, 12)
    pairs = st.tuples(ends, ends).filter(lambda pair: pair[0] < pair[1])
    units = list(pairwise(sorted(draw(st.sets(ends)))))
    kept = draw(st.lists(st.booleans(), min_size=len(units), max_size=len(units)))
    marks = st.one_of(pairs, st.sampled_from(units)) if units else pairs
    marked = draw(st.lists(marks, max_size=5))
    chosen = [unit for unit, keep in zip(units, kept, strict=True) if keep]
    return [Span(*pair) for pair in marked], [Span(*pair) for pair in chosen]


@settings(deadline=None, max_examples=300)
@given(cases())
def test_tallies_equal_brute_force(case: tuple[list[Span], list[Span]]) -> None:
    marked, units = case
    met = [u for u in units if any(set(range(*u)) & set(range(*m)) for m in marked)]
    assert overlapping(marked, units) == met
    hits = sum(unit in marked for unit in units)
    found = tally_of(marked, units)
    assert found == (len(set(marked)), len(met), hits)
    p, r = found.precision, found.recall
    assert found.f1 == pytest.approx(2 * p * r / (p + r) if p + r else 0)


def random_tallies(seed: int, n: int, share: float) -> list[Tally]:
    """The same marks whatever the share of them that is hit."""
    marked = np.random.default_rng(0).integers(0, 6, n)
    hits = np.random.default_rng(seed).binomial(marked, share)
    return [Tally(m, 2 * m - h, h) for m, h in zip(marked.tolist(), hits.tolist(), strict=True)]


@pytest.mark.parametrize("measure", MEASURES)
def test_same_against_same_is_exactly_nothing(measure: Measure) -> None:
    tallies = random_tallies(1, 30, 0.5)
    found = measure_difference(tallies, tallies, measure, resamples=300)
    assert (found.mean, found.low, found.high, found.p) == (0, 0, 0, 1)


@pytest.mark.parametrize("measure", MEASURES)
def test_the_other_way_round_is_the_negative(measure: Measure) -> None:
    ours, theirs = random_tallies(1, 40, 0.6), random_tallies(2, 40, 0.5)
    there = measure_difference(ours, theirs, measure, resamples=300)
    back = measure_difference(theirs, ours, measure, resamples=300)
    expected = total(ours).measure(measure) - total(theirs).measure(measure)
    assert there.mean == pytest.approx(expected)
    assert (back.mean, back.low, back.high) == pytest.approx((-there.mean, -there.high, -there.low))
    assert back.p == there.p


def test_one_text_leaves_nothing_to_draw() -> None:
    found = measure_difference([Tally(2, 2, 2)], [Tally(2, 2, 1)], resamples=999)
    assert (found.mean, found.low, found.high, found.p) == (0.5, 0.5, 0.5, 2 / 1000)


def test_a_draw_without_predictions_has_none_that_are_wrong() -> None:
    ours, theirs = [Tally(1, 0, 0), Tally(1, 1, 0)], [Tally(1, 1, 0), Tally(1, 1, 0)]
    found = measure_difference(ours, theirs, "precision", resamples=300)
    # One draw in four has the first text alone.
    assert (found.mean, found.low, found.high) == (0, 0, 1)


@pytest.mark.parametrize("measure", MEASURES)
def test_the_bootstrap_equals_scipy(measure: Measure) -> None:
    ours, theirs = random_tallies(1, 60, 0.6), random_tallies(2, 60, 0.5)
    columns = [*np.array(ours).T, *np.array(theirs).T]

    def statistic(*columns: np.ndarray, axis: int) -> np.ndarray:
        sums = [column.sum(axis=axis) for column in columns]
        values = []
        for marked, predicted, hits in (sums[:3], sums[3:]):
            whole = {"f1": (marked + predicted) / 2, "precision": predicted, "recall": marked}
            values.append(hits / whole[measure])
        return np.asarray(values[0] - values[1])

    expected = stats.bootstrap(
        columns,
        statistic,
        paired=True,
        vectorized=True,
        method="percentile",
        n_resamples=20_000,
        rng=np.random.default_rng(3),
    )
    found = measure_difference(ours, theirs, measure, resamples=20_000)
    slack = 0.1 * expected.standard_error
    assert found.low == pytest.approx(expected.confidence_interval.low, abs=slack)
    assert found.high == pytest.approx(expected.confidence_interval.high, abs=slack)


def test_the_seed_decides() -> None:
    ours, theirs = random_tallies(1, 40, 0.6), random_tallies(2, 40, 0.5)
    found = measure_difference(ours, theirs, resamples=300)
    assert measure_difference(ours, theirs, resamples=300) == found
    assert measure_difference(ours, theirs, resamples=300, seed=14) != found


def test_only_tallies_of_the_same_marks_are_compared() -> None:
    one, other = [Tally(2, 2, 2)], [Tally(3, 2, 1)]
    with pytest.raises(InputError, match="text 0 has 2 marks in our tallies and 3 in theirs"):
        measure_difference(one, other)
    with pytest.raises(InputError, match="got 1 of ours and 2 of theirs"):
        measure_difference(one, random_tallies(1, 2, 0.5))
    with pytest.raises(InputError, match="got 0 of ours and 0 of theirs"):
        measure_difference([], [])
    with pytest.raises(InputError, match="got 'f2'"):
        measure_difference(one, one, "f2")  # type: ignore[arg-type]
