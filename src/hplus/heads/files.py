"""Heads and idf tables as safetensors: hashed, finite, of the shapes the backbone implies.

heads.safetensors  crf.{weight, bias, transitions, start, end[, hidden, hidden_bias]},
                   importance.{weight, bias}, lexical.{weight, bias, query}
idf.safetensors    idf f32[V]
mean.safetensors   mean f32[d], of unit vectors
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import safetensors
import safetensors.numpy

from hplus.errors import CheckpointError, InputError
from hplus.files import read_bytes
from hplus.heads.crf import CRF
from hplus.heads.importance import Idf, ImportanceHead
from hplus.heads.lexical import LexicalHead
from hplus.types import F32

MOST_BYTES = 2**30
"""The largest file of heads, idf or an adapter: it is read into memory."""
_CRF_TENSORS = ("weight", "bias", "transitions", "start", "end")
_HIDDEN_TENSORS = ("hidden", "hidden_bias")


def read_tensors(path: Path, digest: str, *, or_f16: bool = False) -> dict[str, F32]:
    """The finite float32 tensors of a file with this SHA-256; or_f16: float16 ones too."""
    try:
        data = read_bytes(path, MOST_BYTES, CheckpointError)
    except FileNotFoundError:
        raise CheckpointError(f"{path} is missing, but config.json lists it") from None
    found = hashlib.sha256(data).hexdigest()
    if found != digest:
        raise CheckpointError(
            f"{path} has SHA-256 {found[:16]}…, config.json says {str(digest)[:16]}…; "
            "the file was changed or truncated: copy the checkpoint again"
        )
    try:
        tensors = safetensors.numpy.load(data)
    except (safetensors.SafetensorError, ValueError, TypeError, KeyError) as error:
        raise CheckpointError(f"{path} is not a sound safetensors file: {error}") from error
    for name, tensor in tensors.items():
        known = tensor.dtype == np.float32 or (or_f16 and tensor.dtype == np.float16)
        if not known or not np.isfinite(tensor).all():
            wanted = "float32 or float16" if or_f16 else "float32"
            raise CheckpointError(f"{path}: tensor {name} must hold finite {wanted} numbers")
    return {name: tensor.astype(np.float32, copy=False) for name, tensor in tensors.items()}


def read_crf(heads: Mapping[str, F32], dim: int, folder: Path) -> CRF | None:
    """The CRF among the tensors of heads.safetensors, if there is one."""
    named = {name: heads.get(f"crf.{name}") for name in (*_CRF_TENSORS, *_HIDDEN_TENSORS)}
    if all(tensor is None for tensor in named.values()):
        return None
    shapes: dict[str, tuple[int, ...]] = {"weight": (3, dim), "transitions": (3, 3)}
    of_layer = [tensor for name in _HIDDEN_TENSORS if (tensor := named[name]) is not None]
    if not of_layer:
        named = {name: named[name] for name in _CRF_TENSORS}
    else:
        h = of_layer[0].shape[-1] if of_layer[0].ndim else 0
        shapes |= {"weight": (3, h), "hidden": (3, dim, h), "hidden_bias": (h,)}
    parts: dict[str, F32] = {}
    for name, tensor in named.items():
        expected = shapes.get(name, (3,))
        parts[name] = _shaped(tensor, expected, f"crf.{name}", folder / "heads.safetensors")
    return CRF(**parts)


def read_importance(heads: Mapping[str, F32], dim: int, folder: Path) -> ImportanceHead | None:
    """The importance head among the tensors of heads.safetensors, if there is one."""
    if "importance.weight" not in heads:
        return None
    path = folder / "heads.safetensors"
    weight = _shaped(heads["importance.weight"], (dim,), "importance.weight", path)
    bias = _shaped(heads.get("importance.bias"), (1,), "importance.bias", path)
    return ImportanceHead(weight, float(bias[0]))


def read_lexical(
    heads: Mapping[str, F32], dim: int, vocabulary: int, folder: Path
) -> LexicalHead | None:
    """The lexical head among the tensors of heads.safetensors, if there is one."""
    if "lexical.weight" not in heads:
        return None
    path = folder / "heads.safetensors"
    weight = _shaped(heads["lexical.weight"], (dim,), "lexical.weight", path)
    bias = _shaped(heads.get("lexical.bias"), (1,), "lexical.bias", path)
    table = _shaped(heads.get("lexical.table"), (vocabulary,), "lexical.table", path)
    try:
        return LexicalHead(weight, float(bias[0]), table)
    except InputError as error:
        raise CheckpointError(f"{path}: {error}") from error


def read_idf(tensors: Mapping[str, F32], vocabulary: int, folder: Path) -> Idf | None:
    """The table of idf.safetensors, if there is one."""
    if not tensors:
        return None
    path = folder / "idf.safetensors"
    table = _shaped(tensors.get("idf"), (vocabulary,), "idf", path)
    try:
        return Idf(table)
    except InputError as error:
        raise CheckpointError(f"{path}: {error}") from error


def read_mean(tensors: Mapping[str, F32], dim: int, folder: Path) -> F32 | None:
    """The mean of mean.safetensors, if there is one."""
    if not tensors:
        return None
    return _shaped(tensors.get("mean"), (dim,), "mean", folder / "mean.safetensors")


def _shaped(tensor: F32 | None, shape: tuple[int, ...], name: str, path: Path) -> F32:
    if tensor is None or tensor.shape != shape:
        found = "is missing" if tensor is None else f"has shape {tensor.shape}"
        raise CheckpointError(f"{path}: tensor {name} {found}, expected shape {shape}")
    return tensor


def head_tensors(
    crf: CRF | None, head: ImportanceHead | None, lexical: LexicalHead | None = None
) -> dict[str, F32]:
    """What heads.safetensors holds."""
    tensors: dict[str, F32] = {}
    if crf is not None:
        names = _CRF_TENSORS if crf.hidden is None else (*_CRF_TENSORS, *_HIDDEN_TENSORS)
        tensors |= {f"crf.{name}": getattr(crf, name) for name in names}
    if head is not None:
        tensors["importance.weight"] = head.weight
        tensors["importance.bias"] = np.array([head.bias], np.float32)
    if lexical is not None:
        tensors["lexical.weight"] = lexical.weight
        tensors["lexical.bias"] = np.array([lexical.bias], np.float32)
        tensors["lexical.table"] = lexical.table
    return tensors
