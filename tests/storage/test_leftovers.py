"""Segments that no row names: reported, and never removed while they might have been confirmed."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from faulty import SETTINGS, FaultyDisk, add, assert_sound, contents, state
from hplus.errors import IndexDamagedError
from hplus.index import Index
from hplus.storage import writer
from hplus.storage.disk import Disk
from hplus.storage.verify import verify

LOG = "catalogue.sqlite-wal"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with Index.create(tmp_path / "index", disk=FaultyDisk(), **SETTINGS) as index:
        add(index, "a", "b", "c")
        add(index, "d", "e")
        return index.path


@pytest.fixture
def older(path: Path, tmp_path: Path) -> Path:
    """An index that an older hplus wrote: no note, and the last two changes in the log alone."""
    with Index.open(path), Index.open(path, disk=FaultyDisk()) as index:
        add(index, "f", "g")
        add(index, "h")
        shutil.copytree(path, copy := tmp_path / "older")
    (copy / "confirmed").unlink()
    return copy


def seen(path: Path) -> dict[str, object]:
    with Index.open(path) as index:
        return state(index)


def test_an_older_index_that_lost_its_log_loses_nothing_more(
    older: Path, path: Path, tmp_path: Path
) -> None:
    log, files = (older / LOG).read_bytes(), contents(older / "segments")
    for name in (LOG, "catalogue.sqlite-shm"):
        (older / name).unlink()
    says = "does not name 00000003.safetensors, 00000004.safetensors .* log .* was lost; restore"
    with pytest.warns(RuntimeWarning, match=says):
        smaller = seen(older)
    assert set(smaller) == {"", *"abcde"}
    with pytest.warns(RuntimeWarning, match=says):
        verified = verify(older, Disk())
    assert len(verified.problems) == 1
    assert "00000003.safetensors, 00000004.safetensors" in verified.problems[0]
    assert verified.unnamed == []
    with (
        pytest.raises(IndexDamagedError, match=f"{says}.*move them away"),
        writer.open_writer(older, FaultyDisk()),
    ):
        pass
    assert contents(older / "segments") == files
    assert not (older / "confirmed").exists()
    # Both ways out.
    shutil.copytree(older, restored := tmp_path / "restored")
    (restored / LOG).write_bytes(log)
    assert_sound(restored, seen(path))
    for name in ("00000003.safetensors", "00000004.safetensors"):
        (older / "segments" / name).unlink()
    assert_sound(older, smaller)


def test_an_older_index_is_noted_before_its_next_change(path: Path) -> None:
    (path / "confirmed").unlink()
    disk = FaultyDisk()
    disk.arm()
    with writer.open_writer(path, disk):
        assert disk.commits == 0
        assert (path / "confirmed").read_bytes().startswith(b"2 ")
    assert_sound(path, seen(path))


def test_an_unfinished_write_of_an_older_version_is_removed(path: Path) -> None:
    (path / "confirmed").unlink()
    whole = (path / "segments" / "00000001.safetensors").read_bytes()
    for length in (0, 5, 100, len(whole) - 1):
        (path / "segments" / "00000003.safetensors").write_bytes(whole[:length])
        assert verify(path, Disk()).unnamed == ["00000003.safetensors"]
    assert_sound(path, seen(path))


def test_a_new_index_has_a_note_from_the_beginning(tmp_path: Path) -> None:
    """Otherwise the leftovers of its first write would look like those of a lost log."""
    Index.create(tmp_path / "index", **SETTINGS).close()
    assert (tmp_path / "index" / "confirmed").read_bytes().startswith(b"0 ")


def test_verify_lists_what_no_row_names(path: Path) -> None:
    folder = path / "segments"
    for name in ("00000003.safetensors", "00000009.safetensors", "notes.txt"):
        shutil.copy(folder / "00000001.safetensors", folder / name)
    with Index.open(path) as index:
        verified = index.verify()
        assert verified.unnamed == ["00000003.safetensors", "00000009.safetensors", "notes.txt"]
        assert verified.problems == []
        add(index, "f")
        assert index.verify().unnamed == []
