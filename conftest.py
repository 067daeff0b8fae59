"""What tests/ and lab/tests share: models small and real, and how hypothesis draws its examples.

`make test` draws the same examples every time. `make test-slow` draws fresh ones
(`--hypothesis-profile=fresh`); what fails there becomes an `@example` of its test.
"""

from __future__ import annotations

import copy
import json
import signal
import socket
import tempfile
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from hplus import HPlus, checkpoint
from hplus.backbones.load import load_backbone
from tiny import write_tiny

# Adapters whose packages `make test` does not install have no examples to collect.
collect_ignore = [
    f"src/hplus/integrations/{package}.py"
    for package in ("llama_index", "mteb")
    if find_spec(package) is None
]
collect_ignore += [
    f"src/hplus/engines/{module}"
    for module, package in (("qdrant", "qdrant_client"), ("postgres.py", "psycopg"))
    if find_spec(package) is None
]
# No deadlines: a slow moment of the machine is no failure.
settings.register_profile("fresh", derandomize=False, print_blob=True, deadline=None)
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")
# A job in the background ignores ctrl-C, and so would every process that a test interrupts.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _examples_write_to_a_folder_of_their_own(request: pytest.FixtureRequest) -> None:
    if isinstance(request.node, pytest.DoctestItem):
        request.getfixturevalue("monkeypatch").chdir(request.getfixturevalue("tmp_path"))


@pytest.fixture(autouse=True)
def _signals_are_as_before() -> Iterator[None]:
    """A command run in this process lets SIGPIPE end it, and a server takes SIGINT for itself."""
    kinds = [
        signal.SIGINT,
        signal.SIGTERM,
        *([signal.SIGPIPE] if hasattr(signal, "SIGPIPE") else []),
    ]
    before = {kind: signal.getsignal(kind) for kind in kinds}
    yield
    for kind, handler in before.items():
        signal.signal(kind, handler)


@pytest.fixture(scope="session", autouse=True)
def _shipped_encoders_are_read_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Every command loads its model: reading, hashing and compiling the same encoder each time took
    half of the time of their tests. What a test has written is always read; so is everything in
    tests of `backbones`, which call the loader itself."""
    temporary = [Path(tempfile.gettempdir()).resolve(), tmp_path_factory.getbasetemp().resolve()]
    known: dict[str, Any] = {}

    def once(reference: Mapping[str, Any], **options: Any) -> Any:
        place = Path(reference.get("path", "")).resolve()
        shipped = reference.get("kind") in ("mini", "bert") and "hub" not in reference
        shipped &= not any(place.is_relative_to(other) for other in temporary)
        if not shipped or options["device"] is not None or options.get("adapter"):
            return load_backbone(reference, **options)
        key = json.dumps([reference, options], sort_keys=True)
        if key not in known:
            known[key] = load_backbone(reference, **options)
        found = copy.copy(known[key])
        found.reference = dict(found.reference)
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoint, "load_backbone", once)
        yield


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bare encoder folder: 32-d, 2 layers, window 64."""
    return write_tiny(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="session")
def tiny(tiny_folder: Path) -> HPlus:
    """Content-word runs with idf weights on the tiny backbone."""
    texts = ["type 2 diabetes", "chronic kidney disease", "the heart failure of a patient"]
    return HPlus(tiny_folder).fit_idf(texts)


@pytest.fixture(scope="session")
def mini() -> HPlus:
    """A real encoder in float32: what tests of arithmetic are exact with."""
    return HPlus("mini")


@pytest.fixture(scope="session")
def small() -> HPlus:
    """The model a user gets by `HPlus()`."""
    return HPlus()


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any attempt to open a socket fails."""

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("the network was touched")

    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.setattr(socket, "create_connection", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
