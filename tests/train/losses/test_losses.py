"""Losses and training scores against plain formulas; padding never counts."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from hplus.train.losses.contrastive import nce  # noqa: E402
from hplus.train.losses.interaction import interaction_scores  # noqa: E402
from hplus.train.losses.lexical import lexical_scores  # noqa: E402

some = settings(deadline=None, max_examples=50)
seeds = st.integers(0, 2**32 - 1)


def padded(rows: list[Any], value: float, width: int) -> Any:
    """Rows of any length as one tensor, `value` after each."""
    full = [np.concatenate([row, np.full(width - len(row), value)]) for row in rows]
    kind = np.int64 if all(np.asarray(row).dtype.kind == "i" for row in rows) else np.float64
    return torch.from_numpy(np.array(full, kind).reshape(len(rows), width))


def plain_nce(scores: Any, tau: float) -> float:
    losses = []
    for row in scores:
        terms = [np.exp((s - row.max()) / tau) for s in row]
        losses.append(-np.log(terms[0] / sum(terms)))
    return float(np.mean(losses))


@some
@given(seeds, st.integers(1, 5), st.integers(1, 6), st.sampled_from([0.02, 0.3, 1.0]))
def test_nce_is_the_formula(seed: int, rows: int, group: int, tau: float) -> None:
    scores = np.random.default_rng(seed).normal(0, 2 * tau, (rows, group))
    assert float(nce(torch.from_numpy(scores), tau)) == pytest.approx(plain_nce(scores, tau))


def test_nce_at_its_ends() -> None:
    assert float(nce(torch.zeros(3, 8), 0.1)) == pytest.approx(np.log(8))
    assert float(nce(torch.tensor([[1.0]]), 0.1)) == 0
    assert float(nce(torch.tensor([[1.0, -1.0]]), 0.02)) == pytest.approx(0, abs=1e-6)
    assert float(nce(torch.tensor([[-1.0, 1.0]]), 0.02)) == pytest.approx(100)


def test_a_place_without_a_document_counts_for_nothing() -> None:
    scores = torch.tensor([[0.3, 0.1, -torch.inf], [0.2, -torch.inf, 0.4]], requires_grad=True)
    loss = nce(scores, 0.5)
    expected = [plain_nce(np.array([[0.3, 0.1]]), 0.5), plain_nce(np.array([[0.2, 0.4]]), 0.5)]
    assert loss.item() == pytest.approx(np.mean(expected))
    loss.backward()
    assert scores.grad.isfinite().all()
    assert scores.grad[0, 2] == scores.grad[1, 1] == 0


@some
@given(
    seeds,
    st.lists(st.integers(1, 7), min_size=1, max_size=4),
    st.integers(1, 4),
    st.sampled_from([1, 2, 0.5]),
)
@example(0, [1, 7], 1, 1)
def test_interaction_is_a_loop_over_units(
    seed: int, lengths: list[int], group: int, sharpness: float
) -> None:
    """eq:phrase_score over the sum of the query's weights; ragged queries in one batch."""
    random = np.random.default_rng(seed)
    units = [np.cumsum(np.r_[0, random.integers(0, 2, n - 1)]) for n in lengths]
    weights = [random.gamma(2.0, size=n) + 0.01 for n in lengths]
    best = [random.uniform(-1, 1, (own[-1] + 1, group)) for own in units]

    rows = max(map(len, best))
    blocks = [np.vstack([own, np.full((rows - len(own), group), 9.0)]) for own in best]
    scores = interaction_scores(
        padded(weights, 0.0, max(lengths)),
        padded(units, 0, max(lengths)),
        torch.from_numpy(np.stack(blocks)),  # 9: the value at a unit that is padding
        sharpness,
    )
    assert scores.shape == (len(lengths), group)
    for q in range(len(lengths)):
        for d in range(group):
            total = norm = 0.0
            for unit in range(len(best[q])):
                members = [w for w, u in zip(weights[q], units[q], strict=True) if u == unit]
                total += sum(members) ** sharpness * best[q][unit, d]
                norm += sum(members) ** sharpness
            assert float(scores[q, d]) == pytest.approx(total / norm, abs=1e-12)


def test_the_scale_of_the_importance_does_not_matter_to_interaction() -> None:
    importance, unit = torch.tensor([[1.0, 2.0, 3.0]]), torch.tensor([[0, 0, 1]])
    best = torch.tensor([[[0.5, -0.5], [1.0, 0.25]]])
    torch.testing.assert_close(
        interaction_scores(importance, unit, best), interaction_scores(7 * importance, unit, best)
    )
    torch.testing.assert_close(
        interaction_scores(importance, unit, best), torch.tensor([[0.75, -0.125]])
    )


def summed(ids: Any, weights: Any) -> dict[int, float]:
    """w~_x(t): the importance of a repeated id is summed."""
    table: dict[int, float] = defaultdict(float)
    for token, weight in zip(ids.tolist(), weights.tolist(), strict=True):
        table[token] += weight
    return table


@some
@given(
    seeds,
    st.lists(st.integers(0, 6), min_size=1, max_size=3),
    st.integers(1, 3),
    st.integers(0, 6),
)
@example(0, [0], 1, 0)
@example(1, [0, 3], 2, 4)
def test_lexical_is_a_sum_over_dictionaries(
    seed: int, lengths: list[int], group: int, longest: int
) -> None:
    """eq:lexical_training_score, as log(1 + score)."""
    random = np.random.default_rng(seed)

    def texts(sizes: Any) -> tuple[list[Any], list[Any]]:
        return (
            [random.integers(0, 4, n) for n in sizes],
            [random.gamma(2.0, size=n) for n in sizes],
        )

    q_ids, q_weights = texts(lengths)
    d_ids, d_weights = texts(random.integers(0, longest + 1, len(lengths) * group))
    shape = (len(lengths), group, longest)
    scores = lexical_scores(
        padded(q_weights, 0.0, max(lengths)),
        padded(q_ids, -1, max(lengths)),
        padded(d_weights, 0.0, longest).view(shape),
        padded(d_ids, -2, longest).view(shape),
    )
    assert scores.shape == (len(lengths), group)
    for q in range(len(lengths)):
        asked = summed(q_ids[q], q_weights[q])
        for d in range(group):
            own = summed(d_ids[q * group + d], d_weights[q * group + d])
            raw = sum(weight * own[token] for token, weight in asked.items() if token in own)
            assert float(scores[q, d]) == pytest.approx(np.log(1 + raw))


def test_lexical_padding_counts_for_nothing_whatever_its_id() -> None:
    """Importance 0 is what makes a place padding; its id may be any."""
    query, ids = torch.tensor([[1.0, 2.0]]), torch.tensor([[5, 6]])
    document, document_ids = torch.tensor([[[3.0], [4.0]]]), torch.tensor([[[5], [6]]])
    plain = lexical_scores(query, ids, document, document_ids)
    torch.testing.assert_close(plain, torch.tensor([[3.0, 8.0]]).log1p())
    wide = lexical_scores(
        torch.nn.functional.pad(query, (0, 1)),
        torch.nn.functional.pad(ids, (0, 1), value=5),
        torch.nn.functional.pad(document, (0, 2)),
        torch.nn.functional.pad(document_ids, (0, 2), value=5),
    )
    torch.testing.assert_close(wide, plain)
