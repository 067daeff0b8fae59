"""Three nodes, every shard on two of them: what was confirmed survives a node, searches go on."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from brute_force import ALPHAS, QuickDisk
from builders import random_encoded
from engine_servers import Node, address, cluster
from hplus.engines import transfer
from hplus.index import Index

pytestmark = pytest.mark.slow
pytest.importorskip("qdrant_client", reason="needs hplus[qdrant]")

N = 3_000
WIDTH = 16
OPTIONS = "?timeout=5&patience=60"


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[list[Node]]:
    """A cluster of its own for each test: it will be hurt."""
    with cluster(tmp_path / "cluster") as running:
        yield running


@pytest.fixture
def index(tmp_path: Path) -> Iterator[Index]:
    settings = {"width": WIDTH, "global_width": WIDTH, "fusion": ALPHAS, "fingerprint": "none"}
    with Index.create(tmp_path / "index", disk=QuickDisk(), format="f32", **settings) as made:
        random = np.random.default_rng(5)
        encoded = random_encoded(random, random.integers(1, 6, N).tolist(), WIDTH)
        made.add_encoded([f"d{i:04d}" for i in range(N)], encoded)
        yield made


class Load:
    """Searches from another thread until the block ends; what failed is kept."""

    def __init__(self, url: str, queries: Any) -> None:
        self.url, self.queries = url, queries
        self.answered: list[float] = []
        self.failed: list[Exception] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        with Index.connect(self.url) as there:
            place = 0
            while not self._stop.is_set():
                try:
                    there.search(self.queries[place % len(self.queries)], k=5, pool=50)
                    self.answered.append(time.monotonic())
                except Exception as error:
                    self.failed.append(error)
                place += 1


def kill(node: Node) -> Callable[[], None]:
    """A node dies and, later, starts again with its files."""
    node.kill()
    return node.start


def cut_off(node: Node) -> Callable[[], None]:
    """A node can no longer be reached, nor reach others, and later it can."""
    node.stop()
    return node.resume


@pytest.mark.parametrize("hurt", [kill, cut_off])
@pytest.mark.parametrize("asked", [0, 2], ids=["the-node-asked", "another-node"])
def test_a_node_is_lost_in_the_middle_of_a_push(
    nodes: list[Node],
    index: Index,
    hurt: Callable[[Node], Callable[[], None]],
    asked: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No confirmed document is lost, searches go on, and the push ends complete."""
    monkeypatch.setattr(transfer, "STEP", 32)
    url = address(nodes, "papers", OPTIONS)
    store = transfer.open_or_create(url, index, {"shards": 6, "replicas": 2})
    confirmed: list[str] = []
    lost_at: list[float] = []
    restore: list[Callable[[], None]] = []
    write = type(store).write

    def watched(self: Any, documents: Any, encoded: Any) -> None:
        write(self, documents, encoded)
        confirmed.extend(document.id for document in documents)
        if len(confirmed) >= N // 4 and not lost_at:
            lost_at.append(time.monotonic())
            restore.append(hurt(nodes[asked]))
        if len(confirmed) >= N // 2 and restore:
            restore.pop()()

    monkeypatch.setattr(type(store), "write", watched)
    queries = random_encoded(np.random.default_rng(9), [4] * 20, WIDTH)
    with Load(url, [queries[i] for i in range(20)]) as load:
        done = transfer.push(index, store, workers=2)
        pushed_at = time.monotonic()
    while restore:
        restore.pop()()
    nodes[asked].wait()
    assert load.failed == []
    assert any(lost_at[0] < moment < pushed_at for moment in load.answered)
    assert done.moved + done.unchanged == N
    assert sorted(set(confirmed)) == [f"d{i:04d}" for i in range(N)]
    assert not transfer.diff(index, store)
    again = transfer.push(index, store)
    assert (again.moved, store.count()) == (0, N)
    for node in nodes:  # each node alone knows all documents, the one that was away too
        _settled(node)
        with Index.connect(address([node], "papers", OPTIONS)) as there:
            assert len(there) == N
            assert there.verify().problems == []
    store.close()


def _settled(node: Node) -> None:
    """Wait until every replica that this node knows of is active."""
    from qdrant_client import QdrantClient

    client = QdrantClient(host="127.0.0.1", port=node.http, check_compatibility=False)
    until = time.monotonic() + 120
    while time.monotonic() < until:
        found = client.http.distributed_api.collection_cluster_info("papers").result
        states = [one.state.value for one in (*found.local_shards, *found.remote_shards)]
        if set(states) == {"Active"} and not found.shard_transfers:
            client.close()
            return
        time.sleep(0.5)
    pytest.fail(f"the replicas did not recover: {states}")
