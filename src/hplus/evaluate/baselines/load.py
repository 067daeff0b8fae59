"""From a row of the table to something that encodes."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from hplus.backbones.tokenizer import Tokenizer
from hplus.evaluate.baselines.baseline import Baseline
from hplus.evaluate.baselines.inputs import Inputs
from hplus.types import F32


class Encoder(Protocol):
    """A model that reads token ids."""

    tokenizer: Tokenizer

    def forward(self, inputs: Inputs) -> F32:
        """Every sequence through the model: states f32[T, d], or logits f32[n, 1]."""
        ...


def load(baseline: Baseline, place: Path, *, threads: int = 1) -> Encoder:
    """The model of a verified folder."""
    if baseline.weights.runner == "onnx":
        from hplus.evaluate.baselines.onnx_ import OnnxEncoder

        return OnnxEncoder(place, threads=threads)
    from hplus.evaluate.baselines.transformers_ import TorchEncoder

    return TorchEncoder(place, threads=threads)
