"""The catalogue: one SQLite file that says what an index holds.

It is the only authority. A segment exists when its row is committed; a document is found through
its row; files that no row names are leftovers. All statements have bound parameters.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from hplus.arguments import whole
from hplus.errors import BudgetError, IndexDamagedError, InputError
from hplus.storage.disk import DATABASE_ERRORS, Disk, of_database
from hplus.storage.segment import FORMATS, LARGEST, Format, check_format
from hplus.types import F32, Span
from hplus.units.select import Budget
from hplus.views.fusion import check_alphas

VERSION = 1
# Of an index whose documents are divided into passages: a segment has a row for each of them.
WITH_PASSAGES = 2
# Of an index whose codes are of what vectors are without a mean; passages or not.
WITH_MEAN = 3
# Of an index whose unit vectors are int4; with or without the others.
WITH_INT4 = 4
VERSIONS = (VERSION, WITH_PASSAGES, WITH_MEAN, WITH_INT4)
# "h+ix": so that no other SQLite file is taken for ours.
APPLICATION = 0x682B6978
# Parameters of one statement; SQLite allows 32,766.
MANY = 10_000
# Numbers of documents and segments stay far below the limits of 64 bits.
LAST_NUMBER = 1 << 62
# With a write-ahead log, readers continue while somebody writes.
LOGGED = "PRAGMA journal_mode = WAL"

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
    """What an index was made with; only `compact` changes it, to something smaller.

    The fingerprint identifies the model; `model` is its name, by which it is found again: a
    built-in name, a hub id or the name of a checkpoint folder (in older indexes: its path); None if
    the encodings were made elsewhere. passages: the most tokens of a passage; None if documents are
    not divided. mean: what is taken off the vectors of units before they become codes, `width`
    numbers that belong to the model; None if nothing is.
    """

    fingerprint: str
    model: str | None
    global_width: int
    width: int
    budget: Budget
    format: Format
    fusion: Mapping[str, float]
    passages: int | None = None
    mean: tuple[float, ...] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.format, str) or self.format not in FORMATS:
            raise InputError(f"unknown format {self.format!r}; known: {', '.join(FORMATS)}")
        for name in ("global_width", "width"):
            value = whole(name, getattr(self, name), 1, BudgetError)
            object.__setattr__(self, name, value)  # frozen for everyone else
        check_format(self.format, self.width)
        if self.passages is not None:
            tokens = whole("passages", self.passages)
            object.__setattr__(self, "passages", tokens)
        if not isinstance(self.fingerprint, str) or not isinstance(self.model, str | None):
            raise InputError("fingerprint and model must be texts")
        check_alphas(self.fusion)
        if self.mean is not None:
            object.__setattr__(self, "mean", _checked_mean(self.mean, self.format, self.width))

    @property
    def mean_vector(self) -> F32 | None:
        """The mean as an array, f32[width]."""
        return None if self.mean is None else np.array(self.mean, np.float32)

    @property
    def version(self) -> int:
        """The format of an index of these settings: the lowest that can tell them."""
        if self.format == "int4":
            return WITH_INT4
        if self.mean is not None:
            return WITH_MEAN
        return VERSION if self.passages is None else WITH_PASSAGES


def _checked_mean(mean: Sequence[float], format: Format, width: int) -> tuple[float, ...]:
    """Numbers of float32, as many as the vectors have columns."""
    with np.errstate(over="ignore"):  # what overflows is refused as infinite
        found = np.array(mean, np.float32)
    if format not in LARGEST or found.shape != (width,) or not np.isfinite(found).all():
        raise InputError(
            f"expected a mean of {width} finite numbers for int8 or int4, got one of shape "
            f"{found.shape} for {format}"
        )
    return tuple(found.tolist())


@dataclass(frozen=True)
class SegmentRow:
    """A segment as the catalogue describes it."""

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
                    f"the catalogue says that segment {self.number} has {name} {value!r}, expected "
                    "0 or more; restore the catalogue"
                )

    @property
    def file(self) -> str:
        """Its name in the folder of segments."""
        return f"{self.number:08d}.safetensors"


@dataclass(frozen=True)
class DocumentRow:
    """A document as the catalogue describes it."""

    number: int
    id: str
    segment: int
    place: int
    hash: bytes
    text: str
    metadata: dict[str, Any]
    passage: Span | None = None


_DOCUMENT = "number, id, segment, place, hash, text, metadata"


def create(connection: sqlite3.Connection, settings: Settings, terms: Iterable[str]) -> None:
    """Tables and settings of an empty index; the caller commits them.

    The model's terminology belongs to the index: queries are divided into units by it, too.
    """
    connection.execute(f"PRAGMA application_id = {APPLICATION}")
    connection.execute(f"PRAGMA user_version = {settings.version}")
    for statement in SCHEMA.split(";")[:-1]:
        connection.execute(statement)
    write_settings(connection, settings)
    connection.execute("INSERT INTO settings VALUES ('generation', '0')")
    connection.executemany("INSERT INTO terms VALUES (?)", ((term,) for term in terms))


def check_version(connection: sqlite3.Connection, path: Path) -> None:
    """Refuse files that are not a catalogue, or one of an unknown version."""
    ((application,),) = select(connection, "PRAGMA application_id")
    ((version,),) = select(connection, "PRAGMA user_version")
    if application != APPLICATION:
        raise IndexDamagedError(f"{path} is not the catalogue of an hplus index")
    if version not in VERSIONS:
        raise InputError(
            f"{path} has format {version}, this hplus reads {VERSIONS[0]} to {VERSIONS[-1]}; "
            + ("update hplus" if version > VERSIONS[-1] else "index the documents again")
        )


def write_settings(connection: sqlite3.Connection, settings: Settings) -> None:
    """New settings in place of the old ones."""
    rows = {**asdict(settings), "fusion": dict(settings.fusion)}
    for name in ("passages", "mean"):
        if rows[name] is None:
            del rows[name]
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
            raise ValueError(f"{generation!r} is not a generation")
        settings = Settings(**rows)
        ((version,),) = select(connection, "PRAGMA user_version")
        if version != settings.version:
            raise ValueError(f"format {version}, but they are those of {settings.version}")
        return settings, generation
    except _NOT_OURS as error:
        raise IndexDamagedError(f"{path} has damaged settings: {error}") from None


def next_generation(connection: sqlite3.Connection) -> int:
    """The new generation, by which readers see that something changed."""
    connection.execute(
        "UPDATE settings SET value = CAST(value AS INTEGER) + 1 WHERE name = 'generation'"
    )
    ((generation,),) = select(connection, "SELECT value FROM settings WHERE name = 'generation'")
    return int(generation)


def terms(connection: sqlite3.Connection) -> list[str]:
    """The terminology in its original order."""
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
        raise IndexDamagedError(
            f"the catalogue says that documents and segments were numbered up to {last}; restore it"
        )
    for name, number in zip(("documents", "segments"), last, strict=True):
        ((largest,),) = select(connection, f"SELECT MAX(number) FROM {name}")
        if largest is not None and largest > number:
            raise IndexDamagedError(
                f"the catalogue says that {name} were numbered up to {number}, but has number "
                f"{largest}; restore it"
            )
    return last[0] + 1, last[1] + 1


def deleted(
    connection: sqlite3.Connection, segments: Sequence[int] | None = None
) -> list[tuple[int, int]]:
    """Segment and place of every deleted document, or of those in some segments."""
    statement = "SELECT segment, place FROM documents WHERE deleted = 1"
    if segments is None:
        return select(connection, statement)
    return list(_in(connection, f"{statement} AND segment IN", segments))


def count_deleted(connection: sqlite3.Connection) -> dict[int, int]:
    """How many documents of a segment are deleted, for those that have any."""
    statement = "SELECT segment, count(*) FROM documents WHERE deleted = 1 GROUP BY segment"
    return dict(select(connection, statement))


def by_id(connection: sqlite3.Connection, ids: Sequence[str]) -> dict[str, DocumentRow]:
    """The living documents among these ids."""
    found = _in(connection, f"SELECT {_DOCUMENT} FROM documents WHERE deleted = 0 AND id IN", ids)
    return {row.id: row for row in map(_document, found)}


def by_number(connection: sqlite3.Connection, numbers: Sequence[int]) -> dict[int, DocumentRow]:
    """Documents by their numbers."""
    found = _in(connection, f"SELECT {_DOCUMENT} FROM documents WHERE number IN", numbers)
    return {row.number: row for row in map(_document, found)}


def living(connection: sqlite3.Connection, after: int, most: int) -> list[DocumentRow]:
    """The next living documents beyond a number, in the order in which they were added."""
    found = select(
        connection,
        f"SELECT {_DOCUMENT} FROM documents WHERE deleted = 0 AND number > ? "
        "ORDER BY number LIMIT ?",
        (after, most),
    )
    return [_document(row) for row in found]


def ids_of(connection: sqlite3.Connection, numbers: Sequence[int]) -> dict[int, str]:
    """The ids alone."""
    return dict(_in(connection, "SELECT number, id FROM documents WHERE number IN", numbers))


def insert_segment(connection: sqlite3.Connection, row: SegmentRow) -> None:
    """A new segment."""
    connection.execute(
        "INSERT INTO segments VALUES (?, ?, ?, ?, ?)",
        (row.number, row.documents, row.units, row.bytes, row.sha256),
    )


def remove_segment(connection: sqlite3.Connection, number: int) -> None:
    """A segment whose living documents have moved, and the rows of its deleted ones."""
    connection.execute("DELETE FROM documents WHERE deleted = 1 AND segment = ?", (number,))
    connection.execute("DELETE FROM segments WHERE number = ?", (number,))


def move(connection: sqlite3.Connection, segment: int, places: Iterable[tuple[int, int]]) -> None:
    """Documents are now in a segment: the place of each, and its number."""
    connection.executemany(
        "UPDATE documents SET segment = ?, place = ? WHERE number = ?",
        ((segment, place, number) for place, number in places),
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
    """New metadata of living documents; their texts stay."""
    connection.executemany(
        "UPDATE documents SET metadata = ? WHERE deleted = 0 AND id = ?",
        ((dump(value), id_) for id_, value in metadata.items()),
    )


def mark_deleted(connection: sqlite3.Connection, ids: Iterable[str]) -> int:
    """Delete the living documents of these ids; returns how many there were."""
    before = connection.total_changes
    connection.executemany(
        "UPDATE documents SET deleted = 1 WHERE deleted = 0 AND id = ?", ((id_,) for id_ in ids)
    )
    return connection.total_changes - before


def mark_deleted_where(
    connection: sqlite3.Connection, condition: str, values: Sequence[Any]
) -> int:
    """Delete the living documents that pass a compiled filter; returns how many there were."""
    statement = f"UPDATE documents SET deleted = 1 WHERE deleted = 0 AND ({condition})"
    return connection.execute(statement, values).rowcount


def dump(metadata: Mapping[str, Any]) -> str:
    """Metadata as it is stored: equal metadata gives equal text."""
    return json.dumps(metadata, ensure_ascii=False, sort_keys=True, allow_nan=False)


def _document(row: tuple[Any, ...]) -> DocumentRow:
    number, id_, segment, place, digest, text, metadata = row
    if not isinstance(id_, str) or not isinstance(text, str):
        raise IndexDamagedError(
            f"the id or the text of document {number} is not text; restore the catalogue"
        )
    try:
        parsed = load(metadata)
    except ValueError as error:
        raise IndexDamagedError(
            f"the metadata of document {id_!r} is damaged: {error}; restore the catalogue"
        ) from None
    return DocumentRow(number, id_, segment, place, digest, text, parsed)


def load(metadata: str) -> dict[str, Any]:
    """Metadata as `dump` writes it; ValueError for everything else."""
    try:
        parsed, end = _DECODER.raw_decode(metadata)
        if end != len(metadata):
            raise ValueError(f"more than an object: {metadata[end:]!r:.100}")
    except _NOT_OURS as error:
        raise ValueError(str(error)) from None
    if not isinstance(parsed, dict):
        raise ValueError(f"expected an object, got {type(parsed).__name__}")
    return parsed


def text_hash(text: str) -> bytes:
    """Tells whether a text has changed since it was encoded."""
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not a number")


_DECODER = json.JSONDecoder(parse_constant=_refuse)
# What parsing JSON and taking it apart raise if somebody else wrote it.
_NOT_OURS = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)


@contextmanager
def transaction(disk: Disk, connection: sqlite3.Connection) -> Iterator[None]:
    """What happens in the block is committed, all or nothing."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        disk.commit(connection)
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def select(
    connection: sqlite3.Connection, statement: str, values: Sequence[Any] = ()
) -> list[tuple[Any, ...]]:
    """All rows that a statement finds."""
    try:
        return connection.execute(statement, values).fetchall()
    except DATABASE_ERRORS as error:
        raise of_database(error, _file(connection), "reading") from error


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
