"""A service over a small index with a random backbone, in this process or in one of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="the service needs hplus[serve]")

import uvicorn
from starlette.testclient import TestClient

from hplus import HPlus, Index
from hplus.serve.app import create_app
from hplus.serve.guard import Rules
from hplus.serve.limits import Limits
from hplus.serve.metrics import Metrics
from hplus.serve.run import config_of, listen
from hplus.serve.served import Served, open_all

DOCUMENTS = [
    {"id": "a", "text": "insulin therapy for type 2 diabetes", "year": 2021, "tag": "x"},
    {"id": "b", "text": "chronic kidney disease and heart failure", "year": 2015},
    {"id": "c", "text": "acute heart failure of a patient", "year": 1999, "tag": "y"},
    {"id": "d/e f", "text": "the dose of insulin is 5 mg", "year": 2024},
    {"id": "g", "text": "sodium and potassium in chronic kidney disease", "year": 2020},
]
HOME = "http://127.0.0.1"
Make = Callable[..., TestClient]


@pytest.fixture(scope="session")
def model_folder(tiny: HPlus, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint that any process can load."""
    folder = tmp_path_factory.mktemp("served") / "model"
    tiny.save(folder, include_encoder=True)
    return folder


@pytest.fixture(scope="session")
def served_model(model_folder: Path) -> HPlus:
    return HPlus(model_folder)


@pytest.fixture
def folder(tmp_path: Path, served_model: HPlus) -> Path:
    """An index of DOCUMENTS."""
    with Index.create(tmp_path / "med.hplus", served_model) as made:
        made.add([dict(row) for row in DOCUMENTS])
    return tmp_path / "med.hplus"


class Service:
    """What tests reach into: the client, the open indexes, the figures."""

    def __init__(self, client: TestClient, indexes: dict[str, Served], metrics: Metrics) -> None:
        self.client, self.indexes, self.metrics = client, indexes, metrics


@contextmanager
def in_process(
    *folders: Path | str, model: Any = None, limits: Limits | None = None, **rules: Any
) -> Iterator[Service]:
    """A service over these folders or addresses, in this process."""
    limits = limits or Limits()
    metrics = Metrics()
    indexes = open_all(folders, model, limits, metrics.batch.observe)
    app = create_app(indexes, Rules(limits, **rules), metrics)
    with TestClient(app, base_url=HOME, raise_server_exceptions=False) as client:  # type: ignore[arg-type]
        yield Service(client, indexes, metrics)


@contextmanager
def on_loopback(
    *folders: Path, model: Any = None, limits: Limits | None = None, **rules: Any
) -> Iterator[tuple[str, uvicorn.Server]]:
    """The same behind a real socket, in a thread of this process: its address, and the server."""
    limits = limits or Limits()
    metrics = Metrics()
    indexes = open_all(folders, model, limits, metrics.batch.observe)
    app = create_app(indexes, Rules(limits, **rules), metrics)
    listening = listen("127.0.0.1", 0)
    listening.listen()
    server = uvicorn.Server(config_of(app, limits))
    thread = Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}", server
    finally:
        server.should_exit = True
        thread.join()


@pytest.fixture
def service(folder: Path, served_model: HPlus) -> Iterator[Service]:
    with in_process(folder, model=served_model) as made:
        yield made


@pytest.fixture
def client(service: Service) -> TestClient:
    return service.client


@contextmanager
def process(folder: Path, *options: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`hplus serve` in a process of its own, and its address."""
    command = [sys.executable, "-m", "hplus", "serve", str(folder), "--port", "0", *options]
    running = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ})
    try:
        assert running.stderr is not None
        lines = []
        while not (line := running.stderr.readline()).startswith("serving on "):
            lines.append(line)
            assert line, "".join(lines)
        yield running, line.removeprefix("serving on ").strip().rstrip("/")
    finally:
        if running.poll() is None:
            running.kill()
        running.communicate()


def error_of(answer: Any) -> dict[str, Any]:
    """The error that an answer carries, which has no other shape."""
    body = json.loads(answer.content)
    assert set(body) == {"error"}
    assert {"code", "message"} <= set(body["error"])
    assert set(body["error"]) <= {"code", "message", "field", "caret", "details"}
    return dict(body["error"])
