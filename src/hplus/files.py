"""Files: written whole or not at all, read line by line, every mistake with its place.

Texts (documents, runs, terms, labels) are UTF-8, plain or gz: the first bytes decide, whatever the
name says. A byte order mark is skipped. Lines are read in bounded memory.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import secrets
import stat
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from hplus.errors import HPlusError, InputError
from hplus.terminal import on_one_line

LINE_BYTES = 64 * 2**20
"""The longest line, CSV cell or text file that is read into memory."""
JSON_BYTES = 4 * 2**20
"""The largest file of settings; an object of that size takes 100 MB."""


@contextmanager
def writing(path: Path) -> Iterator[io.BufferedIOBase]:
    """A binary file that replaces `path` when the block ends; if it fails, nothing has changed.

    Compressed if the name ends in .gz, without name or time in its header: the same content gives
    the same bytes.
    """
    # Processes of several machines may write the same file on a shared disk.
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}.draft")
    try:
        with draft.open("wb") as raw:
            if path.suffix == ".gz":
                with gzip.GzipFile("", "wb", fileobj=raw, mtime=0) as packed:
                    yield packed
            else:
                yield raw
        sync(draft)  # else a power cut may leave the new name with an empty file
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """A file with this text in UTF-8, whole or not at all."""
    with writing(path) as file:
        file.write(text.encode())


def sync(path: Path) -> None:
    """The bytes of a file, or the names in a folder, are on the disk when this returns."""
    if path.is_dir() and os.name == "nt":
        return  # Windows has no handle of a folder that could be synced
    handle = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        _sync(handle)
    finally:
        os.close(handle)


if os.name == "nt":  # pragma: no cover

    def _sync(handle: int) -> None:
        os.fsync(handle)
else:
    import fcntl

    def _sync(handle: int) -> None:
        if hasattr(fcntl, "F_FULLFSYNC"):  # macOS: fsync stops at the drive's own memory
            fcntl.fcntl(handle, fcntl.F_FULLFSYNC)
        else:
            os.fsync(handle)


def numbered_lines(path: Path) -> Iterator[tuple[int, str]]:
    """The lines of a file without their ends, numbered from 1; InputError names file and line."""
    name = shown(path)
    with readable(name), path.open("rb") as raw:
        yield from numbered(unpacked(raw), name)


def numbered(stream: IO[bytes], name: str) -> Iterator[tuple[int, str]]:
    """The same for a stream that is called `name` in errors."""
    lines = Lines(stream)
    while True:
        try:
            line = next(lines, None)
        except InputError as error:
            raise InputError(f"{name}:{lines.number}: {error}") from None
        if line is None:
            return
        yield lines.number, line.rstrip("\r\n")


class Lines:
    """The decoded lines of a stream with their ends; `number` is that of the last one.

    An iterator, not a generator: after a bad line it continues with the next.
    """

    def __init__(self, stream: IO[bytes], *, errors: str = "strict") -> None:
        self.stream = stream
        self.errors = errors
        self.number = 0
        self._inside_line = False

    def __iter__(self) -> Lines:
        return self

    def __next__(self) -> str:
        while self._inside_line:
            rest = self.stream.readline(2**20)
            self._inside_line = bool(rest) and not rest.endswith(b"\n")
        line = self.stream.readline(LINE_BYTES + 1)
        if not line:
            raise StopIteration
        self.number += 1
        if len(line) > LINE_BYTES:
            # Skipped only if the next line is wanted: of a gz file the rest may be endless.
            self._inside_line = not line.endswith(b"\n")
            raise InputError(f"the line has more than {megabytes(LINE_BYTES)}")
        return decoded(line, first=self.number == 1, errors=self.errors)


def decoded(data: bytes, *, first: bool, errors: str = "strict") -> str:
    """UTF-8 as text; a byte order mark is skipped where a file begins (`first`)."""
    try:
        return data.decode("utf-8-sig" if first else "utf-8", errors)
    except UnicodeDecodeError as error:
        raise InputError(f"not UTF-8 ({error.reason} at byte {error.start + 1})") from None


def unpacked(stream: io.BufferedReader) -> io.BufferedReader:
    """The stream, decompressed if it begins as gz does."""
    if stream.peek(2)[:2] != b"\x1f\x8b":
        return stream
    return io.BufferedReader(gzip.GzipFile(fileobj=stream))


@contextmanager
def readable(name: str) -> Iterator[None]:
    """Errors of the system and of gz become one InputError about the file `name`."""
    try:
        yield
    except (FileNotFoundError, NotADirectoryError):
        raise InputError(f"{name} is missing") from None
    except IsADirectoryError:
        raise InputError(f"{name} is a folder, expected a file") from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"{name} is damaged: {error}") from None
    except OSError as error:
        raise InputError(f"cannot read {name}: {error.strerror or error}") from None


def check_regular(path: Path, error: type[HPlusError]) -> None:
    """Refuse what is there but is not a file: a pipe would make us wait, a device never ends."""
    try:
        status = path.stat()
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as cause:
        raise error(f"cannot read {shown(path)}: {cause}") from None
    if not stat.S_ISREG(status.st_mode):
        raise error(f"{shown(path)} is not a regular file; expected one, got {_kind(status)}")


def read_bytes(path: Path, most: int, error: type[HPlusError]) -> bytes:
    """A whole file of at most `most` bytes; FileNotFoundError is the caller's to explain."""
    check_regular(path, error)
    try:
        with path.open("rb") as file:
            data = file.read(most + 1)
    except FileNotFoundError:
        raise
    except OSError as cause:
        raise error(f"cannot read {shown(path)}: {cause.strerror or cause}") from None
    if len(data) > most:
        raise error(f"{shown(path)} has more than {megabytes(most)}, which is the limit here")
    return data


def read_object(path: Path, error: type[HPlusError]) -> dict[str, Any]:
    """The JSON object in a file of settings, which somebody else may have written."""
    try:
        found = json.loads(read_bytes(path, JSON_BYTES, error).decode())
    except RecursionError:
        raise error(f"{shown(path)} is nested too deeply") from None
    except ValueError as cause:
        raise error(f"{shown(path)} is not JSON: {cause}") from None
    if not isinstance(found, dict):
        raise error(f"{shown(path)} holds a {type(found).__name__}, expected an object")
    return found


def _kind(status: os.stat_result) -> str:
    kinds = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}
    return kinds.get(stat.S_IFMT(status.st_mode), "a device")


def megabytes(size: int) -> str:
    """A limit for people."""
    return f"{size / 2**20:.0f} MB" if size >= 2**20 else f"{size} bytes"


def shown(path: str | os.PathLike[str]) -> str:
    """A name that can be printed: file names may hold bytes that are not text, and line ends."""
    return on_one_line(os.fspath(path).encode(errors="backslashreplace").decode())
