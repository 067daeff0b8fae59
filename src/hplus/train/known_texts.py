"""Which texts came before, and their labels, while training data are read.

They are in a temporary table, by their hashes, which SQLite keeps on disk, so memory stays bounded.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Sequence

from hplus.types import Span


class KnownTexts:
    """The texts of one side: a number for each, in the order of the rows, and units."""

    def __init__(self) -> None:
        self.count = 0
        self.table = sqlite3.connect("")
        self.table.execute("PRAGMA journal_mode = OFF")  # nothing is ever taken back
        self.table.execute(
            "CREATE TABLE texts (hash BLOB PRIMARY KEY, number INTEGER, units TEXT) WITHOUT ROWID"
        )

    def number(self, text: str) -> int | None:
        """The number of a text, None if it has not been added."""
        found: tuple[int | None] | None = self.table.execute(
            "SELECT number FROM texts WHERE hash = ?", (_hash(text),)
        ).fetchone()
        return found[0] if found else None

    def add(self, text: str) -> int:
        """The number of a text, the next one if it is new."""
        known = self.number(text)
        if known is not None:
            return known
        self._set("number", text, self.count)
        self.count += 1
        return self.count - 1

    def label(self, text: str, units: Sequence[Span]) -> None:
        """Units of a text; the last ones count."""
        self._set("units", text, json.dumps(units))

    def units(self, text: str) -> list[Span] | None:
        """The units of a text, None where it has no label."""
        found: tuple[str | None] | None = self.table.execute(
            "SELECT units FROM texts WHERE hash = ?", (_hash(text),)
        ).fetchone()
        if found is None or found[0] is None:
            return None
        return [Span(*unit) for unit in json.loads(found[0])]

    def _set(self, column: str, text: str, value: int | str) -> None:
        self.table.execute(
            f"INSERT INTO texts (hash, {column}) VALUES (?, ?) "
            f"ON CONFLICT (hash) DO UPDATE SET {column} = excluded.{column}",
            (_hash(text), value),
        )


def _hash(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
