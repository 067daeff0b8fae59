"""Power cuts: stopped at every single operation, an index shows what it had committed.

A step of the history runs on a disk that stops at operation k, for every k; then what was not
synced is lost in five ways, and the folder is opened by an ordinary disk. What must be there is
known exactly: the state after as many commits as succeeded.
"""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from faulty import (
    SETTINGS,
    FaultyDisk,
    PowerCut,
    State,
    TextModel,
    add,
    assert_sound,
    contents,
    state,
)
from hplus import texts
from hplus.errors import IndexDamagedError, InputError
from hplus.index import Index
from hplus.storage import compact, writer
from hplus.units.select import Budget


def rows(*texts: str) -> list[dict[str, Any]]:
    """Documents for `add` and `update`, written "id:text"."""
    return [dict(zip(("id", "text"), text.split(":"), strict=True)) for text in texts]


STREAM = [f"s{i}" for i in range(7)]
# What happens to an index, call by call; each call is interrupted at every operation.
HISTORY: dict[str, Callable[[Index], object]] = {
    "add": lambda index: add(index, "a", "b", "c"),
    "add a second segment": lambda index: add(index, "d"),
    "delete": lambda index: index.delete(["b", "d"]),
    "add and put segments together": lambda index: add(index, "e", "f"),
    "add what was deleted": lambda index: add(index, "b", text=" anew"),
    "delete nobody": lambda index: index.delete("nobody"),
    "add a stream": lambda index: index.add(rows(*(f"{id_}:the text of {id_}" for id_ in STREAM))),
    "update": lambda index: index.update(
        [
            *rows("s1:another text", "s2:again another one", "new:not there before"),
            {"id": "s3", "text": "the text of s3", "n": 3},
            {"id": "new too", "text": "another one", "n": 4},
        ]
    ),
    "update and delete the rest": lambda index: index.update(
        rows(
            "s1:changed again",
            *(f"{id_}:the text of {id_}" for id_ in STREAM[2:]),
            "new:as long as before",
        ),
        sync=True,
    ),
    "compact": lambda index: index.compact(),
    "compact to a smaller budget": lambda index: index.compact(budget=2),
    "add under the smaller budget": lambda index: add(index, "g", "h"),
    "compact to smaller widths": lambda index: index.compact(width=6, global_width=7),
    "compact by merging": lambda index: index.compact(budget=Budget(1, policy="merge")),
    "delete everything": lambda index: index.delete([*"abcefgh", "new", *STREAM]),
    "compact to nothing": lambda index: index.compact(),
    "add to what was emptied": lambda index: add(index, "a"),
}


@pytest.fixture(autouse=True)
def _small_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    """Little data makes many segments."""
    monkeypatch.setattr(compact, "TIER", 3)
    monkeypatch.setattr(texts, "STEP_TEXTS", 2)
    monkeypatch.setattr(writer, "CONFIRM_BYTES", 600)
    monkeypatch.setattr(writer, "CONFIRM_SECONDS", float("inf"))
    monkeypatch.setattr(compact, "SEGMENT_BYTES", 1_500)


def opened(path: Path, disk: FaultyDisk | None = None) -> Index:
    return Index.open(path, model=TextModel(), disk=disk)  # type: ignore[arg-type]


def before(step: str, path: Path) -> Path:
    """An index as it is before this step of the history."""
    Index.create(path, format="f32", **SETTINGS).close()
    for name, change in HISTORY.items():
        if name == step:
            break
        with opened(path) as index:
            change(index)
    return path


class Watched(FaultyDisk):
    """Looks at the index, through another disk, after every commit."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path, self.states = path, [seen(path)]

    def commit(self, connection: sqlite3.Connection) -> None:
        super().commit(connection)
        self.states.append(seen(self.path))


def seen(path: Path) -> State:
    with Index.open(path) as index:
        return state(index)


@pytest.mark.parametrize("step", HISTORY)
def test_a_power_cut_at_any_operation_loses_nothing_confirmed(step: str, tmp_path: Path) -> None:
    start = before(step, tmp_path / "start")
    shutil.copytree(start, good := tmp_path / "good")
    watched = Watched(good)
    with opened(good, watched) as index:
        watched.arm()
        HISTORY[step](index)
    checked = []
    for stop in range(len(watched.done) + 1):  # the last one: the call returned, then the cut
        shutil.copytree(start, path := tmp_path / "cut")
        disk = FaultyDisk(stop)
        with opened(path, disk) as index:
            disk.arm()
            try:
                HISTORY[step](index)
            except PowerCut:
                assert stop < len(watched.done)
            else:
                assert stop == len(watched.done)
        path.rename(tmp_path / "killed")
        for loss in ["killed", *disk.losses()]:
            shutil.copytree(tmp_path / "killed", path)
            disk.cut_power(loss)
            left = (disk.commits, contents(path))
            if left not in checked:
                checked.append(left)
                assert_sound(path, watched.states[disk.commits])
            shutil.rmtree(path)
        shutil.rmtree(tmp_path / "killed")


@pytest.mark.parametrize("step", ["add", "delete", "update", "compact to a smaller budget"])
def test_a_lost_log_after_a_kill_is_noticed(step: str, tmp_path: Path) -> None:
    """Killed at any operation, and then the log is gone, too: what was confirmed is there, or the
    index is refused. Only a commit that was not confirmed yet may be missing."""
    start = before(step, tmp_path / "start")
    shutil.copytree(start, good := tmp_path / "good")
    watched = Watched(good)
    with opened(good, watched) as index:
        watched.arm()
        HISTORY[step](index)
    refused = 0
    for stop in range(len(watched.done) + 1):
        shutil.copytree(start, path := tmp_path / str(stop))
        disk = FaultyDisk(stop)
        index = opened(path, disk)
        disk.arm()
        try:
            HISTORY[step](index)
            confirmed = disk.commits
        except PowerCut:
            confirmed = max(0, disk.commits - 1)
        shutil.copytree(path, left := tmp_path / f"{stop} left")
        disk.armed = False
        index.close()
        for name in ("catalogue.sqlite-wal", "catalogue.sqlite-shm"):
            (left / name).unlink(missing_ok=True)
        try:
            assert seen(left) in watched.states[confirmed : disk.commits + 1]
        except IndexDamagedError as error:
            refused += "was confirmed: its write-ahead log" in str(error)
        for folder in (path, left):
            shutil.rmtree(folder)
    assert refused > 0


def test_a_history_has_every_kind_of_operation(tmp_path: Path) -> None:
    watched = FaultyDisk()
    watched.arm()
    Index.create(tmp_path / "index", disk=watched, format="f32", **SETTINGS).close()
    for change in HISTORY.values():
        with opened(tmp_path / "index", watched) as index:
            change(index)
    methods = {"create_folder", "write", "sync", "remove", "names", "size", "map", "digest"}
    methods |= {"rename", "checkpoint"}
    assert set(watched.done) == methods | {"connect", "lock", "commit", "committed"}
    assert watched.done.count("remove") > 10


def test_creation_cut_short_can_be_repeated(tmp_path: Path) -> None:
    returned = False
    for stop in count():
        losses = ["killed"]
        for loss in losses:
            (root := tmp_path / f"{stop} {loss}").mkdir()
            path = root / "new" / "folders" / "index"
            disk = FaultyDisk(stop)
            disk.arm()
            try:
                Index.create(path, disk=disk, format="f32", **SETTINGS).close()
                returned = True
            except PowerCut:
                pass
            if loss == "killed":
                losses += disk.losses()
            disk.cut_power(loss)
            if not returned:
                try:
                    Index.open(path).close()
                except (InputError, IndexDamagedError):
                    Index.create(path, format="f32", **SETTINGS).close()
            with Index.open(path) as index:
                settings = index.settings
            assert_sound(path, {"": settings})
        if returned:
            break
    assert stop > 8
