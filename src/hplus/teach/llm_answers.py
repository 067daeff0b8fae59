"""Raw answers of a language model on disk, by the SHA-256 of what was asked.

Answers cost time or money, so each is confirmed as soon as it arrives: a killed run continues where
it was. SQLite in write-ahead mode; whoever wants to read along finds the text beside its answer.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from hplus.errors import StorageError
from hplus.files import shown

_TABLE = """
CREATE TABLE IF NOT EXISTS answers (
  key TEXT PRIMARY KEY, model TEXT NOT NULL, text TEXT NOT NULL,
  answer TEXT NOT NULL, sha256 TEXT NOT NULL
)
"""


class Answers:
    """Answers by key; open one with `open_answers`."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path, self.connection = path, connection

    def __contains__(self, key: str) -> bool:
        query = "SELECT 1 FROM answers WHERE key = ?"
        return self.connection.execute(query, (key,)).fetchone() is not None

    def __len__(self) -> int:
        (count,) = self.connection.execute("SELECT count(*) FROM answers").fetchone()
        return int(count)

    def get(self, key: str) -> dict[str, Any] | None:
        """The body of the answer, as it came."""
        query = "SELECT answer, sha256 FROM answers WHERE key = ?"
        row = self.connection.execute(query, (key,)).fetchone()
        if row is None:
            return None
        if _checksum(row[0]) != row[1]:
            raise StorageError(
                f"{shown(self.path)} is damaged: the answer {key[:12]}… has changed since it was "
                "written; delete the file to ask again"
            )
        found: dict[str, Any] = json.loads(row[0])
        return found

    def keep(self, key: str, model: str, text: str, answer: dict[str, Any]) -> None:
        """Confirmed when this returns; the first answer to a question stays."""
        # Escaped in the answer, replaced in the text: SQLite cannot hold lone surrogates.
        raw = json.dumps(answer)
        readable = text.encode(errors="replace").decode()
        self.connection.execute(
            "INSERT OR IGNORE INTO answers VALUES (?, ?, ?, ?, ?)",
            (key, model, readable, raw, _checksum(raw)),
        )


@contextmanager
def open_answers(path: Path) -> Iterator[Answers]:
    """The answers in a file, which is made if it is missing; failures are one sentence."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Every statement is a transaction of its own.
        with closing(sqlite3.connect(path, isolation_level=None, timeout=30)) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute(_TABLE)
            yield Answers(path, connection)
    except sqlite3.Error as error:
        raise StorageError(f"the answers in {shown(path)} cannot be used: {error}") from error


def _checksum(answer: str) -> str:
    return hashlib.sha256(answer.encode()).hexdigest()
