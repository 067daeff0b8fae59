"""Shards encoded by Ray Data: actors on any number of machines, which share a disk.

A row of the dataset is the number of a shard; an actor reads its documents from the source itself
and writes its file. An actor that dies is started again by Ray, and so is its shard.
"""

from __future__ import annotations

import logging
import os
import re
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

from threadpoolctl import threadpool_limits

from hplus.arguments import as_path, whole
from hplus.bulk.documents import Documents
from hplus.bulk.encode import encode, lacking
from hplus.bulk.folder import Manifest, read_manifest
from hplus.bulk.job import Job
from hplus.errors import HPlusError, MissingExtraError, ServiceError
from hplus.progress import show_progress
from hplus.workers import MOST_WORKERS, Blueprint, blueprint_of

if TYPE_CHECKING:
    from hplus.model import HPlus


REACH_SECONDS = 10.0


class EncodeShards:
    """An actor: its model is loaded once and uses one thread; its source is read once."""

    def __init__(self, blueprint: Blueprint, job: Job, source: str, folder: str) -> None:
        threadpool_limits(blueprint.threads)
        self.blueprint, self.job, self.folder = blueprint, job, Path(folder)
        self.documents = Documents(source, job)
        self.model: HPlus | None = None

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Encode the shards of a batch; our own errors are answers, which Ray does not wrap."""
        try:
            if self.model is None:
                self.model = self.blueprint.build(None)
            # Of a shard that an actor had finished when it died, the file is there already.
            missing = lacking(self.folder, self.job, batch["shard"].tolist())
            encode(self.model, self.job, self.documents, self.folder, missing)
        except HPlusError as error:
            return {"shard": batch["shard"], "error": [str(error)] * len(batch["shard"])}
        return {"shard": batch["shard"], "error": [""] * len(batch["shard"])}


def encode_with_ray(
    model: HPlus,
    job: Job,
    source: str | os.PathLike[str],
    folder: str | os.PathLike[str],
    *,
    actors: int = 1,
    address: str = "local",
    progress: bool = False,
) -> Manifest:
    """Encode the shards that the folder lacks by Ray actors, one core each; what is there then.

    address: of a running cluster, as `ray.init` takes it; "local" starts one here. Source, folder
    and model must have the same paths on every machine.
    """
    # Ray would report its use to its makers unless told not to.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
        from ray.data import ActorPoolStrategy, DataContext
    except ImportError:
        raise MissingExtraError("encoding by Ray needs a package: pip install hplus[ray]") from None
    actors = whole("actors", actors, most=MOST_WORKERS)
    target = as_path("folder", folder)
    target.mkdir(parents=True, exist_ok=True)
    missing = lacking(target, job)
    if not missing:
        return read_manifest(target)
    own = not ray.is_initialized()
    if own:
        # On this machine alone, as many actors as are asked for may share its cores.
        cores = max(actors, os.cpu_count() or 1) if address == "local" else None
        _check_reached(address)
        try:
            ray.init(address, num_cpus=cores, log_to_driver=False, logging_level=logging.WARNING)
        except Exception as error:  # from ConnectionError to a bare Exception, by the cause
            raise ServiceError(f"no Ray cluster at {address}: {error}") from None
    try:
        logging.getLogger("ray.data").setLevel(logging.WARNING)
        DataContext.get_current().enable_progress_bars = False
        rows = ray.data.from_items(
            [{"shard": shard} for shard in missing], override_num_blocks=len(missing)
        )
        done = rows.map_batches(
            EncodeShards,
            fn_constructor_args=(
                blueprint_of(model, threads=1),
                job,
                str(Path(source).absolute()),
                str(target.absolute()),
            ),
            batch_size=1,
            compute=ActorPoolStrategy(size=actors),
            num_cpus=1,
        )
        with show_progress("encoding shards", len(missing), wanted=progress) as shown:
            for batch in done.iter_batches(batch_size=1):
                shown.advance(len(batch["shard"]))
                for message in filter(None, batch["error"].tolist()):
                    raise HPlusError(message)
    finally:
        if own:
            ray.shutdown()
    return read_manifest(target)


def _check_reached(address: str) -> None:
    """Ray itself tries for minutes to reach a machine that is not there."""
    place = re.fullmatch(r"(?:ray://)?([\w.-]+):(\d+)", address)
    if place is None:
        return
    try:
        socket.create_connection((place[1], int(place[2])), timeout=REACH_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise ServiceError(f"no Ray cluster at {address}: {error}") from None
