"""What a point holds: a document in three views, and all that an explanation needs.

Vectors: `global` f32[R]; `units`, a multivector f32[m, r] in order of importance (one row of zeros
for a text without units, so that it scores 0 as ours does); `lexical`, a sparse vector of token ids
(absent without tokens). Payload: `id`, `text`, `metadata`; `explained`, weights and spans of the
units and more as one text (`explained.py`); `hash` of the text and `digest` of the encoding; what
filters look at (`fields.py`). A point's id is a UUID made from ours, so a document written twice is
one point.

Vectors are written and read as the bytes that protobuf makes of floats: with a Python list of
floats for each row, a push would spend most of its time on them.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from typing import Any

import numpy as np
from qdrant_client import grpc
from qdrant_client.conversions.conversion import json_to_value, value_to_json

from hplus.engines.explained import coverage, explained, units
from hplus.engines.qdrant.fields import as_float, as_read, payload_of
from hplus.engines.store import Held, digest
from hplus.errors import InputError
from hplus.sources.document import Document
from hplus.storage.catalogue import dump, text_hash
from hplus.types import F32, I32, Encoded, Lexical, offsets_of

NAMESPACE = uuid.UUID("1c1f7f3c-6d5f-5d0b-9a66-68706c757331")
# Numbers that Qdrant accepts in one vector or multivector, at most.
MOST_NUMBERS = 1_048_575
DOCUMENT = ("id", "text", "metadata", "exact")
HELD = ("id", "hash", "metadata", "exact", "digest")
ENCODING = ("explained",)


def point_id(id_: str) -> str:
    """The id of a document's point.

    >>> point_id("doc-17")
    'f04a43af-3190-571f-af3f-c636fccad4c8'
    """
    return str(uuid.uuid5(NAMESPACE, id_))


def check_sizes(documents: Sequence[Document], encoded: Encoded) -> None:
    """Refuse documents that no point can hold, before any of them is sent."""
    width = encoded.units.width
    counts = np.diff(encoded.units.offsets)
    large = np.flatnonzero(counts * width > MOST_NUMBERS)
    if len(large):
        i = int(large[0])
        raise InputError(
            f"document {documents[i].id!r} has {counts[i]:,} units of width {width}, but Qdrant "
            f"keeps at most {MOST_NUMBERS:,} numbers in a point; choose a budget of "
            f"{MOST_NUMBERS // width:,} or less, or a smaller width"
        )


def add_points(points: Any, documents: Sequence[Document], encoded: Encoded) -> None:
    """Append one point for each document to the points of a request; they are filled in place,
    because protobuf copies a message that is put into another one."""
    for i, document in enumerate(documents):
        point = points.add()
        point.id.uuid = point_id(document.id)
        vectors = point.vectors.vectors.vectors
        vectors["global"].dense.MergeFromString(_message(encoded.global_[i]))
        first, last = encoded.units.offsets[i : i + 2].tolist()
        rows = encoded.units.vectors[first:last]
        if last == first:
            rows = np.zeros((1, encoded.units.width), np.float32)
        vectors["units"].multi_dense.MergeFromString(_messages(rows))
        a, b = encoded.lexical.offsets[i : i + 2].tolist()
        if b > a:
            vectors["lexical"].sparse.indices.extend(encoded.lexical.ids[a:b].tolist())
            vectors["lexical"].sparse.values.extend(encoded.lexical.weights[a:b].tolist())
        texts = {
            "id": document.id,
            "text": document.text,
            "hash": text_hash(document.text).hex(),
            "digest": digest(encoded, i),
            "explained": explained(encoded, i),
        }
        for name, text in texts.items():
            point.payload[name].string_value = text
        for name, value in metadata_payload(document.metadata).items():
            point.payload[name].CopyFrom(json_to_value(value))


def dense(row: F32) -> Any:
    """A row f32[r] as a dense vector."""
    return grpc.DenseVector.FromString(_message(row))


def multi_dense(rows: F32) -> Any:
    """Rows f32[m, r] as a multivector."""
    return grpc.MultiDenseVector.FromString(_messages(rows))


def _message(row: F32) -> bytes:
    """What protobuf writes for a dense vector: its floats are field 1."""
    return _head(4 * len(row)) + row.astype("<f4").tobytes()


def _messages(rows: F32) -> bytes:
    """The same for a multivector, whose rows are field 1."""
    size = 4 * rows.shape[1]
    inner = _head(size)
    head = np.frombuffer(_head(len(inner) + size) + inner, np.uint8)
    sent = np.empty((len(rows), len(head) + size), np.uint8)
    sent[:, : len(head)] = head
    sent[:, len(head) :] = np.ascontiguousarray(rows, "<f4").view(np.uint8)
    return sent.tobytes()


def _head(size: int) -> bytes:
    """What stands before `size` bytes of field 1."""
    head = bytearray([0x0A])
    while size > 0x7F:
        head.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes([*head, size])


def sparse(lexical: Lexical, first: int, last: int) -> Any:
    """Rows first:last of a lexical view as a sparse vector."""
    ids, weights = lexical.ids[first:last].tolist(), lexical.weights[first:last].tolist()
    return grpc.SparseVector(indices=ids, values=weights)


def metadata_payload(metadata: dict[str, Any]) -> dict[str, Any]:
    """Metadata and what filters look at. Where Qdrant would give back other numbers (integers of
    more than 64 bits, some floats), the exact metadata are kept as a text, too."""
    written = dump(metadata)
    kept = json.loads(written, parse_int=_shortened)
    read = json.loads(written, parse_int=_shortened, parse_float=as_read)
    exact = {} if dump(read) == written else {"exact": written}
    return {"metadata": kept, "rough": False, **exact, **payload_of(metadata)}


def _shortened(digits: str) -> int | float | str:
    """An integer as Qdrant can keep it."""
    number = int(digits)
    if -(2**63) <= number < 2**63:
        return number
    nearest = as_float(number)
    return digits if nearest is None else nearest


def payload(point: Any) -> dict[str, Any]:
    """The payload of a point as plain values."""
    return {name: value_to_json(point.payload[name]) for name in point.payload}


def document(found: dict[str, Any]) -> Document:
    """A document from a payload."""
    return Document(found["id"], found["text"], metadata(found))


def metadata(found: dict[str, Any]) -> dict[str, Any]:
    """The metadata of a payload, exactly as they were."""
    exact = found.get("exact")
    own: dict[str, Any] = found["metadata"] if exact is None else json.loads(exact)
    return own


def held(found: dict[str, Any]) -> Held:
    """What is known of a document without its vectors."""
    return Held(bytes.fromhex(found["hash"]), metadata(found), found["digest"])


def encoded_of(points: Sequence[Any], global_width: int, width: int) -> Encoded:
    """The encodings of points that were read with vectors and payload."""
    kept = [json.loads(point.payload["explained"].string_value) for point in points]
    vectors = [point.vectors.vectors.vectors for point in points]
    rows = [
        _rows(own["units"], width)[: len(found["weights"])]
        for own, found in zip(vectors, kept, strict=True)
    ]
    none = np.empty(0, np.int32), np.empty(0, np.float32)
    tokens = [_sparse(own["lexical"]) if "lexical" in own else none for own in vectors]
    wholes = [_rows(own["global"], global_width) for own in vectors]
    return Encoded(
        global_=np.concatenate([np.empty((0, global_width), np.float32), *wholes]),
        units=units(np.concatenate([np.empty((0, width), np.float32), *rows]), kept),
        lexical=Lexical(
            ids=np.concatenate([none[0], *(ids for ids, _ in tokens)]),
            weights=np.concatenate([none[1], *(weights for _, weights in tokens)]),
            offsets=offsets_of([len(ids) for ids, _ in tokens]),
        ),
        dropped=units(None, kept, "dropped_"),
        coverage=coverage(kept),
    )


def _rows(vector: Any, width: int) -> F32:
    """The rows of a vector; servers before 1.17 give one list of numbers without a kind."""
    if vector.HasField("multi_dense"):
        parts = [_floats(row) for row in vector.multi_dense.vectors]
        return np.concatenate(parts).reshape(-1, width)
    return _floats(vector.dense if vector.HasField("dense") else vector).reshape(-1, width)


def _floats(vector: Any) -> F32:
    """The numbers of a vector, which are field 1 of its message."""
    count = len(vector.data)
    sent = vector.SerializeToString()
    return np.frombuffer(sent, "<f4", count, len(_head(4 * count))).astype(np.float32)


def _sparse(vector: Any) -> tuple[I32, F32]:
    """Token ids, ascending, and their weights."""
    found = vector.sparse if vector.HasField("sparse") else None
    ids = np.array(found.indices if found is not None else vector.indices.data, np.int32)
    weights = np.array(found.values if found is not None else vector.data, np.float32)
    order = np.argsort(ids)
    return ids[order], weights[order]
