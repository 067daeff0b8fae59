"""Texts through the encoder in training: chunk by chunk, from stored states where there are some.

Gradient caching (arXiv 2101.06983) makes the memory independent of the batch: encode without
gradient, take the loss and its gradient by the states, then encode each chunk again and pass that
gradient on. It costs one more forward pass.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch
from torch import Tensor

from hplus.train.lower import Lower
from hplus.train.student import Student
from hplus.train.texts import Texts, chunks, packed_order
from hplus.types import I64


@dataclass(frozen=True)
class Reader:
    """One side of the data with its stored states, if any."""

    student: Student
    texts: Texts
    lower: Lower | None
    chunk: int
    autocast: Callable[[], AbstractContextManager[object]]

    def run(self, rows: I64) -> tuple[Tensor, Tensor]:
        """States of the last and of the heads' layer, [T, d] each, in one pass."""
        some = self.texts.take(rows)
        with self.autocast():
            if self.lower is None:
                states, inner = self.student(some)
                return states, inner
            device = self.student.backbone.device
            states, learned = self.student.above(self.lower.lower.take(rows).to(device), some)
            stored = self.lower.inner
            inner = learned if stored is None else stored.take(rows).to(device)
            assert inner is not None
            return states, inner

    def pieces(self, rows: I64) -> list[I64]:
        """The rows as passes of similar length."""
        lengths = self.texts.lengths[rows]
        return [rows[piece] for piece in chunks(lengths, self.chunk)]

    def order(self, rows: I64) -> Tensor:
        """Where each token of the rows is in the passes one after another."""
        lengths = self.texts.lengths[rows]
        order = packed_order(lengths, list(chunks(lengths, self.chunk)))
        return torch.from_numpy(order).to(self.student.backbone.device)


Encoded = tuple[Tensor, Tensor]
Loss = Callable[[list[Encoded]], Tensor]


def backward(readers: list[Reader], rows: list[I64], loss: Loss) -> Tensor:
    """The loss of these rows, its gradient added to every parameter that learns."""
    encoded = [encode(reader, own) for reader, own in zip(readers, rows, strict=True)]
    value = loss(encoded)
    torch.autograd.backward(value)
    return value.detach()


def cached_backward(readers: list[Reader], rows: list[I64], loss: Loss) -> Tensor:
    """The same value and gradients in the memory of one chunk."""
    with torch.no_grad():
        encoded = [encode(reader, own) for reader, own in zip(readers, rows, strict=True)]
    leaves = [tuple(part.detach().requires_grad_() for part in _distinct(pair)) for pair in encoded]
    value = loss([(leaf[0], leaf[-1]) for leaf in leaves])
    torch.autograd.backward(value)
    for reader, own, leaf in zip(readers, rows, leaves, strict=True):
        order = reader.order(own)
        gradients = []
        for part in leaf:
            gradient = torch.zeros_like(part)
            if part.grad is not None:
                gradient[order] = part.grad  # back into the order of the passes
            gradients.append(gradient)
        first = 0
        for piece in reader.pieces(own):
            outputs = _distinct(reader.run(piece))
            last = first + len(outputs[0])
            pairs = [
                (output, gradient[first:last])
                for output, gradient in zip(outputs, gradients, strict=True)
                if output.requires_grad
            ]
            if pairs:
                torch.autograd.backward([o for o, _ in pairs], [g for _, g in pairs])
            first = last
    return value.detach()


def encode(reader: Reader, rows: I64) -> Encoded:
    """States of the last and of the heads' layer of these rows, in their order."""
    found = [reader.run(piece) for piece in reader.pieces(rows)]
    order = reader.order(rows)
    states = torch.cat([states for states, _ in found])[order]
    if all(states is inner for states, inner in found):
        return states, states
    return states, torch.cat([inner for _, inner in found])[order]


def _distinct(pair: Encoded) -> tuple[Tensor, ...]:
    """States alone where the heads read the same ones."""
    return pair[:1] if pair[0] is pair[1] else pair
