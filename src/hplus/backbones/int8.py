"""A BERT's weights in int8: a quarter of the bytes, and products of whole numbers.

    <linear>.weight  i8[out, in]   <linear>.scale  f32[out]
    <table>.weight   i8[rows, d]   <table>.scale   f32[rows]

Every row has a scale of its own; layer norms, biases and positions stay float32. Weights of linear
layers use 7 of the 8 bits: processors without VNNI add two products of unsigned 8 and signed
8 bits in a 16-bit register, which overflows in silence with 8 (bge-small-zh then keeps a cosine of
0.74 with its own states), and with 7 every processor computes the very same whole numbers.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from hplus.types import F32

I8 = npt.NDArray[np.int8]
LINEAR_BITS = 7
TABLE_BITS = 8
WORDS = "embeddings.word_embeddings"
_KEPT = ("LayerNorm.weight", "position_embeddings.weight", "token_type_embeddings.weight")


def quantise(weights: Mapping[str, F32]) -> dict[str, F32 | I8]:
    """float32 weights under BERT's names -> int8 with scales; what has no rows stays as it is."""
    quantised: dict[str, F32 | I8] = {}
    for name, tensor in weights.items():
        if not name.endswith(".weight") or name.endswith(_KEPT) or tensor.ndim != 2:
            quantised[name] = tensor
            continue
        bits = TABLE_BITS if name.startswith(WORDS) else LINEAR_BITS
        codes, scale = quantise_rows(tensor, bits)
        quantised[name] = codes
        quantised[f"{name.removesuffix('.weight')}.scale"] = scale
    return quantised


def quantise_rows(tensor: F32, bits: int) -> tuple[I8, F32]:
    """Codes i8[rows, columns] and scales f32[rows]; the largest code of a row is 2^(bits-1) - 1.

    >>> codes, scale = quantise_rows(np.float32([[0.5, -1.0], [0.0, 0.0]]), 8)
    >>> codes.tolist(), scale.tolist()
    ([[64, -127], [0, 0]], [0.007874015718698502, 0.0])
    """
    most = 2 ** (bits - 1) - 1
    scale = (np.abs(tensor).max(axis=1, initial=0) / most).astype(np.float32)
    safe = np.where(scale > 0, scale, np.float32(1))
    return np.rint(tensor / safe[:, None]).astype(np.int8), scale


def dequantise(weights: Mapping[str, F32 | I8]) -> dict[str, F32]:
    """The float32 weights that codes and scales stand for: what training starts from.

    >>> made = quantise({"a.weight": np.float32([[0.25, -1.0]]), "a.bias": np.float32([2.0])})
    >>> {name: np.rint(63 * tensor).tolist() for name, tensor in dequantise(made).items()}
    {'a.weight': [[16.0, -63.0]], 'a.bias': [126.0]}
    """
    restored: dict[str, F32] = {}
    for name, tensor in weights.items():
        if tensor.dtype == np.int8:
            scale = weights[f"{name.removesuffix('.weight')}.scale"]
            restored[name] = np.asarray(tensor * scale[:, None], np.float32)
        elif f"{name.removesuffix('.scale')}.weight" not in weights or not name.endswith(".scale"):
            restored[name] = np.asarray(tensor, np.float32)
    return restored
