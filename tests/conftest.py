"""A tiny random backbone for the whole path, and the real model for a few tests."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from hplus import HPlus
from hplus.backbones.tiny import write_tiny


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
