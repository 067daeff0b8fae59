"""Three nodes, every shard on two of them: what was confirmed survives the loss of a node or of its
network, and searches go on."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from brute_force import ALPHAS, QuickDisk
from builders import random_encoded
from engine_servers import Node, address, cluster
from hplus.engines import open_store, transfer
from hplus.errors import ServiceError
from hplus.index import Index
from namespaces import Namespace, namespaces

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
def nodes_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Node]]:
    """The same, each node with a network of its own."""
    for name in ("http_proxy", "https_proxy", "grpc_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    with namespaces(3) as places, cluster(tmp_path / "cluster", places) as running:
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


def stop(node: Node) -> Callable[[], None]:
    """A node stands still, as if it could not be reached, and later it goes on."""
    node.stop()
    return node.resume


def cut_from_peers(node: Node) -> Callable[[], None]:
    """No packet goes between a node and the others, but clients still reach it."""
    return _cut(node, "peers")


def cut_from_all(node: Node) -> Callable[[], None]:
    """No packet comes to a node or from it."""
    return _cut(node, "peers", "tests")


def _cut(node: Node, *links: str) -> Callable[[], None]:
    assert isinstance(node.place, Namespace)
    node.place.cut(*links)
    return partial(node.place.heal, *links)


Hurt = Callable[[Node], Callable[[], None]]


@pytest.mark.parametrize("hurt", [kill, stop])
@pytest.mark.parametrize("asked", [0, 2], ids=["the-node-asked", "another-node"])
def test_a_node_is_lost_in_the_middle_of_a_push(
    nodes: list[Node], index: Index, hurt: Hurt, asked: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    push_while_hurt(nodes, index, hurt, asked, monkeypatch)


@pytest.mark.parametrize("hurt", [cut_from_peers, cut_from_all])
@pytest.mark.parametrize("asked", [0, 2], ids=["the-node-asked", "another-node"])
def test_the_network_is_cut_in_the_middle_of_a_push(
    nodes_apart: list[Node],
    index: Index,
    hurt: Hurt,
    asked: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    push_while_hurt(nodes_apart, index, hurt, asked, monkeypatch)


def test_what_a_node_takes_while_it_is_cut_off_is_not_confirmed_by_it_alone(
    nodes_apart: list[Node], index: Index
) -> None:
    """Such a node goes on without its peers after a few failures, takes changes of single
    documents, and forgets them when it is back."""
    nodes = nodes_apart
    url = address(nodes, "papers", OPTIONS)
    store = transfer.open_or_create(url, index, {"replicas": 2})
    pairs = list(islice(transfer.encodings(index, 1), 40))
    for documents, encoded in pairs[:20]:
        store.write(documents, encoded)
    stores = [open_store(url) for _ in range(3)]  # each asks the first node first
    alone = open_store(address(nodes[:1], "papers", "?timeout=1&patience=0.1"))
    restore = cut_from_peers(nodes[0])
    known, new, until = set[int](), set[int](), time.monotonic() + 60
    for place in cycle(range(40)):  # until it has given up its peers of its shards
        with suppress(ServiceError):
            alone.write(*pairs[place])
            (known if place < 20 else new).add(place)
        if len(known) > 5 and len(new) > 5:
            break
        assert time.monotonic() < until, f"cut off, it took {len(known)} and {len(new)} documents"
    ids = [pairs[place][0][0].id for place in (*sorted(known), *sorted(new))]
    changed, deleted = ids[:3], ids[3:6]
    for place in sorted(new):
        stores[0].write(*pairs[place])
    stores[1].set_metadata({id_: {"year": 2021} for id_ in changed})
    assert stores[2].delete(deleted) == 3
    restore()
    for node in nodes:
        _settled(node)
    held = store.held(ids)
    assert set(held) == set(ids) - set(deleted)
    assert [held[id_].metadata for id_ in changed] == [{"year": 2021}] * 3
    for one in (store, alone, *stores):
        one.close()


def push_while_hurt(
    nodes: list[Node], index: Index, hurt: Hurt, asked: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No confirmed document is lost, searches go on, and the push ends complete."""
    monkeypatch.setattr(transfer, "STEP", 32)
    url = address(nodes, "papers", OPTIONS)
    store = transfer.open_or_create(url, index, {"shards": 6, "replicas": 2})
    confirmed: list[str] = []
    lost_at: list[float] = []
    restore: list[Callable[[], None]] = []
    noticed: list[str] = []
    lock = threading.Lock()
    write = type(store).write

    def watched(self: Any, documents: Any, encoded: Any) -> None:
        write(self, documents, encoded)
        with lock:
            confirmed.extend(document.id for document in documents)
            if len(confirmed) >= N // 4 and not lost_at:
                lost_at.append(time.monotonic())
                restore.append(hurt(nodes[asked]))
            if len(confirmed) >= N // 2 and restore:
                noticed.extend(_replicas(nodes[1]))
                restore.pop()()

    monkeypatch.setattr(type(store), "write", watched)
    queries = random_encoded(np.random.default_rng(9), [4] * 20, WIDTH)
    with Load(url, [queries[i] for i in range(20)]) as load:
        done = transfer.push(index, store, workers=2)
        pushed_at = time.monotonic()
    while restore:
        restore.pop()()
    nodes[asked].wait()
    assert "Dead" in noticed  # the others had to go on without it
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
    until = time.monotonic() + 120
    while time.monotonic() < until:
        states = _replicas(node)
        if set(states) == {"Active"}:
            return
        time.sleep(0.5)
    pytest.fail(f"the replicas did not recover: {states}")


def _replicas(node: Node) -> list[str]:
    """The states of all replicas as a node knows them; one that gets documents is on its way."""
    from qdrant_client import QdrantClient

    client = QdrantClient(host=node.place.host, port=node.http, check_compatibility=False)
    found = client.http.distributed_api.collection_cluster_info("papers").result
    client.close()
    states = [one.state.value for one in (*found.local_shards, *found.remote_shards)]
    return states + ["Transfer" for _ in found.shard_transfers or ()]
