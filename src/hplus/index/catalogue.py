"""The catalogue: one SQLite file that says what an index is.

It is the only authority. A segment exists when its row is committed; a document is found through
its row; what no row names is rubbish. All statements have bound parameters.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hplus.errors import IndexDamagedError, InputError
from hplus.index.segment import FORMATS, Format
from hplus.index.store import DATABASE_ERRORS, of_database
from hplus.units.select import Budget
from hplus.views.fusion import check_alphas

VERSION = 1
# "h+ix": so that no other SQLite file is taken for ours.
APPLICATION = 0x682B6978
# Parameters of one statement; SQLite allows 32,766.
MANY = 10_000
# Numbers of documents and segments stay far below what arithmetic on 64 bits can hold.
LAST_NUMBER = 1 << 62

SCHEMA = """
CREATE TABLE settings (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE terms (term TEXT NOT NULL);
CREATE TABLE segments (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    documents INTEGER NOT NULL, units INTEGER NOT NULL, bytes INTEGER NOT NULL, sha256 TEXT NOT NULL
);
CREATE TABLE documents (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL, segment INTEGER NOT NULL, place INTEGER NOT NULL,
    hash BLOB NOT NULL, text TEXT NOT NULL, metadata TEXT NOT NULL,
    deleted INTEGER NOT NULL DEFAULT 0
);
CREATE UNIQUE INDEX live ON documents (id) WHERE deleted = 0;
CREATE INDEX gone ON documents (segment, place) WHERE deleted = 1;
"""


@dataclass(frozen=True)
class Settings:
    """What an index was made with; fixed at creation but for what `compact` makes smaller.

    fingerprint: of the model; model: what it was called, to load it again.
    """

    fingerprint: str
    model: str | None
    global_width: int
    width: int
    budget: Budget
    format: Format
    fusion: Mapping[str, float]

    def __post_init__(self) -> None:
        if self.format not in FORMATS:
            raise InputError(f"format {self.format!r} asked; known: {', '.join(FORMATS)}")
        for name in ("global_width", "width"):
            value = getattr(self, name)
            if type(value) is not int or value < 1:
                raise InputError(f"{name} {value!r} asked; a number of 1 or more is expected")
        if not isinstance(self.fingerprint, str) or not isinstance(self.model, str | None):
            raise InputError("fingerprint and model are texts")
        check_alphas(self.fusion)


@dataclass(frozen=True)
class SegmentRow:
    """A segment as the catalogue names it."""

    number: int
    documents: int
    units: int
    bytes: int
    sha256: str

    def __post_init__(self) -> None:
        for name in ("number", "documents", "units", "bytes"):
            value = getattr(self, name)
            if type(value) is not int or value < 0:
                raise IndexDamagedError(
                    f"segment {self.number} has {name} {value!r} in the catalogue; a number of 0 "
                    "or more is expected; restore the catalogue"
                )

    @property
    def file(self) -> str:
        """Its name in the folder of segments."""
        return f"{self.number:08d}.safetensors"


@dataclass(frozen=True)
class DocumentRow:
    """A document as the catalogue names it."""

    number: int
    id: str
    segment: int
    place: int
    hash: bytes
    text: str
    metadata: dict[str, Any]


_DOCUMENT = "number, id, segment, place, hash, text, metadata"


def create(connection: sqlite3.Connection, settings: Settings, terms: Iterable[str]) -> None:
    """Tables and settings of an empty index; to be committed by the caller.

    The terminology that the model was given belongs to the index: queries are cut by it too.
    """
    connection.execute(f"PRAGMA application_id = {APPLICATION}")
    connection.execute(f"PRAGMA user_version = {VERSION}")
    for statement in SCHEMA.split(";")[:-1]:
        connection.execute(statement)
    write_settings(connection, settings)
    connection.execute("INSERT INTO settings VALUES ('generation', '0')")
    connection.executemany("INSERT INTO terms VALUES (?)", ((term,) for term in terms))


def check_version(connection: sqlite3.Connection, path: Path) -> None:
    """Only a catalogue of ours and of a format that is known."""
    ((application,),) = select(connection, "PRAGMA application_id")
    ((version,),) = select(connection, "PRAGMA user_version")
    if application != APPLICATION:
        raise IndexDamagedError(f"{path} is not the catalogue of an hplus index")
    if version != VERSION:
        raise InputError(
            f"{path} has format {version}, this hplus reads {VERSION}; "
            + ("update hplus" if version > VERSION else "index the documents again")
        )


def write_settings(connection: sqlite3.Connection, settings: Settings) -> None:
    """New settings in place of the old ones."""
    rows = {**asdict(settings), "fusion": dict(settings.fusion)}
    connection.executemany(
        "INSERT OR REPLACE INTO settings VALUES (?, ?)",
        [(name, json.dumps(value)) for name, value in rows.items()],
    )


def read_settings(connection: sqlite3.Connection, path: Path) -> tuple[Settings, int]:
    """The settings and the generation, which every confirmed change raises by one."""
    found = select(connection, "SELECT name, value FROM settings")
    try:
        rows = {name: json.loads(value) for name, value in found}
        generation = rows.pop("generation")
        rows["budget"] = Budget(**rows["budget"])
        if type(generation) is not int or generation < 0:
            raise ValueError(f"{generation!r} is no generation")
        return Settings(**rows), generation
    except _NOT_OURS as error:
        raise IndexDamagedError(f"the settings in {path} cannot be read: {error}") from None


def next_generation(connection: sqlite3.Connection) -> None:
    """Readers see by it that something changed."""
    connection.execute(
        "UPDATE settings SET value = CAST(value AS INTEGER) + 1 WHERE name = 'generation'"
    )


def terms(connection: sqlite3.Connection) -> list[str]:
    """The terminology, in the order in which it was given."""
    return [term for (term,) in select(connection, "SELECT term FROM terms ORDER BY rowid")]


def segments(connection: sqlite3.Connection) -> list[SegmentRow]:
    """All segments, oldest first."""
    found = select(
        connection, "SELECT number, documents, units, bytes, sha256 FROM segments ORDER BY number"
    )
    return [SegmentRow(*row) for row in found]


def next_numbers(connection: sqlite3.Connection) -> tuple[int, int]:
    """The next document's number and the next segment's; neither is ever given twice."""
    found = dict(select(connection, "SELECT name, seq FROM sqlite_sequence"))
    last = found.get("documents", 0), found.get("segments", 0)
    if not all(type(number) is int and 0 <= number < LAST_NUMBER for number in last):
        raise IndexDamagedError(f"the catalogue says that {last} numbers were given out")
    return last[0] + 1, last[1] + 1


def deleted(connection: sqlite3.Connection) -> list[tuple[int, int]]:
    """Segment and place of every document that is gone."""
    return select(connection, "SELECT segment, place FROM documents WHERE deleted = 1")


def by_id(connection: sqlite3.Connection, ids: Sequence[str]) -> dict[str, DocumentRow]:
    """The living documents among these ids."""
    found = _in(connection, f"SELECT {_DOCUMENT} FROM documents WHERE deleted = 0 AND id IN", ids)
    return {row.id: row for row in map(_document, found)}


def by_number(connection: sqlite3.Connection, numbers: Sequence[int]) -> dict[int, DocumentRow]:
    """Documents by their numbers."""
    found = _in(connection, f"SELECT {_DOCUMENT} FROM documents WHERE number IN", numbers)
    return {row.number: row for row in map(_document, found)}


def ids_of(connection: sqlite3.Connection, numbers: Sequence[int]) -> dict[int, str]:
    """The ids alone."""
    return dict(_in(connection, "SELECT number, id FROM documents WHERE number IN", numbers))


def everything(connection: sqlite3.Connection) -> Iterator[DocumentRow]:
    """All living documents in the order of their numbers."""
    return map(
        _document,
        stream(connection, f"SELECT {_DOCUMENT} FROM documents WHERE deleted = 0 ORDER BY number"),
    )


def insert(connection: sqlite3.Connection, rows: Iterable[DocumentRow]) -> None:
    """New documents."""
    connection.executemany(
        f"INSERT INTO documents ({_DOCUMENT}) VALUES (?, ?, ?, ?, ?, ?, ?)",
        ((r.number, r.id, r.segment, r.place, r.hash, r.text, dump(r.metadata)) for r in rows),
    )


def change_metadata(
    connection: sqlite3.Connection, metadata: Mapping[str, Mapping[str, Any]]
) -> None:
    """Living documents get other metadata; their text stays."""
    connection.executemany(
        "UPDATE documents SET metadata = ? WHERE deleted = 0 AND id = ?",
        ((dump(value), id_) for id_, value in metadata.items()),
    )


def mark_deleted(connection: sqlite3.Connection, ids: Iterable[str]) -> int:
    """Living documents of these ids are gone; how many there were."""
    before = connection.total_changes
    connection.executemany(
        "UPDATE documents SET deleted = 1 WHERE deleted = 0 AND id = ?", ((id_,) for id_ in ids)
    )
    return connection.total_changes - before


def dump(metadata: Mapping[str, Any]) -> str:
    """Metadata as it is stored: equal metadata, equal text."""
    return json.dumps(metadata, ensure_ascii=False, sort_keys=True, allow_nan=False)


def _document(row: tuple[Any, ...]) -> DocumentRow:
    number, id_, segment, place, digest, text, metadata = row
    if not isinstance(id_, str) or not isinstance(text, str):
        raise IndexDamagedError(
            f"the id or the text of document {number} is no text; restore the catalogue"
        )
    try:
        parsed = load(metadata)
    except ValueError as error:
        raise IndexDamagedError(
            f"the metadata of document {id_!r} cannot be read: {error}; restore the catalogue"
        ) from None
    return DocumentRow(number, id_, segment, place, digest, text, parsed)


def load(metadata: str) -> dict[str, Any]:
    """Metadata as `dump` writes it; ValueError for everything else."""
    try:
        parsed = _DECODER.decode(metadata)
    except _NOT_OURS as error:
        raise ValueError(str(error)) from None
    if not isinstance(parsed, dict):
        raise ValueError(f"an object is expected, {type(parsed).__name__} came")
    return parsed


def _no_number(name: str) -> None:
    raise ValueError(f"{name} is no number")


_DECODER = json.JSONDecoder(parse_constant=_no_number)
# What reading and taking apart of JSON raises when it is not ours.
_NOT_OURS = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)


def select(
    connection: sqlite3.Connection, statement: str, values: Sequence[Any] = ()
) -> list[tuple[Any, ...]]:
    """All rows that a statement finds."""
    return list(stream(connection, statement, values))


def stream(
    connection: sqlite3.Connection, statement: str, values: Sequence[Any] = ()
) -> Iterator[tuple[Any, ...]]:
    """The rows that a statement finds, one after another."""
    try:
        yield from connection.execute(statement, values)
    except DATABASE_ERRORS as error:
        raise of_database(error, _file(connection), "reading") from error


def _file(connection: sqlite3.Connection) -> str:
    try:
        return str(connection.execute("PRAGMA database_list").fetchone()[2])
    except sqlite3.Error:
        return "the catalogue"


def _in(
    connection: sqlite3.Connection, statement: str, values: Sequence[Any]
) -> Iterator[tuple[Any, ...]]:
    for first in range(0, len(values), MANY):
        some = values[first : first + MANY]
        yield from select(connection, f"{statement} ({','.join('?' * len(some))})", some)
