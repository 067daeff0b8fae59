"""Files: whole or not at all, plain and gz alike, every mistake with its file and line."""

from __future__ import annotations

import gzip
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hplus import files
from hplus.errors import InputError
from hplus.files import numbered_lines, write_text, writing

LINES = [(1, "type 2"), (2, ""), (3, " 糖尿病\t"), (4, "last")]
DATA = "type 2\r\n\n 糖尿病\t\nlast".encode()


def put(path: Path, data: bytes, *, packed: bool = False) -> Path:
    path.write_bytes(gzip.compress(data) if packed else data)
    return path


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("name", ["a.txt", "a.gz", "a"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_lines_are_numbered_whatever_the_name_says(
    tmp_path: Path, packed: bool, name: str, mark: bytes
) -> None:
    assert list(numbered_lines(put(tmp_path / name, mark + DATA, packed=packed))) == LINES


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n\ufeff"))))
def test_any_lines_come_back(tmp_path: Path, lines: list[str]) -> None:
    for name in ("any", "any.gz"):
        write_text(tmp_path / name, "".join(f"{line}\n" for line in lines))
        assert list(numbered_lines(tmp_path / name)) == list(enumerate(lines, start=1))


@pytest.mark.parametrize("packed", [False, True])
def test_a_bad_line_is_named_after_the_good_ones(tmp_path: Path, packed: bool) -> None:
    path = put(tmp_path / "bad", b"fine\ncaf\xe9\n", packed=packed)
    lines = numbered_lines(path)
    assert next(lines) == (1, "fine")
    with pytest.raises(InputError) as error:
        next(lines)
    assert str(error.value) == f"{path}:2: not UTF-8 (invalid continuation byte at byte 4)"


def test_a_long_line_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "LINE_BYTES", 10)
    path = put(tmp_path / "long", b"123456789\n1234567890\n")
    with pytest.raises(InputError, match=r"long:2: the line has more than 10 bytes"):
        list(numbered_lines(path))


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda data: data[:-9], "Compressed file ended before"),
        (lambda data: data[:20] + bytes(10) + data[30:], ""),
        (lambda data: data[:-8] + bytes(8), "CRC check failed"),
        (lambda _: b"\x1f\x8bnonsense", "Unknown compression method"),
        (lambda data: data + b"more", "Not a gzipped file"),
    ],
)
def test_a_damaged_gz_is_named(tmp_path: Path, damage: Any, says: str) -> None:
    data = "".join(f"line {i * 7919}\n" for i in range(50)).encode()
    path = tmp_path / "lines"
    path.write_bytes(damage(gzip.compress(data)))
    with pytest.raises(InputError, match=f"lines is damaged: .*{says}"):
        list(numbered_lines(path))


def test_a_missing_file_and_a_folder_are_named(tmp_path: Path) -> None:
    for path in (tmp_path / "none", put(tmp_path / "file", b"") / "below"):
        with pytest.raises(InputError, match=f"^{path} is missing$"):
            list(numbered_lines(path))
    with pytest.raises(InputError, match="is a folder, expected a file"):
        list(numbered_lines(tmp_path))


def test_names_that_are_not_text_can_be_printed(tmp_path: Path) -> None:
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/f\xff"))
    with pytest.raises(InputError) as error:
        list(numbered_lines(path))
    assert str(error.value).endswith(r"f\udcff is missing")
    str(error.value).encode()


def half_written(path: Path, error: type[BaseException]) -> None:
    with writing(path) as file:
        file.write(b"half")
        raise error


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz"])
def test_a_write_that_fails_leaves_what_was_there(
    tmp_path: Path, name: str, error: type[BaseException]
) -> None:
    path = tmp_path / name
    for before in (None, "before"):
        if before is not None:
            write_text(path, before)
        with pytest.raises(error):
            half_written(path, error)
        assert [entry.name for entry in tmp_path.iterdir()] == ([name] if before else [])
    assert list(numbered_lines(path)) == [(1, "before")]


def test_a_file_replaces_the_old_one_when_it_is_complete_and_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a"
    write_text(path, "before")
    events: list[str] = []
    fsync, replace = os.fsync, Path.replace

    def synced(handle: int) -> None:
        events.append(f"{os.fstat(handle).st_size} bytes synced")
        fsync(handle)

    def replaced(old: Path, new: Path) -> Path:
        events.append("replaced")
        return replace(old, new)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(Path, "replace", replaced)
    with writing(path) as file:
        file.write(b"after")
        assert path.read_text() == "before"
    assert path.read_text() == "after"
    if hasattr(os, "sched_getaffinity"):  # elsewhere files are synced by other calls
        assert events == ["5 bytes synced", "replaced"]


def test_packed_files_depend_on_their_content_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for hour, name in enumerate(("a.gz", "b.gz")):
        monkeypatch.setattr("time.time", lambda hour=hour: 3600.0 * hour)
        write_text(tmp_path / name, "text\n")
    assert (tmp_path / "a.gz").read_bytes() == (tmp_path / "b.gz").read_bytes()
    assert gzip.decompress((tmp_path / "a.gz").read_bytes()) == b"text\n"
