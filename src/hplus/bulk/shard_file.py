"""The file of a shard: documents and their encodings as plain arrays in one safetensors file.

    about           u8, JSON: the job, and the number of the shard
    documents       u8, one line of JSON for each: id, text, metadata
    global_, vectors  codes in the job's format; with int8 and int4 also global_scales and scales
    mean            f32, if the model has one: what was taken off vectors before they became codes
    passages, passage_offsets  where documents are divided: start and end, those of each document
    sha256          u8[32], of the file without this array
    all others      as in `encoded_file`

Written whole or not at all; the same documents give the same bytes. Codes are those of
an index: what it stores is the same, whether it was made from shards or from texts.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import safetensors

from hplus.bulk.job import Job
from hplus.encoded_file import arrays_of, encoded_of
from hplus.errors import HPlusError, InputError
from hplus.files import writing
from hplus.sources.document import Document, parse_json
from hplus.storage.check import checked
from hplus.storage.segment import F16, LARGEST, Array, Format, dequantise, global_format, quantise
from hplus.storage.segment_file import file_parts
from hplus.types import F32, I64, Encoded, Span, concatenate, offsets_of

FORMAT = "hplus-shard-1"
# Of a shard with a mean: who does not know it must not read the codes as vectors.
WITH_MEAN = "hplus-shard-2"
# Of a shard in int4: who does not know it would call it damaged.
WITH_INT4 = "hplus-shard-3"
AGAIN = "delete it and run hplus bulk again, which encodes only what is missing"


@dataclass(frozen=True)
class Shard:
    """Documents and their encodings; divided documents have one for each of their passages."""

    documents: list[Document]
    encoded: Encoded
    passages: list[list[Span]] | None = None

    def __len__(self) -> int:
        return len(self.documents)


@dataclass(frozen=True)
class Stored:
    """An encoding whose vectors are codes of a format, and their scales."""

    codes: Encoded
    global_scales: F16 | None
    scales: F16 | None


def stored(encoded: Encoded, format: Format, mean: F32 | None = None) -> Stored:
    """An encoding as a shard keeps it: a quarter of the memory in int8."""
    global_, global_scales = quantise(encoded.global_, global_format(format))
    vectors, scales = quantise(encoded.units.vectors, format, mean)
    codes = replace(encoded, global_=global_, units=replace(encoded.units, vectors=vectors))
    return Stored(codes, global_scales, scales)


def write_shard(
    folder: Path,
    job: Job,
    shard: int,
    documents: Sequence[Document],
    parts: Sequence[Stored],
    passages: Sequence[Sequence[Span]] | None,
    mean: F32 | None = None,
) -> None:
    """The file of a shard, whose encodings come in parts, one after another; mean: what was taken
    off their vectors."""
    arrays = arrays_of(concatenate([part.codes for part in parts]))
    if job.format in LARGEST:
        arrays["global_scales"] = np.concatenate([part.global_scales for part in parts])
        arrays["scales"] = np.concatenate([part.scales for part in parts])
        if mean is not None:
            arrays["mean"] = mean
    if passages is not None:
        spans = [span for own in passages for span in own]
        arrays["passages"] = np.array(spans, np.int64).reshape(-1, 2)
        arrays["passage_offsets"] = offsets_of([len(own) for own in passages])
    rows = ([document.id, document.text, document.metadata] for document in documents)
    arrays["documents"] = _bytes(
        "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    )
    made = WITH_INT4 if job.format == "int4" else WITH_MEAN if "mean" in arrays else FORMAT
    about = {"format": made, "shard": shard, "job": job.as_json()}
    arrays["about"] = _bytes(json.dumps(about, sort_keys=True))
    arrays["sha256"] = np.frombuffer(_digest(arrays), np.uint8)
    path = folder / job.file(shard)
    try:
        with writing(path) as file:
            for part in file_parts(arrays):
                file.write(part)
    except FileNotFoundError:
        # Another machine has finished the same shard and removed this draft as a leftover.
        if not path.is_file():
            raise
    for draft in folder.glob(f".{path.name}.*.draft"):
        draft.unlink(missing_ok=True)


def read_about(path: Path) -> tuple[Job, int]:
    """The job of a shard file and the number of the shard, from its header."""
    about = _arrays(path, ("about",))["about"]
    try:
        found = json.loads(about.tobytes())
        if found["format"] not in (FORMAT, WITH_MEAN, WITH_INT4):
            raise InputError(
                f"{path} has format {found['format']!r}, expected at most {WITH_INT4!r}; "
                "a newer hplus made it: update hplus, or make the shard again"
            )
        return Job.of_json(found["job"]), int(found["shard"])
    except (ValueError, KeyError, TypeError) as error:
        if isinstance(error, HPlusError):
            raise
        raise _damaged(path, f"its header is not that of a shard ({error})") from None


def read_shard(path: Path) -> Shard:
    """A shard, after its checksum and all its arrays were checked."""
    arrays = _arrays(path)
    expected = arrays.pop("sha256", np.empty(0, np.uint8)).tobytes()
    if _digest(arrays) != expected:
        raise _damaged(path, "its content does not have its checksum")
    job, _ = read_about(path)
    del arrays["about"]
    try:
        lines = arrays.pop("documents").tobytes().decode().split("\n")[:-1]
        documents = [Document(*parse_json(line)) for line in lines]
        ids, texts = [d.id for d in documents], [d.text for d in documents]
        if len(set(ids)) < len(ids):
            raise ValueError("an id repeats")
        passages = None
        if job.passages is not None:
            passages = _passages(arrays.pop("passages"), arrays.pop("passage_offsets"))
            divided = list(zip(documents, passages, strict=True))
            ids = [document.id for document, own in divided for _ in own]
            texts = [document.text[a:b] for document, own in divided for a, b in own]
        mean = arrays.pop("mean", None)
        for name, scales, own in (("global_", "global_scales", None), ("vectors", "scales", mean)):
            arrays[name] = dequantise(arrays[name], arrays.pop(scales, None), own)
        return Shard(documents, checked(encoded_of(arrays), ids, texts), passages)
    except (ValueError, KeyError, TypeError) as error:
        raise _damaged(path, str(error)) from None


def _passages(spans: I64, offsets: I64) -> list[list[Span]]:
    rows = [Span(*row) for row in spans.tolist()]
    return [rows[a:b] for a, b in pairwise(offsets.tolist())]


def _arrays(path: Path, names: Sequence[str] | None = None) -> dict[str, Array]:
    try:
        with safetensors.safe_open(path, framework="numpy") as file:
            wanted = file.keys() if names is None else names
            return {name: file.get_tensor(name) for name in wanted}
    except (safetensors.SafetensorError, KeyError, TypeError) as error:
        raise _damaged(path, str(error)) from None


def _digest(arrays: Mapping[str, Any]) -> bytes:
    digest = hashlib.sha256()
    for part in file_parts(arrays):
        digest.update(part)
    return digest.digest()


def _bytes(text: str) -> Array:
    return np.frombuffer(text.encode(), np.uint8)


def _damaged(path: Path, why: str) -> InputError:
    return InputError(f"{path} is damaged: {why}; {AGAIN}")
