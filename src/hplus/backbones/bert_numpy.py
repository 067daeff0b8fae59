"""A BERT encoder in numpy: no torch, ready before torch would have been imported.

Batches are packed: the tokens of all texts stand in one matrix, so the linear layers, nine
tenths of the work, waste nothing on padding; attention runs text by text. Element-wise work
goes in blocks that stay in the cache. On two threads (`encode.py` gives each its own packs) this
comes near torch on the same cores: docs/benchmarks.md.

Costs 21 MFLOP a token for MiniLM (6 layers x 384), 90 MB of weights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from hplus.backbones.files import folder_reference, read_config, read_weights
from hplus.backbones.threads import one_blas_thread
from hplus.backbones.tokenizer import Tokenizer
from hplus.errors import BackboneError
from hplus.types import F32, I32, I64, item_of_row

# Scores of one attention block, in float32 numbers: 256 KB, which stays in the cache.
ATTENTION_BLOCK = 65_536
# Rows of the hidden layer that GELU takes at a time: 32 x 1536 numbers, for the same reason.
GELU_ROWS = 32
# Phi(x) = 1 / (1 + exp(-x p(x^2))) with p fitted to the normal distribution on |x| <= 5.6 and
# constant beyond: GELU within 7e-7 of the exact one, at the cost of one exponential, which
# float32 holds up to |x| = 30.
GELU_FITTED = 5.6
GELU_LIMIT = 30.0
GELU_POLYNOMIAL = (
    1.59574446e00,
    7.27332308e-02,
    -1.17041435e-04,
    -9.41786975e-05,
    5.55828913e-06,
    -1.11787381e-07,
)
_SIZES = ("hidden_size", "max_position_embeddings", "num_attention_heads", "num_hidden_layers")


@dataclass(frozen=True)
class Layer:
    """One transformer layer; matrices as [in, out], queries already scaled by 1/sqrt(d_head)."""

    qkv: F32
    qkv_bias: F32
    out: F32
    out_bias: F32
    attention_norm: tuple[F32, F32]
    up: F32
    up_bias: F32
    down: F32
    down_bias: F32
    output_norm: tuple[F32, F32]


class BertNumpy:
    """Any BERT-architecture folder: `config.json`, `model.safetensors`, `tokenizer.json`."""

    concurrent = True
    one_thread_each = one_blas_thread

    def __init__(
        self,
        config: Mapping[str, Any],
        weights: Mapping[str, F32],
        tokenizer: Tokenizer,
        reference: dict[str, Any],
    ) -> None:
        _refuse_other_architectures(config, reference)
        self.tokenizer = tokenizer
        self.reference = reference
        self.dim = int(config["hidden_size"])
        self.limit = int(config["max_position_embeddings"])
        self.heads = int(config["num_attention_heads"])
        self.epsilon = np.float32(config.get("layer_norm_eps", 1e-12))
        self._take(_Checked(weights, reference), config)

    @classmethod
    def from_folder(cls, folder: Path, adapter: Mapping[str, F32] | None = None) -> BertNumpy:
        """Read and hash a folder; `adapter` is merged into the weights."""
        weights = read_weights(folder / "model.safetensors", adapter)
        for name, tensor in weights.items():
            if not np.isfinite(tensor).all():
                raise BackboneError(f"{folder / 'model.safetensors'}: {name} is not finite")
        config = read_config(folder)
        tokenizer = Tokenizer.read(folder / "tokenizer.json")
        return cls(config, weights, tokenizer, folder_reference("bert", folder))

    def _take(self, weights: _Checked, config: Mapping[str, Any]) -> None:
        d, layers = self.dim, int(config["num_hidden_layers"])
        if self.heads < 1 or d % self.heads:
            raise weights.error(f"{d} dimensions do not divide into {self.heads} heads")
        self.word = weights.take("embeddings.word_embeddings.weight", None, d)
        if self.tokenizer.vocabulary > len(self.word):
            raise weights.error(
                f"the tokenizer has {self.tokenizer.vocabulary} tokens, the table {len(self.word)}"
            )
        # Every token is of segment 0: its vector joins the positions once and for all.
        segment = weights.take("embeddings.token_type_embeddings.weight", None, d)[0]
        self.position = (
            weights.take("embeddings.position_embeddings.weight", self.limit, d) + segment
        )
        self.embedding_norm = weights.norm("embeddings.LayerNorm", d)
        self.stack = [self._layer(weights, f"encoder.layer.{i}") for i in range(layers)]
        self.depth = layers
        if weights.has(f"encoder.layer.{layers}."):
            raise weights.error(f"more layers than the {layers} of config.json")

    def _layer(self, weights: _Checked, name: str) -> Layer:
        d = self.dim
        up, up_bias = weights.linear(f"{name}.intermediate.dense", d, None)
        down, down_bias = weights.linear(f"{name}.output.dense", up.shape[1], d)
        out, out_bias = weights.linear(f"{name}.attention.output.dense", d, d)
        parts = ("query", "key", "value")
        pairs = [weights.linear(f"{name}.attention.self.{part}", d, d) for part in parts]
        scales = (np.float32((d // self.heads) ** -0.5), np.float32(1), np.float32(1))
        return Layer(
            qkv=np.concatenate(
                [w * scale for (w, _), scale in zip(pairs, scales, strict=True)], axis=1
            ),
            qkv_bias=np.concatenate([b * s for (_, b), s in zip(pairs, scales, strict=True)]),
            out=out,
            out_bias=out_bias,
            attention_norm=weights.norm(f"{name}.attention.output.LayerNorm", d),
            up=up,
            up_bias=up_bias,
            down=down,
            down_bias=down_bias,
            output_norm=weights.norm(f"{name}.output.LayerNorm", d),
        )

    def forward(self, ids: I32, offsets: I64) -> F32:
        """eq:shared_encoder on packed sequences: ids i32[T], offsets i64[n + 1] -> f32[T, d]."""
        return self.layers(ids, offsets, [self.depth])[0]

    def layers(self, ids: I32, offsets: I64, wanted: Sequence[int]) -> list[F32]:
        """The same pass: the states after each of the `wanted` layers (1 to `depth`).

        BLAS has one thread: a pack's products are too small to be worth sharing, and on a busy
        machine its threads wait for one another twenty times longer than they compute.
        """
        with self.one_thread_each():
            return self._layers(ids, offsets, wanted)

    def _layers(self, ids: I32, offsets: I64, wanted: Sequence[int]) -> list[F32]:
        states: dict[int, F32] = {}
        positions = np.arange(len(ids)) - offsets[item_of_row(offsets)]
        embedded = np.add(self.word[ids], self.position[positions], dtype=np.float32)
        x = layer_norm(embedded, *self.embedding_norm, self.epsilon)
        for number, layer in enumerate(self.stack, start=1):
            qkv: F32 = x @ layer.qkv  # [T, 3 d]
            qkv += layer.qkv_bias
            attended: F32 = attend(qkv, offsets, self.heads) @ layer.out
            attended += layer.out_bias
            attended += x
            x = layer_norm(attended, *layer.attention_norm, self.epsilon)
            hidden: F32 = x @ layer.up  # [T, 4 d]
            hidden += layer.up_bias
            gelu(hidden)
            output: F32 = hidden @ layer.down
            output += layer.down_bias
            output += x
            x = layer_norm(output, *layer.output_norm, self.epsilon)
            if number in wanted:
                states[number] = x
        return [states[number] for number in wanted]


def attend(qkv: F32, offsets: I64, heads: int) -> F32:
    """Self-attention within each sequence: qkv f32[T, 3 d] (queries scaled) -> f32[T, d]."""
    dim = qkv.shape[1] // 3
    attended = np.empty((len(qkv), dim), np.float32)
    for first, last in pairwise(offsets.tolist()):
        n = last - first
        rows = qkv[first:last].reshape(n, 3, heads, -1).transpose(1, 2, 0, 3)  # [3, heads, n, d_h]
        into = attended[first:last].reshape(n, heads, -1).transpose(1, 0, 2)
        step = max(1, ATTENTION_BLOCK // max(1, n * n))
        for h in range(0, heads, step):
            query, key, value = rows[:, h : h + step]
            scores = query @ key.transpose(0, 2, 1)  # [step, n, n]
            scores -= scores.max(axis=2, keepdims=True)
            np.exp(scores, out=scores)
            # Dividing the n x d_h result is cheaper than dividing the n x n weights.
            np.divide(scores @ value, scores.sum(axis=2, keepdims=True), out=into[h : h + step])
    return attended


def gelu(hidden: F32) -> None:
    """x Phi(x) in place, to 7e-7 and the rounding of float32."""
    for row in range(0, len(hidden), GELU_ROWS):
        block = hidden[row : row + GELU_ROWS]
        x = np.clip(block, -GELU_LIMIT, GELU_LIMIT)
        square = x * x
        np.minimum(square, np.float32(GELU_FITTED**2), out=square)
        power = square * np.float32(GELU_POLYNOMIAL[-1])
        for coefficient in GELU_POLYNOMIAL[-2:0:-1]:
            power += np.float32(coefficient)
            power *= square
        power += np.float32(GELU_POLYNOMIAL[0])
        power *= x
        np.negative(power, out=power)
        np.exp(power, out=power)
        power += np.float32(1)
        block /= power


def layer_norm(x: F32, gain: F32, bias: F32, epsilon: np.float32) -> F32:
    """Layer normalisation of the rows, in place."""
    x -= x.mean(axis=1, keepdims=True)
    variance = np.einsum("ij,ij->i", x, x) / np.float32(x.shape[1])
    x /= np.sqrt(variance + epsilon)[:, None]
    x *= gain
    x += bias
    return x


class _Checked:
    """Named tensors whose shapes are what the config says, or one clear error."""

    def __init__(self, weights: Mapping[str, F32], reference: dict[str, Any]) -> None:
        self.weights = weights
        self.place = reference.get("path", "the weights")

    def error(self, what: str) -> BackboneError:
        return BackboneError(f"{self.place}: {what}; not the weights of this config.json")

    def has(self, prefix: str) -> bool:
        return any(name.startswith(prefix) for name in self.weights)

    def take(self, name: str, *shape: int | None) -> F32:
        tensor = self.weights.get(name)
        if tensor is None:
            raise self.error(f"tensor {name!r} is missing")
        wrong = any(b is not None and a != b for a, b in zip(tensor.shape, shape, strict=False))
        if tensor.ndim != len(shape) or wrong:
            raise self.error(f"tensor {name} has shape {tensor.shape}, expected {shape}")
        return tensor

    def linear(self, name: str, inputs: int, outputs: int | None) -> tuple[F32, F32]:
        weight = self.take(f"{name}.weight", outputs, inputs)
        return weight.T, self.take(f"{name}.bias", len(weight))

    def norm(self, name: str, dim: int) -> tuple[F32, F32]:
        return self.take(f"{name}.weight", dim), self.take(f"{name}.bias", dim)


def _refuse_other_architectures(config: Mapping[str, Any], reference: dict[str, Any]) -> None:
    for key in _SIZES:
        if key not in config:
            raise BackboneError(f"{reference.get('path', 'config.json')}: config lacks {key}")
    for key, served in (
        ("model_type", "bert"),
        ("hidden_act", "gelu"),
        ("position_embedding_type", "absolute"),
    ):
        if config.get(key, served) != served:
            raise BackboneError(
                f"{reference.get('path', 'config.json')}: {key} is {config[key]!r}, and the numpy "
                f"encoder serves {served!r} only; use torch with device='cpu'"
            )
