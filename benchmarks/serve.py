"""`hplus serve` under load: many connections search while one adds, updates, deletes and compacts.

python benchmarks/serve.py [--seconds 60] [--connections 64] [--documents 10000] [--out FILE]

The service runs in a process of its own, the clients in this one, on the same machine: they share
its cores. Documents are the demo corpus over and over, under other ids. Prints one JSON object, and
adds it to FILE: the embedded library and the service one query at a time, then the load. Fails if
an answer is neither 200 nor 503, or if a confirmed change is not found afterwards.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import re
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from hplus import Client, HPlus, Index
from hplus.evaluate.data import demo_folder, read_beir
from machine import instruction_set

K = 10
TIMES = 200
# Before each query, of both: in a tight loop the caches stay warm, which no service enjoys.
PAUSE = 0.005


def build(folder: Path, documents: int) -> list[str]:
    """An index of so many documents; returns queries."""
    model = HPlus()
    corpus = read_beir(demo_folder("en"))
    encoded = model.encode_document(corpus.documents)
    texts = list(corpus.documents)
    with Index.create(folder, model) as index:
        for first in range(0, documents, len(texts)):
            index.add_encoded([f"{first}-{i}" for i in range(len(texts))], encoded, texts=texts)
        index.compact()
    return list(corpus.queries)


def quantiles(seconds: list[float]) -> dict[str, float]:
    """Milliseconds."""
    p50, p95, p99 = np.percentile(np.array(seconds) * 1000, [50, 95, 99])
    return {"p50": round(p50, 2), "p95": round(p95, 2), "p99": round(p99, 2)}


def processor_seconds(process: int) -> float:
    """User and system time of a process so far."""
    fields = Path(f"/proc/{process}/stat").read_text().rsplit(") ", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def in_turns(searches: list[Any], queries: list[str], times: int) -> list[list[float]]:
    """Seconds of each search for each query. They take turns at every query, so that whatever else
    the machine does troubles them alike."""
    found: list[list[float]] = [[] for _ in searches]
    for i in range(times):
        for j in np.roll(range(len(searches)), i):
            time.sleep(PAUSE)
            started = time.perf_counter()
            searches[j](queries[i % len(queries)], k=K)
            found[j].append(time.perf_counter() - started)
    return found


def message(method: str, path: str, body: Any) -> bytes:
    """A request by hand, so that the client costs little of the machine."""
    data = b"" if body is None else json.dumps(body).encode()
    head = (
        f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(data)}\r\n\r\n"
    )
    return head.encode() + data


def length(head: bytes) -> int:
    """Of the answer's body."""
    return int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])


def search_by_socket(connection: socket.socket, query: str, *, k: int) -> float:
    """One query over a connection that stays open; the seconds that it spent in the library, as the
    service says."""
    connection.sendall(message("POST", "/indexes/bench/search", {"query": query, "k": k}))
    answer = b""
    while b"\r\n\r\n" not in answer:
        answer += connection.recv(1 << 16)
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head[9:12] == b"200", answer
    while len(body) < length(head):
        body += connection.recv(1 << 16)
    return sum(float(ms) for ms in re.findall(rb"dur=([\d.]+)", head)) / 1000


async def request(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, method: str, path: str, body: Any
) -> int:
    """The status of the answer."""
    writer.write(message(method, path, body))
    answer = await reader.readuntil(b"\r\n\r\n")
    await reader.readexactly(length(answer))
    return int(answer[9:12])


@dataclass
class Load:
    """What the clients saw."""

    host: str
    port: int
    until: float
    seconds: list[float] = field(default_factory=list)
    statuses: dict[int, int] = field(default_factory=dict)
    changes: list[float] = field(default_factory=list)
    present: dict[str, str] = field(default_factory=dict)
    absent: set[str] = field(default_factory=set)
    memory: list[int] = field(default_factory=list)

    def note(self, status: int) -> bool:
        self.statuses[status] = self.statuses.get(status, 0) + 1
        return status == 200

    async def search(self, queries: list[str], seed: int) -> None:
        chance = random.Random(seed)
        reader, writer = await asyncio.open_connection(self.host, self.port)
        while time.monotonic() < self.until:
            started = time.perf_counter()
            body = {"query": chance.choice(queries), "k": K}
            if self.note(await request(reader, writer, "POST", "/indexes/bench/search", body)):
                self.seconds.append(time.perf_counter() - started)
            else:
                await asyncio.sleep(1)
        writer.close()

    async def change(self) -> None:
        """Adds, updates, deletes, and a compaction every ten seconds."""
        reader, writer = await asyncio.open_connection(self.host, self.port)
        number, compacted = 0, time.monotonic()
        while time.monotonic() < self.until:
            started = time.perf_counter()
            id_, kind = f"new-{number // 3}", number % 3
            path = f"/indexes/bench/documents/{id_}"
            if kind == 2 and number % 2:
                if self.note(await request(reader, writer, "DELETE", path, None)):
                    self.present.pop(id_, None)
                    self.absent.add(id_)
            else:
                text = f"Note {number}: labetalol {number} mg."
                if self.note(await request(reader, writer, "PUT", path, {"text": text})):
                    self.present[id_] = text
            self.changes.append(time.perf_counter() - started)
            number += 1
            if time.monotonic() - compacted > 10:
                self.note(await request(reader, writer, "POST", "/indexes/bench/compact", {}))
                compacted = time.monotonic()
            await asyncio.sleep(0.05)
        writer.close()

    async def watch(self, process: int) -> None:
        """The resident memory of the service, every second."""
        page = os.sysconf("SC_PAGE_SIZE")
        while time.monotonic() < self.until:
            resident = Path(f"/proc/{process}/statm").read_text().split()[1]
            self.memory.append(int(resident) * page)
            await asyncio.sleep(1)


async def under_load(load: Load, queries: list[str], connections: int, process: int) -> None:
    searching = [load.search(queries, seed) for seed in range(connections)]
    await asyncio.gather(*searching, load.change(), load.watch(process))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--documents", type=int, default=10_000)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "bench.hplus"
        queries = build(folder, given.documents)
        with Index.open(folder) as index:
            cores = index.model.threads
            many = [queries[i % len(queries)] for i in range(TIMES)]
            index.search(many[:20], k=K)
            started = time.perf_counter()
            index.search(many, k=K, threads=cores)
            embedded_rate = len(many) / (time.perf_counter() - started)
        command = [sys.executable, "-m", "hplus", "serve", str(folder), "--port", "0"]
        running = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        try:
            assert running.stderr is not None
            address = running.stderr.readline().removeprefix("serving on ").strip().rstrip("/")
            place = urlsplit(address)
            assert place.hostname is not None
            assert place.port is not None
            connection = socket.create_connection((place.hostname, place.port))
            with Index.open(folder) as index, connection:

                def ask(query: str, *, k: int) -> None:
                    inside.append(search_by_socket(connection, query, k=k))

                inside: list[float] = []
                in_turns([index.search, ask], queries, 20)
                inside.clear()
                before = processor_seconds(running.pid), processor_seconds(os.getpid())
                embedded, served = in_turns([index.search, ask], queries, TIMES)
                after = processor_seconds(running.pid), processor_seconds(os.getpid())
            of_service, of_client = np.subtract(after, before) * 1000 / TIMES
            load = Load(place.hostname, place.port, time.monotonic() + given.seconds)
            asyncio.run(under_load(load, queries, given.connections, running.pid))
            assert set(load.statuses) <= {200, 503}, load.statuses
            with Client(address) as client:
                for id_, text in load.present.items():
                    assert client[id_].text == text, id_
                assert not any(id_ in client for id_ in load.absent - set(load.present))
        finally:
            running.terminate()
            assert running.wait(60) == 0
    settled = load.memory[len(load.memory) // 3 :]
    overhead = float(np.median(served) - np.median(embedded)) * 1000
    around = quantiles(np.subtract(served, inside).tolist())
    found = {
        "instructions": instruction_set(),
        "documents": given.documents,
        "cores": cores,
        "embedded, one at a time": quantiles(embedded),
        "embedded, queries a second": round(embedded_rate, 1),
        "served, one at a time": quantiles(served),
        "served less embedded, p50": round(overhead, 2),
        "served less its own time in the library": around,
        "processor ms a query, embedded with the client, and served": [
            round(of_client, 2),
            round(of_service, 2),
        ],
        "connections": given.connections,
        "seconds": given.seconds,
        "under load": quantiles(load.seconds),
        "queries a second": round(len(load.seconds) / given.seconds, 1),
        "answers by status": load.statuses,
        "changes": len(load.changes),
        "a change": quantiles(load.changes),
        "memory MB after a third, at the end, most": [
            round(one / 1e6) for one in (settled[0], settled[-1], max(load.memory))
        ],
    }
    print(json.dumps(found, indent=1))
    if given.out is not None:
        with given.out.open("a") as out:
            out.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
