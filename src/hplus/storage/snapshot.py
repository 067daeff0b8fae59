"""What a reader sees: one generation of an index, whatever a writer does meanwhile.

The catalogue is read within one transaction that stays open, and all segments are mapped at once:
if a compaction removes their files, the snapshot is still complete.
"""

from __future__ import annotations

import sqlite3
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import numpy as np

from hplus.arguments import as_ids
from hplus.errors import IndexDamagedError, InputError, MissingDocumentError
from hplus.filters import sql
from hplus.filters.ast import Field, Filter
from hplus.storage import catalogue, confirmed, leftovers
from hplus.storage.catalogue import DocumentRow, SegmentRow, Settings
from hplus.storage.disk import Disk, as_storage_error
from hplus.storage.segment import Format, Segment, first_places
from hplus.storage.segment_file import SEGMENTS, open_segment
from hplus.types import I64, Bool, Span, offsets_of, rows_of

CATALOGUE = "catalogue.sqlite"
LOCK = "lock"
OWN = (
    *(CATALOGUE + end for end in ("", "-wal", "-shm", "-journal")),
    *(confirmed.CONFIRMED + end for end in ("", ".new")),
    LOCK,
    SEGMENTS,
)
"""What an index may have in its folder."""
# How often a reader tries to open an index while compactions remove the files it was to map.
ATTEMPTS = 10

Found = TypeVar("Found")
Identity = tuple[SegmentRow, Format, int, int, tuple[float, ...] | None]
"""What makes two segments the same: checksum, counts and settings. A number alone does not: the
folder may have been replaced, by a backup or by another index."""


@dataclass(frozen=True)
class Part:
    """One segment of the snapshot: the arrays, and which rows are alive, bool[n].

    firsts: the places at which documents begin, where they are divided into passages.
    """

    row: SegmentRow
    segment: Segment
    alive: Bool
    firsts: I64 | None = None

    @property
    def living(self) -> Bool:
        """Which documents are alive."""
        return self.alive if self.firsts is None else self.alive[self.firsts]


class Snapshot:
    """One generation: settings, segments, and the documents' texts on demand.

    Documents are numbered across the segments, in their order, for as long as this object lives:
    `first[i]` is the number of segment i's first document. Where they are divided, passages are
    numbered, and a document has the number of its first one.
    """

    def __init__(
        self, path: Path, disk: Disk, mapped: Mapping[Identity, Segment] | None = None
    ) -> None:
        with as_storage_error(path, "opening"):
            for attempt in range(ATTEMPTS):
                check_own(path, disk)
                least = confirmed.noted(path, disk)
                self.connection = _connect(path, disk)
                try:
                    self.settings, self.generation = catalogue.read_settings(
                        self.connection, path / CATALOGUE
                    )
                    confirmed.check(path, self.generation, least)
                    lost = leftovers.maybe_confirmed(path, disk, self.connection, least)
                    if lost:
                        warnings.warn(leftovers.about(path, lost), RuntimeWarning, stacklevel=3)
                    rows = catalogue.segments(self.connection)
                    deleted = catalogue.deleted(self.connection)
                    self.parts = open_parts(path, disk, self.settings, rows, deleted, mapped)
                    break
                except FileNotFoundError as error:
                    self.connection.close()
                    if attempt == ATTEMPTS - 1:
                        raise IndexDamagedError(
                            f"segment {error.filename} is missing; restore it, or index again"
                        ) from None
                except BaseException:
                    self.connection.close()
                    raise
        self.first: I64 = offsets_of([len(part.segment) for part in self.parts])
        self.units = sum(part.row.units for part in self.parts)
        """Unit vectors of all segments, deleted documents included."""
        self._permitted: dict[str, list[I64]] = {}
        self._begins: I64 | None = None
        """The numbers of documents that are divided, and the end of the last, i64[n + 1]."""
        if self.settings.passages is not None:
            firsts = zip(self.parts, self.first.tolist(), strict=False)
            begins = [p.firsts + first for p, first in firsts if p.firsts is not None]
            self._begins = np.concatenate([*begins, self.first[-1:]])
        self.known_fields: dict[Field, bool] = {}
        """Whether any document has a field, as far as somebody asked."""

    def __len__(self) -> int:
        return sum(int(part.living.sum()) for part in self.parts)

    def renew(self) -> None:
        """Read the same generation anew, after a checkpoint from the catalogue alone, so that the
        log can be emptied; only by who holds the writer's lock."""
        self.connection.execute("COMMIT")
        self.connection.execute("BEGIN")
        catalogue.select(self.connection, "SELECT name FROM settings")

    def close(self) -> None:
        """End the transaction and let go of the arrays: they are unmapped once nobody uses them."""
        self.connection.close()
        self.parts = []
        self._permitted = {}

    @property
    def mapped(self) -> dict[Identity, Segment]:
        """Segments never change, so the next snapshot can reuse those that are the same."""
        return {_identity(part.row, self.settings): part.segment for part in self.parts}

    def permitted(self, where: Filter | None) -> list[I64]:
        """For each segment the places, ascending, of documents that are alive and pass a filter."""
        key = repr(where)  # not the filter itself: in Python `x = 1` equals `x = true`
        places = self._permitted.get(key)
        if places is None:
            places = self._alive() if where is None else self._passing(where)
            # The last filter is the likely next one.
            kept = {} if where is None else {repr(None): self.permitted(None)}
            self._permitted = {**kept, key: places}
        return places

    def _alive(self) -> list[I64]:
        return [np.flatnonzero(part.alive) for part in self.parts]

    def _passing(self, where: Filter) -> list[I64]:
        condition, values = sql.compile(where)
        found = catalogue.select(
            self.connection,
            f"SELECT segment, place FROM documents WHERE deleted = 0 AND ({condition})",
            values,
        )
        places = _places(found, {part.row.number: part.row.documents for part in self.parts})
        return [
            _passages(part.row, part.firsts, np.unique(np.array(places[part.row.number], np.int64)))
            for part in self.parts
        ]

    def count(self, where: Filter | None) -> int:
        """How many documents are alive and pass a filter."""
        parts = zip(self.parts, self.permitted(where), strict=True)
        return sum(
            len(places) if part.firsts is None else int(np.isin(part.firsts, places).sum())
            for part, places in parts
        )

    def passages(self, documents: I64) -> tuple[I64, I64]:
        """The passages of these documents, one document after another, with offsets i64[n + 1]; a
        document that is not divided is its own."""
        if self._begins is None:
            return documents, np.arange(len(documents) + 1)
        begun = np.searchsorted(self._begins, documents, side="right") - 1
        return rows_of(self._begins, begun)

    def documents(self, passages: I64) -> I64:
        """The documents of these passages."""
        if self._begins is None:
            return passages
        return self._begins[np.searchsorted(self._begins, passages, side="right") - 1]

    def numbers(self, documents: I64) -> I64:
        """The catalogue's numbers of documents numbered across the segments."""
        if len(self.parts) == 1:
            return self.parts[0].segment.numbers[documents]
        part = np.searchsorted(self.first, documents, side="right") - 1
        numbers = np.empty(len(documents), np.int64)
        for i in np.unique(part).tolist():
            rows = part == i
            numbers[rows] = self.parts[i].segment.numbers[documents[rows] - self.first[i]]
        return numbers

    def ids(self, documents: I64) -> list[str]:
        """The ids of documents numbered across the segments."""
        numbers = self.numbers(documents).tolist()
        return _each(numbers, catalogue.ids_of(self.connection, numbers))

    def rows(self, documents: I64) -> list[DocumentRow]:
        """Id, text and metadata of documents numbered across the segments; of a passage, also which
        characters it covers."""
        numbers = self.numbers(documents).tolist()
        rows = _each(numbers, catalogue.by_number(self.connection, numbers))
        if self._begins is None:
            return rows
        return [
            replace(row, passage=self.span(number))
            for row, number in zip(rows, documents.tolist(), strict=True)
        ]

    def span(self, passage: int) -> Span | None:
        """The characters that a passage covers; None if documents are not divided."""
        part = int(np.searchsorted(self.first, passage, side="right")) - 1
        found = self.parts[part].segment.passages(np.array([passage - self.first[part]]))
        return None if found is None else Span(*found[0].tolist())

    def pages(self, size: int) -> Iterator[list[DocumentRow]]:
        """All living documents in the order in which they were added, `size` at a time."""
        after = 0
        while page := catalogue.living(self.connection, after, size):
            yield page
            after = page[-1].number

    def find(self, ids: Sequence[str]) -> I64:
        """Documents by their ids, numbered across the segments."""
        ids = as_ids(ids)
        found = catalogue.by_id(self.connection, ids)
        missing = [id_ for id_ in ids if id_ not in found]
        if missing:
            raise MissingDocumentError(f"no document {missing[0]!r} in the index")
        _places(
            [(row.segment, row.place) for row in found.values()],
            {part.row.number: part.row.documents for part in self.parts},
        )
        first = {
            part.row.number: int(start)
            for part, start in zip(self.parts, self.first[:-1], strict=True)
        }
        return np.array([first[found[i].segment] + found[i].place for i in ids], np.int64)


def check_own(path: Path, disk: Disk) -> None:
    """Refuse an index whose parts are links, pipes or devices: a writer that follows a link
    changes, empties or removes files of others."""
    parts = [path / name for name in OWN]
    if disk.is_own(path / SEGMENTS) and (path / SEGMENTS).is_dir():
        parts += [path / SEGMENTS / name for name in disk.names(path / SEGMENTS)]
    for part in parts:
        if not disk.is_own(part):
            raise IndexDamagedError(
                f"{part} is a link, a pipe or a device; an index holds its own files: copy what it "
                "stands for into its place, or remove it if it is not yours"
            )


def _connect(path: Path, disk: Disk) -> sqlite3.Connection:
    if path.is_file():
        raise InputError(
            f"{path} is a file, expected the folder of an index; make one with "
            f"`hplus index {path} {path.with_suffix('.hplus').name}`"
        )
    if not (path / CATALOGUE).is_file():
        raise InputError(f"{path} is not an index; make one with `hplus index SOURCE {path}`")
    connection = disk.connect(path / CATALOGUE, write=False)
    try:
        catalogue.check_version(connection, path / CATALOGUE)
        sql.register(connection)
        connection.execute("BEGIN")
    except BaseException:
        connection.close()
        raise
    return connection


def open_parts(
    path: Path,
    disk: Disk,
    settings: Settings,
    rows: Sequence[SegmentRow],
    deleted: Iterable[tuple[int, int]],
    mapped: Mapping[Identity, Segment] | None = None,
) -> list[Part]:
    """These segments, mapped, unless they are mapped already; deleted: segments and places."""
    gone = _places(deleted, {row.number: row.documents for row in rows})
    parts = []
    for row in rows:
        segment = (mapped or {}).get(_identity(row, settings))
        if segment is None:
            segment = open_segment(
                disk,
                path / SEGMENTS / row.file,
                documents=row.documents,
                size=row.bytes,
                format=settings.format,
                widths=(settings.global_width, settings.width),
                passages=settings.passages is not None,
                mean=settings.mean_vector,
            )
        firsts = None if settings.passages is None else first_places(segment.numbers)
        alive = np.ones(row.documents, np.bool_)
        alive[_passages(row, firsts, np.array(gone[row.number], np.int64))] = False
        parts.append(Part(row, segment, alive, firsts))
    return parts


def _passages(row: SegmentRow, firsts: I64 | None, places: I64) -> I64:
    """The places of all passages of documents at these places of a segment."""
    if firsts is None:
        return places
    begins = np.append(firsts, row.documents)
    document = np.searchsorted(begins, places)
    wrong = begins[document] != places
    if wrong.any():
        raise IndexDamagedError(
            f"the catalogue puts a document at place {places[wrong][0]} of segment {row.number}, "
            "where none begins; restore the catalogue"
        )
    return rows_of(begins, document)[0]


def _identity(row: SegmentRow, settings: Settings) -> Identity:
    return row, settings.format, settings.global_width, settings.width, settings.mean


def _places(found: Iterable[tuple[int, int]], documents: Mapping[int, int]) -> dict[int, list[int]]:
    """Places by segment, each checked to be in its segment; documents: how many each has."""
    places: dict[int, list[int]] = {number: [] for number in documents}
    for number, place in found:
        if type(place) is not int or not 0 <= place < documents.get(number, 0):
            raise IndexDamagedError(
                f"the catalogue puts a document at place {place!r} of segment {number!r}, which "
                f"has {documents.get(number, 0)}; restore the catalogue"
            )
        places[number].append(place)
    return places


def _each(numbers: Sequence[int], found: Mapping[int, Found]) -> list[Found]:
    for number in numbers:
        if number not in found:
            raise IndexDamagedError(
                f"a segment has document {number}, the catalogue does not; `hplus verify` finds "
                "the damaged segment"
            )
    return [found[number] for number in numbers]
