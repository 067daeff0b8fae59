"""Files in the folder of segments that no row of the catalogue names.

Nearly always they are left by an unfinished write, or by a compaction that could not remove them,
and the next writer does. But an index that an older hplus wrote has no note of what was confirmed:
if its log was lost, its last segments look the same. Such a file is never removed.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

from hplus.errors import IndexDamagedError
from hplus.storage import catalogue
from hplus.storage.disk import Disk
from hplus.storage.segment_file import SEGMENTS, is_complete


def unnamed(path: Path, disk: Disk, connection: sqlite3.Connection) -> list[str]:
    """The names of all files that no row names."""
    named = {row.file for row in catalogue.segments(connection)}
    return [name for name in disk.names(path / SEGMENTS) if name not in named]


def maybe_confirmed(
    path: Path, disk: Disk, connection: sqlite3.Connection, noted: int | None
) -> list[str]:
    """Those of them that a lost log may have named: complete, and newer than the catalogue.

    noted: the generation that was confirmed at least, by which a lost log is known.
    """
    if noted is not None:
        return []
    last = catalogue.next_numbers(connection)[1] - 1
    return [
        name
        for name in unnamed(path, disk, connection)
        if name.split(".")[0].isdigit()
        and int(name.split(".")[0]) > last
        and is_complete(path / SEGMENTS / name)
    ]


def refuse(path: Path, names: list[str]) -> None:
    """Stop a writer that would remove these files, or write others of their names."""
    if names:
        raise IndexDamagedError(f"{about(path, names)}, or move them away to go on without them")


def about(path: Path, names: list[str]) -> str:
    """What they may be."""
    return (
        f"the catalogue of {path} does not name {', '.join(names)} in {SEGMENTS}, and an index of "
        "an older hplus has no note of what was confirmed: perhaps its write-ahead log "
        "(catalogue.sqlite-wal) was lost; restore it from a copy"
    )
