"""Attention in training: float32 on a CPU, whatever the rest of the encoder computes in."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

import toy  # noqa: E402
from hplus.train import attention  # noqa: E402
from hplus.train.config import StudentSettings  # noqa: E402
from hplus.train.student import Student  # noqa: E402


class Layer(torch.nn.Module):  # type: ignore[misc]
    is_causal = False


def test_bfloat16_inputs_are_attended_to_in_float32() -> None:
    torch.manual_seed(0)
    inputs = [torch.randn(2, 3, 5, 4, dtype=torch.bfloat16) for _ in range(3)]
    mask = torch.ones(2, 1, 5, 5, dtype=torch.bool)
    mask[1, :, :, 3:] = False
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found, _ = attention.attention(Layer(), *inputs, mask)
    query, key, value = (own.float() for own in inputs)
    similar = (query @ key.transpose(2, 3) / 2).masked_fill(~mask, -torch.inf)
    expected = similar.softmax(dim=3) @ value
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, expected.transpose(1, 2), rtol=1e-5, atol=1e-6)


def test_a_student_on_a_cpu_attends_so_and_its_states_stay(tmp_path: Path) -> None:
    folder = toy.encoder(tmp_path / "encoder")
    base = toy.base(folder)
    ids = torch.tensor([[2, 5, 6, 7, 3], [2, 8, 3, 0, 0]])
    mask = ids != 0
    with torch.no_grad():
        before = base.backbone.outputs(ids, mask).last_hidden_state
        student = Student(base, StudentSettings(), token=False)
        after = base.backbone.outputs(ids, mask).last_hidden_state
    assert student.encoder.config._attn_implementation == attention.NAME
    torch.testing.assert_close(after[mask], before[mask])
    assert attention.NAME not in student.encoder.config.to_json_string()
