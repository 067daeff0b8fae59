"""Documents out of an index: JSON lines or Parquet, with vectors on request, in bounded memory.

A document is an object of `id`, `text` and `metadata`, which `hplus index` reads as it stands. The
vectors are in a field of their own, which it ignores, since it computes them again.
"""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from hplus.arguments import as_path
from hplus.errors import InputError, MissingExtraError
from hplus.files import shown, writing
from hplus.sources.document import VECTORS
from hplus.storage.catalogue import DocumentRow, dump
from hplus.storage.segment import read
from hplus.storage.snapshot import Snapshot
from hplus.terminal import escaped
from hplus.types import F32, I64, Encoded, concatenate

PAGE = 256
"""Documents read from the catalogue at once."""

Target = str | os.PathLike[str] | Callable[[str], None]


def export(
    snapshot: Snapshot, target: Target, *, vectors: bool, advance: Callable[[float], None]
) -> int:
    """Write all documents of a snapshot; see `Index.export`."""
    if callable(target):
        return _lines(snapshot, target, vectors, advance)
    path = as_path("target", target)
    kind = Path(path.name.lower().removesuffix(".gz")).suffix
    if kind not in (".jsonl", ".ndjson") and path.suffix.lower() != ".parquet":
        raise InputError(f"{shown(path)}: expected a .jsonl, .jsonl.gz or .parquet file")
    if not path.parent.is_dir():
        raise InputError(f"{shown(path.parent)} is not a folder; create it first")
    if path.is_dir():
        raise InputError(f"{shown(path)} is a folder, expected a file")
    with writing(path) as file:
        if path.suffix.lower() == ".parquet":
            return _parquet(snapshot, file, vectors, advance)
        return _lines(snapshot, lambda line: file.write(f"{line}\n".encode()), vectors, advance)


def as_json(document: DocumentRow | Any) -> dict[str, Any]:
    """A document as it is exported and printed."""
    return {"id": document.id, "text": document.text, "metadata": document.metadata}


def _lines(
    snapshot: Snapshot,
    write: Callable[[str], Any],
    vectors: bool,
    advance: Callable[[float], None],
) -> int:
    written = 0
    for page in snapshot.pages(PAGE):
        more = _vectors(snapshot, page, _exact) if vectors else [None] * len(page)
        for row, own in zip(page, more, strict=True):
            value = as_json(row) | ({} if own is None else {VECTORS: own})
            write(escaped(json.dumps(value, ensure_ascii=False)))
        written += len(page)
        advance(len(page))
    return written


def _parquet(snapshot: Snapshot, file: Any, vectors: bool, advance: Callable[[float], None]) -> int:
    try:
        arrow: Any = importlib.import_module("pyarrow")
        writer: Any = importlib.import_module("pyarrow.parquet")
    except ImportError:
        raise MissingExtraError("to write Parquet, run: pip install hplus[parquet]") from None
    # Metadata differ from document to document, which no struct could hold; JSON is a type, too.
    fields = [
        ("id", arrow.string()),
        ("text", arrow.string()),
        ("metadata", arrow.json_(arrow.string())),
    ]
    if vectors:
        span = arrow.struct([("start", arrow.int32()), ("end", arrow.int32())])
        unit = [("weight", arrow.float32()), ("spans", arrow.list_(span))]
        numbers = arrow.list_(arrow.float32())
        units = arrow.list_(arrow.struct([*unit, ("vector", numbers)]))
        encoding = [("global", numbers), ("units", units)]
        if snapshot.settings.passages is not None:
            passage = arrow.struct([("start", arrow.int32()), ("end", arrow.int32()), *encoding])
            encoding = [("passages", arrow.list_(passage))]
        fields.append((VECTORS, arrow.struct(encoding)))
    schema = arrow.schema(fields)
    written = 0
    with writer.ParquetWriter(file, schema) as out:
        for page in snapshot.pages(PAGE):
            columns: list[list[Any]] = [
                [row.id for row in page],
                [row.text for row in page],
                [dump(row.metadata) for row in page],
            ]
            if vectors:
                columns.append(list(_vectors(snapshot, page, np.ndarray.tolist, pairs=False)))
            arrays = [
                arrow.array(column, kind) for column, (_, kind) in zip(columns, fields, strict=True)
            ]
            out.write_batch(arrow.record_batch(arrays, schema=schema))
            written += len(page)
            advance(len(page))
    return written


def _vectors(
    snapshot: Snapshot,
    page: list[DocumentRow],
    numbers: Callable[[F32], list[float]],
    *,
    pairs: bool = True,
) -> Iterator[dict[str, Any]]:
    """Of each document the global vector, and vector, weight and spans of each unit; the same of
    each passage, where documents are divided."""

    def values(one: Encoded) -> dict[str, Any]:
        return {
            "global": numbers(one.global_[0]),
            "units": [
                {
                    "weight": numbers(one.units.weights[unit : unit + 1])[0],
                    "spans": [
                        [start, end] if pairs else {"start": start, "end": end}
                        for start, end in one.units.spans_of(unit)
                    ],
                    "vector": numbers(one.units.vectors[unit]),
                }
                for unit in range(len(one.units.weights))
            ],
        }

    documents = snapshot.find([row.id for row in page])
    if snapshot.settings.passages is None:
        encoded = _read(snapshot, documents)
        yield from (values(encoded[i]) for i in range(len(page)))
        return
    for i in range(len(page)):  # one by one: a document may have thousands of passages
        passages, _ = snapshot.passages(documents[i : i + 1])
        encoded = _read(snapshot, passages)
        spans = [snapshot.span(passage) or (0, 0) for passage in passages.tolist()]
        yield {
            "passages": [
                {"start": start, "end": end} | values(encoded[j])
                for j, (start, end) in enumerate(spans)
            ]
        }


def _read(snapshot: Snapshot, documents: I64) -> Encoded:
    """Stored encodings in the order of `documents`, without their words."""
    part = np.searchsorted(snapshot.first, documents, side="right") - 1
    order = np.lexsort((documents, part))
    read_parts = [
        read(
            snapshot.parts[i].segment,
            documents[order][part[order] == i] - snapshot.first[i],
            tokens=np.empty(0, np.int32),
        )
        for i in np.unique(part).tolist()
    ]
    return concatenate(read_parts).take(np.argsort(order))


def _exact(values: F32) -> list[float]:
    """Numbers as short as they can be written without changing a float32."""
    return [float(f"{value:.9g}") for value in values.tolist()]
