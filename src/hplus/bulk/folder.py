"""A folder of shards: what is done, what is missing, and all of it read back in order.

What is done is told by the files themselves: a shard's file appears whole under its name or not at
all. So machines that share the folder need no lock, and nothing can contradict the files.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hplus.arguments import as_path
from hplus.bulk.job import Job
from hplus.bulk.shard_file import AGAIN, Shard, read_about, read_shard
from hplus.checkpoint import locate
from hplus.errors import BudgetError, InputError, ModelMismatchError
from hplus.sources.document import Document
from hplus.storage.catalogue import Settings
from hplus.types import Encoded


@dataclass(frozen=True)
class Manifest:
    """What a folder holds: the job of its shards, and which of them are there."""

    folder: Path
    job: Job
    done: tuple[int, ...]

    @property
    def missing(self) -> tuple[int, ...]:
        """The shards that are not there, ascending."""
        return tuple(sorted({*range(1, self.job.shards + 1)}.difference(self.done)))


def read_manifest(folder: str | os.PathLike[str]) -> Manifest:
    """What a folder of shards holds, from the header of every file."""
    path = as_path("folder", folder)
    if not path.is_dir():
        raise InputError(f"{path} is not a folder of shards; hplus bulk SOURCE {path} makes one")
    done = {}
    for file in sorted(path.glob("*-of-*.safetensors")):
        job, shard = read_about(file)
        if file.name != job.file(shard):
            raise InputError(
                f"{file} is shard {shard} of {job.shards}, which is called {job.file(shard)}; "
                "rename it, or delete it"
            )
        done[file] = job, shard
    if not done:
        raise InputError(f"{path} has no shards; hplus bulk SOURCE {path} makes them")
    jobs = [job for job, _ in done.values()]
    usual = max(jobs, key=jobs.count)
    for file, (job, _) in done.items():
        if difference := usual.difference(job):
            raise InputError(
                f"{file} is of another job than the other shards: {difference}; {AGAIN}"
            )
    return Manifest(path, usual, tuple(shard for _, shard in done.values()))


def read_shards(
    folder: str | os.PathLike[str], *, fingerprint: str | None = None
) -> Iterator[Shard]:
    """All shards of a complete folder in the order of the corpus, one in memory at a time.

    fingerprint: of the model that they must be made by. What is missing, or of another model, is
    found before the first shard is read; a checksum that fails, when its shard is.
    """
    manifest = read_manifest(folder)
    check_complete(manifest)
    if fingerprint is not None:
        check_model(manifest, fingerprint)
    return (read_shard(manifest.folder / manifest.job.file(shard)) for shard in manifest.done)


def read_encodings(
    folder: str | os.PathLike[str], size: int, *, fingerprint: str | None = None
) -> Iterator[tuple[list[Document], Encoded]]:
    """All documents of a complete folder with their encodings, `size` at a time: what an engine is
    sent. Refused if the documents are divided into passages, as `read_shards` refuses others."""
    manifest = read_manifest(folder)
    if manifest.job.passages is not None:
        raise InputError(
            f"{manifest.folder} has passages of documents, expected whole documents; encode them "
            "without --passages"
        )
    shards = read_shards(folder, fingerprint=fingerprint)
    return (
        (shard.documents[first : first + size], shard.encoded[first : first + size])
        for shard in shards
        for first in range(0, len(shard), size)
    )


def check_complete(manifest: Manifest) -> None:
    """Refuse a folder that lacks shards."""
    if missing := manifest.missing:
        more = f" and {len(missing) - 1:,} more" if len(missing) > 1 else ""
        raise InputError(
            f"{manifest.folder} lacks shard {missing[0]} of {manifest.job.shards:,}{more}; "
            "run hplus bulk again, which encodes only what is missing"
        )


def check_model(manifest: Manifest, fingerprint: str) -> None:
    """Refuse encodings of another model."""
    job = manifest.job
    if job.fingerprint != fingerprint:
        raise ModelMismatchError(
            f"{manifest.folder} was encoded by model {job.fingerprint[:12]} ({job.model}), "
            f"expected {fingerprint[:12]}; give the model and the terms it was encoded with, or "
            "encode again"
        )


def model_of(manifest: Manifest, *folders: Path) -> str:
    """What to load for the model of a folder's job; a folder of its name is looked for beside the
    shards, in the working directory, and beside these."""
    places = (manifest.folder.resolve().parent, Path.cwd())
    return locate(manifest.job.model, *places, *(f.resolve().parent for f in folders))


def check_fits(manifest: Manifest, settings: Settings) -> None:
    """Refuse encodings of which an index of these settings could not be made."""
    job, name = manifest.job, manifest.folder
    check_model(manifest, settings.fingerprint)
    if job.passages != settings.passages:
        kept = [
            f"{limit} tokens" if limit else "none" for limit in (job.passages, settings.passages)
        ]
        raise InputError(f"{name} has passages of {kept[0]}, the index expects {kept[1]}")
    less = any(
        kept is not None and (wanted is None or wanted > kept)
        for kept, wanted in (
            (job.budget.count, settings.budget.count),
            (job.budget.share, settings.budget.share),
        )
    )
    cut = job.budget.count is not None or job.budget.share is not None
    if less or (cut and job.budget.policy != settings.budget.policy):
        raise BudgetError(
            f"{name} was encoded at {job.budget}, the index keeps {settings.budget}; encode again, "
            "or index into a new folder"
        )
    if job.width < settings.width:
        raise BudgetError(f"{name} has vectors of width {job.width}, the index {settings.width}")
