"""A BERT encoder in onnxruntime: no torch, int8 or float32.

The graph is made here, from the tensors of a folder:

    config.json, tokenizer.json, model.safetensors (float32) or model.int8.safetensors

One text a run: the scale of int8 activations is that of the text alone, so a text never depends on
its neighbours, and nothing is padded. Runs are shared among threads (`encode.py`), each with one
core, so a text's states are the same bytes by any number of threads.

Costs 43 MFLOP a token for 12 layers x 384. Embeddings are looked up outside the graph, so that the
table, a third of an int8 model, is in memory once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from hplus.backbones.files import ROTATION, folder_reference, read_config, read_weights
from hplus.backbones.int8 import I8, WORDS
from hplus.backbones.onnx_file import MICROSOFT, Graph
from hplus.backbones.runtime import onnxruntime
from hplus.backbones.tokenizer import Tokenizer
from hplus.errors import BackboneError
from hplus.types import F32, I32, I64

FLOAT32_FILE = "model.safetensors"
INT8_FILE = "model.int8.safetensors"
_SIZES = ("hidden_size", "max_position_embeddings", "num_attention_heads", "num_hidden_layers")


@dataclass(frozen=True)
class Linear:
    """x W + b; weight f32 or i8 [in, out], scale f32[out] with i8."""

    weight: F32 | I8
    scale: F32 | None
    bias: F32


class Bert:
    """Any BERT-architecture folder."""

    concurrent = True
    one_thread_each = staticmethod(nullcontext)

    def __init__(
        self,
        config: Mapping[str, Any],
        weights: Mapping[str, F32 | I8],
        tokenizer: Tokenizer,
        reference: dict[str, Any],
    ) -> None:
        _refuse_other_architectures(config, reference)
        self.tokenizer = tokenizer
        self.reference = reference
        self.dim = int(config["hidden_size"])
        self.depth = int(config["num_hidden_layers"])
        self.limit = int(config["max_position_embeddings"])
        checked = _Checked(weights, reference, self.dim)
        self.words, self.word_scale = checked.quantised(f"{WORDS}.weight", None, self.dim)
        if tokenizer.vocabulary > len(self.words):
            raise checked.error(
                f"the tokenizer has {tokenizer.vocabulary} tokens, the table {len(self.words)}"
            )
        # Every token is of segment 0: its vector joins the positions once and for all.
        segment = checked.take("embeddings.token_type_embeddings.weight", None, self.dim)[0]
        positions = checked.take("embeddings.position_embeddings.weight", self.limit, self.dim)
        self.positions: F32 = positions + segment
        self.device = "onnxruntime " + ("float32" if self.word_scale is None else "int8")
        self._session = _session(_graph(config, checked))

    @classmethod
    def from_folder(cls, folder: Path, adapter: Mapping[str, F32] | None = None) -> Bert:
        """Read and hash a folder; `adapter` is merged into float32 weights."""
        file = weights_file(folder)
        if adapter and file.name == INT8_FILE:
            raise BackboneError(f"{file}: expected float32 weights to merge an adapter, got int8")
        weights = read_weights(file, adapter)
        for name, tensor in weights.items():
            if tensor.dtype == np.float32 and not np.isfinite(tensor).all():
                raise BackboneError(f"{file}: {name} is not finite")
        config = read_config(folder)
        tokenizer = Tokenizer.read(folder / "tokenizer.json")
        return cls(config, weights, tokenizer, folder_reference("bert", folder))

    def forward(self, ids: I32, offsets: I64) -> F32:
        """eq:shared_encoder on packed sequences: ids i32[T], offsets i64[n + 1] -> f32[T, d]."""
        return self.layers(ids, offsets, [self.depth])[0]

    def layers(self, ids: I32, offsets: I64, wanted: Sequence[int]) -> list[F32]:
        """The same pass: the states after each of the `wanted` layers (1 to `depth`)."""
        names = [f"layer.{number}" for number in wanted]
        packed = [np.empty((len(ids), self.dim), np.float32) for _ in wanted]
        for first, last in pairwise(offsets.tolist()):
            if first < last:
                found = self._session.run(names, {"embedded": self._embed(ids[first:last])[None]})
                for into, states in zip(packed, found, strict=True):
                    into[first:last] = states[0]
        return packed

    def _embed(self, ids: I32) -> F32:
        rows = self.words[ids].astype(np.float32)
        if self.word_scale is not None:
            rows *= self.word_scale[ids][:, None]
        rows += self.positions[: len(ids)]
        return rows


def weights_file(folder: Path) -> Path:
    """The int8 weights of a folder that has no float32 ones, else those."""
    int8 = folder / INT8_FILE
    return int8 if int8.exists() and not (folder / FLOAT32_FILE).exists() else folder / FLOAT32_FILE


def _session(graph: bytes) -> Any:
    ort = onnxruntime()
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    # Beyond the basic ones, onnxruntime fuses each sum with the layer norm after it, and its fused
    # operator takes six times as long as the two.
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.log_severity_level = 3
    return ort.InferenceSession(graph, options, providers=["CPUExecutionProvider"])


def _graph(config: Mapping[str, Any], weights: _Checked) -> bytes:
    """embedded f32[1, n, d] -> layer.1 … layer.<depth>, f32[1, n, d] each."""
    dim, depth, heads = (
        int(config[key]) for key in ("hidden_size", "num_hidden_layers", "num_attention_heads")
    )
    if heads < 1 or dim % heads:
        raise weights.error(f"{dim} dimensions do not divide into {heads} heads")
    graph = Graph()
    epsilon = float(config.get("layer_norm_eps", 1e-12))

    def linear(x: str, name: str, part: Linear, out: str) -> None:
        weight, bias = graph.constant(name, part.weight), graph.constant(f"{name}.b", part.bias)
        if part.scale is None:
            graph.node("MatMul", [x, weight], [f"{out}.product"])
            graph.node("Add", [f"{out}.product", bias], [out])
            return
        scale = graph.constant(f"{name}.s", part.scale)
        zero = graph.constant(f"{name}.z", np.zeros(len(part.scale), np.int8))
        inputs = [x, weight, scale, zero, bias]
        graph.node("DynamicQuantizeMatMul", inputs, [out], MICROSOFT)

    def norm(x: str, name: str, out: str) -> None:
        gain, bias = (
            graph.constant(f"{name}.{which}", weights.take(f"{name}.{which}", dim))
            for which in ("weight", "bias")
        )
        graph.node("LayerNormalization", [x, gain, bias], [out], epsilon=epsilon)

    norm("embedded", "embeddings.LayerNorm", "layer.0")
    for i in range(depth):
        x, name = f"layer.{i}", f"encoder.layer.{i}"
        parts = [weights.linear(f"{name}.attention.self.{p}", dim, dim) for p in _ATTENTION]
        linear(x, f"qkv.{i}", _side_by_side(parts), f"qkv.{i}.out")
        heads_of = [f"{part}.{i}" for part in _ATTENTION]
        graph.node("Split", [f"qkv.{i}.out"], heads_of, axis=2, num_outputs=3)
        graph.node("MultiHeadAttention", heads_of, [f"attended.{i}"], MICROSOFT, num_heads=heads)
        out = weights.linear(f"{name}.attention.output.dense", dim, dim)
        linear(f"attended.{i}", f"out.{i}", out, f"out.{i}.out")
        graph.node("Add", [f"out.{i}.out", x], [f"first.{i}"])
        norm(f"first.{i}", f"{name}.attention.output.LayerNorm", f"between.{i}")
        up = weights.linear(f"{name}.intermediate.dense", dim, None)
        linear(f"between.{i}", f"up.{i}", up, f"up.{i}.out")
        graph.node("Gelu", [f"up.{i}.out"], [f"hidden.{i}"], MICROSOFT)
        down = weights.linear(f"{name}.output.dense", up.weight.shape[1], dim)
        linear(f"hidden.{i}", f"down.{i}", down, f"down.{i}.out")
        graph.node("Add", [f"down.{i}.out", f"between.{i}"], [f"second.{i}"])
        turned = i == depth - 1 and weights.has(ROTATION)
        norm(f"second.{i}", f"{name}.output.LayerNorm", "raw" if turned else f"layer.{i + 1}")
        if turned:
            rotation = graph.constant(ROTATION, weights.take(ROTATION, dim, dim))
            graph.node("MatMul", ["raw", rotation], [f"layer.{depth}"])
    if weights.has(f"encoder.layer.{depth}."):
        raise weights.error(f"more layers than the {depth} of config.json")
    shape = (1, "n", dim)
    outputs = {f"layer.{i}": shape for i in range(1, depth + 1)}
    return graph.serialise({"embedded": shape}, outputs)


_ATTENTION = ("query", "key", "value")


def _side_by_side(parts: Sequence[Linear]) -> Linear:
    """Several products of the same states as one."""
    scales = [part.scale for part in parts if part.scale is not None]
    return Linear(
        np.concatenate([part.weight for part in parts], axis=1),
        np.concatenate(scales) if scales else None,
        np.concatenate([part.bias for part in parts]),
    )


class _Checked:
    """Named tensors whose shapes are what the config says, or one clear error."""

    def __init__(
        self, weights: Mapping[str, F32 | I8], reference: dict[str, Any], dim: int
    ) -> None:
        self.weights = weights
        self.place = reference.get("path", "the weights")
        self.dim = dim

    def error(self, what: str) -> BackboneError:
        return BackboneError(f"{self.place}: {what}; not the weights of this config.json")

    def has(self, prefix: str) -> bool:
        return any(name.startswith(prefix) for name in self.weights)

    def _any(self, name: str, *shape: int | None) -> Any:
        tensor = self.weights.get(name)
        if tensor is None:
            raise self.error(f"tensor {name!r} is missing")
        wrong = any(b is not None and a != b for a, b in zip(tensor.shape, shape, strict=False))
        if tensor.ndim != len(shape) or wrong:
            raise self.error(f"tensor {name} has shape {tensor.shape}, expected {shape}")
        return tensor

    def take(self, name: str, *shape: int | None) -> F32:
        """A float32 tensor."""
        tensor = self._any(name, *shape)
        if tensor.dtype != np.float32:
            raise self.error(f"tensor {name} is {tensor.dtype}, expected float32")
        floats: F32 = tensor
        return floats

    def quantised(self, name: str, *shape: int | None) -> tuple[F32 | I8, F32 | None]:
        """A tensor of float32, or of int8 with the scales of its rows."""
        tensor = self._any(name, *shape)
        if tensor.dtype == np.float32:
            return tensor, None
        return tensor, self.take(f"{name.removesuffix('.weight')}.scale", len(tensor))

    def linear(self, name: str, inputs: int, outputs: int | None) -> Linear:
        weight, scale = self.quantised(f"{name}.weight", outputs, inputs)
        return Linear(weight.T, scale, self.take(f"{name}.bias", len(weight)))


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
                f"{reference.get('path', 'config.json')}: {key} is {config[key]!r}, and only "
                f"{served!r} is served without torch; give device='cpu'"
            )
