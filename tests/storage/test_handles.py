"""What an open index holds on to, and that closing it lets go of everything."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from brute_force import QuickDisk
from faulty import SETTINGS, TextModel, add, encode
from hplus import index as faces
from hplus import texts
from hplus.errors import InputError
from hplus.index import Index
from hplus.storage import compact, writer
from hplus.storage.disk import Disk

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="counts in /proc")
LOG = "catalogue.sqlite-wal"


@pytest.fixture
def many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An index as older versions left it: 120 segments."""
    with monkeypatch.context() as patch:
        patch.setattr(compact, "TIER", 1000)
        with Index.create(tmp_path / "index", disk=QuickDisk(), **SETTINGS) as index:
            for i in range(120):
                add(index, f"d{i}")
            assert len(index.engine.snapshot.parts) == 120
            return index.path


def held(path: Path) -> list[str]:
    """Handles and mappings of files in a folder."""
    handles = []
    for entry in Path("/proc/self/fd").iterdir():
        try:
            handles.append(str(entry.readlink()))
        except FileNotFoundError:  # of this very listing
            continue
    maps = Path("/proc/self/maps").read_text("utf-8").splitlines()
    return [line for line in handles + maps if str(path) in line]


@linux_only
def test_many_segments_take_no_handles(many: Path) -> None:
    with Index.open(many) as index:
        handles = [line for line in held(many) if line.startswith("/")]
        assert len(handles) <= 3  # the catalogue's
        assert len(held(many)) > 120
        assert index.search(encode("d7"), view="global", k=1)[0].id == "d7"


@linux_only
def test_closing_lets_go_of_everything(many: Path) -> None:
    index = Index.open(many)
    reader = Index.open(many)
    engine = index.engine
    index.search(encode("d7"), where="n = 2")
    add(index, "new")
    index.delete("d3")
    reader.refresh()
    index.compact()
    index.verify()
    index.close()
    reader.close()
    assert held(many) == []
    with pytest.raises(InputError, match="was closed; open it again"):
        engine.ids(engine.find(["d7"]))


@linux_only
def test_a_failed_opening_holds_nothing(many: Path) -> None:
    (last := max((many / "segments").iterdir())).unlink()
    with pytest.raises(Exception, match=f"{last.name} is missing"):
        Index.open(many)
    assert held(many) == []


@linux_only
def test_sixty_four_handles_suffice(many: Path) -> None:
    """To open an index of 120 segments, to search it, to add to it, and to compact it."""
    program = f"""
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
from pathlib import Path
from faulty import add, encode
from hplus.index import Index
with Index.open({str(many)!r}) as index:
    assert index.search(encode("d7"), view="global", k=1)[0].id == "d7"
    add(index, "new")
    print(len(index.engine.snapshot.parts))
    index.delete("d3")
    index.compact()
    print(len(index), len(index.engine.snapshot.parts), index.verify().problems)
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.splitlines() == ["1", "120 1 []"], done.stderr


def test_mapped_bytes_are_those_of_the_file_and_outlive_it(tmp_path: Path) -> None:
    (path := tmp_path / "file").write_bytes(bytes(range(256)) * 40)
    memory = Disk().map(path)
    path.unlink()
    assert bytes(memory) == bytes(range(256)) * 40
    assert memory.readonly
    (tmp_path / "empty").touch()
    with pytest.raises(ValueError, match="the file is empty"):
        Disk().map(tmp_path / "empty")


def test_a_folder_cannot_be_mapped(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"\[Errno"):
        Disk().map(tmp_path)


# The log


def test_the_log_stays_small_during_one_long_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The index's own reader must not keep it."""
    monkeypatch.setattr(texts, "STEP_TEXTS", 2)
    monkeypatch.setattr(writer, "CONFIRM_SECONDS", 0.0)
    sizes = []
    with Index.create(tmp_path / "index", disk=QuickDisk(), **SETTINGS) as made:
        path = made.path

    def source() -> Iterator[dict[str, Any]]:
        for i in range(120):
            sizes.append((path / LOG).stat().st_size)
            yield {"id": f"d{i}", "text": f"text {i} " * 100}

    with Index.open(path, model=TextModel(), disk=QuickDisk()) as index:  # type: ignore[arg-type]
        index.add(source())
        assert index.generation >= 60
        assert max(sizes) == 0
        assert len(index) == 120


def test_a_reader_that_keeps_the_log_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(faces, "LOG_BYTES", 50_000)
    with Index.create(tmp_path / "index", disk=QuickDisk(), **SETTINGS) as index:
        with Index.open(index.path) as reader:
            add(index, "a")  # little: nobody needs to know
            with pytest.warns(RuntimeWarning, match=r"write-ahead log .* has .* MB.*refresh"):
                add(index, *(f"d{i}" for i in range(500)))
            with pytest.warns(RuntimeWarning, match="write-ahead log"):
                index.delete("d3")
            reader.refresh()
        add(index, "f")
        assert (index.path / LOG).stat().st_size == 0
