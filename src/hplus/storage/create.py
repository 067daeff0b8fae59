"""A new index: the folder, its lock and a catalogue without documents; and its removal, if it stays
without."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from hplus.errors import HPlusError, IndexDamagedError, InputError
from hplus.storage import catalogue, confirmed
from hplus.storage.catalogue import Settings
from hplus.storage.disk import Disk, as_storage_error
from hplus.storage.segment_file import SEGMENTS
from hplus.storage.snapshot import CATALOGUE, LOCK, check_own


def create(path: Path, settings: Settings, disk: Disk, terms: Sequence[str] = ()) -> None:
    """An empty index; the folder must be new or empty."""
    if path.exists() and not path.is_dir():
        raise InputError(
            f"{path} is a file, expected a folder for the index; choose another name, such as "
            f"{path.with_suffix('.hplus').name}"
        )
    with as_storage_error(path, "creating"):
        new = {path, *(folder for folder in path.parents if not folder.exists())}
        disk.create_folder(path)
        check_own(path, disk)
        _check_new(path, disk)
        with disk.lock(path / LOCK):
            _check_new(path, disk)  # somebody may have been quicker
            disk.create_folder(path / SEGMENTS)
            disk.sync(path)
            for folder in new:
                disk.sync(folder.parent)
            # Before the index exists: one without this note is of an older hplus.
            confirmed.note(path, disk, 0)
            connection = disk.connect(path / CATALOGUE, write=True)
            try:
                connection.execute(catalogue.LOGGED)
                with catalogue.transaction(disk, connection):
                    catalogue.create(connection, settings, terms)
            finally:
                connection.close()
            disk.sync(path)


def _check_new(path: Path, disk: Disk) -> None:
    """The folder holds nothing, or only the leftovers of a creation that was interrupted."""
    leftovers = {LOCK, SEGMENTS, *(CATALOGUE + end for end in ("", "-wal", "-shm"))}
    leftovers |= {confirmed.CONFIRMED + end for end in ("", ".new")}
    used = not leftovers.issuperset(disk.names(path))
    if not used and (path / SEGMENTS).exists():
        used = bool(disk.names(path / SEGMENTS))
    if not used and (path / CATALOGUE).exists():
        connection = disk.connect(path / CATALOGUE, write=False)
        try:
            used = bool(catalogue.select(connection, "SELECT 1 FROM sqlite_master"))
        except IndexDamagedError:
            used = True
        finally:
            connection.close()
    if used:
        raise InputError(f"{path} is not empty; open the index there, or choose a new folder")


class New:
    """A block that makes an index at `path`: if it fails before anything is confirmed, the index is
    removed again, and the folders that were made for it."""

    def __init__(self, path: Path, disk: Disk | None = None) -> None:
        self.path, self.disk = path, disk or Disk()
        self.folders = [folder for folder in (path, *path.parents) if not folder.exists()]

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            with suppress(HPlusError, OSError):  # the first error is the one to report
                self._remove()

    def _remove(self) -> None:
        if not (self.path / CATALOGUE).is_file():
            return
        with self.disk.lock(self.path / LOCK):
            connection = self.disk.connect(self.path / CATALOGUE, write=False)
            try:
                _, generation = catalogue.read_settings(connection, self.path / CATALOGUE)
            finally:
                connection.close()
            if generation or confirmed.noted(self.path, self.disk):
                return
            for name in self.disk.names(self.path / SEGMENTS):  # an unfinished write
                self.disk.remove(self.path / SEGMENTS / name)
            for end in ("", "-wal", "-shm"):
                self.disk.remove(self.path / (CATALOGUE + end))
            for name in (confirmed.CONFIRMED, LOCK):
                self.disk.remove(self.path / name)
        for folder in (self.path / SEGMENTS, *self.folders):
            self.disk.remove_folder(folder)
