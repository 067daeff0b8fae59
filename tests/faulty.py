"""Disks that fail, and ways to inspect an index afterwards."""

from __future__ import annotations

import errno
import hashlib
import shutil
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from builders import arrays_of, random_encoded
from hplus.index import Index
from hplus.recipe import Recipe
from hplus.storage.catalogue import DocumentRow, by_number, segments, select
from hplus.storage.disk import Disk
from hplus.storage.segment import read
from hplus.storage.snapshot import Snapshot
from hplus.types import Encoded, concatenate
from hplus.units.select import Budget
from hplus.views.lexical import Spelling

WIDTH = 8
SETTINGS: dict[str, Any] = {"width": WIDTH, "global_width": WIDTH, "fingerprint": "x"}
State = dict[str, Any]


class PowerCut(BaseException):
    """Nothing catches it, as nothing catches a real power cut."""


class FaultyDisk(Disk):
    """An ordinary disk until operation number `stop`, counted from `arm` on.

    Each method is one operation; a file is three (empty, started, complete), and a commit is two,
    because a cut may come before it or after it. The operation fails with what `error` makes of
    its name; with `lasting` all that follow fail too. `cut_power` undoes what was not synced;
    syncing itself is only recorded, since the machine stays on.
    """

    def __init__(
        self,
        stop: int | None = None,
        error: Callable[[str], BaseException] = PowerCut,
        *,
        lasting: bool = True,
    ) -> None:
        self.stop, self.error, self.lasting = stop, error, lasting
        self.armed = False
        self.done: list[str] = []
        self.commits = 0
        self.created: set[Path] = set()
        self.unsynced: set[Path] = set()
        self.removed: dict[Path, bytes] = {}
        self.renamed: dict[Path, bytes | None] = {}

    def arm(self) -> None:
        """Count operations from now on."""
        self.armed = True

    def _operation(self, name: str) -> None:
        if not self.armed:
            return
        at = len(self.done)
        self.done.append(name)
        if self.stop is not None and (at == self.stop or (at > self.stop and self.lasting)):
            raise self.error(name)

    def create_folder(self, path: Path) -> None:
        self._operation("create_folder")
        self.created |= {folder for folder in (path, *path.parents) if not folder.exists()}
        super().create_folder(path)

    def write(self, path: Path, parts: Iterable[bytes | memoryview]) -> tuple[int, str]:
        self._operation("write")
        if not path.exists():
            self.created.add(path)
        self.unsynced.add(path)

        def pieces() -> Iterator[bytes | memoryview]:
            for i, part in enumerate(parts):
                if i in (0, 8):
                    self._operation("write")
                yield part

        return super().write(path, pieces())

    def sync(self, path: Path) -> None:
        self._operation("sync")
        if path.is_dir():
            self.created = {entry for entry in self.created if entry.parent != path}
            self.removed = {e: data for e, data in self.removed.items() if e.parent != path}
            self.renamed = {e: data for e, data in self.renamed.items() if e.parent != path}
        else:
            self.unsynced.discard(path)

    def remove(self, path: Path) -> None:
        self._operation("remove")
        if path not in self.created:
            self.removed[path] = path.read_bytes()
        super().remove(path)

    def rename(self, old: Path, new: Path) -> None:
        self._operation("rename")
        self.created.discard(old)
        self.renamed.setdefault(new, new.read_bytes() if new.exists() else None)
        super().rename(old, new)

    def names(self, folder: Path) -> list[str]:
        self._operation("names")
        return super().names(folder)

    def size(self, path: Path) -> int:
        self._operation("size")
        return super().size(path)

    def map(self, path: Path) -> Any:
        self._operation("map")
        return super().map(path)

    def digest(self, path: Path) -> str:
        self._operation("digest")
        return super().digest(path)

    def connect(self, path: Path, *, write: bool) -> sqlite3.Connection:
        self._operation("connect")
        if not path.exists():
            self.created.add(path)
        connection = super().connect(path, write=write)
        connection.execute("PRAGMA synchronous = OFF")
        return connection

    def commit(self, connection: sqlite3.Connection) -> None:
        self._operation("commit")
        super().commit(connection)
        self.commits += 1
        self._operation("committed")

    def checkpoint(self, connection: sqlite3.Connection) -> int:
        self._operation("checkpoint")
        return super().checkpoint(connection)

    @contextmanager
    def lock(self, path: Path) -> Iterator[None]:
        self._operation("lock")
        if not path.exists():
            self.created.add(path)
        with super().lock(path):
            yield

    def losses(self) -> list[str]:
        """What `cut_power` can do now; after "killed", when only the process died, nothing."""
        if self.unsynced:
            return ["lost", "empty", "half", "garbage"]
        return ["lost", "empty"] if self.created or self.removed or self.renamed else []

    def cut_power(self, loss: str) -> None:
        """What a disk may show afterwards: names that were not synced are "lost", or they are
        there and what was not synced of their files is "empty", "half" or "garbage"; removed names
        are back."""
        if loss == "killed":
            return
        for path in self.unsynced - (self.created if loss == "lost" else set()):
            if path.exists():
                data = path.read_bytes()
                kept = {"half": data[: len(data) // 2], "garbage": b"\xa5" * len(data)}
                path.write_bytes(kept.get(loss, b""))
        for path, data in self.removed.items():
            if not path.exists() and path.parent.exists():
                path.write_bytes(data)
        if loss == "lost":
            for path, old in self.renamed.items():
                path.write_bytes(old or b"")
                if old is None:
                    path.unlink()
            for path in sorted(self.created):
                if path.is_dir():
                    shutil.rmtree(path)
                else:  # a catalogue takes its -wal and -shm with it
                    for name in ("", "-wal", "-shm"):
                        path.with_name(path.name + name).unlink(missing_ok=True)


def disk_error(number: int) -> Callable[[str], BaseException]:
    """What the operating system or SQLite raises when a disk is full (ENOSPC) or broken (EIO)."""
    text, code = {
        errno.ENOSPC: ("database or disk is full", sqlite3.SQLITE_FULL),
        errno.EIO: ("disk I/O error", sqlite3.SQLITE_IOERR),
    }[number]

    def make(operation: str) -> BaseException:
        if operation in ("connect", "commit", "committed", "checkpoint"):
            error = sqlite3.OperationalError(text)
            error.sqlite_errorcode = code
            return error
        return OSError(number, errno.errorcode[number])

    return make


class TextModel:
    """A model that draws three units per text, always the same ones for the same text."""

    fingerprint = "x"
    spelling = Spelling()
    recipe = Recipe(name="x")
    checkpoint = SimpleNamespace(
        recipe=recipe,
        files={},
        backbone=SimpleNamespace(
            reference={}, tokenizer=SimpleNamespace(token="token {}".format, unknown=None)
        ),
    )

    def __init__(self) -> None:
        self.calls = 0

    def encode_step(
        self,
        texts: list[str],
        budget: Budget,
        width: int,
        advance: Callable[[int], None] = lambda _: None,
    ) -> Encoded:
        self.calls += 1
        advance(len(texts))
        drawn = concatenate([_drawn(text) for text in texts or [""]])[: len(texts)]
        return drawn.at(budget=budget, width=width)


def _drawn(text: str) -> Encoded:
    seed = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=4).digest(), "little")
    random = np.random.default_rng(seed)
    while True:
        encoded = random_encoded(random, [3], WIDTH)
        if len(encoded.lexical.ids):
            return encoded


def encode(*texts: str) -> Encoded:
    """The same as the model."""
    return TextModel().encode_step(list(texts), Budget(), WIDTH)


def add(index: Index, *ids: str, text: str = "") -> None:
    """Documents whose text is their id; without a model."""
    index.add_encoded(
        ids,
        encode(*(id_ + text for id_ in ids)),
        texts=[f"{id_}{text} ".ljust(16, ".") for id_ in ids],
        metadata=[{"id": id_, "n": len(id_)} for id_ in ids],
    )


def living(snapshot: Snapshot) -> list[DocumentRow]:
    """All documents that are not deleted, in the order of their numbers."""
    found = select(
        snapshot.connection, "SELECT number FROM documents WHERE deleted = 0 ORDER BY number"
    )
    numbers = [number for (number,) in found]
    rows = by_number(snapshot.connection, numbers)
    return [rows[number] for number in numbers]


def state(index: Index) -> State:
    """Everything a caller can see: settings, and of every document text, metadata and arrays."""
    snapshot = index.engine.snapshot
    seen: State = {"": index.settings}
    for row in living(snapshot):
        encoded = stored(snapshot, row.id)
        arrays = arrays_of(encoded).values()
        digest = hashlib.sha256(b"".join(array.tobytes() for array in arrays)).hexdigest()
        seen[row.id] = (row.number, row.text, row.metadata, digest)
    return seen


def stored(snapshot: Snapshot, id_: str) -> Encoded:
    """A document as its segment has it."""
    document = int(snapshot.find([id_])[0])
    part = int(np.searchsorted(snapshot.first, document, side="right")) - 1
    place = document - snapshot.first[part]
    return read(snapshot.parts[part].segment, np.array([place]))


def contents(path: Path) -> dict[str, bytes]:
    """Every file of a folder."""
    files = sorted(entry for entry in path.rglob("*") if entry.is_file())
    return {str(file.relative_to(path)): file.read_bytes() for file in files}


def ids(seen: State) -> list[str]:
    """The documents of a state."""
    return [id_ for id_ in seen if id_]


def assert_found(index: Index, expected: Sequence[str]) -> None:
    """A search finds these documents and no others; some are tried as their own queries."""
    assert len(index) == len(expected)
    assert all(id_ in index for id_ in expected)
    hits = index.search(encode("any"), k=10_000)
    assert sorted(hit.id for hit in hits) == sorted(expected)
    snapshot = index.engine.snapshot
    for id_ in expected[:: max(1, len(expected) // 3)]:
        assert index.search(stored(snapshot, id_), view="global", k=1)[0].id == id_


def assert_sound(path: Path, expected: State) -> None:
    """It opens, verifies, shows exactly this; and a write works and removes leftovers."""
    with Index.open(path) as index:
        assert index.verify().problems == []
        assert state(index) == expected
        assert_found(index, ids(expected))
    with Index.open(path, disk=FaultyDisk()) as index:
        index.add_encoded(["the next one"], encode("the next one"))
        assert index.verify().problems == []
        assert set(state(index)) == {*expected, "the next one"}
        assert index.search(encode("the next one"), view="global", k=1)[0].id == "the next one"
        named = [row.file for row in segments(index.engine.snapshot.connection)]
    assert sorted(entry.name for entry in (path / "segments").iterdir()) == named
    names = {"catalogue.sqlite", "confirmed", "lock", "segments"}
    assert {entry.name for entry in path.iterdir()} == names
