"""The last confirmed generation, noted beside the catalogue.

SQLite's latest commits are in its write-ahead log. If that is lost or damaged, SQLite opens an
older state without a word, and the next writer would remove the segments that this state does not
name. The note is a lower bound: a catalogue below it has lost something.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from hplus.errors import IndexDamagedError
from hplus.storage.disk import Disk

CONFIRMED = "confirmed"


def note(path: Path, disk: Disk, generation: int) -> None:
    """Note a generation that is committed."""
    disk.replace(path / CONFIRMED, _line(generation))


def noted(path: Path, disk: Disk) -> int | None:
    """The generation that was noted last; None in an index of an older hplus.

    Read it before the catalogue: a writer may confirm something in between.
    """
    file = path / CONFIRMED
    if not file.exists():
        return None
    line = disk.read(file, 200) if file.is_file() else b""
    number = line.split(b" ")[0]
    if not (number.isdigit() and _line(int(number)) == line):
        raise IndexDamagedError(
            f"{file} is damaged; restore it, or remove it if nothing else in the folder was damaged"
        )
    return int(number)


def check(path: Path, generation: int, noted: int | None) -> None:
    """Refuse a catalogue that is older than what was confirmed."""
    if noted is not None and generation < noted:
        raise IndexDamagedError(
            f"the catalogue of {path} is at generation {generation}, but {noted} was confirmed: "
            "its write-ahead log (catalogue.sqlite-wal) was lost or damaged; restore the folder "
            f"from a copy, or remove {path / CONFIRMED} to go on without the last changes "
            f"({noted - generation}) and repeat them; nothing of them is removed for you"
        )


def _line(generation: int) -> bytes:
    number = str(generation)
    return f"{number} {hashlib.sha256(number.encode()).hexdigest()}\n".encode()
