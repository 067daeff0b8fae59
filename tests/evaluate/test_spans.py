"""Span counts by hand and by brute force; the bootstrap over texts by its identities."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from hplus.errors import InputError
from hplus.evaluate.spans import Measure, SpanCounts, f1_difference, span_counts, strip_determiner
from hplus.types import Span

Pairs = list[tuple[int, int]]
MEASURES: list[Measure] = ["f1", "precision", "recall", "multi_recall"]
TEXT = "acute kidney injury after heart surgery"
ACUTE, KIDNEY, INJURY = (0, 5), (6, 12), (13, 19)
AFTER, HEART, SURGERY = (20, 25), (26, 31), (32, 39)


def counts_of(gold: Pairs, units: Pairs, text: str = TEXT) -> tuple[int, ...]:
    counts = span_counts([text], [gold], [units])
    fields = (counts.gold, counts.predicted, counts.hits, counts.multi_gold, counts.multi_hits)
    return tuple(int(field[0]) for field in fields)


def made(rows: list[tuple[int, int, int, int, int]]) -> SpanCounts:
    return SpanCounts(*np.array(rows, np.int64).reshape(-1, 5).T)


@pytest.mark.parametrize(
    ("gold", "units", "expected"),
    [
        # Both terms found; "after" lies outside the gold and does not count.
        ([(0, 19), (26, 39)], [(0, 19), AFTER, (26, 39)], (2, 2, 2, 2, 2)),
        # Nested gold: a partition has the inner or the outer span, never both.
        ([(0, 19), KIDNEY], [(0, 19), AFTER, HEART, SURGERY], (2, 1, 1, 1, 1)),
        ([(0, 19), KIDNEY], [ACUTE, KIDNEY, INJURY, (20, 39)], (2, 3, 1, 1, 0)),
        # Crossing gold.
        ([(0, 12), (6, 19)], [ACUTE, (6, 19), AFTER], (2, 2, 1, 2, 1)),
        # A unit larger than its gold.
        ([(6, 19)], [(0, 19), AFTER], (1, 1, 0, 1, 0)),
        ([KIDNEY, SURGERY], [(0, 39)], (2, 1, 0, 0, 0)),
        # Several units in one gold span.
        ([(0, 19)], [ACUTE, KIDNEY, INJURY, AFTER], (1, 3, 0, 1, 0)),
        # Single words count for F1, not for the terms of several words.
        ([HEART], [HEART, SURGERY], (1, 1, 1, 0, 0)),
        # One character off is no hit.
        ([(0, 19)], [(0, 18)], (1, 1, 0, 1, 0)),
        # Nothing marked, nothing cut.
        ([], [ACUTE, KIDNEY], (0, 0, 0, 0, 0)),
        ([(0, 19)], [], (1, 0, 0, 1, 0)),
        # Marked twice is marked once; a Span is a pair.
        ([(0, 19), Span(0, 19)], [Span(0, 19)], (1, 1, 1, 1, 1)),
    ],
)
def test_worked_examples(gold: Pairs, units: Pairs, expected: tuple[int, ...]) -> None:
    assert counts_of(gold, units) == expected


@pytest.mark.parametrize(
    ("text", "several"),
    [
        ("癌", False),
        ("肺癌", True),
        ("B超", True),
        ("cancer", False),
        ("non-small-cell", False),
        ("lung cancer", True),
        ("lung\ncancer", True),
        ("naïve", False),
        ("인슐린 저항성", True),
    ],
)
def test_which_terms_have_several_words(text: str, several: bool) -> None:
    whole = (0, len(text))
    assert counts_of([whole], [whole], text) == (1, 1, 1, several, several)


def test_minimum_words() -> None:
    pairs = [[(0, 19), (26, 39)]]
    assert span_counts([TEXT], pairs, pairs, minimum_words=3).multi_gold.tolist() == [1]
    assert span_counts([TEXT], pairs, pairs, minimum_words=1).multi_gold.tolist() == [2]


def test_measures_are_micro() -> None:
    counts = made([(4, 3, 2, 2, 1), (1, 2, 1, 0, 0), (0, 0, 0, 0, 0)])
    assert len(counts) == 3
    assert counts.precision == pytest.approx(3 / 5)
    assert counts.recall == pytest.approx(3 / 5)
    assert counts.f1 == pytest.approx(2 * 3 / 10)
    assert counts.multi_recall == pytest.approx(1 / 2)


def test_measures_of_nothing_are_zero() -> None:
    for counts in (span_counts([], [], []), span_counts([TEXT], [[]], [[ACUTE]])):
        assert [counts.measure(name) for name in MEASURES] == [0, 0, 0, 0]


@st.composite
def cases(draw: st.DrawFn) -> tuple[str, Pairs, Pairs]:
    """A text, some gold and units that partition a part of its characters."""
    text = draw(st.text("ab 癌症", min_size=1, max_size=12))
    ends = st.integers(0, len(text))
    pairs = st.tuples(ends, ends).filter(lambda pair: pair[0] < pair[1])
    cuts = sorted(draw(st.sets(ends)))
    units = list(pairwise(cuts))
    kept = draw(st.lists(st.booleans(), min_size=len(units), max_size=len(units)))
    gold = draw(st.lists(st.one_of(pairs, st.sampled_from(units)) if units else pairs, max_size=5))
    return text, gold, [unit for unit, keep in zip(units, kept, strict=True) if keep]


@settings(deadline=None, max_examples=200)
@given(cases())
def test_counts_equal_brute_force(case: tuple[str, Pairs, Pairs]) -> None:
    text, gold, units = case

    def several(pair: tuple[int, int]) -> bool:
        marked = text[slice(*pair)]
        han = sum(character in "癌症" for character in marked)
        return len(marked.split()) > 1 or (han > 0 and len(marked.strip()) > 1)

    distinct = sorted(set(gold))
    predicted = [u for u in units if any(set(range(*u)) & set(range(*g)) for g in distinct)]
    expected = (
        len(distinct),
        len(predicted),
        sum(g in units for g in distinct),
        sum(several(g) for g in distinct),
        sum(several(g) and g in units for g in distinct),
    )
    assert counts_of(gold, units, text) == expected
    assert sum(u in distinct for u in predicted) == expected[2]


@settings(deadline=None, max_examples=50)
@given(st.lists(cases(), min_size=1, max_size=4))
def test_f1_is_the_harmonic_mean(corpus: list[tuple[str, Pairs, Pairs]]) -> None:
    texts, gold, units = zip(*corpus, strict=True)
    counts = span_counts(texts, gold, units)
    p, r = counts.precision, counts.recall
    assert counts.f1 == pytest.approx(2 * p * r / (p + r) if p + r else 0)


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("the heart", "heart"),
        ("The heart", "heart"),
        ("all the patients", "patients"),
        ("their\n own  hearts", "own  hearts"),
        ("such a trial", "trial"),
        ("A trial", "trial"),
        ("the", "the"),
        ("the ", "the "),
        ("all these", "these"),
        ("heart of the matter", "heart of the matter"),
        ("theory of mind", "theory of mind"),
        ("a-wave amplitude", "a-wave amplitude"),
        ("NO synthase", "NO synthase"),
        ("ALL blasts", "ALL blasts"),
        ("肺癌 患者", "肺癌 患者"),
    ],
)
def test_strip_determiner(text: str, left: str) -> None:
    start, end = strip_determiner(text, 0, len(text))
    assert text[start:end] == left


@pytest.mark.parametrize(
    ("before", "left"),
    [
        ("", "beta"),
        ("Done. ", "beta"),
        ("Aim: ", "beta"),
        ("plasma ", "A beta"),
        ("the ", "A beta"),
    ],
)
def test_a_capital_a_is_an_article_only_where_a_sentence_begins(before: str, left: str) -> None:
    text = f"{before}A beta is high"
    start, end = strip_determiner(text, len(before), len(before) + 6)
    assert text[start:end] == left


def test_stripping_stays_inside_the_span() -> None:
    assert strip_determiner("see the heart", 4, 7) == (4, 7)
    assert strip_determiner("see the heart", 4, 8) == (4, 8)
    assert strip_determiner("see the heart", 4, 13) == (8, 13)


def random_counts(seed: int, n: int, share: float) -> SpanCounts:
    """The same gold whatever the share of it that is hit."""
    gold = np.random.default_rng(0).integers(0, 6, n)
    hits = np.random.default_rng(seed).binomial(gold, share)
    return SpanCounts(gold, 2 * gold - hits, hits, gold, hits)


@pytest.mark.parametrize("measure", MEASURES)
def test_same_against_same_is_exactly_nothing(measure: Measure) -> None:
    counts = random_counts(1, 30, 0.5)
    found = f1_difference(counts, counts, measure=measure, resamples=300)
    assert (found.mean, found.low, found.high, found.p) == (0, 0, 0, 1)


@pytest.mark.parametrize("measure", MEASURES)
def test_the_other_way_round_is_the_negative(measure: Measure) -> None:
    ours, theirs = random_counts(1, 40, 0.6), random_counts(2, 40, 0.5)
    there = f1_difference(ours, theirs, measure=measure, resamples=300)
    back = f1_difference(theirs, ours, measure=measure, resamples=300)
    assert there.mean == pytest.approx(ours.measure(measure) - theirs.measure(measure))
    assert (back.mean, back.low, back.high) == pytest.approx((-there.mean, -there.high, -there.low))
    assert back.p == there.p


def test_one_text_leaves_nothing_to_draw() -> None:
    found = f1_difference(made([(2, 2, 2, 1, 1)]), made([(2, 2, 1, 1, 0)]), resamples=999)
    assert (found.mean, found.low, found.high, found.p) == (0.5, 0.5, 0.5, 2 / 1000)


@pytest.mark.parametrize("measure", ["f1", "multi_recall"])
def test_the_bootstrap_equals_scipy(measure: Measure) -> None:
    ours, theirs = random_counts(1, 60, 0.6), random_counts(2, 60, 0.5)
    parts = [*ours.parts(measure), *theirs.parts(measure)]

    def statistic(*columns: np.ndarray, axis: int) -> np.ndarray:
        a, b, c, d = (column.sum(axis=axis) for column in columns)
        return np.asarray(a / b - c / d)

    expected = stats.bootstrap(
        parts,
        statistic,
        paired=True,
        vectorized=True,
        method="percentile",
        n_resamples=20_000,
        rng=np.random.default_rng(3),
    )
    found = f1_difference(ours, theirs, measure=measure, resamples=20_000)
    slack = 0.1 * expected.standard_error
    assert found.low == pytest.approx(expected.confidence_interval.low, abs=slack)
    assert found.high == pytest.approx(expected.confidence_interval.high, abs=slack)


def test_the_seed_decides() -> None:
    ours, theirs = random_counts(1, 40, 0.6), random_counts(2, 40, 0.5)
    found = f1_difference(ours, theirs, resamples=300)
    assert f1_difference(ours, theirs, resamples=300) == found
    assert f1_difference(ours, theirs, resamples=300, seed=14) != found


@pytest.mark.parametrize(
    ("gold", "units", "message"),
    [
        ([[(0, 40)]], [[]], "text 0 has 39 characters, but a gold span 0:40"),
        ([[(3, 3)]], [[]], "a gold span 3:3"),
        ([[]], [[(-1, 2)]], "a unit -1:2"),
        ([[]], [[(0, 5), (4, 6)]], "without overlap, but 4:6 follows 0:5"),
        ([[]], [[(6, 12), (0, 5)]], "0:5 follows 6:12"),
        ([[], []], [[]], "1 texts, 2 lists of gold spans and 1 lists of units"),
    ],
)
def test_errors_say_where(gold: list[Pairs], units: list[Pairs], message: str) -> None:
    with pytest.raises(InputError, match=message):
        span_counts([TEXT], gold, units)


def test_only_counts_of_the_same_gold_are_compared() -> None:
    one, other = made([(2, 2, 2, 1, 1)]), made([(3, 2, 1, 1, 0)])
    with pytest.raises(InputError, match="text 0 has 2 gold spans in our counts and 3 in theirs"):
        f1_difference(one, other)
    with pytest.raises(InputError, match="our counts have 1 texts and theirs 2"):
        f1_difference(one, random_counts(1, 2, 0.5))
    with pytest.raises(InputError, match="0 texts"):
        f1_difference(made([]), made([]))
    with pytest.raises(InputError, match="not 'f2'"):
        f1_difference(one, one, measure="f2")  # type: ignore[arg-type]
