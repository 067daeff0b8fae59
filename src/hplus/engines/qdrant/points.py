"""What a point holds: a document in three views, and all that an explanation needs.

Vectors: `global` f32[R]; `units`, a multivector f32[m, r] in order of importance (one row of zeros
for a text without units, so that it scores 0 as ours does); `lexical`, a sparse vector of token ids
(absent without tokens). Payload: `id`, `text`, `metadata`; `weights` and `spans` of the units, and
of those a budget dropped; `coverage`; `hash` of the text and `digest` of the encoding; what filters
look at (`fields.py`). A point's id is a UUID made from ours, so a document written twice is one
point.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from qdrant_client import grpc
from qdrant_client.conversions.conversion import payload_to_grpc, value_to_json

from hplus.engines.qdrant.fields import as_float, as_read, payload_of
from hplus.engines.store import Held, digest
from hplus.errors import InputError
from hplus.sources.document import Document
from hplus.storage.catalogue import dump, text_hash
from hplus.types import F32, Coverage, Encoded, Lexical, Units, offsets_of

NAMESPACE = uuid.UUID("1c1f7f3c-6d5f-5d0b-9a66-68706c757331")
# Numbers that Qdrant accepts in one vector or multivector, at most.
MOST_NUMBERS = 1_048_575
DOCUMENT = ("id", "text", "metadata", "exact")
HELD = ("id", "hash", "metadata", "exact", "digest")
ENCODING = ("weights", "spans", "dropped_weights", "dropped_spans", "coverage")


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


def points_of(documents: Sequence[Document], encoded: Encoded) -> list[Any]:
    """One point for each document."""
    return [_point(document, encoded, i) for i, document in enumerate(documents)]


def _point(document: Document, encoded: Encoded, i: int) -> Any:
    first, last = encoded.units.offsets[i : i + 2].tolist()
    width = encoded.units.width
    rows = encoded.units.vectors[first:last] if last > first else np.zeros((1, width), np.float32)
    vectors = {
        "global": _dense(encoded.global_[i]),
        "units": multivector(rows),
    }
    a, b = encoded.lexical.offsets[i : i + 2].tolist()
    if b > a:
        vectors["lexical"] = grpc.Vector(sparse=sparse(encoded.lexical, a, b))
    return grpc.PointStruct(
        id=grpc.PointId(uuid=point_id(document.id)),
        vectors=grpc.Vectors(vectors=grpc.NamedVectors(vectors=vectors)),
        payload=payload_to_grpc(_payload(document, encoded, i)),
    )


def _dense(row: F32) -> Any:
    return grpc.Vector(dense=grpc.DenseVector(data=row.tolist()))


def multivector(rows: F32) -> Any:
    """Rows f32[m, r] as a vector of a point."""
    return grpc.Vector(multi_dense=multi_dense(rows))


def multi_dense(rows: F32) -> Any:
    """Rows f32[m, r] as a multivector."""
    return grpc.MultiDenseVector(vectors=[grpc.DenseVector(data=row) for row in rows.tolist()])


def sparse(lexical: Lexical, first: int, last: int) -> Any:
    """Rows first:last of a lexical view as a sparse vector."""
    ids, weights = lexical.ids[first:last].tolist(), lexical.weights[first:last].tolist()
    return grpc.SparseVector(indices=ids, values=weights)


def _payload(document: Document, encoded: Encoded, i: int) -> dict[str, Any]:
    one = encoded[i]
    coverage = one.coverage
    return {
        "id": document.id,
        "text": document.text,
        **metadata_payload(document.metadata),
        "hash": text_hash(document.text).hex(),
        "digest": digest(encoded, i),
        "weights": one.units.weights.tolist(),
        "spans": _spans(one.units),
        "dropped_weights": one.dropped.weights.tolist(),
        "dropped_spans": _spans(one.dropped),
        "coverage": [
            *(int(values[0]) for values in (coverage.tokens, coverage.windows, coverage.cut)),
            *(float(values[0]) for values in (coverage.importance, coverage.kept)),
        ],
    }


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


def _spans(units: Units) -> list[list[int]]:
    """Of each unit the starts and ends of its spans, one after another."""
    flat = units.spans.reshape(-1).tolist()
    return [flat[2 * a : 2 * b] for a, b in pairwise(units.span_offsets.tolist())]


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
    payloads = [payload(point) for point in points]
    vectors = [point.vectors.vectors.vectors for point in points]
    units = [
        _rows(own["units"], width)[: len(found["weights"])]
        for own, found in zip(vectors, payloads, strict=True)
    ]
    tokens = [_sparse(own["lexical"]) if "lexical" in own else ([], []) for own in vectors]
    coverage = [found["coverage"] for found in payloads]
    columns = list(zip(*coverage, strict=True)) if coverage else [()] * 5
    return Encoded(
        global_=np.array([_data(own["global"]) for own in vectors], np.float32).reshape(
            -1, global_width
        ),
        units=_units(units, payloads, "", width),
        lexical=Lexical(
            ids=np.array([id_ for ids, _ in tokens for id_ in ids], np.int32),
            weights=np.array([w for _, weights in tokens for w in weights], np.float32),
            offsets=offsets_of([len(ids) for ids, _ in tokens]),
        ),
        dropped=_units(
            [np.empty((len(found["dropped_weights"]), 0), np.float32) for found in payloads],
            payloads,
            "dropped_",
            0,
        ),
        coverage=Coverage(
            tokens=np.array(columns[0], np.int32),
            windows=np.array(columns[1], np.int32),
            cut=np.array(columns[2], np.int32),
            importance=np.array(columns[3], np.float32),
            kept=np.array(columns[4], np.float32),
        ),
    )


def _units(rows: list[F32], payloads: list[dict[str, Any]], prefix: str, width: int) -> Units:
    weights = [found[f"{prefix}weights"] for found in payloads]
    spans = [own for found in payloads for own in found[f"{prefix}spans"]]
    return Units(
        vectors=np.concatenate([np.empty((0, width), np.float32), *rows]),
        weights=np.array([weight for own in weights for weight in own], np.float32),
        offsets=offsets_of([len(own) for own in weights]),
        spans=np.array([number for own in spans for number in own], np.int32).reshape(-1, 2),
        span_offsets=offsets_of([len(own) // 2 for own in spans]),
    )


def _data(vector: Any) -> Any:
    """The numbers of a dense vector; servers before 1.17 give them without a kind."""
    return vector.dense.data if vector.HasField("dense") else vector.data


def _rows(vector: Any, width: int) -> F32:
    if vector.HasField("multi_dense"):
        return np.array([row.data for row in vector.multi_dense.vectors], np.float32)
    return np.array(vector.data, np.float32).reshape(-1, width)


def _sparse(vector: Any) -> tuple[list[int], list[float]]:
    """Token ids, ascending, and their weights."""
    found = vector.sparse if vector.HasField("sparse") else None
    ids = np.array(found.indices if found is not None else vector.indices.data, np.int64)
    weights = np.array(found.values if found is not None else vector.data, np.float32)
    order = np.argsort(ids)
    return ids[order].tolist(), weights[order].tolist()
