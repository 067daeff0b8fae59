"""What docs/scale.md rests on: the cost of one document on its way from a file into an index.

    python benchmarks/bulk.py ../shared/data/eval/scifact --out docs/results

Abstracts of SciFact, whole, by hplus-small in int8 on one thread: processor time of `hplus bulk` in
ten shards, of which the fastest is nearest to a core of its own; bytes of shards and of the index
that `hplus index --encoded` makes of them. Reading and indexing are measured on the same abstracts
repeated under other ids.
"""

from __future__ import annotations

import argparse
import json
import resource
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

from hplus import HPlus, Index
from hplus.bulk.documents import Documents
from hplus.bulk.encode import encode_shards
from hplus.bulk.folder import read_shards
from hplus.bulk.job import Job, job_of
from hplus.bulk.shard_file import Shard, read_shard, stored, write_shard
from hplus.sources import read as sources
from hplus.sources.document import Document
from hplus.types import concatenate

REPEATED = 12_000
SLICES = 10
# The vectors of docs/benchmarks.md's front page: merged to so many, so wide.
SETTINGS = ((32, 384), (32, 128), (16, 128))


def timed(function: Callable[[], Any]) -> tuple[Any, float]:
    """What it returns, and its processor time in seconds."""
    started = time.process_time()
    result = function()
    return result, time.process_time() - started


def instructions() -> str:
    """The widest instructions for 8-bit products that this processor has."""
    flags = Path("/proc/cpuinfo").read_text().split()
    known = {"avx512_vnni": "AVX512-VNNI", "avx_vnni": "AVX-VNNI", "avx2": "AVX2"}
    return next((name for flag, name in known.items() if flag in flags), "other")


def write_source(path: Path, documents: list[Document], count: int) -> None:
    """The documents as JSON lines, repeated under other ids until there are `count`."""
    with path.open("w") as file:
        for i in range(count):
            one = documents[i % len(documents)]
            file.write(json.dumps({"_id": f"{one.id}-{i}", "text": one.text}) + "\n")


def repeat(folder: Path, job: Job, shard: Shard) -> None:
    """Shards of the same encodings under other ids."""
    folder.mkdir()
    for number in range(1, job.shards + 1):
        documents = [replace(one, id=f"{one.id}-{number}") for one in shard.documents]
        part = stored(shard.encoded, job.format)
        write_shard(folder, job, number, documents, [part], None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--abstracts", type=int, default=300)
    options = parser.parse_args()
    model = HPlus("small")
    model.threads = 1
    documents = list(islice(sources.read(options.data), options.abstracts))
    n = len(documents)
    figures: dict[str, Any] = {"model": "hplus-small, int8", "instructions": instructions()}
    figures["abstracts"] = n
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source = folder / "abstracts.jsonl"
        write_source(source, documents, n)
        figures["text_bytes"] = round(sum(len(one.text.encode()) for one in documents) / n)
        model.encode_document([documents[0].text])  # the first run allocates
        job = job_of(model, source, shards=SLICES, format="f32")
        slices = [
            timed(partial(encode_shards, model, job, source, folder / "f32", only=[s]))[1]
            for s in range(1, SLICES + 1)
        ]
        figures["encode_ms"] = round(1e3 * median(slices) / n * SLICES, 1)
        figures["encode_ms_fastest"] = round(1e3 * min(slices) / n * SLICES, 1)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        figures["encode_peak_mb"] = round(peak / 1024)
        files = list((folder / "f32").iterdir())
        figures["shard_bytes_f32"] = round(sum(file.stat().st_size for file in files) / n)
        parts = list(read_shards(folder / "f32"))
        shard = Shard(
            [one for part in parts for one in part.documents],
            concatenate([part.encoded for part in parts]),
        )
        figures["tokens"] = round(float(shard.encoded.coverage.tokens.mean()), 1)

        many = folder / "many.jsonl"
        write_source(many, documents, REPEATED)
        job = job_of(model, many, shards=REPEATED // n)
        _, seconds = timed(lambda: Documents(many, job).of(job.shards))
        figures["read_us"] = round(1e6 * seconds / REPEATED, 1)
        tracemalloc.start()
        reader = Documents(many, job)
        reader.of(job.shards - 1)  # it remembers the ids so far, not the documents
        figures["read_bytes"] = round(tracemalloc.get_traced_memory()[0] / REPEATED)
        tracemalloc.stop()
        repeat(folder / "int8", job, shard)
        one = folder / "int8" / job.file(1)
        figures["shard_bytes_int8"] = round(one.stat().st_size / n)
        _, seconds = timed(lambda: read_shard(one))
        figures["check_us"] = round(1e6 * seconds / n, 1)
        with Index.create(folder / "index", model) as index:
            _, seconds = timed(lambda: index.add_shards(folder / "int8"))
            figures["index_us"] = round(1e6 * seconds / REPEATED, 1)
            for budget, width in SETTINGS:
                index.compact(budget=budget, width=width)
                found = index.stats()
                sizes = {part: round(size / REPEATED) for part, size in found.bytes.items()}
                sizes["texts"] = round(found.catalogue / REPEATED)
                figures[f"index_{budget}_{width}"] = sizes
    line = json.dumps(figures)
    print(line)
    (options.out / "bulk.jsonl").write_text(line + "\n")


if __name__ == "__main__":
    main()
