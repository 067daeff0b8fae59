"""Exact counts by brute force: every rule keeps as many units as every other, in every text."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import Units, random_units, random_weights
from hplus.evaluate import rescore
from hplus.evaluate.controlled import feasible_counts, maxsim_of_prefixes
from hplus.types import F32, I64
from hplus.units.select import Budget, Kept, spend

some = settings(deadline=None, max_examples=60)
lengths = st.lists(st.integers(0, 9), min_size=1, max_size=6)


def kept(units: Units) -> Kept:
    return spend(Budget(), units.vectors, units.weights, units.spans, units.offsets)


def by_hand(queries: Kept, documents: Kept, asked: I64, given: I64, weights: F32) -> F32:
    """Sums of weighted maxima over the first so many units of each text."""
    n, m = len(queries.offsets) - 1, len(documents.offsets) - 1
    scores = np.zeros((n, m), np.float32)
    for q in range(n):
        first = queries.offsets[q]
        rows = range(first, min(first + asked[q], queries.offsets[q + 1]))
        total = sum(float(weights[i]) for i in rows)
        for d in range(m):
            start = documents.offsets[d]
            units = documents.vectors[start : min(start + given[d], documents.offsets[d + 1])]
            if len(units) and total > 0:
                sums = sum(float(weights[i]) * (units @ queries.vectors[i]).max() for i in rows)
                scores[q, d] = sums / total
    return scores


@some
@given(st.integers(0, 2**32 - 1), lengths, lengths, st.integers(1, 4))
def test_prefixes_by_hand(seed: int, asked: list[int], held: list[int], size: int) -> None:
    random = np.random.default_rng(seed)
    queries, documents = (kept(random_units(random, n)) for n in (asked, held))
    budgets = [1, 2, 4, 8]
    counts = [feasible_counts([np.array(n)], budgets) for n in (asked, held)]
    every = np.full_like(counts[0], 99)
    weights = random_weights(random, len(queries.weights))
    pools = [np.sort(random.permutation(len(held))[:size]) for _ in asked]
    found = maxsim_of_prefixes(
        queries, documents, counts[1], [counts[0], every], pools, weights=weights
    )
    for way, own in enumerate((counts[0], every)):
        for b in range(len(budgets)):
            expected = by_hand(queries, documents, own[:, b], counts[1][:, b], weights)
            for row, pool in enumerate(pools):
                scores = found[way][b][row]
                np.testing.assert_allclose(scores[pool], expected[row, pool], atol=1e-5)
                assert np.isneginf(np.delete(scores, pool)).all()


@some
@given(st.integers(0, 2**32 - 1), lengths, lengths)
def test_all_units_are_the_natural_score(seed: int, asked: list[int], held: list[int]) -> None:
    random = np.random.default_rng(seed)
    queries, documents = (kept(random_units(random, n)) for n in (asked, held))
    every = [np.full((len(n), 1), 99) for n in (asked, held)]
    every[1] = np.array(held)[:, None]
    pools = np.tile(np.arange(len(held)), (len(asked), 1))
    found = maxsim_of_prefixes(queries, documents, every[1], [every[0]], pools)[0][0]
    np.testing.assert_allclose(found, rescore.maxsim(queries, documents), atol=1e-5)


@some
@given(
    st.lists(st.lists(st.integers(0, 200), min_size=4, max_size=4), min_size=1, max_size=5),
    st.lists(st.integers(1, 128), min_size=1, max_size=6, unique=True).map(sorted),
)
def test_every_rule_can_keep_the_count(natural: list[list[int]], budgets: list[int]) -> None:
    """eq:exact_count: the largest number that all rules have and the budget allows."""
    counts = feasible_counts([np.array(rule) for rule in natural], budgets)
    for text in range(4):
        for b, budget in enumerate(budgets):
            assert counts[text, b] == min([budget, *(rule[text] for rule in natural)])
    assert (np.diff(counts, axis=1) >= 0).all()
