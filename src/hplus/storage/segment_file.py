"""The file of a segment: a safetensors file, written piece by piece, mapped and checked when read.

Nothing in it is trusted: names, types, shapes and offsets are checked against what the catalogue
says before any array is used (docs/index-format.md).
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import safetensors

from hplus.errors import IndexDamagedError
from hplus.storage.disk import Disk
from hplus.storage.segment import LARGEST, Array, Format, Segment, global_format
from hplus.types import F32

# The folder of the segments.
SEGMENTS = "segments"
_CODES: dict[Format, str] = {"int4": "U8", "int8": "I8", "f16": "F16", "f32": "F32"}
# safetensors' names of the types, in the order of the arrays in the file.
_TYPES: dict[str, np.dtype[Any]] = {
    "I64": np.dtype("<i8"),
    "F32": np.dtype("<f4"),
    "I32": np.dtype("<i4"),
    "U32": np.dtype("<u4"),
    "F16": np.dtype("<f2"),
    "U16": np.dtype("<u2"),
    "I8": np.dtype("i1"),
    "U8": np.dtype("u1"),
}
_NAMES = {dtype: name for name, dtype in _TYPES.items()}
_UNSIGNED = ("U8", "U16", "U32")


@dataclass(frozen=True)
class Stream:
    """An array that is made block by block, along its first axis, while it is written."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    blocks: Callable[[], Iterator[Array]]

    @property
    def size(self) -> int:
        """Its numbers."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Its bytes."""
        return self.size * self.dtype.itemsize


Arrays = Mapping[str, Array | Stream]


def file_parts(arrays: Arrays) -> Iterator[bytes | memoryview]:
    """A safetensors file, piece by piece; the same arrays give the same bytes."""
    types = [*_NAMES]
    order = sorted(arrays, key=lambda name: (types.index(arrays[name].dtype), name))
    header, position = {}, 0
    for name in order:
        array = arrays[name]
        end = position + array.nbytes
        header[name] = {
            "dtype": _NAMES[array.dtype],
            "shape": list(array.shape),
            "data_offsets": [position, end],
        }
        position = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    yield len(text).to_bytes(8, "little")
    yield text
    for name in order:
        array = arrays[name]
        size = 0
        for block in array.blocks() if isinstance(array, Stream) else (array,):
            if block.size:
                size += block.nbytes
                yield np.ascontiguousarray(block).data.cast("B")
        if size != array.nbytes:
            raise ValueError(f"{name} has {size:,} bytes, expected {array.nbytes:,}")


def open_segment(
    disk: Disk,
    path: Path,
    *,
    documents: int,
    size: int,
    format: Format,
    widths: tuple[int, int],
    passages: bool = False,
    mean: F32 | None = None,
) -> Segment:
    """A segment mapped into memory; its header must say exactly what the catalogue expects."""
    try:
        if (found := disk.size(path)) != size:
            raise IndexDamagedError(f"{path} has {found:,} bytes, expected {size:,}")
        memory = disk.map(path)
        with safetensors.safe_open(path, framework="numpy"):
            pass  # the library checks sizes, overflow and overlap
        arrays = _mapped(memory)
    except (safetensors.SafetensorError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise IndexDamagedError(f"{path} is not a valid segment: {error}") from None
    _check(path, arrays, documents, format, widths)
    for name in ("passage_starts", "passage_lengths"):
        if passages:
            _expect(path, arrays, name, _UNSIGNED, documents)
        else:
            arrays.pop(name, None)
    present: dict[str, Any] = {"global_scales": None, "scales": None}
    present |= {f.name: arrays[f.name] for f in fields(Segment) if f.name in arrays}
    return Segment(**{**present, "mean": mean})


def is_complete(path: Path) -> bool:
    """Whether a file was written to its end: its header and its length agree."""
    if path.is_symlink() or not path.is_file():
        return False
    try:
        with safetensors.safe_open(path, framework="numpy"):
            return True
    except (safetensors.SafetensorError, OSError):
        return False


def _mapped(memory: memoryview) -> dict[str, Array]:
    length = int.from_bytes(memory[:8], "little")
    header = json.loads(bytes(memory[8 : 8 + length]), object_pairs_hook=_once)
    arrays = {}
    for name, about in header.items():
        dtype, shape = _TYPES[about["dtype"]], tuple(about["shape"])
        flat = np.frombuffer(
            memory, dtype, count=int(np.prod(shape)), offset=8 + length + about["data_offsets"][0]
        )
        if not flat.flags.aligned:
            raise ValueError(f"{name} does not begin at a multiple of {dtype.itemsize} bytes")
        arrays[name] = flat.reshape(shape)
    return arrays


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse equal names: readers differ in which of the two they take."""
    if len({name for name, _ in pairs}) < len(pairs):
        raise ValueError("the header has a name twice")
    return dict(pairs)


def _expect(
    path: Path, arrays: dict[str, Array], name: str, types: tuple[str, ...], *shape: int
) -> None:
    found = arrays.get(name)
    if found is None or _NAMES[found.dtype] not in types or found.shape != shape:
        got = "nothing" if found is None else f"{_NAMES[found.dtype]}{list(found.shape)}"
        raise IndexDamagedError(
            f"{path}: expected {name} as {' or '.join(types)}{list(shape)}, got {got}"
        )


def _check(
    path: Path, arrays: dict[str, Array], n: int, format: Format, widths: tuple[int, int]
) -> None:
    """Names, types and shapes agree with one another, and no offset runs backwards."""

    def expect(name: str, types: tuple[str, ...], *shape: int) -> None:
        _expect(path, arrays, name, types, *shape)

    def counted(name: str, items: int) -> int:
        """Check the offsets of `items` items: from 0, never backwards; returns the last one."""
        expect(name, ("I64",), items + 1)
        offsets = arrays[name]
        if offsets[0] != 0 or (offsets[1:] < offsets[:-1]).any():
            raise IndexDamagedError(f"{path}: {name} does not begin at 0 or runs backwards")
        return int(offsets[-1])

    expect("numbers", ("I64",), n)
    for name in ("tokens", "windows", "cut"):
        expect(name, ("I32",), n)
    for name in ("importance", "kept"):
        expect(name, ("F32",), n)
    units, dropped = counted("offsets", n), counted("dropped_offsets", n)
    spans, lost = counted("span_offsets", n), counted("dropped_span_offsets", n)
    for prefix, rows, width, kept in (
        ("global_", n, widths[0], global_format(format)),
        ("", units, widths[1], format),
    ):
        packed = width // 2 if kept == "int4" else width
        expect(f"{prefix}vectors", (_CODES[kept],), rows, packed)
        if kept in LARGEST:
            expect(f"{prefix}scales", ("F16",), rows)
    expect("weights", ("F32",), units)
    expect("dropped_weights", ("F32",), dropped)
    for prefix, owners, count in (("span", units, spans), ("dropped", dropped, lost)):
        expect(f"{prefix}_counts", _UNSIGNED, owners)
        expect(f"{prefix}_starts", _UNSIGNED, count)
        expect(f"{prefix}_lengths", _UNSIGNED, count)
    tokens = arrays["lexical_ids"].size if "lexical_ids" in arrays else 0
    expect("lexical_ids", ("I32",), tokens)
    postings = counted("lexical_offsets", tokens)
    expect("lexical_documents", _UNSIGNED, postings)
    expect("lexical_weights", ("F16",), postings)
    if "global_centroids" in arrays:
        shape = arrays["global_centroids"].shape
        lists, width = shape if len(shape) == 2 and shape[0] else (1, 1)
        expect("global_centroids", ("F32",), lists, width)
        expect("global_list_rows", _UNSIGNED, counted("global_list_offsets", lists))
    if "sketches" in arrays:
        shape = arrays["sketches"].shape
        width = shape[1] if len(shape) == 2 and shape[1] else 1
        expect("sketches", ("I8",), n, width)
        anchors = arrays["anchors"] if "anchors" in arrays else np.empty(0)
        expect("anchors", ("I64",), anchors.size or 1)
        expect("anchor_map", ("F32",), width, len(anchors))
        if anchors[0] < 0 or anchors[-1] >= n or (anchors[1:] <= anchors[:-1]).any():
            raise IndexDamagedError(f"{path}: anchors are not ascending or not below {n}")
