"""The only module that touches the files of an index.

Everything that must survive a power cut goes through `Disk`, so that a test can stop it at every
operation, undo what was not synced yet, and open the index again.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sqlite3
import stat
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from hplus import files
from hplus.errors import HPlusError, IndexBusyError, IndexDamagedError, InputError, StorageError
from hplus.storage.mapping import map_file


class Disk:
    """Files, folders, a lock and a catalogue; a write is safe once it has been synced."""

    def create_folder(self, path: Path) -> None:
        """A new folder and its parents; existing ones stay."""
        path.mkdir(parents=True, exist_ok=True)

    def write(self, path: Path, parts: Iterable[bytes | memoryview]) -> tuple[int, str]:
        """A new file of these parts; returns its length and SHA-256. Not safe before `sync`.

        A file that exists is never written to: it fails with FileExistsError.
        """
        digest, size = hashlib.sha256(), 0
        with path.open("xb") as file:
            for part in parts:
                file.write(part)
                digest.update(part)
                size += len(part)
        return size, digest.hexdigest()

    def sync(self, path: Path) -> None:
        """The bytes of a file, or the names in a folder, are on the disk when this returns."""
        files.sync(path)

    def read(self, path: Path, most: int) -> bytes:
        """The first bytes of a small file."""
        with path.open("rb") as file:
            return file.read(most)

    def replace(self, path: Path, data: bytes) -> None:
        """A file with other bytes: after a power cut either the old ones are there or these."""
        new = path.with_name(f"{path.name}.new")
        if new.exists():  # of an unfinished write
            self.remove(new)
        self.write(new, [data])
        self.sync(new)
        self.rename(new, path)
        self.sync(path.parent)

    def rename(self, old: Path, new: Path) -> None:
        """Another name for a file, in place of the file that had it."""
        old.replace(new)

    def remove(self, path: Path) -> None:
        """Remove a file; on Windows, one that a reader holds stays until the next sweep."""
        with contextlib.suppress(FileNotFoundError, PermissionError):
            path.unlink()

    def remove_folder(self, path: Path) -> None:
        """Remove a folder; one that is not empty stays."""
        with contextlib.suppress(OSError):
            path.rmdir()

    def is_own(self, path: Path) -> bool:
        """Whether this is a file or a folder itself, or nothing: no link, pipe or device."""
        try:
            mode = path.lstat().st_mode
        except (FileNotFoundError, NotADirectoryError):
            return True
        return stat.S_ISREG(mode) or stat.S_ISDIR(mode)

    def names(self, folder: Path) -> list[str]:
        """The names in a folder, sorted."""
        return sorted(entry.name for entry in folder.iterdir())

    def size(self, path: Path) -> int:
        """Bytes of a file."""
        return path.stat().st_size

    def map(self, path: Path) -> memoryview:
        """A file as read-only memory, which stays readable when the file is removed."""
        with path.open("rb") as file:
            return map_file(file.fileno())

    def digest(self, path: Path) -> str:
        """SHA-256 of a file, read from start to end."""
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    def connect(self, path: Path, *, write: bool) -> sqlite3.Connection:
        """The catalogue; every commit of it is one atomic, durable step."""
        if write:
            uri = f"{path.absolute().as_uri()}?mode=rwc"
        elif os.access(path.parent, os.W_OK) or path.with_name(path.name + "-wal").exists():
            uri = f"{path.absolute().as_uri()}?mode=rw"
        else:  # a folder that cannot be written needs no lock against writers
            uri = f"{path.absolute().as_uri()}?mode=ro&immutable=1"
        connection = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False)
        if write:
            try:
                connection.execute("PRAGMA synchronous = FULL")
                connection.execute("PRAGMA fullfsync = ON")  # macOS, see files.sync
            except BaseException:
                connection.close()
                raise
        return connection

    def commit(self, connection: sqlite3.Connection) -> None:
        """Everything since BEGIN takes effect, all or nothing."""
        connection.execute("COMMIT")

    def checkpoint(self, connection: sqlite3.Connection) -> int:
        """Empty the write-ahead log into the catalogue as far as readers allow, without waiting;
        returns how many bytes of it they still need."""
        ((usual,),) = connection.execute("PRAGMA busy_timeout")
        connection.execute("PRAGMA busy_timeout = 0")
        ((busy, pages, _),) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        connection.execute(f"PRAGMA busy_timeout = {usual}")
        ((page,),) = connection.execute("PRAGMA page_size")
        return int(pages * page) if busy else 0

    @contextmanager
    def lock(self, path: Path) -> Iterator[None]:
        """One writer at a time; a second one fails at once instead of waiting."""
        with path.open("ab") as file:
            _lock(file.fileno(), path.parent)
            try:
                yield
            finally:
                _unlock(file.fileno())  # closing is not enough: a forked child has the file too


if os.name == "nt":  # pragma: no cover
    import msvcrt

    def _lock(handle: int, index: Path) -> None:
        try:
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined,unused-ignore]
        except OSError:
            raise _busy(index) from None

    def _unlock(handle: int) -> None:
        msvcrt.locking(handle, msvcrt.LK_UNLCK, 1)  # type: ignore[attr-defined,unused-ignore]
else:
    import fcntl

    def _lock(handle: int, index: Path) -> None:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise _busy(index) from None

    def _unlock(handle: int) -> None:
        fcntl.flock(handle, fcntl.LOCK_UN)


def _busy(index: Path) -> IndexBusyError:
    return IndexBusyError(f"another process is writing to {index}; wait until it has finished")


@contextmanager
def as_storage_error(index: Path, doing: str) -> Iterator[None]:
    """Failures of disk or database become one sentence; everything confirmed before is safe."""
    try:
        yield
    except OSError as error:
        raise _failed(f"{doing} {index}", error.strerror or str(error)) from error
    except DATABASE_ERRORS as error:
        raise of_database(error, index, doing) from error


@contextmanager
def after_commit(doing: str, remedy: str) -> Iterator[None]:
    """What follows a commit cannot make a call fail that has changed the index: it warns."""
    try:
        yield
    except (HPlusError, OSError, MemoryError, *DATABASE_ERRORS) as error:
        why = str(error) or type(error).__name__
        warnings.warn(
            f"the change is confirmed, but {doing} failed: {why}; {remedy}",
            RuntimeWarning,
            stacklevel=3,
        )


# The second if SQLite's message would quote bytes of a damaged file that are not text.
DATABASE_ERRORS = (sqlite3.Error, UnicodeDecodeError)


def of_database(error: Exception, path: Path | str, doing: str) -> HPlusError:
    """What SQLite's error means: the file is damaged, or the disk or a lock is in the way.

    Our statements are correct, so an error in one means that the tables or rows are not ours.
    """
    if isinstance(error, sqlite3.ProgrammingError):
        return InputError(f"the index at {path} was closed; open it again")
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
    if code in _DAMAGED:
        return IndexDamagedError(f"{path} is damaged: {error}; restore it, or index again")
    return _failed(f"{doing} {path}", str(error))


_DAMAGED = (
    sqlite3.SQLITE_ERROR,
    sqlite3.SQLITE_CORRUPT,
    sqlite3.SQLITE_NOTADB,
    sqlite3.SQLITE_CONSTRAINT,
    sqlite3.SQLITE_MISMATCH,
    sqlite3.SQLITE_FORMAT,
)


def _failed(doing: str, what: str) -> StorageError:
    return StorageError(
        f"{doing} failed: {what}; everything confirmed before is safe: fix the cause and run again"
    )
