"""Token vectors are the normalised affine map of the states, with safe gradients."""

import pytest

torch = pytest.importorskip("torch")

from hplus_lab.projection import TokenProjection  # noqa: E402


def test_equals_the_equation():
    torch.manual_seed(0)
    projection, states = TokenProjection(6, 4), torch.randn(2, 5, 6)
    vectors = projection(states)
    assert vectors.shape == (2, 5, 4)
    by_hand = states @ projection.project.weight.T + projection.project.bias
    torch.testing.assert_close(vectors, by_hand / by_hand.norm(dim=-1, keepdim=True))


def test_half_precision_states_give_unit_vectors():
    projection = TokenProjection(6, 32).bfloat16()
    lengths = projection(torch.randn(8, 6).bfloat16()).norm(dim=-1)
    torch.testing.assert_close(lengths, torch.ones(8))


def test_a_zero_vector_has_a_finite_gradient():
    projection = TokenProjection(3, 2)
    torch.nn.init.zeros_(projection.project.bias)
    states = torch.zeros(1, 3, requires_grad=True)
    projection(states).sum().backward()
    assert states.grad.isfinite().all()
