"""Broken disks, damaged files and hostile ones: one clear error each, and nothing else.

`use` calls everything an index can do and allows no errors but `HPlusError`. Once the cause is
fixed, the last good state is there.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import resource
import shutil
import sqlite3
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import fields
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from faulty import (
    SETTINGS,
    FaultyDisk,
    TextModel,
    add,
    assert_sound,
    contents,
    disk_error,
    encode,
    living,
    state,
)
from hplus import texts, workers
from hplus.errors import (
    HPlusError,
    IndexBusyError,
    IndexDamagedError,
    InputError,
    ModelMismatchError,
    StorageError,
)
from hplus.index import Index
from hplus.search import local
from hplus.storage import catalogue, compact, sketches, writer
from hplus.storage import lists as ivf
from hplus.storage.disk import Disk
from hplus.storage.segment import FORMATS, Segment
from hplus.storage.segment_file import file_parts, open_segment

CATALOGUE = "catalogue.sqlite"
FIRST = "segments/00000001.safetensors"


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Damaged numbers may overflow on their way to an error."""
    with np.errstate(all="ignore"):
        yield


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Two segments, the first with a deleted document."""
    with Index.create(tmp_path / "index", disk=FaultyDisk(), format="int8", **SETTINGS) as index:
        add(index, "a", "b", "c")
        add(index, "d", "e")
        index.delete("b")
    return tmp_path / "index"


def opened(path: Path, disk: Disk | None = None) -> Index:
    return Index.open(path, model=TextModel(), disk=disk)  # type: ignore[arg-type]


def use(path: Path, *, write: bool = True) -> list[HPlusError]:
    """Call every method; returns the error raised, if it is one of ours."""
    errors: list[HPlusError] = []

    def attempt(action: Callable[[], object]) -> None:
        try:
            action()
        except HPlusError as error:
            errors.append(type(error)(str(error)))  # its trace would keep old snapshots open
        except RuntimeWarning as warning:
            errors.append(IndexDamagedError(str(warning)))

    try:
        index = opened(path, FaultyDisk())
    except HPlusError as error:
        return [error]
    with index:
        query = encode("any")
        for view in ("hybrid", "global", "phrase", "lexical"):
            attempt(lambda view=view: index.search(query, view=view))
        attempt(lambda: index.search(query, k=1, pool=1))
        attempt(lambda: index.search(query, explain=True, budget=1, width=4))
        attempt(lambda: index.search(query, where='n = 1 and id != "e" and not tags contains "a"'))
        attempt(lambda: index.rerank(query, ["a", "c", "e"], explain=True))
        attempt(index.stats)
        attempt(lambda: "a" in index)
        attempt(lambda: errors.extend(map(IndexDamagedError, index.verify().problems)))
        attempt(index.refresh)
        if write:
            rows = [{"id": "c", "text": "some other text"}, {"id": "new", "text": "a new document"}]
            attempt(lambda: index.add([rows[1]]))
            attempt(lambda: index.update(rows))
            attempt(lambda: index.delete(["a", "nobody"]))
            attempt(lambda: index.compact(width=7))
            attempt(lambda: errors.extend(map(IndexDamagedError, index.verify().problems)))
    return errors


def change(path: Path, *statements: str) -> None:
    """The catalogue, opened by another program."""
    with closing(sqlite3.connect(path / CATALOGUE)) as connection, connection:
        for statement in statements:
            connection.execute(statement)


def replace_segment(path: Path, data: bytes) -> None:
    """Replace the first segment, with its length and checksum in the catalogue."""
    (path / FIRST).write_bytes(data)
    digest = hashlib.sha256(data).hexdigest()
    change(path, f"UPDATE segments SET bytes = {len(data)}, sha256 = '{digest}' WHERE number = 1")


def seen(path: Path) -> dict[str, Any]:
    with Index.open(path) as index:
        return state(index)


# Disks

STEPS: dict[str, Callable[[Index], object]] = {
    "add": lambda index: add(index, "f"),
    "update": lambda index: index.update([{"id": "a", "text": "another text"}]),
    "delete": lambda index: index.delete(["a", "d"]),
    "compact": lambda index: index.compact(width=4),
}


@pytest.mark.parametrize(
    ("number", "lasting"),
    [(errno.EIO, False), (errno.ENOSPC, True)],
    ids=["broken once", "full for good"],
)
@pytest.mark.parametrize("step", STEPS)
def test_a_disk_that_fails_at_any_operation(
    step: str, number: int, lasting: bool, path: Path, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr(compact, "TIER", 3)
    warned = 0
    start = seen(path)
    for stop in count():
        shutil.copytree(path, here := tmp_path / str(stop))
        disk = FaultyDisk(stop, disk_error(number), lasting=lasting)
        with opened(here, disk) as index, warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            before, failed = index.generation, ""
            disk.arm()
            try:
                STEPS[step](index)
            except StorageError as error:
                failed = str(error)
            disk.armed = False  # fixed
            if len(disk.done) <= stop:
                assert not said
                break
            for warning in said:  # only after the commit, and then the call has not failed
                assert str(warning.message).startswith("the change is confirmed, but")
            assert bool(failed) != bool(said)
            if failed:
                assert "failed" in failed
                assert "everything confirmed before is safe: fix the cause" in failed
            assert disk.commits or failed
            warned += bool(said)
            assert index.search(encode("c"), view="global", k=1)[0].id == "c"
            index.refresh()
            assert index.generation == before + disk.commits
            assert disk.commits or state(index) == start
            if failed and "f" not in index:
                STEPS[step](index)  # simply called again
        assert_sound(here, seen(here))
        shutil.rmtree(here)
    assert stop > 5
    assert warned > 0


@pytest.mark.parametrize("lasting", [True, False], ids=["for good", "once"])
def test_a_disk_that_fails_a_reader(path: Path, lasting: bool) -> None:
    for action in (
        lambda disk: Index.open(path, disk=disk).close(),
        lambda disk: Index.open(path, disk=disk).verify(),
    ):
        for stop in count():
            disk = FaultyDisk(stop, disk_error(errno.EIO), lasting=lasting)
            disk.arm()
            try:
                action(disk)
            except StorageError:
                continue
            break
        assert stop == len(disk.done) > 3


def test_a_disk_that_fills_up_while_a_file_is_written(path: Path, tmp_path: Path) -> None:
    """A real limit of the operating system, for the segment as for SQLite's own files."""
    expected = seen(path)
    unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
    failures = 0
    for limit in (0, 1, 100, 1_000, 4_000, 5_000, 10_000, 20_000, 30_000):
        shutil.copytree(path, here := tmp_path / str(limit))
        with Index.open(here) as index:
            many = [f"{i:05d}" for i in range(100)]
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, unlimited[1]))
            try:
                add(index, *many)
            except StorageError:
                failures += 1
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
            assert state(index) == (expected if "00000" not in index else seen(here))
        assert_sound(here, expected if failures else seen(here))
    assert failures > 5


@contextmanager
def nobody() -> Iterator[None]:
    """Root may write anywhere, so the test runs as another user meanwhile."""
    if os.geteuid() != 0:
        yield
        return
    try:
        os.setresuid(65534, 65534, 0)
    except PermissionError:
        pytest.skip("root cannot step down here")
    try:
        yield
    finally:
        os.setresuid(0, 0, 0)


@contextmanager
def read_only(path: Path) -> Iterator[None]:
    """Neither folders nor files can be written."""
    entries = [path, *path.rglob("*")]
    for entry in entries:
        entry.chmod(0o555 if entry.is_dir() else 0o444)
    try:
        with nobody():
            yield
    finally:
        for entry in entries:
            entry.chmod(0o755 if entry.is_dir() else 0o644)


@pytest.fixture
def public_path(path: Path) -> Iterator[Path]:
    """The index in a folder that every user can reach."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        shutil.copytree(path, here := Path(folder) / "index")
        with nobody():
            if not os.access(here, os.R_OK):
                pytest.skip("temporary folders here are closed to other users")
        yield here


def test_a_folder_that_can_only_be_read(public_path: Path) -> None:
    assert workers  # imported while this user may still read the package
    expected = seen(public_path)
    with read_only(public_path):
        with opened(public_path) as index:
            assert index.verify().problems == []
            assert state(index) == expected
            assert index.search(encode("c"), view="global", k=1, where="n = 1")[0].id == "c"
            for step in STEPS.values():
                with pytest.raises(StorageError, match=r"failed: (Permission denied|.*readonly)"):
                    step(index)
            assert state(index) == expected
        with pytest.raises(StorageError, match="Permission denied"):
            Index.create(public_path / "new", **SETTINGS)
    assert_sound(public_path, expected)


def test_a_folder_that_can_only_be_read_and_was_not_closed(public_path: Path) -> None:
    """After a crash the catalogue's last commits are in its log."""
    before = seen(public_path)
    with Index.open(public_path), Index.open(public_path) as index:  # the first keeps the log
        add(index, "f")
        shutil.copytree(public_path, copy := public_path.with_name("copy"))
    expected = seen(public_path)
    assert (copy / f"{CATALOGUE}-wal").stat().st_size > 0
    with read_only(copy), Index.open(copy) as index:
        assert state(index) == expected != before
    (copy / f"{CATALOGUE}-shm").unlink()
    with read_only(copy), pytest.raises(StorageError, match="unable to open"):
        Index.open(copy)
    assert_sound(copy, expected)


def test_files_that_cannot_be_read(public_path: Path) -> None:
    expected = seen(public_path)
    for name in (CATALOGUE, FIRST):
        (public_path / name).chmod(0)
        with nobody(), pytest.raises(StorageError, match=r"[Pp]ermission denied|unable to open"):
            Index.open(public_path)
        (public_path / name).chmod(0o644)
    assert_sound(public_path, expected)


# Damaged segments


def flips(data: bytes) -> Iterator[tuple[int, bytes]]:
    for place in range(len(data)):
        yield place, data[:place] + bytes([data[place] ^ 1 << place % 8]) + data[place + 1 :]


@pytest.mark.parametrize("every", [13, pytest.param(1, marks=pytest.mark.slow)])
def test_a_flipped_bit_is_found(path: Path, every: int) -> None:
    """In the header, in the offsets, anywhere: verify reports it or the index does not open."""
    expected, good = seen(path), (path / FIRST).read_bytes()
    opened = 0
    offsets = places_of_offsets(good)
    for place, data in flips(good):
        if place % every and place not in offsets:
            continue
        (path / FIRST).write_bytes(data)
        errors = use(path, write=False)
        assert errors, place
        assert all(isinstance(error, IndexDamagedError) for error in errors), place
        opened += "another checksum than when it was written" in str(errors[-1])
    assert opened > 50
    (path / FIRST).write_bytes(good)
    assert_sound(path, expected)


def places_of_offsets(data: bytes) -> set[int]:
    """The lowest and the highest byte of every offset."""
    header, arrays = parts_of(data)
    first = len(data) - len(arrays)
    return {
        first + place + byte
        for name, about in header.items()
        if name.endswith("offsets")
        for place in range(*about["data_offsets"], 8)
        for byte in (0, 7)
    }


def test_any_text_is_sound(path: Path) -> None:
    """SQLite counts characters up to the first NUL only."""
    with opened(path) as index:
        index.add([{"id": "\U0001f600", "text": "\0 a text\0 with NUL \U0001f600 é", "é": "\0"}])
        assert index.verify().problems == []
        (hit,) = index.search(encode("any"), where='`é` = "\\u0000"')
        assert hit.text == "\0 a text\0 with NUL \U0001f600 é"


def test_damage_is_not_written_again(path: Path) -> None:
    """A compaction would give it a new, right checksum."""
    data = bytearray((path / FIRST).read_bytes())
    data[-1] ^= 1
    (path / FIRST).write_bytes(data)
    with Index.open(path) as index:
        before = contents(path / "segments")
        with pytest.raises(IndexDamagedError, match=r"00000001.safetensors has another checksum"):
            index.compact()
        assert len(index) == 4
    assert contents(path / "segments") == before


def test_a_file_cut_short_at_any_length(path: Path) -> None:
    expected, good = seen(path), (path / FIRST).read_bytes()
    options: dict[str, Any] = {"documents": 3, "format": "int8", "widths": (8, 8)}
    for length in reversed(range(len(good))):
        os.truncate(path / FIRST, length)
        with pytest.raises(IndexDamagedError, match=r"bytes, expected [\d,]+"):
            open_segment(Disk(), path / FIRST, size=len(good), **options)
        with pytest.raises(IndexDamagedError, match="is not a valid segment"):
            open_segment(Disk(), path / FIRST, size=length, **options)
    with pytest.raises(IndexDamagedError, match=r"bytes, expected [\d,]+"):
        Index.open(path)
    replace_segment(path, good + b"\0")
    with pytest.raises(IndexDamagedError, match="is not a valid segment"):
        Index.open(path)
    replace_segment(path, good)
    assert_sound(path, expected)


def test_a_missing_segment(path: Path) -> None:
    expected, good = seen(path), (path / FIRST).read_bytes()
    (path / FIRST).unlink()
    with pytest.raises(IndexDamagedError, match=r"segment .*00000001.safetensors is missing; rest"):
        Index.open(path)
    (path / FIRST).mkdir()
    with pytest.raises(HPlusError):
        Index.open(path)
    (path / FIRST).rmdir()
    (path / FIRST).write_bytes(good)
    shutil.move(path / "segments", path / "elsewhere")
    with pytest.raises(IndexDamagedError, match="is missing"):
        Index.open(path)
    shutil.move(path / "elsewhere", path / "segments")
    assert_sound(path, expected)


def test_a_segment_that_vanishes_while_open(path: Path) -> None:
    with Index.open(path) as index:
        (path / FIRST).unlink()
        assert index.search(encode("c"), view="global", k=1)[0].id == "c"
        for action in (index.verify, index.compact):
            with pytest.raises(IndexDamagedError, match="is missing"):
                action()


# Hostile segments

Header = dict[str, Any]


def parts_of(data: bytes) -> tuple[Header, bytes]:
    length = int.from_bytes(data[:8], "little")
    return json.loads(data[8 : 8 + length]), data[8 + length :]


def with_header(header: Header | str, data: bytes, *, align: int = 8) -> bytes:
    text = (header if isinstance(header, str) else json.dumps(header)).encode()
    text += b" " * (-len(text) % align)
    return len(text).to_bytes(8, "little") + text + data


def put(name: str, key: str, value: Any) -> Callable[[Header], object]:
    return lambda header: header[name].__setitem__(key, value)


HEADERS: dict[str, Callable[[Header], object]] = {
    "an offset beyond 64 bits": put("numbers", "data_offsets", [0, 2**64]),
    "an offset at the end of 64 bits": put("numbers", "data_offsets", [2**64 - 8, 2**64 - 1]),
    "a negative offset": put("numbers", "data_offsets", [-24, 0]),
    "an offset that is no number": put("numbers", "data_offsets", ["0", "24"]),
    "offsets backwards": put("numbers", "data_offsets", [24, 0]),
    "one offset": put("numbers", "data_offsets", [0]),
    "a shape that overflows": put("numbers", "shape", [2**62, 8]),
    "a shape beyond 64 bits": put("numbers", "shape", [2**64]),
    "a negative shape": put("numbers", "shape", [-3]),
    "a shape of floats": put("numbers", "shape", [3.0]),
    "no shape": lambda header: header["numbers"].pop("shape"),
    "too many axes": put("numbers", "shape", [3] + [1] * 100),
    "no axis": put("tokens", "shape", []),
    "an unknown type": put("numbers", "dtype", "Q64"),
    "a type of safetensors, not of ours": put("numbers", "dtype", "F64"),
    "another type of ours": put("numbers", "dtype", "U64"),
    "a type that is no name": put("numbers", "dtype", 5),
    "an array that is no object": lambda header: header.update(numbers=5),
    "metadata": lambda header: header.update(__metadata__={"format": "pt"}),
    "metadata of numbers": lambda header: header.update(__metadata__={"n": 1}),
    "overlapping arrays": lambda header: header["kept"].update(header["importance"]),
    "no arrays": lambda header: header.clear(),
}


@pytest.mark.parametrize("attack", HEADERS)
def test_a_hostile_header(path: Path, attack: str) -> None:
    expected, good = seen(path), (path / FIRST).read_bytes()
    header, data = parts_of(good)
    HEADERS[attack](header)
    replace_segment(path, with_header(header, data))
    with pytest.raises(IndexDamagedError, match=r"00000001.safetensors"):
        Index.open(path)
    replace_segment(path, good)
    assert_sound(path, expected)


def test_a_header_that_is_not_a_header(path: Path) -> None:
    expected, good = seen(path), (path / FIRST).read_bytes()
    header, data = parts_of(good)
    text = json.dumps(header)
    twice = f'{{"numbers":{json.dumps(header["tokens"])},{text[1:]}'
    hostile = {
        "no JSON": with_header("{", data),
        "a list": with_header("[]", data),
        "a number": with_header("5", data),
        "empty": with_header("", data),
        "deep": with_header("[" * 100_000, data),
        "not UTF-8": with_header(header, data).replace(b"numbers", b"\xff" * 7),
        "an array twice": with_header(twice, data),
        "a gap": with_header(header, b"\0" * 8 + data),
        "a length beyond the file": (10**6).to_bytes(8, "little") + good[8:],
        "a length beyond memory": (2**63 - 1).to_bytes(8, "little") + good[8:],
        "a length that is negative elsewhere": b"\xff" * 8 + good[8:],
        "arrays off their places": with_header(text + " " * (1 - len(text) % 8), data, align=1),
    }
    for name, attack in hostile.items():
        replace_segment(path, attack)
        with pytest.raises(IndexDamagedError, match=r"00000001.safetensors"):
            print(name, Index.open(path))
    replace_segment(path, good)
    assert_sound(path, expected)


def arrays_of(data: bytes) -> dict[str, Any]:
    from safetensors.numpy import load

    return load(data)


def fillings(array: Any, *, every: bool) -> Iterator[tuple[str, Any]]:
    """The same shape and type with other numbers."""
    real = array.dtype.kind == "f"
    limits = np.finfo(array.dtype) if real else np.iinfo(array.dtype)
    yield "largest", np.full_like(array, np.nan if real else limits.max)
    random = np.random.default_rng(0).bytes(array.nbytes)
    yield "random", np.frombuffer(random, array.dtype).reshape(array.shape)
    if every:
        yield "reversed", np.ascontiguousarray(array[::-1])
        for value in (limits.min, limits.max, 0, 1, *([np.inf, -np.inf] if real else [])):
            yield f"{value}", np.full_like(array, value)


@pytest.fixture
def listed(path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The first segment has sketches and lists, and searches use them."""
    monkeypatch.setattr(local, "SCANNED", 0)
    monkeypatch.setattr(local, "SURVIVORS", 1)
    arrays = arrays_of((path / FIRST).read_bytes())
    monkeypatch.setattr(sketches, "SKETCHED", 1)
    made = sketches.sketches_of(arrays) | ivf.build(
        arrays["global_vectors"], arrays["global_scales"]
    )
    arrays |= made
    replace_segment(path, b"".join(bytes(part) for part in file_parts(arrays)))
    assert use(path, write=False) == []
    return path


@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_hostile_numbers_under_a_right_checksum(listed: Path, tmp_path: Path, every: bool) -> None:
    """Whoever writes the file can write the checksum too: errors must still be ours."""
    expected = seen(listed)
    arrays = arrays_of((listed / FIRST).read_bytes())
    missed = set()
    for name, array in arrays.items():
        for kind, filled in fillings(array, every=every):
            shutil.copytree(listed, here := tmp_path / f"{name} {kind}")
            parts = file_parts(arrays | {name: filled})
            replace_segment(here, b"".join(bytes(part) for part in parts))
            if not use(here) and not np.array_equal(filled, array):
                missed.add(name)
            shutil.rmtree(here)
    # Any numbers could be right in these: only the checksum could tell, and it was forged.
    free = {"vectors", "global_vectors", "scales", "global_scales", "weights", "dropped_weights"}
    free |= {
        "sketches",
        "anchor_map",
        "global_centroids",
        "tokens",
        "windows",
        "cut",
        "importance",
        "kept",
    }
    free |= {"span_starts", "span_lengths", "dropped_starts", "dropped_lengths", "lexical_ids"}
    assert missed <= free | {"lexical_weights", "anchors", "global_list_offsets"}
    assert_sound(listed, expected)


def test_offsets_that_overflow_and_come_back(path: Path) -> None:
    """Every step between two of them seems to go forwards, in 64 bits."""
    arrays = arrays_of((path / FIRST).read_bytes())
    ids, offsets = arrays["lexical_ids"], arrays["lexical_offsets"]
    assert len(ids) > 4
    offsets = offsets.copy()
    offsets[1:4] = [2**63 - 1, -(2**63) + 1, -5]
    with np.errstate(over="ignore"):
        assert (np.diff(offsets) >= 0).all()
    data = b"".join(bytes(part) for part in file_parts(arrays | {"lexical_offsets": offsets}))
    replace_segment(path, data)
    with pytest.raises(IndexDamagedError, match=r"lexical_offsets .* runs backwards"):
        Index.open(path)


# The catalogue


def test_a_catalogue_from_the_future(path: Path) -> None:
    expected = seen(path)
    change(path, "PRAGMA user_version = 5")
    with pytest.raises(InputError, match="has format 5, this hplus reads 1 to 4; update hplus"):
        Index.open(path)
    change(path, "PRAGMA user_version = 0")
    with pytest.raises(InputError, match="has format 0, this hplus reads 1 to 4; index"):
        Index.open(path)
    change(path, "PRAGMA user_version = 1")
    with Index.open(path) as index:  # changed by another program while it is open here
        change(path, "PRAGMA user_version = 5")
        with pytest.raises(InputError, match="update hplus"):
            add(index, "f")
    change(path, "PRAGMA user_version = 1")
    assert_sound(path, expected)


def test_a_catalogue_that_is_not_one(path: Path) -> None:
    expected, good = seen(path), (path / CATALOGUE).read_bytes()
    (path / CATALOGUE).unlink()
    with closing(sqlite3.connect(path / CATALOGUE)) as connection:
        connection.execute("CREATE TABLE notes (text)")
    foreign = (path / CATALOGUE).read_bytes()
    for data in (foreign, b"", b"\0" * 4096, b"garbage" * 999, good[:16], os.urandom(8192)):
        (path / CATALOGUE).write_bytes(data)
        with pytest.raises(IndexDamagedError, match=CATALOGUE):
            Index.open(path)
        with (
            pytest.raises(IndexDamagedError, match=r"damaged|not the catalogue"),
            writer.open_writer(path, Disk()),
        ):
            pass
        assert (path / CATALOGUE).read_bytes() == data
        with pytest.raises(InputError, match="is not empty"):
            Index.create(path, **SETTINGS)
        assert (path / CATALOGUE).read_bytes() == data
    (path / CATALOGUE).unlink()
    with pytest.raises(InputError, match="is not an index"):
        Index.open(path)
    with (
        pytest.raises(IndexDamagedError, match="is missing; restore it"),
        writer.open_writer(path, Disk()),
    ):
        pass
    assert not (path / CATALOGUE).exists()
    (path / CATALOGUE).mkdir()
    with pytest.raises(InputError, match="is not an index"):
        Index.open(path)
    (path / CATALOGUE).rmdir()
    (path / CATALOGUE).write_bytes(good)
    assert_sound(path, expected)


def test_a_catalogue_cut_short(path: Path, tmp_path: Path) -> None:
    expected, good = seen(path), (path / CATALOGUE).read_bytes()
    for length in range(0, len(good), 256):
        shutil.copytree(path, here := tmp_path / str(length))
        os.truncate(here / CATALOGUE, length)
        assert use(here), length
        shutil.rmtree(here)
    assert_sound(path, expected)


@pytest.mark.parametrize("every", [47, pytest.param(1, marks=pytest.mark.slow)])
def test_a_flipped_bit_in_the_catalogue(path: Path, tmp_path: Path, every: int) -> None:
    """SQLite has no checksums, so not every one is found; but errors are ours, and texts safe."""
    expected, good = seen(path), (path / CATALOGUE).read_bytes()
    for place, data in flips(good):
        if place % every or not good[place]:
            continue
        shutil.copytree(path, here := tmp_path / str(place))
        (here / CATALOGUE).write_bytes(data)
        if not use(here, write=False):
            found = seen(here)
            assert [row[1] for id_, row in found.items() if id_] == [
                row[1] for id_, row in expected.items() if id_
            ]
        use(here)
        shutil.rmtree(here)
    assert_sound(path, expected)


# The write-ahead log

LOG = f"{CATALOGUE}-wal"


@pytest.fixture
def logged(path: Path, tmp_path: Path) -> Path:
    """A copy whose last three changes are in the log alone, since a reader kept it."""
    with opened(path), opened(path) as index:
        add(index, "f", "g")
        index.delete("d")
        add(index, "h")
        shutil.copytree(path, copy := tmp_path / "logged")
    assert (copy / LOG).stat().st_size > 10_000
    return copy


def damages(log: bytes, every: int) -> Iterator[tuple[str, bytes | None]]:
    yield "lost", None
    yield "zeros", bytes(len(log))
    for place, data in flips(log):
        if place % every == 0:
            yield f"bit at {place}", data
            yield f"cut at {place}", log[:place]


@pytest.mark.parametrize("every", [397, pytest.param(97, marks=pytest.mark.slow)])
def test_a_damaged_log_undoes_nothing_in_silence(logged: Path, tmp_path: Path, every: int) -> None:
    shutil.copytree(logged, whole := tmp_path / "whole")
    expected, refused = seen(whole), 0
    files = contents(logged / "segments")
    for name, data in damages((logged / LOG).read_bytes(), every):
        shutil.copytree(logged, here := tmp_path / "here")
        (here / f"{CATALOGUE}-shm").unlink()
        (here / LOG).unlink()
        if data is not None:
            (here / LOG).write_bytes(data)
        try:
            found = seen(here)
        except IndexDamagedError as error:
            refused += "but 6 was confirmed: its write-ahead log" in str(error)
        else:
            assert found == expected, name
        with suppress(IndexDamagedError), writer.open_writer(here, FaultyDisk()):
            pass
        assert contents(here / "segments") == files, name
        shutil.rmtree(here)
    assert refused > 50


def test_a_lost_log_can_be_restored_or_given_up(logged: Path, path: Path, tmp_path: Path) -> None:
    log = (logged / LOG).read_bytes()
    for name in (LOG, f"{CATALOGUE}-shm"):
        (logged / name).unlink()
    for attempt in (lambda: opened(logged), lambda: writer.open_writer(logged, Disk()).__enter__()):
        with pytest.raises(IndexDamagedError, match=r"at generation 3, but 6 .* \(3\) and repeat"):
            attempt()
    shutil.copytree(logged, restored := tmp_path / "restored")
    (restored / LOG).write_bytes(log)
    assert_sound(restored, seen(path))
    (logged / "confirmed").unlink()
    with pytest.raises(IndexDamagedError, match=r"00000003.safetensors, 00000004.safetensors"):
        writer.open_writer(logged, Disk()).__enter__()
    for name in ("00000003.safetensors", "00000004.safetensors"):  # by hand, never by us
        (logged / "segments" / name).unlink()
    assert_sound(logged, seen(logged))


def test_the_log_is_empty_once_a_change_is_confirmed(path: Path, tmp_path: Path) -> None:
    with opened(path) as index:
        for step in STEPS.values():
            step(index)
            assert (path / LOG).stat().st_size == 0
            shutil.copytree(path, here := tmp_path / "here")
            for name in (LOG, f"{CATALOGUE}-shm"):
                (here / name).unlink()
            assert seen(here) == state(index)
            shutil.rmtree(here)
        with opened(path) as reader:
            before = state(reader)
            add(index, "g")
            assert (path / LOG).stat().st_size > 0
            assert state(reader) == before
        add(index, "h")
        assert (path / LOG).stat().st_size == 0


def test_a_damaged_note(path: Path) -> None:
    expected, good = seen(path), (path / "confirmed").read_bytes()
    assert good == b"3 " + hashlib.sha256(b"3").hexdigest().encode() + b"\n"
    for data in (b"", good[:-1], good + b" ", b"4" + good[1:], *(data for _, data in flips(good))):
        (path / "confirmed").write_bytes(data)
        with pytest.raises(IndexDamagedError, match="confirmed is damaged; restore it, or remove"):
            Index.open(path)
    (path / "confirmed").unlink()
    os.mkfifo(path / "confirmed")
    with pytest.raises(IndexDamagedError, match="confirmed is a link, a pipe or a device"):
        Index.open(path)
    (path / "confirmed").unlink()  # as in an index of an older version
    assert_sound(path, expected)


# Rows

ROWS = {
    "segments": [
        "documents = 10000000000000",
        "documents = -1",
        "documents = 'many'",
        "documents = 2.5",
        "documents = 0",
        "units = -1",
        "units = 'many'",
        "units = 9000000000000000000",
        "bytes = 10000000000000",
        "bytes = -1",
        "bytes = 'many'",
        "sha256 = 'no'",
        "sha256 = x'00ff'",
        "number = -5",
        "number = 9223372036854775807",
    ],
    "documents": [
        "place = 10000000000",
        "place = -1",
        "place = 'first'",
        "place = 1.5",
        "place = 1",
        "segment = 77",
        "segment = -1",
        "segment = 'one'",
        "number = number + 100",
        "number = 9223372036854775807 - number",
        "id = x'ff00'",
        "id = 5.5",
        "hash = 'no'",
        "hash = x''",
        "text = 'another'",
        "text = x'fffe'",
        "text = CAST(x'ff00ff' AS TEXT)",
        "metadata = ''",
        "metadata = 'no JSON'",
        "metadata = '{} {}'",
        "metadata = '[]'",
        "metadata = '5'",
        "metadata = x'ff'",
        "metadata = CAST(x'7bff7d' AS TEXT)",
        "metadata = '{\"n\": NaN}'",
        "metadata = replace(hex(zeroblob(50000)), '00', '[')",
        "deleted = 7",
        "deleted = 'yes'",
    ],
    "settings": [
        *(f"value = '{v}'" for v in ("", "no JSON", "[]", "{}", "-1", "1e999", "null", "true")),
        "value = x'ff'",
        "value = replace(hex(zeroblob(50000)), '00', '[')",
        "value = replace(hex(zeroblob(5000)), '00', '9')",
        "name = 'unknown'",
    ],
    "sqlite_sequence": ["seq = -7", "seq = 'many'", "seq = 9223372036854775807", "seq = 1"],
}
# Assignments that change nothing, or make a row that could be right.
HARMLESS = {
    *("place = 1 of 2", "id = 5.5 of 2"),
    *("value = '{}' of budget", "value = 'null' of model"),
}


@pytest.mark.parametrize("table", ROWS)
def test_hostile_rows(table: str, path: Path, tmp_path: Path) -> None:
    expected = seen(path)
    with closing(sqlite3.connect(path / CATALOGUE)) as connection:
        key = {"settings": "name", "sqlite_sequence": "name"}.get(table, "number")
        keys = [k for (k,) in connection.execute(f"SELECT {key} FROM {table}")]
    missed = []
    for assignment in ROWS[table]:
        for k in keys if table in ("settings", "sqlite_sequence") else keys[:2]:
            shutil.copytree(path, here := tmp_path / "here")
            try:
                change(here, f"UPDATE {table} SET {assignment} WHERE {key} = {k!r}")
            except sqlite3.IntegrityError:
                pass  # SQLite itself refuses
            else:
                if not use(here):
                    missed.append(f"{assignment} of {k}")
            shutil.rmtree(here)
    assert set(missed) <= HARMLESS
    assert_sound(path, expected)


@pytest.mark.parametrize("table", ["segments", "documents"])
def test_a_counter_that_runs_behind(table: str, path: Path) -> None:
    """One bit lower, the next number is that of a segment or document that exists."""
    expected, before = seen(path), contents(path / "segments")
    with closing(sqlite3.connect(path / CATALOGUE)) as connection:
        ((last,),) = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = ?", (table,))
    change(path, f"UPDATE sqlite_sequence SET seq = {last} & ({last} - 1) WHERE name = '{table}'")
    with opened(path) as index:
        (problem,) = index.verify().problems
        assert f"{table} were numbered up to {last & (last - 1)}, but has number {last}" in problem
        for step in ("add", "update", "compact"):
            with pytest.raises(IndexDamagedError, match=f"but has number {last}; restore it"):
                STEPS[step](index)
    assert contents(path / "segments") == before
    change(path, f"UPDATE sqlite_sequence SET seq = {last} WHERE name = '{table}'")
    assert_sound(path, expected)


def test_a_file_that_exists_is_never_written_to(path: Path) -> None:
    before = (path / FIRST).read_bytes()
    with pytest.raises(FileExistsError):
        Disk().write(path / FIRST, [b"other"])
    assert (path / FIRST).read_bytes() == before


# Two writers


def test_a_second_writer_is_refused(path: Path) -> None:
    expected = seen(path)
    with writer.open_writer(path, FaultyDisk()), opened(path) as index:
        for step in STEPS.values():
            with pytest.raises(IndexBusyError, match=r"another process is writing to .*index"):
                step(index)
        assert index.search(encode("c"), view="global", k=1)[0].id == "c"
    assert_sound(path, expected)


def test_creating_twice_at_once(tmp_path: Path) -> None:
    (path := tmp_path / "index").mkdir()
    with FaultyDisk().lock(path / "lock"), pytest.raises(IndexBusyError):
        Index.create(path, **SETTINGS)
    Index.create(path, **SETTINGS).close()


# After the commit


def test_tidying_that_fails_is_done_later(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Out of memory, too: the documents are there, and so is the report."""

    def fail(*_: Any) -> None:
        raise MemoryError

    with opened(path) as index:
        with monkeypatch.context() as patch:
            patch.setattr(compact, "TIER", 3)
            patch.setattr(compact, "put_together", fail)
            with pytest.warns(RuntimeWarning, match=r"confirmed, but tidying .* MemoryError; the"):
                assert index.add([{"id": "f", "text": "the text of f"}]).added == 1
            assert "f" in index
            assert len(index.engine.snapshot.parts) == 3
        monkeypatch.setattr(compact, "TIER", 3)
        index.add([{"id": "g", "text": "the text of g"}])
        assert len(index.engine.snapshot.parts) == 1
    assert_sound(path, seen(path))


def test_damage_elsewhere_does_not_fail_what_was_added(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compact, "TIER", 3)
    data = bytearray((path / FIRST).read_bytes())
    data[-1] ^= 1
    (path / FIRST).write_bytes(data)
    with opened(path) as index:
        with pytest.warns(RuntimeWarning, match="tidying .* has another checksum"):
            add(index, "f")
        assert "f" in index
        assert len(index.verify().problems) == 1


def test_the_first_error_is_the_one_reported(path: Path) -> None:
    with opened(path) as index:
        add(index, "x")
        shutil.rmtree(path)
        with pytest.raises(IndexDamagedError, match="is missing; restore it"):
            add(index, "y")


# Readers


@pytest.mark.parametrize("other", ["texts", "format", "model"])
def test_a_folder_that_was_replaced(other: str, path: Path, tmp_path: Path) -> None:
    """By another index with segments of the same numbers and sizes: nothing of it is mixed."""
    options = SETTINGS | {"format": "f32" if other == "format" else "int8"}
    if other == "model":
        options["fingerprint"] = "another"
    with Index.create(tmp_path / "new", disk=FaultyDisk(), **options) as index:
        add(index, "c", "b", "a")
        add(index, "e", "d")
        index.delete("b")
        expected = state(index)
    with opened(path) as index:
        before = state(index)
        path.rename(tmp_path / "old")
        (tmp_path / "new").rename(path)
        assert state(index) == before
        if other == "model":
            with pytest.raises(ModelMismatchError, match="was made with model another"):
                index.refresh()
            with pytest.raises(ModelMismatchError, match="was made with model another"):
                index.add([{"id": "f", "text": "the text of f"}])
            assert state(index) == before
        else:
            index.refresh()
            assert state(index) == expected
            assert index.search(encode("a"), view="global", k=1)[0].id == "a"
    assert_sound(path, expected)


def test_what_did_not_change_stays_mapped(path: Path) -> None:
    with Index.open(path) as reader, Index.open(path) as index:
        first = reader.engine.snapshot.parts[0].segment
        add(index, "f")
        reader.refresh()
        assert reader.engine.snapshot.parts[0].segment is first
        assert len(reader.engine.snapshot.parts) == 3


def test_a_reader_goes_on_after_a_compaction(path: Path) -> None:
    with Index.open(path) as reader, Index.open(path, disk=FaultyDisk()) as index:
        before = state(reader)
        hits = list(reader.search(encode("c"), explain=True))
        index.compact(width=4)
        index.delete("c")
        index.compact(global_width=2)
        assert len(contents(path / "segments")) == 1
        assert state(reader) == before
        assert hits == list(reader.search(encode("c"), explain=True))
        found = reader.search(encode("c"), where='id in ("c", "d")')
        assert {hit.id: hit.text for hit in found} == {id_: before[id_][1] for id_ in "cd"}
        assert reader.settings.width == 8
        reader.refresh()
        assert reader.settings.width == 4
        assert "c" not in reader


def test_a_closed_index_says_so(path: Path) -> None:
    index = Index.open(path)
    index.close()
    for action in (lambda: index.search(encode("c")), lambda: "c" in index, index.stats):
        with pytest.raises(InputError, match="was closed; open it again"):
            action()


# The same input


@pytest.mark.parametrize("format", FORMATS)
def test_the_same_input_gives_the_same_bytes(format: Any, tmp_path: Path) -> None:
    for name in ("one", "two"):
        with Index.create(tmp_path / name, format=format, **SETTINGS) as index:
            for i in range(9):
                add(index, f"{i}", f"other {i}")
            index.delete(["1", "2"])
            index.compact(budget=2)
            add(index, "1")
    assert contents(tmp_path / "one") == contents(tmp_path / "two")
    assert set(contents(tmp_path / "one")) >= {CATALOGUE, "lock"}


# Interruptions


@pytest.mark.parametrize("inside", ["the source", "the model"])
def test_an_interruption_keeps_what_was_committed(
    inside: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(texts, "STEP_TEXTS", 2)

    class Impatient(TextModel):
        def encode_step(self, *arguments: Any) -> Any:
            if self.calls == 3 and inside == "the model":
                raise KeyboardInterrupt
            return super().encode_step(*arguments)

    def source() -> Iterator[dict[str, str]]:
        for i in range(10):
            if i == 6 and inside == "the source":
                raise KeyboardInterrupt
            yield {"id": f"n{i}", "text": f"the text number {i}"}

    with Index.open(path, model=Impatient()) as index:  # type: ignore[arg-type]
        with pytest.raises(KeyboardInterrupt):
            index.add(source())
        assert [f"n{i}" in index for i in range(10)] == [True] * 6 + [False] * 4
        assert index.search(encode("the text number 5"), view="global", k=1)[0].id == "n5"
        index.delete("n0")
    assert_sound(path, seen(path))


def test_metadata_alone_are_confirmed_in_steps(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise those of a million documents would stay in memory."""
    monkeypatch.setattr(catalogue, "MANY", 2)
    monkeypatch.setattr(texts, "STEP_TEXTS", 1)
    with opened(path) as index:
        rows = [{"id": str(i), "text": f"the text number {i}"} for i in range(6)]
        index.add(rows)
        before = index.generation
        index.update([row | {"n": 1} for row in rows])
        assert index.generation == before + 3
        assert len(index.search(encode("any"), where="n = 1")) == 6 + 4


# The format's page


def test_numbers_are_never_given_twice(path: Path) -> None:
    """Not even those of the last document and the last segment, once they are gone."""
    with Index.open(path, disk=FaultyDisk()) as index:
        index.delete(["a", "c", "d", "e"])
        index.compact()
        assert contents(path / "segments") == {}
        add(index, "a")
        (row,) = living(index.engine.snapshot)
        assert (row.number, row.segment) == (6, 3)
        index.compact(width=4)
        (row,) = living(index.engine.snapshot)
        assert (row.number, row.segment) == (6, 4)


def test_every_must_has_its_test() -> None:
    root = Path(__file__).parents[2]
    rules, table = (root / "docs" / "index-format.md").read_text().split("## What attacks it")
    numbers = re.findall(r"^(\d+)\. ", rules, re.MULTILINE)
    assert numbers == [str(i + 1) for i in range(len(numbers))]
    assert all("MUST" in line for line in rules.splitlines() if re.match(r"\d+\. ", line))
    tests = dict(re.findall(r"^\| (\d+) \| (.*) \|$", table, re.MULTILINE))
    assert list(tests) == numbers
    code = "".join(file.read_text() for file in Path(__file__).parent.glob("test_*.py"))
    for names in tests.values():
        for name in re.findall(r"`(\w+)`", names):
            assert f"def {name}(" in code, name


def test_the_page_has_the_tables_and_arrays() -> None:
    page = (Path(__file__).parents[2] / "docs" / "index-format.md").read_text()
    assert catalogue.SCHEMA in page
    named = set(re.findall(r"`(\w+)`", page))
    others = {"mean", "inverse_norms", "scales_of_width", "longest_rows"}
    assert {f.name for f in fields(Segment)} - others <= named
    assert {f.name for f in fields(catalogue.Settings)} <= named
