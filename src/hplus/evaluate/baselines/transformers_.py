"""A baseline's folder in torch as it was published: causal where it is causal; no remote code.

Sequences of about the same length share a batch. Padding stands on the right, where neither a
mask nor a causal order lets a token see it.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from hplus.backbones.transformers_ import read_model, read_tokenizer
from hplus.evaluate.baselines.inputs import Inputs
from hplus.types import F32

import torch  # isort: skip  (after transformers_, which says how to install it)
import transformers  # isort: skip

# Tokens of one batch, padding included.
BATCH = 4_096


class TorchEncoder:
    """The last hidden states of a transformers model."""

    def __init__(self, place: Path, *, threads: int = 1) -> None:
        self.tokenizer = read_tokenizer(str(place))
        self.model: Any = read_model(str(place), transformers.AutoModel).eval()
        self._threads = threads

    def forward(self, inputs: Inputs) -> F32:
        """Every sequence through the model: f32[T, d]."""
        lengths = np.diff(inputs.offsets)
        order = np.argsort(-lengths, kind="stable")
        states: F32 | None = None
        before = torch.get_num_threads()
        torch.set_num_threads(self._threads)
        try:
            for batch in _batches(order.tolist(), lengths.tolist()):
                for text, rows in zip(batch, self._run(inputs, batch), strict=True):
                    if states is None:
                        states = np.empty((len(inputs.ids), rows.shape[1]), np.float32)
                    states[inputs.offsets[text] : inputs.offsets[text + 1]] = rows
        finally:
            torch.set_num_threads(before)
        if states is None:
            return np.empty((0, int(self.model.config.hidden_size)), np.float32)
        return states

    def _run(self, inputs: Inputs, batch: list[int]) -> list[F32]:
        spans = [slice(inputs.offsets[text], inputs.offsets[text + 1]) for text in batch]
        longest = max(span.stop - span.start for span in spans)
        ids = np.full((len(batch), longest), self.model.config.pad_token_id or 0, np.int64)
        mask = np.zeros((len(batch), longest), np.int64)
        for row, span in enumerate(spans):
            ids[row, : span.stop - span.start] = inputs.ids[span]
            mask[row, : span.stop - span.start] = inputs.attended[span]
        with torch.inference_mode():
            output = self.model(
                input_ids=torch.from_numpy(ids), attention_mask=torch.from_numpy(mask)
            )
        states = output.last_hidden_state.float().numpy()  # [batch, longest, d]
        return [states[row, : s.stop - s.start] for row, s in enumerate(spans)]


def _batches(order: list[int], lengths: list[int]) -> list[list[int]]:
    """Texts in `order`, longest first, as many together as fill BATCH with the first's length."""
    starts = [0]
    for number, _ in enumerate(order):
        if (number + 1 - starts[-1]) * lengths[order[starts[-1]]] > BATCH and number > starts[-1]:
            starts.append(number)
    return [order[a:b] for a, b in pairwise([*starts, len(order)]) if b > a]
