"""Backbones: texts -> token ids and character spans -> contextual states (eq:shared_encoder).

Every backbone does one thing: packed token ids in, packed states out, of the last layer
(`forward`) or of any (`layers`: the boundaries of phrases are clearer further down). Prompts,
windows, packing, stitching and pooling (`encode.py`) and tokenising (`tokenizer.py`) are common
to all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Literal, Protocol

from hplus.backbones.tokenizer import Tokenizer
from hplus.types import F32, I32, I64

Attention = Literal["bidirectional", "causal"]


class Backbone(Protocol):
    """What the rest of the library knows of an encoder."""

    tokenizer: Tokenizer
    dim: int
    """Width d of the states."""
    depth: int
    """Layers; the states after the last one are those of `forward`."""
    limit: int
    """The longest window the encoder can read, special tokens included."""
    concurrent: bool
    """Whether `forward` may run in several threads at once and gains by it."""
    device: Any
    """Where it runs: "onnxruntime int8", "onnxruntime float32", or a torch device."""
    reference: dict[str, Any]
    """Where the weights come from and their hashes, as a checkpoint's config records them."""

    @property
    def one_thread_each(self) -> Callable[[], AbstractContextManager[None]]:
        """A context in which each of those threads keeps to itself (`threads.py`)."""
        ...

    def forward(self, ids: I32, offsets: I64) -> F32:
        """Packed sequences, special tokens included, ids i32[T], offsets i64[n + 1] -> f32[T, d].

        No sequence sees another; none is longer than `limit`.
        """
        ...

    def layers(self, ids: I32, offsets: I64, wanted: Sequence[int]) -> list[F32]:
        """The same pass: the states after each of the `wanted` layers (1 to `depth`)."""
        ...
