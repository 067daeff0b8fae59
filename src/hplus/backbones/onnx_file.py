"""ONNX files, written without the onnx package: the few protobuf messages that a graph needs.

https://github.com/onnx/onnx/blob/main/onnx/onnx.proto has the numbers of the fields. A graph of our
own, made from checked tensors, also means that a checkpoint never brings a graph to run: ONNX files
may read other files and loop.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

# onnxruntime's own operators, which have fused forms that the standard lacks.
MICROSOFT = "com.microsoft"
_OPSETS = {"": 18, MICROSOFT: 1}
_IR_VERSION = 9
_TYPES = {np.dtype(np.float32): 1, np.dtype(np.int8): 3}


class Graph:
    """Nodes and constants in the order they are added; names tie them together.

    >>> graph = Graph()
    >>> graph.node("Mul", ["x", graph.constant("two", np.float32([2]))], ["y"])
    >>> data = graph.serialise({"x": ("n",)}, {"y": ("n",)})
    >>> from hplus.backbones.runtime import onnxruntime
    >>> session = onnxruntime().InferenceSession(data, providers=["CPUExecutionProvider"])
    >>> session.run(["y"], {"x": np.float32([1, 2, 3])})[0].tolist()
    [2.0, 4.0, 6.0]
    """

    def __init__(self) -> None:
        self._nodes: list[bytes] = []
        self._constants: list[bytes | memoryview] = []

    def constant(self, name: str, array: npt.NDArray[Any]) -> str:
        """A tensor of float32 or int8; returns its name."""
        dims = b"".join(_number(1, size) for size in array.shape)
        raw = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
        facts = dims + _number(2, _TYPES[array.dtype]) + _text(8, name) + _head(9, len(raw))
        self._constants += [_head(5, len(facts) + len(raw)), facts, raw]
        return name

    def node(
        self,
        operator: str,
        inputs: Sequence[str],
        outputs: Sequence[str],
        domain: str = "",
        **attributes: int | float,
    ) -> None:
        """One operation on named tensors."""
        names = [_text(1, name) for name in inputs] + [_text(2, name) for name in outputs]
        settings = [_bytes(5, _attribute(name, value)) for name, value in attributes.items()]
        body = b"".join([*names, _text(4, operator), *settings, _text(7, domain)])
        self._nodes.append(_bytes(1, body))

    def serialise(
        self,
        inputs: Mapping[str, tuple[int | str, ...]],
        outputs: Mapping[str, tuple[int | str, ...]],
    ) -> bytes:
        """The file: float32 inputs and outputs by name, with their shapes (a str is any size)."""
        values = [_bytes(11, _value(*item)) for item in inputs.items()]
        values += [_bytes(12, _value(*item)) for item in outputs.items()]
        # Joined once: every copy of all weights costs time and memory.
        graph = [*self._nodes, _text(2, "graph"), *self._constants, *values]
        opsets = [_bytes(8, _text(1, name) + _number(2, v)) for name, v in _OPSETS.items()]
        head = _head(7, sum(map(len, graph)))
        return b"".join([_number(1, _IR_VERSION), head, *graph, *opsets])


def _attribute(name: str, value: int | float) -> bytes:
    if isinstance(value, int):
        return _text(1, name) + _number(3, value) + _number(20, 2)
    return _text(1, name) + _varint(2 << 3 | 5) + struct.pack("<f", value) + _number(20, 1)


def _value(name: str, shape: tuple[int | str, ...]) -> bytes:
    sizes = (_text(2, size) if isinstance(size, str) else _number(1, size) for size in shape)
    tensor = _number(1, 1) + _bytes(2, b"".join(_bytes(1, size) for size in sizes))
    return _text(1, name) + _bytes(2, _bytes(1, tensor))


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _head(field: int, size: int) -> bytes:
    """What stands before so many bytes."""
    return _varint(field << 3 | 2) + _varint(size)


def _bytes(field: int, value: bytes) -> bytes:
    return _head(field, len(value)) + value


def _text(field: int, value: str) -> bytes:
    return _bytes(field, value.encode())
