"""Every loss of the paper against numpy, written from its equations, in double."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from hplus.heads.crf_torch import LinearChainCRF  # noqa: E402
from hplus.train.losses.contrastive import nce  # noqa: E402
from hplus.train.losses.distillation import min_max, teacher_divergence  # noqa: E402
from hplus.train.losses.lexical import lexical_matrix, saturated_matrix  # noqa: E402
from hplus.train.losses.matryoshka import global_scores, over_widths  # noqa: E402
from hplus.train.losses.segmentation import seg_loss  # noqa: E402
from hplus.train.losses.states import states_distance  # noqa: E402
from hplus.train.losses.token_interaction import token_scores, weighted_maxsim  # noqa: E402
from hplus.train.losses.unit_interaction import (  # noqa: E402
    merged,
    padded,
    pooled_units,
    ward_groups,
)
from hplus.types import offsets_of  # noqa: E402
from hplus.units.select import Budget, spend  # noqa: E402

some = settings(deadline=None, max_examples=20)
seeds = st.integers(0, 2**32 - 1)
CLOSE: dict[str, Any] = {"rtol": 0, "atol": 1e-6}


def t(array: Any) -> Any:
    return torch.tensor(np.asarray(array), dtype=torch.float64)


def norm(x: Any) -> Any:
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def softmax(x: Any) -> Any:
    e = np.exp(x - x.max())
    return e / e.sum()


@some
@given(seeds, st.sampled_from([0.05, 1.0]))
def test_stage1_is_the_mean_over_widths(seed: int, tau: float) -> None:
    random = np.random.default_rng(seed)
    queries, documents = random.normal(size=(3, 8)), random.normal(size=(3, 8))
    expected = []
    for r in (2, 4, 8):
        for i in range(3):
            scores = norm(documents[:, :r]) @ norm(queries[i, :r])
            expected.append(-np.log(softmax(scores / tau)[i]))
    found = over_widths(
        lambda r: nce(global_scores(t(queries), t(documents), r), tau, torch.arange(3)), (2, 4, 8)
    )
    np.testing.assert_allclose(float(found), np.mean(expected), **CLOSE)


@some
@given(seeds, st.sampled_from([0.1, 1.0]))
def test_divergence_from_the_teacher(seed: int, tau: float) -> None:
    random = np.random.default_rng(seed)
    teacher, scores = random.normal(size=(3, 5)), random.normal(size=(3, 5))
    teacher[1, 3:] = scores[1, 3:] = -np.inf  # a group of three
    expected = []
    for own, student in zip(teacher, scores, strict=True):
        there = np.isfinite(own)
        p, q = softmax(own[there]), softmax(student[there] / tau)
        expected.append((p * np.log(p / q)).sum())
    found = teacher_divergence(t(teacher), t(scores), tau)
    np.testing.assert_allclose(float(found), np.mean(expected), **CLOSE)
    assert float(teacher_divergence(t(teacher), tau * t(teacher), tau)) == pytest.approx(0)


def test_min_max_keeps_padding_out() -> None:
    found = min_max(t([[3.0, 1.0, 2.0], [5.0, 5.0, -np.inf]]))
    np.testing.assert_allclose(found, [[1, 0, 0.5], [0, 0, -np.inf]])
    ragged = t([[3.0, 1.0, 2.0], [5.0, 4.0, -np.inf]]).requires_grad_()
    teacher = t([[2.0, 1.0, 0.0], [1.0, 0.0, -np.inf]])
    (gradient,) = torch.autograd.grad(teacher_divergence(teacher, min_max(ragged), 0.3), ragged)
    assert gradient.isfinite().all()
    assert gradient[1, 2] == 0


@some
@given(seeds)
def test_token_score_is_the_mean_of_maxima(seed: int) -> None:
    random = np.random.default_rng(seed)
    q_lengths, d_lengths = random.integers(1, 5, 2), random.integers(1, 6, 3)
    queries = [norm(random.normal(size=(n, 4))) for n in q_lengths]
    documents = [norm(random.normal(size=(n, 4))) for n in d_lengths]
    sides = [
        padded(t(np.concatenate(rows)), offsets_of(lengths))
        for rows, lengths in ((queries, q_lengths), (documents, d_lengths))
    ]
    expected = [[(q @ d.T).max(axis=1).sum() / len(q) for d in documents] for q in queries]
    np.testing.assert_allclose(token_scores(*sides[0], *sides[1]), expected, **CLOSE)


@some
@given(seeds, st.sampled_from(["sum", "max"]))
def test_lexical_score_adds_up_repeated_ids(seed: int, repeats: Any) -> None:
    random = np.random.default_rng(seed)
    sides = []
    for n, m in ((2, 4), (3, 6)):
        ids = random.integers(0, 7, (n, m))
        weights = random.gamma(1.0, size=(n, m))
        weights[0, -1] = 0  # padding
        sides.append((weights, ids))
    (q, q_ids), (d, d_ids) = sides
    expected = np.zeros((2, 3))
    for i in range(2):
        for j in range(3):
            for token in range(7):
                mine, theirs = q[i][q_ids[i] == token], d[j][d_ids[j] == token]
                pool = np.sum if repeats == "sum" else (lambda x: x.max(initial=0))
                expected[i, j] += pool(mine) * pool(theirs)
    args = (t(q), torch.tensor(q_ids), t(d), torch.tensor(d_ids))
    np.testing.assert_allclose(lexical_matrix(*args, repeats=repeats), expected, **CLOSE)


@some
@given(seeds)
def test_a_lexical_head_saturates_the_sum_of_occurrences(seed: int) -> None:
    random = np.random.default_rng(seed)
    q_ids, d_ids = random.integers(0, 7, (2, 4)), random.integers(0, 9, (3, 6))
    worth, counted = random.gamma(2.0, size=9), random.gamma(1.0, size=(3, 6))
    counted[0, -1] = 0  # padding
    halves = random.uniform(0.3, 3, 3)
    expected = np.zeros((2, 3))
    for i in range(2):
        for j in range(3):
            for token in set(q_ids[i].tolist()):
                frequency = counted[j][d_ids[j] == token].sum()
                expected[i, j] += worth[token] * frequency / (frequency + halves[j])
            expected[i, j] /= sum(worth[token] for token in set(q_ids[i].tolist()))
    args = (t(worth[q_ids]), torch.tensor(q_ids), t(counted), torch.tensor(d_ids), t(halves))
    np.testing.assert_allclose(saturated_matrix(*args), expected, **CLOSE)


@some
@given(seeds)
def test_segmentation_loss_is_that_of_each_text_alone(seed: int) -> None:
    """A CRF in a mixed batch equals the CRF alone, against all paths written out."""
    torch.manual_seed(seed % 2**31)
    crf = LinearChainCRF(3, 2).double().requires_grad_(False)
    random = np.random.default_rng(seed)
    lengths = random.integers(1, 5, 3)
    states = [random.normal(size=(n, 3)) for n in lengths]
    tags = [np.resize([1, 2, 0], n) for n in lengths]
    offsets = offsets_of(lengths)
    batch, mask = padded(t(np.concatenate(states)), offsets)
    gold, _ = padded(torch.tensor(np.concatenate(tags)), offsets)
    found = seg_loss(crf, batch, gold, mask)
    for own, golden, loss in zip(states, tags, found, strict=True):
        scores = {}
        emitted = crf.emissions(t(own)[None], torch.ones(1, len(own), dtype=torch.bool))[0]
        for path in np.ndindex(*[3] * len(own)):
            legal = path[0] != 2 and all(not (a == 0 and b == 2) for a, b in pairwise(path))
            if legal:
                pairs = pairwise(path)
                steps = sum(float(crf.transitions[a, b]) for a, b in pairs)
                ends = float(crf.start[path[0]] + crf.end[path[-1]])
                scores[path] = ends + steps + sum(float(emitted[i, y]) for i, y in enumerate(path))
        total = np.log(np.sum(np.exp(list(scores.values()))))
        np.testing.assert_allclose(float(loss), total - scores[tuple(golden)], **CLOSE)


@some
@given(seeds, st.integers(1, 6))
def test_units_merge_as_at_inference(seed: int, budget: int) -> None:
    """Pooling, merging and weights are those of `units.select`, the reference."""
    from builders import random_units

    random = np.random.default_rng(seed)
    units = random_units(random, [5, 1, 8], width=6)
    kept, _ = spend(Budget(budget, policy="merge"), units)
    groups, bounds = ward_groups(units.vectors, units.weights, units.offsets, budget)
    vectors, weights = merged(
        torch.tensor(units.vectors), torch.tensor(units.weights), torch.tensor(groups), bounds[-1]
    )
    assert bounds.tolist() == kept.offsets.tolist()
    for first, last in pairwise(bounds):
        order = np.argsort(-weights[first:last].numpy(), kind="stable") + first
        np.testing.assert_allclose(weights[order], kept.weights[first:last], rtol=1e-5)
        np.testing.assert_allclose(vectors[order], kept.vectors[first:last], atol=1e-5)


def test_pooled_units_are_normalised_means() -> None:
    states, importance = np.arange(12.0).reshape(4, 3), np.array([1.0, 2.0, 3.0, 4.0])
    vectors, weights = pooled_units(t(states), t(importance), torch.tensor([0, 0, 1, 1]), 2, 2)
    np.testing.assert_allclose(vectors, norm((states[::2] + states[1::2])[:, :2] / 2), **CLOSE)
    np.testing.assert_allclose(weights, [3, 7], **CLOSE)


@some
@given(seeds)
def test_distance_of_states_is_the_variance_left(seed: int) -> None:
    random = np.random.default_rng(seed)
    own, target = random.normal(size=(2, 7, 3))
    left = sum(float(((a - b) ** 2).sum()) for a, b in zip(own, target, strict=True))
    expected = left / (7 * target.var(axis=0).sum())
    assert float(states_distance(t(own), t(target))) == pytest.approx(expected, rel=1e-6)


def test_gradients_by_finite_differences() -> None:
    torch.manual_seed(0)

    def leaf(*shape: int) -> Any:
        return torch.randn(*shape, dtype=torch.float64, requires_grad=True)

    mask = torch.tensor([[True, True, False], [True, True, True]])
    groups = torch.tensor([0, 1, 0, 1])
    ids = torch.randint(0, 4, (2, 3))
    check = torch.autograd.gradcheck
    assert check(lambda s: nce(s, 0.3, torch.tensor([2, 0])), leaf(2, 4))
    teacher = torch.randn(2, 4, dtype=torch.float64)
    assert check(lambda s: teacher_divergence(teacher, s, 0.3), leaf(2, 4))
    assert check(lambda q, d: global_scores(q, d, 3), (leaf(2, 4), leaf(3, 4)))
    sides = (leaf(1, 2, 4), leaf(1, 2), leaf(2, 3, 4))
    assert check(lambda q, w, d: weighted_maxsim(q, w.exp(), d, mask), sides)
    assert check(lambda q, d: lexical_matrix(q.exp(), ids, d.exp(), ids), (leaf(2, 3), leaf(2, 3)))
    assert check(lambda s: states_distance(s, teacher), leaf(2, 4))
    assert check(lambda v, w: merged(v, w.exp(), groups, 2)[0], (leaf(4, 3), leaf(4)))
    assert check(lambda v, w: pooled_units(v, w, groups, 2, 3)[0], (leaf(4, 3), leaf(4)))
