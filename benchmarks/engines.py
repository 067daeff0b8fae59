"""A Qdrant server beside the embedded index: the same hits? how fast, how large?

    python benchmarks/engines.py quality scifact.hplus queries.safetensors data/scifact
    python benchmarks/engines.py size scifact.hplus queries.safetensors --documents 20000 200000 \
        --folder /tmp/engines

Both push an index to a server that they start (`make .venv/qdrant` fetches it), and search it and
the index in turns. `quality` gives nDCG@10 on a retrieval set whose documents are in the index and
whose queries, in the order of the set, are in the file of encodings. `size` makes documents up as
scale.py does: real ones merged to 16 units of width 128, every vector moved to a cosine of 0.8 with
its original; on one thread, seconds are wall-clock, and memory is what the server has resident. An
index that is in the folder already is used again.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from engine_servers import Node, address, qdrant
from hplus import Budget, Encoded, Index
from hplus.encoded_file import read_encoded
from hplus.engines import transfer
from hplus.evaluate.data import read_beir
from hplus.evaluate.metrics import ndcg
from hplus.search.results import Results
from hplus.types import concatenate
from hplus.units.vectors import normalise

UNITS, WIDTH = Budget(16, policy="merge"), 128
NOISE = 0.75  # a vector of this length at a right angle to a unit vector: cosine 0.8
CHUNK = 2_000
QUERIES = 100
EXACT = 30  # of them, those whose recall is measured
SEED = 13


def quality(options: argparse.Namespace) -> None:
    """nDCG@10 of the embedded index, of Qdrant's exact path and of its 8-bit codes."""
    queries, _ = read_encoded(options.queries)
    data = read_beir(options.data)
    with Index.open(options.index) as index, running() as node:
        engines: dict[str, Any] = {"embedded": index}
        for codes in ("none", "int8"):
            store = transfer.open_or_create(address([node], codes), index, {"codes": codes})
            transfer.push(index, store)
            settle(store)
            engines[f"qdrant, codes {codes}"] = Index.connect(address([node], codes))
            store.close()
        for view in ("hybrid", "phrase", "global", "lexical"):
            found: dict[str, list[Results]] = {
                name: [one.search(queries[i], view=view, k=10) for i in range(len(queries))]
                for name, one in engines.items()
            }
            for name, results in found.items():
                scores = [
                    ndcg([hit.id for hit in one], data.judgements[query])
                    for query, one in zip(data.query_ids, results, strict=True)
                ]
                same = [
                    [hit.id for hit in one] == [hit.id for hit in other]
                    for one, other in zip(results, found["embedded"], strict=True)
                ]
                print_line(
                    set=options.data.name,
                    view=view,
                    engine=name,
                    paths=results[0].paths,
                    ndcg10=round(100 * float(np.mean(scores)), 3),
                    recall10=round(recall(results, found["embedded"]), 4),
                    same_lists=f"{sum(same)} of {len(same)}",
                )


def size(options: argparse.Namespace) -> None:
    """Push rate, disk, memory and latency at some sizes."""
    queries, _ = read_encoded(options.queries)
    random = np.random.default_rng(SEED)
    chosen = np.sort(random.permutation(len(queries))[:QUERIES])
    asked = [queries[int(i)].at(width=WIDTH) for i in chosen]
    with Index.open(options.index) as base:
        encoded = [some for _, some in transfer.encodings(base, 1 << 20)]
        documents = concatenate(encoded).at(budget=UNITS, width=WIDTH)
    for count in options.documents:
        folder = options.folder / f"{count}.hplus"
        if not folder.exists():
            build(folder, documents, count)
        with Index.open(folder) as index, running(options.folder) as node:
            print_line(**one_size(index, node, asked, options))


def one_size(
    index: Index, node: Node, asked: list[Encoded], options: argparse.Namespace
) -> dict[str, Any]:
    """What it costs to push an index, and to search it and the collection in turns."""
    url, count = address([node], "size", "?timeout=600"), len(index)
    store = transfer.open_or_create(url, index, {"codes": options.codes, "stored": options.stored})
    started, cpu, theirs = time.perf_counter(), time.process_time(), processor(node)
    transfer.push(index, store, workers=options.workers)
    pushed, cpu = time.perf_counter() - started, time.process_time() - cpu
    theirs = processor(node) - theirs
    settle(store)
    line: dict[str, Any] = {
        "documents": count,
        "units": index.stats().units,
        "codes": options.codes,
        "stored": options.stored,
        "workers": options.workers,
        "embedded": {"disk_mb": round(megabytes(index.path))},
        "qdrant": {
            "documents_per_second": round(count / pushed),
            "client_cpu_ms_per_document": round(1000 * cpu / count, 3),
            "server_cpu_ms_per_document": round(1000 * theirs / count, 3),
            "seconds_until_optimised": round(time.perf_counter() - started),
            "disk_mb": round(megabytes(node.folder / "storage")),
            "resident_mb": round(resident(node)),
        },
    }
    with Index.connect(url) as there:
        for view in ("hybrid", "phrase", "global"):
            line["embedded"][view] = measured(index, asked, view)
            before = processor(node)
            line["qdrant"][view] = measured(there, asked, view)
            line["qdrant"][view]["server_cpu_ms"] = round(
                1000 * (processor(node) - before) / (1 + QUERIES + EXACT), 1
            )
    store.close()
    return line


def measured(index: Any, queries: list[Encoded], view: str) -> dict[str, Any]:
    """Latency of the default path in milliseconds, and its recall@10 against an exact scan."""
    index.search(queries[0], view=view)
    times, results = [], []
    for query in queries:
        started = time.perf_counter()
        results.append(index.search(query, view=view))
        times.append(1000 * (time.perf_counter() - started))
    exact = [index.search(query, view=view, exact=True) for query in queries[:EXACT]]
    return {
        "paths": results[0].paths,
        "p50_ms": round(float(np.percentile(times, 50)), 1),
        "p95_ms": round(float(np.percentile(times, 95)), 1),
        "recall10": round(recall(results[:EXACT], exact), 4),
    }


def recall(found: list[Results], exact: list[Results]) -> float:
    """Share of the exact hits that were found."""
    both = [
        len({hit.id for hit in one} & {hit.id for hit in other}) / len(other)
        for one, other in zip(found, exact, strict=True)
        if other
    ]
    return float(np.mean(both))


def made_up(documents: Encoded, count: int) -> Iterator[Encoded]:
    """`count` documents near real ones, some at a time."""
    random = np.random.default_rng(SEED)

    def moved(vectors: Any) -> Any:
        noise = normalise(random.standard_normal(vectors.shape, np.float32))
        return normalise(vectors + NOISE * noise)

    for first in range(0, count, CHUNK):
        some = documents.take(random.integers(0, len(documents), min(CHUNK, count - first)))
        units = replace(some.units, vectors=moved(some.units.vectors))
        yield replace(some, units=units, global_=moved(some.global_))


def build(folder: Path, documents: Encoded, count: int) -> None:
    """An index of `count` documents, compacted and closed."""
    index = Index.create(
        folder,
        budget=UNITS,
        width=WIDTH,
        global_width=documents.global_.shape[1],
        fingerprint="engines",
    )
    done = 0
    for some in made_up(documents, count):
        index.add_encoded([f"{done + i:07d}" for i in range(len(some))], some)
        done += len(some)
    index.compact()
    index.close()


@contextmanager
def running(folder: Path | None = None) -> Iterator[Node]:
    """A server in a temporary folder."""
    with tempfile.TemporaryDirectory(dir=folder) as own, qdrant(Path(own) / "qdrant") as node:
        yield node


def settle(store: Any) -> None:
    """Wait until the server has optimised what it got."""
    wait(lambda: store.stats().figures["status"] == "Green")


def wait(ready: Callable[[], bool]) -> None:
    while not ready():
        time.sleep(0.5)


def megabytes(folder: Path) -> float:
    return sum(file.stat().st_blocks * 512 for file in folder.rglob("*") if file.is_file()) / 1e6


def resident(node: Node) -> float:
    """Memory of the server in MB, pages of mapped files included."""
    assert node.process is not None
    status = Path(f"/proc/{node.process.pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) / 1e3


def processor(node: Node) -> float:
    """Seconds of processor time that the server has taken."""
    assert node.process is not None
    fields = Path(f"/proc/{node.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def print_line(**values: Any) -> None:
    print(json.dumps(values), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(required=True)
    for name, run in (("quality", quality), ("size", size)):
        one = commands.add_parser(name)
        one.add_argument("index", type=Path)
        one.add_argument("queries", type=Path)
        one.set_defaults(run=run)
        if name == "quality":
            one.add_argument("data", type=Path)
        else:
            one.add_argument("--documents", type=int, nargs="+", default=[20_000])
            one.add_argument("--codes", default="none")
            one.add_argument("--stored", default="f32")
            one.add_argument("--workers", type=int, default=2)
            one.add_argument("--folder", type=Path, required=True)
    options = parser.parse_args()
    options.run(options)


if __name__ == "__main__":
    main()
