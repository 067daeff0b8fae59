"""The ids of a source while it is read: which repeat, and what an index has beyond them.

They are in a temporary table, which SQLite keeps on disk, so memory stays bounded.
"""

from __future__ import annotations

import sqlite3

from hplus.storage import catalogue
from hplus.storage.disk import DATABASE_ERRORS, of_database

_OTHERS = "deleted = 0 AND id NOT IN (SELECT id FROM temp.seen)"


class Seen:
    """Ids that were noted on a writing connection; one at a time."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        connection.execute("DROP TABLE IF EXISTS temp.seen")
        connection.execute("CREATE TEMP TABLE seen (id TEXT PRIMARY KEY) WITHOUT ROWID")

    def note(self, id_: str) -> bool:
        """Note an id; whether it is the first of its kind."""
        try:
            statement = "INSERT OR IGNORE INTO temp.seen VALUES (?)"
            return self.connection.execute(statement, (id_,)).rowcount == 1
        except DATABASE_ERRORS as error:
            raise of_database(error, "the temporary list of ids", "writing to") from error

    def others(self) -> int:
        """How many documents of the index have another id."""
        ((count,),) = catalogue.select(
            self.connection, f"SELECT count(*) FROM documents WHERE {_OTHERS}"
        )
        return int(count)

    def delete_others(self) -> int:
        """Delete those documents; returns how many there were."""
        statement = f"UPDATE documents SET deleted = 1 WHERE {_OTHERS}"
        return self.connection.execute(statement).rowcount
