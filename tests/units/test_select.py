"""Budgets: top-B, shares, merging and clustering against plain loops, and slices against fresh."""

from __future__ import annotations

import math
import tracemalloc
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform

from builders import (
    assert_same,
    encode_units,
    encoded_of,
    random_encoded,
    random_units,
    random_weights,
    sum_by,
)
from hplus.errors import BudgetError
from hplus.types import (
    Encoded,
    Tokens,
    Units,
    concatenate,
    concatenate_ragged,
    offsets_of,
)
from hplus.units import select
from hplus.units.select import (
    Budget,
    Joins,
    Policy,
    bring_to,
    cluster,
    join,
    narrow,
    order_of_importance,
    shrink,
    spend,
)
from hplus.views import phrase

some = settings(deadline=None, max_examples=60)
seeds = st.integers(0, 2**32 - 1)
lengths_of_texts = st.lists(st.integers(0, 9), min_size=1, max_size=5)
counts = st.integers(1, 11)

# A unit of the references: its spans, its importance, its vector.
PlainUnit = tuple[list[tuple[int, ...]], float, list[float]]


def plain_texts(encoded: Encoded) -> list[list[PlainUnit]]:
    units = encoded.units
    return [
        [
            (
                [tuple(span) for span in units.spans_of(unit)],
                float(units.weights[unit]),
                units.vectors[unit].tolist(),
            )
            for unit in range(first, last)
        ]
        for first, last in pairwise(units.offsets.tolist())
    ]


def sorted_by_importance(units: Units) -> list[list[PlainUnit]]:
    """Every text's units by a stable sort."""
    texts = []
    for first, last in pairwise(units.offsets.tolist()):
        rows = sorted(range(first, last), key=lambda row: -units.weights[row])
        texts.append(
            [
                (
                    [tuple(units.spans[row].tolist())],
                    float(units.weights[row]),
                    units.vectors[row].tolist(),
                )
                for row in rows
            ]
        )
    return texts


def dot(a: list[float], b: list[float]) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True))


def weighted_mean(members: list[PlainUnit], pulls: list[float]) -> list[float]:
    width = len(members[0][2])
    sums = [dot(pulls, [vector[k] for _, _, vector in members]) for k in range(width)]
    length = math.sqrt(dot(sums, sums))
    return [value / length for value in sums]


def clusters_by_hand(
    units: list[PlainUnit], count: int, *, weighted: bool = True
) -> list[list[int]]:
    """Ward's method as it is defined: again and again, the two groups join whose joining adds least
    to the sum of (weighted) squared distances within groups. Of points, that sum is the one over
    pairs, m n d² over the group's mass: no means are needed, so any distance will do."""

    def within(group: list[int]) -> float:
        masses = [units[i][1] if weighted else 1.0 for i in group]
        pairs = [
            masses[a] * masses[b] * square(units[group[a]][2], units[group[b]][2])
            for a in range(len(group))
            for b in range(a)
        ]
        return math.fsum(pairs) / math.fsum(masses)

    def square(a: list[float], b: list[float]) -> float:
        distance = max(0.0, 1 - dot(a, b))
        return distance if weighted else distance**2

    groups = [[i] for i in range(len(units))]
    while len(groups) > count:
        added = [
            (within(groups[a] + groups[b]) - within(groups[a]) - within(groups[b]), a, b)
            for a in range(len(groups))
            for b in range(a)
        ]
        _, a, b = min(added)
        groups[b] += groups.pop(a)
    return groups


def grouped(
    units: list[PlainUnit], groups: list[list[int]], *, weighted: bool = True
) -> list[PlainUnit]:
    """Groups as units: spans of all members, sum of importance, normalised mean of vectors, by
    importance or plain."""
    result: list[PlainUnit] = []
    for group in groups:
        members = [units[i] for i in group]
        weights = [weight for _, weight, _ in members]
        pulls = [weight if weighted else 1.0 for weight in weights]
        vector = weighted_mean(members, pulls)
        spans = sorted(span for spans, _, _ in members for span in spans)
        result.append((spans, float(np.float32(math.fsum(weights))), vector))
    return sorted(result, key=lambda unit: (-unit[1], unit[0][0]))


def assert_units(found: list[list[PlainUnit]], expected: list[list[PlainUnit]]) -> None:
    for found_text, expected_text in zip(found, expected, strict=True):
        assert [spans for spans, _, _ in found_text] == [spans for spans, _, _ in expected_text]
        for (_, weight, vector), (_, wanted, direction) in zip(
            found_text, expected_text, strict=True
        ):
            assert weight == pytest.approx(wanted, rel=1e-6)
            assert vector == pytest.approx(direction, abs=2e-6)


@some
@given(lengths_of_texts, seeds, st.booleans())
def test_order_is_a_stable_sort_within_each_text(lengths: list[int], seed: int, ties: bool) -> None:
    units = random_units(np.random.default_rng(seed), lengths, ties=ties)
    order = order_of_importance(units.weights, units.offsets).tolist()
    by_hand = [
        row
        for first, last in pairwise(units.offsets.tolist())
        for row in sorted(range(first, last), key=lambda row: -units.weights[row])
    ]
    assert order == by_hand


@some
@given(lengths_of_texts, seeds, counts, st.booleans())
def test_drop_keeps_the_top_b_and_lists_the_rest(
    lengths: list[int], seed: int, count: int, ties: bool
) -> None:
    """eq:topb_selection; ties by position."""
    units = random_units(np.random.default_rng(seed), lengths, ties=ties)
    encoded = encode_units(units, Budget(count))
    ranked = sorted_by_importance(units)
    assert plain_texts(encoded) == [text[:count] for text in ranked]
    lost = [
        [
            ([tuple(s) for s in encoded.dropped.spans_of(u)], float(encoded.dropped.weights[u]))
            for u in range(first, last)
        ]
        for first, last in pairwise(encoded.dropped.offsets.tolist())
    ]
    assert lost == [[unit[:2] for unit in text[count:]] for text in ranked]


@some
@given(lengths_of_texts, seeds, counts, counts)
def test_a_smaller_budget_is_a_prefix(lengths: list[int], seed: int, one: int, two: int) -> None:
    units = random_units(np.random.default_rng(seed), lengths, ties=True)
    small, large = sorted((one, two))
    kept_few = plain_texts(encode_units(units, Budget(small)))
    kept_many = plain_texts(encode_units(units, Budget(large)))
    assert kept_few == [text[:small] for text in kept_many]


@some
@given(
    st.lists(st.lists(st.integers(1, 5), max_size=8), min_size=1, max_size=4),
    st.integers(1, 20),
    st.none() | counts,
)
@example([[1, 1]], 10, None)
@example([[55, 45]], 11, None)  # 0.55 * 100 is a little more than 55 in floats
@example([[3, 3, 3]], 20, 2)
def test_a_share_keeps_the_smallest_prefix_that_reaches_it_and_a_count_caps_it(
    texts: list[list[int]], twentieths: int, count: int | None
) -> None:
    weights = np.array([weight for text in texts for weight in text], np.float32)
    offsets = offsets_of([len(text) for text in texts])
    units = Units(
        np.ones((len(weights), 1), np.float32),
        weights,
        offsets,
        np.zeros((len(weights), 2), np.int32),
        np.arange(len(weights) + 1),
    )
    kept, _ = spend(Budget(count, share=twentieths / 20), units)
    wanted = []
    for text in texts:
        falling = sorted(text, reverse=True)
        goal = Fraction(twentieths, 20) * sum(text)
        needed = next(k for k in range(len(text) + 1) if sum(falling[:k]) >= goal)
        wanted.append(needed if count is None else min(needed, count))
    assert np.diff(kept.offsets).tolist() == wanted


def test_no_budget_keeps_everything() -> None:
    units = random_units(np.random.default_rng(0), [4, 0, 7])
    for policy in ("drop", "merge", "ward"):
        encoded = encode_units(units, Budget(policy=policy))
        assert plain_texts(encoded) == sorted_by_importance(units)
        assert len(encoded.dropped.weights) == 0


@some
@given(lengths_of_texts, seeds, counts, st.booleans())
@example([0, 5, 0], 0, 1, False)
@example([3], 1, 11, False)
@example([24, 12], 0, 3, False)
@example([24, 24], 3, 2, True)
def test_merge_equals_plain_loops(lengths: list[int], seed: int, count: int, ties: bool) -> None:
    units = random_units(np.random.default_rng(seed), lengths, ties=ties)
    encoded = encode_units(units, Budget(count, policy="merge"))
    expected = [
        grouped(text, clusters_by_hand(text, count)) for text in sorted_by_importance(units)
    ]
    assert_units(plain_texts(encoded), expected)


@some
@given(lengths_of_texts, seeds, st.integers(1, 9), st.none() | counts)
def test_merge_to_a_share_has_as_many_groups_as_drop_keeps(
    lengths: list[int], seed: int, tenths: int, count: int | None
) -> None:
    units = random_units(np.random.default_rng(seed), lengths)
    dropped = encode_units(units, Budget(count, share=tenths / 10))
    merged = encode_units(units, Budget(count, share=tenths / 10, policy="merge"))
    np.testing.assert_array_equal(merged.units.offsets, dropped.units.offsets)
    np.testing.assert_allclose(merged.coverage.kept, merged.coverage.importance, rtol=1e-6)


@some
@given(lengths_of_texts, seeds, counts, st.sampled_from(["merge", "ward"]))
def test_groups_partition_the_units_and_keep_all_importance(
    lengths: list[int], seed: int, count: int, policy: Any
) -> None:
    """eq:importance_preservation under any budget."""
    units = random_units(np.random.default_rng(seed), lengths)
    encoded = encode_units(units, Budget(count, policy=policy))
    for i, (length, text) in enumerate(zip(lengths, plain_texts(encoded), strict=True)):
        first, last = units.offsets[i], units.offsets[i + 1]
        spans = sorted(span for unit_spans, _, _ in text for span in unit_spans)
        assert spans == [tuple(span) for span in units.spans[first:last].tolist()]
        assert len(text) == min(count, length)
        total = sum(units.weights[first:last].tolist())
        assert sum(weight for _, weight, _ in text) == pytest.approx(total, rel=1e-6)
        assert [w for _, w, _ in text] == sorted((w for _, w, _ in text), reverse=True)
    assert len(encoded.dropped.weights) == len(encoded.dropped.spans) == 0
    assert encoded.dropped.offsets.tolist() == [0] * (len(lengths) + 1)


@some
@given(st.integers(2, 30), seeds, st.integers(1, 29))
def test_clusters_are_those_of_scipy(length: int, seed: int, count: int) -> None:
    units = random_units(np.random.default_rng(seed), [length])
    count = min(count, length)
    distances = np.clip(1 - units.vectors @ units.vectors.T, 0, None)
    np.fill_diagonal(distances, 0)
    tree = linkage(squareform(distances, checks=False), "ward")
    labels = fcluster(tree, t=count, criterion="maxclust")
    groups = cluster(join(units.vectors), count)
    together = groups[:, None] == groups[None, :]
    np.testing.assert_array_equal(together, labels[:, None] == labels[None, :])


@some
@given(lengths_of_texts, seeds, counts)
def test_ward_takes_plain_means(lengths: list[int], seed: int, count: int) -> None:
    units = random_units(np.random.default_rng(seed), lengths)
    encoded = encode_units(units, Budget(count, policy="ward"))
    expected = [
        grouped(text, clusters_by_hand(text, count, weighted=False), weighted=len(text) <= count)
        for text in sorted_by_importance(units)
    ]
    assert_units(plain_texts(encoded), expected)


@some
@given(lengths_of_texts, seeds)
def test_clusters_may_be_shared_by_budgets(lengths: list[int], seed: int) -> None:
    units = random_units(np.random.default_rng(seed), lengths)
    joins: Joins = {}
    for budget in (Budget(3, policy="ward"), Budget(share=0.5, policy="merge"),
                   Budget(1, policy="merge"), Budget(2)):  # fmt: skip
        for shared, alone in zip(spend(budget, units, joins), spend(budget, units), strict=True):
            for name, value in vars(alone).items():
                np.testing.assert_array_equal(getattr(shared, name), value)


@some
@given(lengths_of_texts, seeds, st.sampled_from(["drop", "merge", "ward"]), st.data())
def test_every_text_to_a_count_of_its_own(
    lengths: list[int], seed: int, policy: Policy, data: st.DataObject
) -> None:
    """Each text gets what a budget for it alone would give."""
    units = random_units(np.random.default_rng(seed), lengths)
    every, _ = spend(Budget(), units)
    asked = np.array([data.draw(st.integers(1, 11)) for _ in lengths])
    found = bring_to(asked, policy, every)
    for text, count in enumerate(asked.tolist()):
        alone, _ = spend(Budget(count, policy=policy), units)
        mine, theirs = (
            slice(kept.offsets[text], kept.offsets[text + 1]) for kept in (found, alone)
        )
        np.testing.assert_array_equal(found.weights[mine], alone.weights[theirs])
        np.testing.assert_array_equal(found.vectors[mine], alone.vectors[theirs])


def test_equal_vectors_still_make_as_many_groups_as_asked() -> None:
    vectors = np.repeat(np.array([[1.0, 0.0]], np.float32), 4, axis=0)
    assert sorted(set(cluster(join(vectors), 3).tolist())) == [0, 1, 2]
    assert cluster(join(vectors[:2]), 1).tolist() == [0, 0]
    spans = np.arange(8, dtype=np.int32).reshape(4, 2)
    units = Units(vectors, np.ones(4, np.float32), np.array([0, 4]), spans, np.arange(5))
    for policy in ("merge", "ward"):
        budget = Budget(3, policy=policy)
        kept, _ = spend(budget, units)
        assert len(kept.weights) == kept.offsets[-1] == 3
        assert kept.weights.sum() == 4


@some
@given(
    lengths_of_texts,
    seeds,
    st.none() | counts,
    st.none() | st.integers(1, 20),
    st.sampled_from(["drop", "merge", "ward"]),
    st.booleans(),
)
def test_shrinking_all_units_equals_a_fresh_encoding(
    lengths: list[int],
    seed: int,
    count: int | None,
    twentieths: int | None,
    policy: Any,
    ties: bool,
) -> None:
    units = random_units(np.random.default_rng(seed), lengths, ties=ties)
    budget = Budget(count, None if twentieths is None else twentieths / 20, policy)
    fresh = encode_units(units, budget)
    assert_same(shrink(encode_units(units), budget), fresh, rtol=1e-6)


@some
@given(lengths_of_texts, seeds, counts, counts)
def test_shrinking_twice_by_drop_equals_shrinking_once(
    lengths: list[int], seed: int, one: int, two: int
) -> None:
    small, large = sorted((one, two))
    units = random_units(np.random.default_rng(seed), lengths, ties=True)
    fresh = encode_units(units, Budget(small))
    assert_same(encode_units(units, Budget(large)).at(budget=small), fresh)
    assert_same(encode_units(units).at(budget=large).at(budget=small), fresh)
    assert_same(fresh.at(budget=large), fresh)


@some
@given(lengths_of_texts, seeds, counts, counts)
def test_a_merged_encoding_can_be_merged_and_dropped_further(
    lengths: list[int], seed: int, one: int, two: int
) -> None:
    small, large = sorted((one, two))
    units = random_units(np.random.default_rng(seed), lengths)
    merged = encode_units(units, Budget(large, policy="merge"))
    texts = plain_texts(merged)
    again = shrink(merged, Budget(small, policy="merge"))
    assert_units(plain_texts(again), [grouped(t, clusters_by_hand(t, small)) for t in texts])
    np.testing.assert_allclose(again.coverage.kept, again.coverage.importance, rtol=1e-6)
    dropped = merged.at(budget=small)
    assert plain_texts(dropped) == [text[:small] for text in texts]
    np.testing.assert_array_equal(
        dropped.coverage.kept, sum_by(dropped.units.weights, dropped.units.offsets)
    )
    lost = [dropped.dropped.spans_of(unit) for unit in range(len(dropped.dropped.weights))]
    assert lost == [spans for text in texts for spans, _, _ in text[small:]]


@some
@given(lengths_of_texts, seeds, counts)
def test_dropping_more_keeps_what_was_dropped_before(
    lengths: list[int], seed: int, count: int
) -> None:
    """Weightiest first, groups of several spans included."""
    random = np.random.default_rng(seed)
    lost_before = random.integers(0, 4, len(lengths)).tolist()
    encoded = random_encoded(random, lengths, dropped=lost_before, merged=True)
    shrunk = encoded.at(budget=count)
    for i in range(len(lengths)):
        before, after = encoded[i], shrunk[i]
        everything = [before.units.spans_of(u) for u in range(len(before.units.weights))]
        everything += [before.dropped.spans_of(u) for u in range(len(before.dropped.weights))]
        kept = [after.units.spans_of(u) for u in range(len(after.units.weights))]
        lost = [after.dropped.spans_of(u) for u in range(len(after.dropped.weights))]
        assert kept == everything[: len(kept)]
        assert lost == everything[len(kept) :]
        assert len(kept) == min(count, lengths[i])
        falling = np.concatenate([after.units.weights, after.dropped.weights])
        assert (np.diff(falling) <= 0).all()
        np.testing.assert_array_equal(after.global_, before.global_)
        np.testing.assert_array_equal(after.lexical.ids, before.lexical.ids)


@st.composite
def token_batches(draw: st.DrawFn) -> tuple[Tokens, Any, Any, Any]:
    lengths = draw(st.lists(st.integers(0, 40), min_size=1, max_size=4))
    random = np.random.default_rng(draw(seeds))
    offsets = offsets_of(lengths)
    rows = int(offsets[-1])
    within = np.concatenate([np.arange(n) for n in [0, *lengths]])
    spans = np.stack([2 * within, 2 * within + 1], axis=1).astype(np.int32)
    tokens = Tokens(("x " * 40,) * len(lengths), np.zeros(rows, np.int32), spans, offsets)
    begins = random.random(rows) < 0.6
    begins[offsets[:-1][np.diff(offsets) > 0]] = True
    states = random.normal(size=(rows, 12)).astype(np.float32)
    return tokens, states, random_weights(random, rows, ties=draw(st.booleans())), begins


def encode(batch: tuple[Tokens, Any, Any, Any], *, width: int, budget: Budget) -> Encoded:
    tokens, states, importance, begins = batch
    units = phrase.represent(tokens, states, importance, begins, width=width, budget=budget)
    return encoded_of(*units, importance=sum_by(importance, tokens.offsets))


@some
@given(token_batches(), st.integers(1, 24), st.integers(1, 12))
def test_a_slice_equals_a_fresh_encoding(
    batch: tuple[Tokens, Any, Any, Any], count: int, width: int
) -> None:
    everything = encode(batch, width=12, budget=Budget())
    fresh = encode(batch, width=width, budget=Budget(count))
    assert_same(everything.at(budget=count, width=width), fresh, rtol=1e-6)
    assert_same(everything.at(width=width).at(budget=count), fresh, rtol=1e-6)
    assert_same(everything.at(budget=count).at(width=width), fresh, rtol=1e-6)
    stored = encode(batch, width=12, budget=Budget(24))
    assert_same(stored.at(budget=count, width=width), fresh, rtol=1e-6)
    # Only directions may round; which units stay, and what is lost, is exact.
    cut = stored.at(budget=count, width=width)
    np.testing.assert_array_equal(cut.dropped.weights, fresh.dropped.weights)
    np.testing.assert_array_equal(cut.coverage.kept, fresh.coverage.kept)


@some
@given(token_batches(), st.integers(1, 12), st.integers(1, 12))
def test_at_16_then_at_4_equals_at_4(
    batch: tuple[Tokens, Any, Any, Any], one: int, two: int
) -> None:
    narrow_width, wide = sorted((one, two))
    everything = encode(batch, width=12, budget=Budget())
    twice = everything.at(budget=16, width=wide).at(budget=4, width=narrow_width)
    assert_same(twice, everything.at(budget=4, width=narrow_width), rtol=1e-6)
    assert_same(twice, encode(batch, width=narrow_width, budget=Budget(4)), rtol=1e-6)


@some
@given(token_batches(), st.integers(1, 24))
def test_a_text_is_cut_alike_alone_and_in_a_batch(
    batch: tuple[Tokens, Any, Any, Any], count: int
) -> None:
    everything = encode(batch, width=12, budget=Budget())
    for policy in ("drop", "merge"):
        budget = Budget(count, share=0.8, policy=policy)
        alone = [shrink(everything[i], budget) for i in range(len(everything))]
        assert_same(concatenate(alone), shrink(everything, budget), rtol=1e-6)


def test_narrowing_to_the_stored_width_changes_nothing() -> None:
    encoded = random_encoded(np.random.default_rng(1), [3, 0, 2])
    assert narrow(encoded.units, 8) is encoded.units
    assert encoded.at() is encoded


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"count": 0}, "count of units to be a whole number of 1 or more, got 0"),
        ({"count": -3}, "count of units to be a whole number of 1 or more, got -3"),
        ({"share": 0.0}, r"expected a share of importance in \(0, 1\], got 0.0"),
        ({"share": 1.01}, "got 1.01"),
        ({"share": math.nan}, "got nan"),
        ({"count": 3, "policy": "keep"}, "unknown policy 'keep'; known: drop, merge, ward"),
    ],
)
def test_impossible_budgets(options: dict[str, Any], message: str) -> None:
    with pytest.raises(BudgetError, match=message):
        Budget(**options)


@pytest.mark.parametrize(
    ("width", "says"),
    [
        (0, "expected width to be a whole number of 1 or more, got 0"),
        (-1, "expected width to be a whole number of 1 or more, got -1"),
        (9, "width 9 requested, but the encoding keeps 8"),
    ],
)
def test_impossible_widths(width: int, says: str) -> None:
    encoded = random_encoded(np.random.default_rng(1), [3])
    with pytest.raises(BudgetError, match=says):
        encoded.at(width=width)
    with pytest.raises(BudgetError, match="got 0"):
        encoded.at(budget=0)


@pytest.mark.parametrize(
    ("budget", "spelled"),
    [
        (Budget(), "all units"),
        (Budget(16), "drop to 16 units"),
        (Budget(16, policy="merge"), "merge to 16 units"),
        (Budget(share=0.9), "drop to 90% of importance"),
        (Budget(64, share=0.5, policy="ward"), "ward to 64 units or 50% of importance"),
    ],
)
def test_a_budget_spells_itself(budget: Budget, spelled: str) -> None:
    assert str(budget) == spelled


def merged_by_hand(units: Units, count: int, policy: Policy, window: int, part: int) -> Units:
    """A text in windows of its own, each under a budget, and the groups again."""
    while len(units.weights) > max(window, count):
        starts = units.spans[units.span_offsets[:-1], 0]
        units = units.rows(np.argsort(starts, kind="stable"), units.offsets)
        n = len(units.weights)
        number = math.ceil(n / window)
        wanted = max(count, math.ceil(n / part))
        done, parts = 0, []
        for i in range(number):
            rows = np.arange(i * n // number, (i + 1) * n // number)
            share = (i + 1) * n // number * wanted // n - done
            done += share
            alone = units.rows(rows, offsets_of([len(rows)]))
            parts.append(bring_to(np.array([share]), policy, spend(Budget(), alone)[0]))
        joined = concatenate_ragged(parts)
        units = Units(**{**vars(joined), "offsets": offsets_of([len(joined.weights)])})
    return bring_to(np.array([count]), policy, spend(Budget(), units)[0])


@some
@given(
    st.lists(st.sampled_from([0, 3, 16, 17, 40, 150, 400]), min_size=1, max_size=4),
    seeds,
    st.sampled_from([1, 4, 15, 30, 200]),
    st.sampled_from(["merge", "ward"]),
)
def test_many_units_are_merged_window_by_window_and_then_again(
    lengths: list[int], seed: int, count: int, policy: Policy
) -> None:
    units = random_units(np.random.default_rng(seed), lengths)
    whole = spend(Budget(count, policy=policy), units)[0]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(select, "WINDOW", 16)
        found, dropped = spend(Budget(count, policy=policy), units)
    assert len(dropped.weights) == 0
    assert found.offsets.tolist() == whole.offsets.tolist()
    for text, length in enumerate(lengths):
        alone = units.take(np.array([text]))
        expected = merged_by_hand(alone, count, policy, 16, select.PART)
        mine = found.take(np.array([text]))
        assert_same(mine, expected, rtol=1e-6)
        assert sorted(mine.spans.tolist()) == alone.spans.tolist()
        if length <= 16:  # one window: nothing changes
            assert_same(mine, whole.take(np.array([text])), rtol=1e-6)


def test_budgets_share_clusters_of_short_texts_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(select, "WINDOW", 16)
    units = random_units(np.random.default_rng(5), [12, 90, 16])
    joins: Joins = {}
    for count in (30, 3, 14, 8):
        budget = Budget(count, policy="merge")
        assert_same(spend(budget, units, joins)[0], spend(budget, units)[0], rtol=0)
    assert sorted(joins) == [("merge", 0), ("merge", 2)]


def test_importance_of_any_size_merges_alike() -> None:
    """Nothing overflows, and no importance is so small that all units count the same."""
    units = random_units(np.random.default_rng(7), [12, 1, 0, 9])
    kept, _ = spend(Budget(3, policy="merge"), units)
    for size in (1e-30, 1e-12, 1e19, 1e30):
        scaled = replace(units, weights=units.weights * np.float32(size))
        found, _ = spend(Budget(3, policy="merge"), scaled)
        np.testing.assert_allclose(found.vectors, kept.vectors, atol=1e-5)
        np.testing.assert_allclose(found.weights, kept.weights * np.float32(size), rtol=1e-4)


def test_memory_of_merging_grows_with_the_units_not_with_their_square() -> None:
    units = random_units(np.random.default_rng(2), [12_000], width=4)  # at once: 1.2 GB
    spend(Budget(2, policy="merge"), random_units(np.random.default_rng(3), [9]))  # imports
    tracemalloc.start()
    try:
        kept, _ = spend(Budget(32, policy="merge"), units)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(kept.weights) == 32
    assert peak < 150e6
