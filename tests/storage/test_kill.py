"""Real processes: writers killed in the middle, readers beside writers, two writers.

Run as a program, this file serves the tests: for every line it gets it forks a process that works
on an index and reports what it is about to do and what is done; so it imports only once.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from faulty import SETTINGS, FaultyDisk, TextModel, assert_found, encode, living
from hplus.errors import IndexBusyError
from hplus.index import Index
from hplus.storage import compact as compaction
from hplus.storage import writer
from hplus.storage.catalogue import segments


def opened(path: Path) -> Index:
    return Index.open(path, model=TextModel())  # type: ignore[arg-type]


def texts(index: Index) -> dict[str, str]:
    """Id and text of every document."""
    return {row.id: row.text for row in living(index.engine.snapshot)}


# The other process


def serve() -> None:
    """One child after another, each until it is killed."""
    for line in sys.stdin:
        task, path, seed = line.rstrip("\n").split("\t")
        child = os.fork()
        if not child:
            try:
                TASKS[task](Path(path), int(seed))
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(1)
        tell(f"started {child}")
        os.waitpid(child, 0)
        tell("ended")


def tell(line: str) -> None:
    """In one piece, so that a kill never halves it."""
    os.write(1, f"{line}\n".encode())


def change(path: Path, seed: int) -> None:
    """Adds, replaces, deletes and compacts forever."""
    compaction.TIER = 3
    draw = random.Random(seed)
    made = 0
    with opened(path) as index:
        while True:
            known = sorted(texts(index))
            kind = draw.choice(["add", "add", "update", "delete", "compact"])
            if kind == "compact":
                tell("begin compact")
                index.compact()
            elif kind == "delete":
                chosen = draw.sample(known, min(len(known), draw.randint(0, len(known) // 4 + 1)))
                tell(" ".join(["begin delete", *chosen]))
                index.delete(chosen)
            else:
                made += 1
                version = f"{seed}.{made}"
                chosen = [f"{seed}-{made}-{i}" for i in range(draw.randint(1, 4))]
                if kind == "update":
                    chosen += draw.sample(known, min(len(known), 2))
                tell(" ".join([f"begin put {version}", *chosen]))
                index.update([{"id": id_, "text": text_of(id_, version)} for id_ in chosen])
            tell("done")


def text_of(id_: str, version: str) -> str:
    return f"document {id_}, version {version}"


def compact(path: Path, _: int) -> None:
    """Writes small segments and merges them, forever."""
    with opened(path) as index:
        while True:
            index.update([{"id": "changing", "text": f"version {index.generation} of the text"}])
            index.compact()


def hold(path: Path, _: int) -> None:
    """A writer that does nothing."""
    with writer.open_writer(path, FaultyDisk()):
        tell("holding")
        time.sleep(1000)


def fork(path: Path, _: int) -> None:
    """A source's workers may outlive the call that read from it."""
    with writer.open_writer(path, FaultyDisk()):
        worker = os.fork()
        if not worker:
            time.sleep(1000)
    try:
        with opened(path) as index:
            index.add([{"id": "a", "text": "a text of some words"}])
            tell("added")
    finally:
        os.kill(worker, signal.SIGKILL)


TASKS = {"change": change, "compact": compact, "hold": hold, "fork": fork}


# The tests' end of it


class Server:
    """The other process, its children, and what the current child has reported."""

    def __init__(self) -> None:
        path = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
        self.process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
            text=True,
        )
        self.child = 0

    def start(self, task: str, path: Path, seed: int = 0) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{task}\t{path}\t{seed}\n")
        self.process.stdin.flush()
        self.told: list[str] = []
        while not self.child:
            self.read()

    def read(self) -> str:
        """The next line; "started" may follow the child's own first lines."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline().rstrip("\n")
        assert line, "the other process has died"
        if line.startswith("started "):
            self.child = int(line.split()[1])
        else:
            self.told.append(line)
        return line

    def kill(self) -> list[str]:
        """Kill the child; everything that it reported."""
        os.kill(self.child, signal.SIGKILL)
        while self.read() != "ended":
            pass
        self.child = 0
        return self.told[:-1]

    def close(self) -> None:
        if self.child:
            self.kill()
        self.process.communicate()


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with Index.create(tmp_path / "index", **SETTINGS):
        return tmp_path / "index"


def after(state: dict[str, str], line: str) -> dict[str, str]:
    """The documents after a change that was announced."""
    _, kind, *rest = line.split()
    if kind == "put":
        version, *ids = rest
        return state | {id_: text_of(id_, version) for id_ in ids}
    return {id_: text for id_, text in state.items() if kind != "delete" or id_ not in rest}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("kills", [20, pytest.param(200, marks=pytest.mark.slow)])
def test_killed_at_any_moment(server: Server, path: Path, kills: int) -> None:
    draw = random.Random(kills)
    expected: dict[str, str] = {}
    confirmed = interrupted = 0
    for seed in range(kills):
        server.start("change", path, seed)
        for _ in range(draw.randint(0, 8)):  # some way into its work, however slow the machine is
            server.read()
        time.sleep(draw.uniform(0, 0.02))
        told = server.kill()
        for line in told:
            if line.startswith("begin"):
                begun = line
            else:
                expected = after(expected, begun)
                confirmed += 1
        with Index.open(path) as index:
            found = texts(index)
            if told and told[-1] != "done":  # all of it or nothing
                interrupted += 1
                assert found in (expected, after(expected, begun))
                expected = found
            assert found == expected
            assert index.verify().problems == []
            assert_found(index, list(expected))
    assert confirmed > kills
    assert interrupted > kills // 4
    with opened(path) as index:
        index.update([{"id": "last", "text": "the last document"}])
        named = [row.file for row in segments(index.engine.snapshot.connection)]
    assert sorted(entry.name for entry in (path / "segments").iterdir()) == named


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_readers_open_beside_compactions(server: Server, path: Path) -> None:
    with opened(path) as index:
        index.add([{"id": f"d{i}", "text": f"a text, number {i}"} for i in range(20)])
    server.start("compact", path)
    generations, until = set(), time.monotonic() + 3
    while time.monotonic() < until or len(generations) < 5:
        with Index.open(path) as index:
            generations.add(index.generation)
            assert index.search(encode("a text, number 7"), view="global", k=1)[0].id == "d7"
            assert len(texts(index)) - 20 in (0, 1)
            assert index.verify().problems == []
            index.refresh()
            generations.add(index.generation)
    server.kill()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_writer_in_another_process(server: Server, path: Path) -> None:
    server.start("hold", path)
    while "holding" not in server.told:
        server.read()
    with opened(path) as index:
        changes: list[Any] = [
            lambda: index.add([{"id": "a", "text": "a text of some words"}]),
            lambda: index.delete("a"),
            index.compact,
        ]
        for attempt in changes:
            with pytest.raises(IndexBusyError, match="another process is writing to"):
                attempt()
        server.kill()  # a dead writer holds nothing
        for attempt in changes:
            attempt()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_holds_no_lock(server: Server, path: Path) -> None:
    server.start("fork", path)
    while "ended" not in server.told:
        server.read()
    server.child = 0
    assert server.told == ["added", "ended"]


if __name__ == "__main__":
    serve()
