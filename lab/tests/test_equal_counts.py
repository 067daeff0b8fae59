"""Exact counts by brute force: every rule keeps as many units as every other, in every text."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import random_units
from hplus import HPlus
from hplus.evaluate import rescore
from hplus.evaluate.bench import Bench
from hplus.evaluate.data import RetrievalSet
from hplus.types import F32, I64, Units
from hplus.units.select import Budget, spend
from hplus_lab import equal_counts
from hplus_lab.equal_counts import begins, feasible_counts, maxsim_of_prefixes, with_seeds
from hplus_lab.experiment import Experiment
from hplus_lab.kinds import KINDS
from hplus_lab.protocols import load
from hplus_lab.rankers import Ranker

some = settings(deadline=None, max_examples=60)
lengths = st.lists(st.integers(0, 9), min_size=1, max_size=6)


def kept(random: np.random.Generator, counts: list[int]) -> Units:
    return spend(Budget(), random_units(random, counts))[0]


def by_hand(queries: Units, documents: Units, asked: I64, held: I64) -> F32:
    """Sums of weighted maxima over the first so many units of each text."""
    n, m = len(queries), len(documents)
    scores = np.zeros((n, m), np.float32)
    for q in range(n):
        first = queries.offsets[q]
        rows = range(first, min(first + asked[q], queries.offsets[q + 1]))
        total = sum(float(queries.weights[i]) for i in rows)
        for d in range(m):
            start = documents.offsets[d]
            units = documents.vectors[start : min(start + held[d], documents.offsets[d + 1])]
            if len(units) and total > 0:
                sums = [queries.weights[i] * (units @ queries.vectors[i]).max() for i in rows]
                scores[q, d] = sum(map(float, sums)) / total
    return scores


@some
@given(st.integers(0, 2**32 - 1), lengths, lengths, st.integers(1, 4))
def test_prefixes_by_hand(seed: int, asked: list[int], held: list[int], size: int) -> None:
    random = np.random.default_rng(seed)
    queries, documents = kept(random, asked), kept(random, held)
    budgets = [1, 2, 4, 8]
    counts = [feasible_counts([np.array(n)], budgets) for n in (asked, held)]
    every = np.full_like(counts[0], 99)
    pools = [np.sort(random.permutation(len(held))[:size]) for _ in asked]
    found = maxsim_of_prefixes(queries, documents, counts[1], [counts[0], every], pools)
    for way, own in enumerate((counts[0], every)):
        for b in range(len(budgets)):
            expected = by_hand(queries, documents, own[:, b], counts[1][:, b])
            for row, pool in enumerate(pools):
                scores = found[way][b][row]
                np.testing.assert_allclose(scores[pool], expected[row, pool], atol=1e-5)
                assert np.isneginf(np.delete(scores, pool)).all()


@some
@given(st.integers(0, 2**32 - 1), lengths, lengths)
def test_all_units_are_the_natural_score(seed: int, asked: list[int], held: list[int]) -> None:
    random = np.random.default_rng(seed)
    queries, documents = kept(random, asked), kept(random, held)
    every = [np.full((len(asked), 1), 99), np.array(held)[:, None]]
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


# fmt: off
WORDS = ["type", "2", "diabetes", ",", "HbA1c", "and", "5", "mg/kg", "of", "metformin", "in",
         "急性肾损伤", "患者", "(", "n", "=", "12", ")", "."]
# fmt: on
texts = st.lists(
    st.lists(st.sampled_from(WORDS), min_size=1, max_size=12).map(" ".join),
    min_size=2,
    max_size=4,
    unique=True,
)


@settings(deadline=None, max_examples=20)
@given(queries=texts, documents=texts)
def test_every_rule_keeps_the_exact_count_in_every_text(
    tiny_folder: Path, queries: list[str], documents: list[str]
) -> None:
    """What is scored has C_x(B) units of every text, by every rule and seed."""
    sides = [
        [f"{kind}{i}" for i in range(len(own))] for kind, own in (("q", queries), ("d", documents))
    ]
    judged = {name: {"d0": 1} for name in sides[0]}
    data = RetrievalSet(sides[1], documents, sides[0], queries, judged)
    protocol = replace(
        load("exact-count"), budgets=(1, 3, 7), seeds=(13, 42), pools=(5,), gate_width=8
    )
    asked: Counter[tuple[int, ...]] = Counter()
    held: Counter[tuple[int, ...]] = Counter()
    prefixes, units = equal_counts.by_units, Experiment.unit_ranker

    def note_prefixes(*parts: Any, **counts: I64) -> Ranker:
        asked[tuple(counts["asked"].tolist())] += 1
        held[tuple(counts["held"].tolist())] += 1
        return prefixes(*parts, **counts)

    def note_units(x: Experiment, own: Units, theirs: Units, pools: Any) -> Ranker:
        asked[tuple(np.diff(own.offsets).tolist())] += 1
        held[tuple(np.diff(theirs.offsets).tolist())] += 1
        return units(x, own, theirs, pools)

    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        x = Experiment(Bench(HPlus(tiny_folder, long="cut"), data, Path(folder)), protocol)
        patch.setattr(equal_counts, "by_units", note_prefixes)
        patch.setattr(Experiment, "unit_ranker", note_units)
        assert len(list(KINDS["exact-count"].lines(x))) == 10 * 2 * 3
        names = [name for rule in protocol.groupings for name in with_seeds(x, rule)]
        least = [
            [
                min(
                    int(begins(x, side, name)[first:last].sum())
                    for name in names
                    if name not in ("chunks", "pooled")
                )
                for first, last in zip(
                    side.tokens.offsets[:-1], side.tokens.offsets[1:], strict=True
                )
            ]
            for side in x.sides
        ]
    expected = [
        Counter(tuple(min(n, b) for n in own) for b, _ in product(protocol.budgets, names))
        for own in least
    ]
    assert not expected[0] - asked  # queries, where the budget is joint
    assert held == expected[1] + expected[1]  # documents, under joint budgets and under their own
