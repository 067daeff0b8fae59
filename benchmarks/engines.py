"""A Qdrant server beside the embedded index: the same hits? how fast, how large?

    python benchmarks/engines.py quality scifact.hplus queries.safetensors data/scifact \
        --out docs/results/engines.jsonl
    python benchmarks/engines.py size scifact.hplus queries.safetensors --documents 20000 200000 \
        --folder /tmp/engines --out docs/results/engines.jsonl

Both push an index to a server that they start (`make .venv/qdrant` fetches it), and search it and
the index in turns. `quality` gives nDCG@10 on a retrieval set whose documents are in the index and
whose queries, in the order of the set, are in the file of encodings. `size` makes documents up as
scale.py does: real ones merged to 16 units of width 128, every vector moved to a cosine of 0.8 with
its original; on one thread, seconds are wall-clock, and memory is what each side has resident.
Index and collection stay in the folder, a run that was stopped goes on, and `--queries 0` ends with
the push: a million documents can be made beside other work and searched when the machine is quiet.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import threading
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
from hplus.engines import exists, transfer
from hplus.evaluate.data import read_beir
from hplus.evaluate.metrics import ndcg
from hplus.search.results import Results
from hplus.types import concatenate
from hplus.units.vectors import normalise
from machine import instruction_set

UNITS, WIDTH = Budget(16, policy="merge"), 128
NOISE = 0.75  # a vector of this length at a right angle to a unit vector: cosine 0.8
CHUNK = 2_000
STRETCH = 100_000  # documents whose push is timed by itself
EXACT = 30  # queries whose recall is measured
SEED = 13
SLOW = "?timeout=600"  # a machine with other work


def quality(options: argparse.Namespace) -> None:
    """nDCG@10 of the embedded index and of Qdrant: exact, by 8-bit codes, by vectors of 16 bits."""
    queries, _ = read_encoded(options.encoded)
    data = read_beir(options.data)
    with Index.open(options.index) as index, running() as node:
        engines: dict[str, Any] = {"embedded": index}
        for option, value in (("codes", "none"), ("codes", "int8"), ("stored", "f16")):
            url = address([node], value, SLOW)
            store = transfer.open_or_create(url, index, {option: value})
            transfer.push(index, store)
            settle(store)
            engines[f"qdrant, {option} {value}"] = Index.connect(url)
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
                line = {
                    "set": options.data.name,
                    "view": view,
                    "engine": name,
                    "paths": results[0].paths,
                    "ndcg10": round(100 * float(np.mean(scores)), 3),
                    "recall10": round(recall(results, found["embedded"]), 4),
                    "same_lists": f"{sum(same)} of {len(same)}",
                }
                record(options.out, line, ("set", "view", "engine"))


def size(options: argparse.Namespace) -> None:
    """Push rate, disk, memory and latency at some sizes."""
    queries, _ = read_encoded(options.encoded)
    random = np.random.default_rng(SEED)
    chosen = np.sort(random.permutation(len(queries))[: options.queries])
    asked = [queries[int(i)].at(width=WIDTH) for i in chosen]
    with Index.open(options.index) as base:
        encoded = [some for _, some in transfer.encodings(base, 1 << 20)]
        documents = concatenate(encoded).at(budget=UNITS, width=WIDTH)
    for count in options.documents:
        folder = options.folder / f"{count}.hplus"
        build(folder, documents, count)
        server = options.folder / f"{count}-{options.stored}-{options.codes}"
        with qdrant(server) as node:
            url = address([node], "size", SLOW)
            pushed = push(url, folder, node, server / "pushed.json", options)
            if asked:
                searched = search(url, folder, node, asked)
                for engine, figures in searched.items():
                    pushed[engine] |= figures
                line = {"instructions": instruction_set(), **pushed}
                record(options.out, line, ("documents", "codes", "stored"))


def push(
    url: str, folder: Path, node: Node, notes: Path, options: argparse.Namespace
) -> dict[str, Any]:
    """What it costs to push an index; noted when it is complete, and read from there later."""
    if notes.exists():
        noted: dict[str, Any] = json.loads(notes.read_text())
        return noted
    settings = {} if exists(url) else {"codes": options.codes, "stored": options.stored}
    with Index.open(folder) as index:
        count, units, disk = len(index), index.stats().units, megabytes(folder)
        store = transfer.open_or_create(url, index, settings)
        started, cpu, theirs = time.perf_counter(), time.process_time(), processor(node)
        watch = Stretches(started)
        done = transfer.push(index, store, workers=options.workers, advance=watch.advance)
        pushed, cpu = time.perf_counter() - started, time.process_time() - cpu
        theirs = processor(node) - theirs
        settle(store)
    line = {
        "documents": count,
        "units": units,
        "codes": options.codes,
        "stored": options.stored,
        "workers": options.workers,
        "embedded": {"disk_mb": round(disk)},
        "qdrant": {
            "documents_per_second": round(done.moved / pushed),
            "by_stretch": watch.rates,
            "sent_before": done.unchanged,
            "client_cpu_ms_per_document": round(1000 * cpu / count, 3),
            "server_cpu_ms_per_document": round(1000 * theirs / count, 3),
            "seconds_until_optimised": round(time.perf_counter() - started),
            "segments": store.stats().figures["segments"],
            "disk_mb": round(megabytes(node.folder / "storage")),
            "pushed_mb": round(resident(node_id(node))),
        },
    }
    store.close()
    notes.write_text(json.dumps(line))
    print_line(**line)
    return line


class Stretches:
    """Documents a second, stretch by stretch: other work on the machine shows in some of them."""

    def __init__(self, started: float) -> None:
        self.rates: list[int] = []
        self._since, self._count, self._lock = started, 0, threading.Lock()

    def advance(self, documents: float) -> None:
        with self._lock:
            self._count += int(documents)
            if self._count >= STRETCH:
                now = time.perf_counter()
                self.rates.append(round(self._count / (now - self._since)))
                self._since, self._count = now, 0


def search(url: str, folder: Path, node: Node, asked: list[Encoded]) -> dict[str, Any]:
    """Latency and recall of the index and the collection, view by view in turns, and what both
    have resident after that."""
    before = resident(os.getpid())
    line: dict[str, Any] = {"embedded": {}, "qdrant": {}}
    with Index.open(folder) as index, Index.connect(url) as there:
        for view in ("hybrid", "phrase", "global"):
            line["embedded"][view] = measured(index, asked, view)
            line["qdrant"][view] = measured(there, asked, view, node)
        line["embedded"]["resident_mb"] = round(resident(os.getpid()) - before)
        line["qdrant"]["resident_mb"] = round(resident(node_id(node)))
    return line


def measured(
    index: Any, queries: list[Encoded], view: str, node: Node | None = None
) -> dict[str, Any]:
    """Latency of the default path in milliseconds, and its recall@10 against an exact scan; of a
    server its processor time, too."""
    index.search(queries[0], view=view)
    times, results = [], []
    before = 0.0 if node is None else processor(node)
    for query in queries:
        started = time.perf_counter()
        results.append(index.search(query, view=view))
        times.append(1000 * (time.perf_counter() - started))
    cpu = {}
    if node is not None:
        cpu = {"server_cpu_ms": round(1000 * (processor(node) - before) / len(queries), 1)}
    exact = results
    if set(results[0].paths.values()) != {"exact"}:
        exact = [index.search(query, view=view, exact=True) for query in queries[:EXACT]]
    return {
        "paths": results[0].paths,
        "queries": len(queries),
        "p50_ms": round(float(np.percentile(times, 50)), 1),
        "p95_ms": round(float(np.percentile(times, 95)), 1),
        "recall10": round(recall(results[: len(exact)], exact), 4),
        **cpu,
    }


def recall(found: list[Results], exact: list[Results]) -> float:
    """Share of the exact hits that were found."""
    both = [
        len({hit.id for hit in one} & {hit.id for hit in other}) / len(other)
        for one, other in zip(found, exact, strict=True)
        if other
    ]
    return float(np.mean(both))


def made_up(documents: Encoded, first: int, count: int) -> Encoded:
    """`count` documents near real ones; the same ones at any time for `first`."""
    random = np.random.default_rng([SEED, first])

    def moved(vectors: Any) -> Any:
        noise = normalise(random.standard_normal(vectors.shape, np.float32))
        return normalise(vectors + NOISE * noise)

    some = documents.take(random.integers(0, len(documents), count))
    units = replace(some.units, vectors=moved(some.units.vectors))
    return replace(some, units=units, global_=moved(some.global_))


def build(folder: Path, documents: Encoded, count: int) -> None:
    """An index of `count` documents, compacted and closed; what was not finished is finished."""
    finished = folder.with_suffix(".built")
    if finished.exists():
        return
    if folder.exists():
        index = Index.open(folder)
    else:
        index = Index.create(
            folder,
            budget=UNITS,
            width=WIDTH,
            global_width=documents.global_.shape[1],
            fingerprint="engines",
        )
    with index:
        there = len(index)
        for first in range(there - there % CHUNK, count, CHUNK):
            some = made_up(documents, first, min(CHUNK, count - first))
            new = some[max(0, there - first) :]
            last = first + len(some)
            index.add_encoded([f"{i:07d}" for i in range(last - len(new), last)], new)
        index.compact()
    finished.touch()


@contextmanager
def running() -> Iterator[Node]:
    """A server in a temporary folder."""
    with tempfile.TemporaryDirectory() as own, qdrant(Path(own) / "qdrant") as node:
        yield node


def settle(store: Any) -> None:
    """Wait until the server has optimised what it got."""
    wait(lambda: store.stats().figures["status"] == "Green")


def wait(ready: Callable[[], bool]) -> None:
    while not ready():
        time.sleep(0.5)


def megabytes(folder: Path) -> float:
    return sum(file.stat().st_blocks * 512 for file in folder.rglob("*") if file.is_file()) / 1e6


def node_id(node: Node) -> int:
    """The process of a server."""
    assert node.process is not None
    return node.process.pid


def resident(process: int) -> float:
    """Memory of a process in MB, pages of mapped files included."""
    status = Path(f"/proc/{process}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) / 1e3


def processor(node: Node) -> float:
    """Seconds of processor time that the server has taken."""
    fields = Path(f"/proc/{node_id(node)}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def print_line(**values: Any) -> None:
    print(json.dumps(values), flush=True)


def record(file: Path, line: dict[str, Any], same: tuple[str, ...]) -> None:
    """Write a line in place of one that was measured before of the same."""
    print_line(**line)
    known = [json.loads(text) for text in file.read_text().splitlines()]
    kept = [one for one in known if any(one.get(name) != line[name] for name in same)]
    file.write_text("".join(json.dumps(one) + "\n" for one in (*kept, line)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(required=True)
    for name, run in (("quality", quality), ("size", size)):
        one = commands.add_parser(name)
        one.add_argument("index", type=Path)
        one.add_argument("encoded", type=Path, help="queries")
        one.add_argument("--out", type=Path, required=True)
        one.set_defaults(run=run)
        if name == "quality":
            one.add_argument("data", type=Path)
        else:
            one.add_argument("--documents", type=int, nargs="+", default=[20_000])
            one.add_argument("--codes", default="none")
            one.add_argument("--stored", default="f32")
            one.add_argument("--workers", type=int, default=2)
            one.add_argument("--queries", type=int, default=100)
            one.add_argument("--folder", type=Path, required=True)
    options = parser.parse_args()
    options.run(options)


if __name__ == "__main__":
    main()
