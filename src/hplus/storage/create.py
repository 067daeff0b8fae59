"""A new index: the folder, its lock and a catalogue without documents."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hplus.errors import IndexDamagedError, InputError
from hplus.storage import catalogue
from hplus.storage.catalogue import Settings
from hplus.storage.disk import Disk, as_storage_error
from hplus.storage.snapshot import CATALOGUE, LOCK, SEGMENTS


def create(path: Path, settings: Settings, disk: Disk, terms: Sequence[str] = ()) -> None:
    """An empty index; the folder must be new or empty."""
    with as_storage_error(path, "creating"):
        new = {path, *(folder for folder in path.parents if not folder.exists())}
        disk.create_folder(path)
        _check_new(path, disk)
        with disk.lock(path / LOCK):
            _check_new(path, disk)  # somebody may have been quicker
            disk.create_folder(path / SEGMENTS)
            disk.sync(path)
            for folder in new:
                disk.sync(folder.parent)
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
