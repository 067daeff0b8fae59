"""A baseline's ONNX model in onnxruntime, one text at a time.

The packaged models are int8 with scales taken at run time from all that a batch holds: beside
longer or louder neighbours a text would get another vector. One text a run costs no padding and
gives the same vector always, so an interrupted encoding goes on as if nothing had happened.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from hplus.backbones.tokenizer import Tokenizer
from hplus.errors import BackboneError, MissingExtraError
from hplus.evaluate.baselines.inputs import Inputs
from hplus.types import F32

try:
    import onnxruntime
except ImportError:
    raise MissingExtraError(
        "this baseline needs onnxruntime: pip install 'hplus[baselines]'"
    ) from None


class OnnxEncoder:
    """The first output of the model: states f32[T, d], or logits f32[n, 1] of a cross-encoder."""

    def __init__(self, place: Path, *, threads: int = 1) -> None:
        self.tokenizer = Tokenizer.read(place / "tokenizer.json")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.log_severity_level = 3  # errors only
        path = place / "model.onnx"
        try:
            self.session: Any = onnxruntime.InferenceSession(
                str(path), options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # onnxruntime has a class of its own for each reason
            raise BackboneError(f"{path} does not load in onnxruntime: {error}") from error
        self._names = {entry.name for entry in self.session.get_inputs()}

    def forward(self, inputs: Inputs) -> F32:
        """Every sequence through the model: f32[T, d], or f32[n, 1]."""
        rows: list[F32] = []
        for first, last in pairwise(inputs.offsets.tolist()):
            arrays = {
                "input_ids": inputs.ids[None, first:last].astype(np.int64),
                "attention_mask": inputs.attended[None, first:last].astype(np.int64),
                "token_type_ids": inputs.segments[None, first:last].astype(np.int64),
            }
            named = {name: array for name, array in arrays.items() if name in self._names}
            output = self.session.run(None, named)[0]
            rows.append(output.reshape(-1, output.shape[-1]))
        return np.concatenate(rows)
