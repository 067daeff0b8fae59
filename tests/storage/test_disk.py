"""The real disk: what is confirmed has reached it, in the order that a power cut needs."""

from __future__ import annotations

import os
import sqlite3
import sys
from pathlib import Path

import numpy as np
import pytest

from builders import random_encoded
from hplus.index import Index
from hplus.storage.disk import Disk

linux_only = pytest.mark.skipif(
    sys.platform != "linux", reason="elsewhere folders or drives are synced by other calls"
)
SETTINGS = {"width": 8, "global_width": 8, "fingerprint": "x", "format": "f32"}
FULL, WAL = 2, "wal"


class WatchedDisk(Disk):
    """A real disk that records its commits, and how SQLite syncs at each of them."""

    def __init__(self, events: list[tuple[str, str]]) -> None:
        self.events = events
        self.pragmas: list[tuple[int, str]] = []

    def commit(self, connection: sqlite3.Connection) -> None:
        ((synchronous,),) = connection.execute("PRAGMA synchronous")
        ((journal,),) = connection.execute("PRAGMA journal_mode")
        self.pragmas.append((synchronous, journal))
        super().commit(connection)
        self.events.append(("commit", ""))


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """Every file or folder that the operating system is asked to sync, by its name."""
    found: list[tuple[str, str]] = []
    real = os.fsync

    def fsync(handle: int) -> None:
        path = Path(f"/proc/self/fd/{handle}").readlink()
        size = "" if path.is_dir() else f" of {path.stat().st_size} bytes"
        found.append(("sync", path.name + size))
        real(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    return found


@linux_only
def test_a_segment_and_its_folder_are_synced_before_the_commit_that_names_them(
    tmp_path: Path, events: list[tuple[str, str]]
) -> None:
    disk = WatchedDisk(events)
    path = tmp_path / "index"
    with Index.create(path, disk=disk, **SETTINGS) as index:
        assert ("sync", "index") in events  # the names of the folders and the catalogue are synced
        assert ("sync", tmp_path.name) in events
        for number, ids in enumerate((["a"], ["b", "c"])):
            events.clear()
            index.add_encoded(ids, random_encoded(np.random.default_rng(number), [3] * len(ids)))
            new = max((path / "segments").iterdir(), key=lambda file: file.name)
            assert events == [
                ("sync", f"{new.name} of {new.stat().st_size} bytes"),  # complete, not just started
                ("sync", "segments"),
                ("commit", ""),
                ("sync", f"confirmed.new of {(path / 'confirmed').stat().st_size} bytes"),
                ("sync", "index"),
            ]
    assert len(disk.pragmas) == 3
    assert set(disk.pragmas) == {(FULL, WAL)}


def test_the_writer_s_connection_waits_for_the_disk(tmp_path: Path) -> None:
    """At FULL, SQLite syncs its log at every commit; without, the last ones may be lost."""
    connection = Disk().connect(tmp_path / "catalogue.sqlite", write=True)
    try:
        for name, value in (("synchronous", FULL), ("fullfsync", 1)):
            assert connection.execute(f"PRAGMA {name}").fetchone() == (value,)
    finally:
        connection.close()
