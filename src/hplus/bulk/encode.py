"""Shards encoded by this process and its workers; other machines may encode others meanwhile.

A shard is encoded in steps of its own documents alone, and each step gives the same numbers in
whatever process it runs: so a shard's bytes depend neither on who makes it nor on what else they
made. (Processors may differ in the last bit: encode a corpus on one kind.)
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hplus.arguments import as_path
from hplus.bulk.documents import Documents
from hplus.bulk.folder import Manifest, read_manifest
from hplus.bulk.job import Job
from hplus.bulk.shard_file import AGAIN, Stored, read_about, stored, write_shard
from hplus.errors import InputError
from hplus.progress import show_progress
from hplus.sources.document import Document
from hplus.texts import in_steps
from hplus.types import Span
from hplus.unknown import Count, counted
from hplus.workers import WorkerEndedError, encode_steps

if TYPE_CHECKING:
    from hplus.model import HPlus

Report = Callable[[str], None]
# How often workers may end, one after another, before a single shard is finished.
TRIES = 3


@dataclass(frozen=True)
class _Waiting:
    """A shard whose texts are being encoded, in so many steps."""

    shard: int
    documents: list[Document]
    passages: list[list[Span]] | None
    steps: int


def encode_shards(
    model: HPlus,
    job: Job,
    source: str | os.PathLike[str],
    folder: str | os.PathLike[str],
    *,
    only: Sequence[int] | None = None,
    workers: int = 1,
    progress: bool = False,
    skipped: Report = lambda _: None,
    report: Report = lambda _: None,
) -> Manifest:
    """Encode the shards of a job that the folder lacks, or of `only` these; what is there then.

    May be called any number of times, on any number of machines. If a worker is killed, its shard
    and those in flight are encoded again, and `report` is told; `skipped` is given bad rows.
    """
    target = as_path("folder", folder)
    target.mkdir(parents=True, exist_ok=True)
    missing = lacking(target, job, only)
    documents = Documents(source, job, skipped)
    total = sum((job.bounds(s)[1] or job.rows) - job.bounds(s)[0] for s in missing)
    ended = 0
    with show_progress("encoding", total, wanted=progress) as shown:
        while missing:
            try:
                encode(model, job, documents, target, missing, workers, shown.advance)
            except WorkerEndedError as error:
                left = lacking(target, job, missing)
                ended = ended + 1 if left == missing else 0
                if ended == TRIES:  # the same documents would end the next worker, too
                    raise
                report(f"{error}; trying again with the {len(left):,} shards that are left")
            missing = lacking(target, job, missing)
    return read_manifest(target)


def lacking(folder: Path, job: Job, only: Sequence[int] | None = None) -> list[int]:
    """The shards that a folder does not have; those of another job are refused."""
    wanted = range(1, job.shards + 1) if only is None else sorted(set(only))
    if any(not 1 <= shard <= job.shards for shard in wanted):
        raise InputError(f"expected shards of 1 to {job.shards:,}, got {list(wanted)}")
    for file in folder.glob("*-of-*.safetensors"):
        other, _ = read_about(file)
        if difference := job.difference(other):
            raise InputError(
                f"{file} is of another job: {difference}; choose a new folder, or {AGAIN}"
            )
    return [shard for shard in wanted if not (folder / job.file(shard)).is_file()]


def encode(
    model: HPlus,
    job: Job,
    documents: Documents,
    folder: Path,
    shards: Sequence[int],
    workers: int = 1,
    advance: Callable[[float], None] = lambda _: None,
) -> None:
    """From these shards of documents to their files; a shard that has its file gets the same."""
    mean = model.checkpoint.mean
    if mean is not None:
        mean = mean[: job.width]
    waiting: deque[_Waiting] = deque()
    parts: list[Stored] = []
    count = Count()

    def steps() -> Iterator[list[str]]:
        for shard in shards:
            own = documents.of(shard)
            texts, passages = [document.text for document in own], None
            if job.passages is not None:
                passages = [model.passages(text, job.passages) for text in texts]
                divided = zip(texts, passages, strict=True)
                texts = [text[a:b] for text, spans in divided for a, b in spans]
            each = list(in_steps(texts)) or [[]]
            waiting.append(_Waiting(shard, own, passages, len(each)))
            yield from each

    encodings = encode_steps(
        model,
        counted(steps(), model.checkpoint.backbone.tokenizer, count),
        job.budget,
        job.width,
        workers=workers,
        advance=advance if job.passages is None else lambda _: None,
    )
    with closing(encodings):
        for encoded in encodings:
            parts.append(stored(encoded, job.format, mean))
            if len(parts) == waiting[0].steps:
                whole = waiting.popleft()
                write_shard(folder, job, whole.shard, whole.documents, parts, whole.passages, mean)
                parts = []
                if job.passages is not None:  # what is encoded are passages: not counted one by one
                    advance(len(whole.documents))
    count.warn("the documents", model.recipe.name)
