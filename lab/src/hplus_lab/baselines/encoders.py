"""What runs a baseline's weights: onnxruntime, torch, or sentence-transformers. No remote code."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from hplus.backbones.runtime import onnxruntime
from hplus.backbones.tokenizer import Tokenizer
from hplus.errors import BackboneError
from hplus.types import F32
from hplus_lab.baselines.baseline import Baseline
from hplus_lab.baselines.inputs import Sequences

# Tokens of one batch, padding included.
BATCH = 4_096


class Encoder(Protocol):
    """A model that reads token ids."""

    tokenizer: Tokenizer

    def forward(self, inputs: Sequences) -> F32:
        """Every sequence through the model: states f32[T, d], or logits f32[n, 1]."""
        ...


def load(baseline: Baseline, place: Path, *, threads: int = 1) -> Encoder:
    """The model of a verified folder."""
    kind = OnnxEncoder if baseline.weights.runner == "onnx" else TorchEncoder
    return kind(place, threads=threads)


class OnnxEncoder:
    """An ONNX model in onnxruntime, one text at a time.

    The packaged models are int8 with scales taken at run time from everything in a batch: next to
    longer or louder texts a text would get another vector. One text per run needs no padding and
    always gives the same vector, so an interrupted encoding continues as if nothing had happened.
    """

    def __init__(self, place: Path, *, threads: int = 1) -> None:
        ort = onnxruntime()
        self.tokenizer = Tokenizer.read(place / "tokenizer.json")
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        options.log_severity_level = 3  # errors only
        path = place / "model.onnx"
        try:
            self.session: Any = ort.InferenceSession(
                str(path), options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # onnxruntime has a class of its own for each reason
            raise BackboneError(f"{path} does not load in onnxruntime: {error}") from error
        self._names = {entry.name for entry in self.session.get_inputs()}

    def forward(self, inputs: Sequences) -> F32:
        """The first output: states f32[T, d], or the logits f32[n, 1] of a cross-encoder."""
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


class TorchEncoder:
    """A transformers model as it was published, causal if it is causal.

    Sequences of about the same length share a batch, padded on the right, where neither a mask nor
    a causal order lets a token see the padding.
    """

    def __init__(self, place: Path, *, threads: int = 1) -> None:
        from hplus.backbones.transformers_ import read_model, read_tokenizer

        import transformers  # isort: skip  (after transformers_, which says how to install it)

        self.tokenizer = read_tokenizer(str(place))
        self.model: Any = read_model(str(place), transformers.AutoModel).eval()
        self._threads = threads

    def forward(self, inputs: Sequences) -> F32:
        """The last hidden states, f32[T, d]."""
        import torch

        lengths = np.diff(inputs.offsets)
        order = np.argsort(-lengths, kind="stable")
        states = np.empty((len(inputs.ids), int(self.model.config.hidden_size)), np.float32)
        before = torch.get_num_threads()
        torch.set_num_threads(self._threads)
        try:
            for batch in _batches(order.tolist(), lengths.tolist(), BATCH):
                for text, rows in zip(batch, self._run(inputs, batch), strict=True):
                    states[inputs.offsets[text] : inputs.offsets[text + 1]] = rows
        finally:
            torch.set_num_threads(before)
        return states

    def _run(self, inputs: Sequences, batch: list[int]) -> list[F32]:
        import torch

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


class SentenceTransformersEncoder:
    """Texts to vectors by sentence-transformers itself, which is the baseline here: its own
    tokenizing and pooling, not only its weights."""

    def __init__(self, baseline: Baseline, place: Path) -> None:
        import sentence_transformers

        self.model: Any = sentence_transformers.SentenceTransformer(
            str(place), device="cpu", local_files_only=True, trust_remote_code=False
        )
        self.model.max_seq_length = baseline.max_tokens
        self._normalise = baseline.normalise

    def encode(self, texts: list[str]) -> F32:
        """f32[n, d]."""
        rows: F32 = self.model.encode(
            texts, batch_size=8, normalize_embeddings=self._normalise, show_progress_bar=False
        )
        return rows


def _batches(order: list[int], lengths: list[int], size: int) -> list[list[int]]:
    """Texts in `order`, longest first, as many together as fill `size` at the first's length."""
    batches: list[list[int]] = []
    for text in order:
        if batches and (len(batches[-1]) + 1) * lengths[batches[-1][0]] <= size:
            batches[-1].append(text)
        else:
            batches.append([text])
    return batches
