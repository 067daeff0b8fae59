"""Changes to an index: each is confirmed by one commit of the catalogue, or did not happen.

A segment is written and synced, file and folder, before the commit that names it. Between the two a
process may die at any point: what is left is a file that no row names, and the next writer sweeps
it away.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from hplus.errors import IndexDamagedError, InputError
from hplus.index import catalogue, ivf
from hplus.index.catalogue import DocumentRow, SegmentRow, Settings
from hplus.index.document import Document
from hplus.index.segment import SegmentBuilder, file_parts, read
from hplus.index.snapshot import CATALOGUE, LOCK, SEGMENTS, Part, Snapshot
from hplus.index.store import Disk, as_storage_error
from hplus.texts import STEP_CHARACTERS, STEP_TEXTS
from hplus.types import Coverage, Encoded, concatenate, item_of_row
from hplus.units.pool import normalise
from hplus.units.select import Budget, narrow, shrink

# Stored bytes that `add` collects before it confirms them, and that `compact` puts together.
CONFIRM_BYTES = 16 << 20
SEGMENT_BYTES = 128 << 20
# Documents that are taken from a segment at a time: at most 50 MB of float32.
CHUNK = 512
# Small segments are put together by eights: a document is rewritten at most four times.
TIER = 8
SMALL = 4_096
# Units and documents from which on a segment gets an inverted file of them.
LISTED = 65_536
LISTED_DOCUMENTS = 8_192

# Readers go on while somebody writes.
LOGGED = "PRAGMA journal_mode = WAL"

Encode = Callable[[list[str]], Encoded]


@dataclass(frozen=True)
class Report:
    """What `add` or `update` did: documents, and what of the encoded texts was seen and kept."""

    added: int = 0
    updated: int = 0
    unchanged: int = 0
    tokens: int = 0
    cut_texts: int = 0
    cut_tokens: int = 0
    stitched_texts: int = 0
    importance: float = 0.0
    kept: float = 0.0

    def plus(self, coverage: Coverage) -> Report:
        """With the coverage of some more texts."""
        return replace(
            self,
            tokens=self.tokens + int(coverage.tokens.sum()),
            cut_texts=self.cut_texts + int((coverage.cut > 0).sum()),
            cut_tokens=self.cut_tokens + int(coverage.cut.sum()),
            stitched_texts=self.stitched_texts + int((coverage.windows > 1).sum()),
            importance=self.importance + float(coverage.importance.sum(dtype=np.float64)),
            kept=self.kept + float(coverage.kept.sum(dtype=np.float64)),
        )


def create(path: Path, settings: Settings, disk: Disk, terms: Sequence[str] = ()) -> None:
    """An empty index; the folder must be new or empty."""
    with as_storage_error(path, "creating"):
        new = {path, *(folder for folder in path.parents if not folder.exists())}
        disk.create_folder(path)
        _check_new(path, disk)
        with disk.lock(path / LOCK):
            _check_new(path, disk)  # nobody was quicker
            disk.create_folder(path / SEGMENTS)
            disk.sync(path)
            for folder in new:
                disk.sync(folder.parent)
            connection = disk.connect(path / CATALOGUE, write=True)
            try:
                connection.execute(LOGGED)
                with _transaction(disk, connection):
                    catalogue.create(connection, settings, terms)
            finally:
                connection.close()
            disk.sync(path)


def _check_new(path: Path, disk: Disk) -> None:
    """Nothing is there, or only what a creation leaves that was cut short."""
    left = {LOCK, SEGMENTS, *(CATALOGUE + end for end in ("", "-wal", "-shm"))}
    used = not left.issuperset(disk.names(path))
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
        raise InputError(f"{path} is not empty; open the index there, or give a new folder")


@contextmanager
def open_writer(path: Path, disk: Disk) -> Iterator[Writer]:
    """The one writer of an index."""
    with ExitStack() as stack:
        with as_storage_error(path, "writing to"):
            if not (path / CATALOGUE).is_file():
                raise IndexDamagedError(f"{path / CATALOGUE} is missing; restore it")
            stack.enter_context(disk.lock(path / LOCK))
            connection = disk.connect(path / CATALOGUE, write=True)
            stack.callback(connection.close)
            catalogue.check_version(connection, path / CATALOGUE)
            connection.execute(LOGGED)  # not before: a file that is not ours stays as it is
            writer = Writer(path, disk, connection)
            writer.sweep()
        yield writer


class Writer:
    """Holds the lock and the writing connection; made by `open_writer`."""

    def __init__(self, path: Path, disk: Disk, connection: sqlite3.Connection) -> None:
        self.path, self.disk, self.connection = path, disk, connection
        self.settings, _ = catalogue.read_settings(connection, path / CATALOGUE)
        self._pending: list[Document] = []
        self._replaced: list[str] = []
        self._metadata: dict[str, dict[str, Any]] = {}
        self._builder = SegmentBuilder(self.settings.format)

    def sweep(self) -> None:
        """Removes what no row names: the rests of a write that was never confirmed."""
        named = {row.file for row in catalogue.segments(self.connection)}
        for name in self.disk.names(self.path / SEGMENTS):
            if name not in named:
                self.disk.remove(self.path / SEGMENTS / name)

    def put(
        self,
        documents: Iterable[Document],
        encode: Encode,
        *,
        update: bool,
        advance: Callable[[int], None],
    ) -> Report:
        """Documents in, confirmed every few megabytes; see `Index.add` and `Index.update`."""
        report = Report()
        try:
            for step in _steps(documents):
                report = self._put_step(step, encode, report, update=update)
                advance(len(step))
                if self._builder.bytes >= CONFIRM_BYTES or len(self._metadata) >= catalogue.MANY:
                    self.confirm()
        finally:
            # Of an interrupted stream, what came before the interruption is kept.
            self.confirm()
        self.tidy()
        return report

    def _put_step(
        self, step: list[Document], encode: Encode, report: Report, *, update: bool
    ) -> Report:
        ids = [document.id for document in step]
        known = catalogue.by_id(self.connection, ids)
        pending = {document.id for document in self._pending}
        fresh: dict[str, Document] = {}
        unchanged = 0
        for document in step:
            row = known.get(document.id)
            again = document.id in pending or document.id in fresh
            if again and not update:
                raise InputError(f"two documents have the id {document.id!r}; ids must differ")
            if document.id in pending:
                self.confirm()
                pending.clear()
                known = catalogue.by_id(self.connection, ids)
                row = known[document.id]
            fresh.pop(document.id, None)
            if row is not None and row.hash == text_hash(document.text):
                if self._metadata.get(document.id, row.metadata) != document.metadata:
                    if not update:
                        raise InputError(
                            f"the index has {document.id!r} with other metadata; use update"
                        )
                    self._metadata[document.id] = document.metadata
                unchanged += 1
                continue
            if row is not None and not update:
                raise InputError(
                    f"the index has another document {document.id!r} already; use update"
                )
            fresh[document.id] = document
        new = list(fresh.values())
        if new:
            encoded = encode([document.text for document in new])
            self._collect(new, encoded, [d.id for d in new if d.id in known])
            report = report.plus(encoded.coverage)
        updated = sum(document.id in known for document in new)
        return replace(
            report,
            added=report.added + len(new) - updated,
            updated=report.updated + updated,
            unchanged=report.unchanged + unchanged,
        )

    def put_encoded(self, documents: Sequence[Document], encoded: Encoded) -> Report:
        """Documents that are encoded already; ids that the index has are refused."""
        ids = [document.id for document in documents]
        known = catalogue.by_id(self.connection, ids)
        if known or len(set(ids)) < len(ids):
            twice = next(iter(known), None) or next(i for i in ids if ids.count(i) > 1)
            raise InputError(f"the id {twice!r} is there already; ids must differ")
        report = Report(added=len(documents))
        for first in range(0, len(documents), STEP_TEXTS):
            some = self.fitted(encoded[first : first + STEP_TEXTS])
            self._collect(documents[first : first + STEP_TEXTS], some, [])
            report = report.plus(some.coverage)
            if self._builder.bytes >= CONFIRM_BYTES:
                self.confirm()
        self.confirm()
        self.tidy()
        return report

    def fitted(self, encoded: Encoded) -> Encoded:
        """An encoding at the index's widths and under its budget."""
        settings = self.settings
        if encoded.global_.shape[1] < settings.global_width:
            raise InputError(
                f"the encoding's global vectors are {encoded.global_.shape[1]} wide, the index "
                f"keeps {settings.global_width}"
            )
        if encoded.global_.shape[1] > settings.global_width:
            encoded = replace(
                encoded, global_=normalise(encoded.global_[:, : settings.global_width])
            )
        return _under(settings.budget, narrow(encoded, settings.width))

    def _collect(
        self, documents: Sequence[Document], encoded: Encoded, replaced: list[str]
    ) -> None:
        first = catalogue.next_numbers(self.connection)[0] + len(self._pending)
        self._builder.add(np.arange(first, first + len(documents)), encoded)
        self._pending += documents
        self._replaced += replaced

    def confirm(self) -> None:
        """What was collected becomes a segment; once this returns it is safe."""
        documents, replaced, builder = self._pending, self._replaced, self._builder
        metadata = self._metadata
        self._pending, self._replaced, self._metadata = [], [], {}
        self._builder = SegmentBuilder(self.settings.format)
        if not documents and not metadata:
            return
        with self._change():
            catalogue.change_metadata(self.connection, metadata)
            if not documents:
                return
            first = catalogue.next_numbers(self.connection)[0]
            row = self._write_segment(builder)
            catalogue.mark_deleted(self.connection, replaced)
            catalogue.insert(
                self.connection,
                (
                    DocumentRow(
                        first + place,
                        d.id,
                        row.number,
                        place,
                        text_hash(d.text),
                        d.text,
                        d.metadata,
                    )
                    for place, d in enumerate(documents)
                ),
            )

    def delete(self, ids: Sequence[str]) -> int:
        """These documents are gone; how many there were."""
        with self._change():
            return catalogue.mark_deleted(self.connection, ids)

    def compact(self, settings: Settings, advance: Callable[[int], None] = lambda _: None) -> None:
        """All segments put together, without deleted documents, at these settings."""
        snapshot = Snapshot(self.path, self.disk)
        try:
            smaller = settings != self.settings
            chosen = [p for p in snapshot.parts if smaller or not _finished(p)]
            alone = len(chosen) == 1 and bool(chosen[0].alive.all())
            if smaller or (chosen and not alone):
                self._rewrite(chosen, settings, advance)
        finally:
            snapshot.close()

    def tidy(self) -> None:
        """Small segments of about one size are put together once there are eight of them."""
        while True:
            tiers: dict[int, list[SegmentRow]] = {}
            for row in catalogue.segments(self.connection):
                if row.documents < SMALL and not _full(row):
                    tiers.setdefault((row.documents.bit_length() - 1) // 3, []).append(row)
            full = [rows for rows in tiers.values() if len(rows) >= TIER]
            if not full:
                return
            numbers = {row.number for row in full[0]}
            snapshot = Snapshot(self.path, self.disk)
            try:
                chosen = [part for part in snapshot.parts if part.row.number in numbers]
                self._rewrite(chosen, self.settings, lambda _: None)
            finally:
                snapshot.close()

    def _rewrite(
        self, parts: Sequence[Part], settings: Settings, advance: Callable[[int], None]
    ) -> None:
        """Documents of these segments into new ones; the catalogue changes in one step."""
        with self._change():
            for part in parts:  # damage must not get a new, right checksum
                file = self.path / SEGMENTS / part.row.file
                if self.disk.digest(file) != part.row.sha256:
                    raise IndexDamagedError(
                        f"{file}: the checksum is not the one it was written with; restore it, or "
                        "index again"
                    )
            builder = SegmentBuilder(settings.format)
            for part in parts:
                alive = np.flatnonzero(part.alive)
                for first in range(0, len(alive), CHUNK):
                    places = alive[first : first + CHUNK]
                    encoded = read(part.segment, places)
                    if settings != self.settings:
                        encoded = _smaller(encoded, self.settings, settings)
                    builder.add(part.segment.numbers[places], encoded)
                    advance(len(places))
                    if builder.bytes >= SEGMENT_BYTES:
                        self._move(builder)
                        builder = SegmentBuilder(settings.format)
            if builder.documents:
                self._move(builder)
            for part in parts:
                self.connection.execute(
                    "DELETE FROM documents WHERE deleted = 1 AND segment = ?", (part.row.number,)
                )
                self.connection.execute("DELETE FROM segments WHERE number = ?", (part.row.number,))
            catalogue.write_settings(self.connection, settings)
        self.settings = settings
        self._builder = SegmentBuilder(settings.format)
        with as_storage_error(self.path, "removing old segments of"):
            for part in parts:
                self.disk.remove(self.path / SEGMENTS / part.row.file)

    def _move(self, builder: SegmentBuilder) -> None:
        """A new segment of documents that the catalogue has: they point to it from now on."""
        row = self._write_segment(builder)
        numbers = np.concatenate([part["numbers"] for part in builder.parts]).tolist()
        self.connection.executemany(
            "UPDATE documents SET segment = ?, place = ? WHERE number = ?",
            ((row.number, place, number) for place, number in enumerate(numbers)),
        )

    def _write_segment(self, builder: SegmentBuilder) -> SegmentRow:
        """The file, synced with its folder, then its row; not there before the commit."""
        number = catalogue.next_numbers(self.connection)[1]
        arrays = builder.arrays()
        units = len(arrays["weights"])
        if units >= LISTED:
            arrays |= ivf.build(arrays["vectors"], arrays.get("scales"))
        if builder.documents >= LISTED_DOCUMENTS:
            lists = ivf.build(
                arrays["global_vectors"],
                arrays.get("global_scales"),
                per_list=ivf.GLOBALS_PER_LIST,
            )
            arrays |= {f"global_{name}": array for name, array in lists.items()}
        row = SegmentRow(number, builder.documents, units, 0, "")
        folder = self.path / SEGMENTS
        size, digest = self.disk.write(folder / row.file, file_parts(arrays))
        self.disk.sync(folder / row.file)
        self.disk.sync(folder)
        row = replace(row, bytes=size, sha256=digest)
        self.connection.execute(
            "INSERT INTO segments VALUES (?, ?, ?, ?, ?)",
            (row.number, row.documents, row.units, row.bytes, row.sha256),
        )
        return row

    @contextmanager
    def _change(self) -> Iterator[None]:
        with (
            as_storage_error(self.path, "writing to"),
            _transaction(self.disk, self.connection),
        ):
            yield
            catalogue.next_generation(self.connection)


@contextmanager
def _transaction(disk: Disk, connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        disk.commit(connection)
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def text_hash(text: str) -> bytes:
    """By this an unchanged text is known, and not encoded again."""
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


def _steps(documents: Iterable[Document]) -> Iterator[list[Document]]:
    """Documents in order, as many at a time as bulk encoding takes in one step."""
    step: list[Document] = []
    size = 0
    try:
        for document in documents:
            step.append(document)
            size += len(document.text)
            if size >= STEP_CHARACTERS or len(step) >= STEP_TEXTS:
                yield step
                step, size = [], 0
    except (InputError, OSError):
        if step:  # what came before the bad element is not lost with it
            yield step
        raise
    if step:
        yield step


def _smaller(encoded: Encoded, old: Settings, new: Settings) -> Encoded:
    """A stored encoding at smaller widths and budget; merging works on the stored vectors."""
    if new.global_width < encoded.global_.shape[1]:
        encoded = replace(encoded, global_=normalise(encoded.global_[:, : new.global_width]))
    # Stored vectors have lost their exact length to rounding.
    encoded = narrow(replace(encoded, vectors=normalise(encoded.vectors)), new.width)
    taken = new.budget.share == old.budget.share and new.budget.policy != "drop"
    return shrink(encoded, replace(new.budget, share=None) if taken else new.budget)


def _under(budget: Budget, encoded: Encoded) -> Encoded:
    """An encoding under a budget; a text that was merged already has had its share taken."""
    counts = np.diff(encoded.span_offsets)
    merged = np.zeros(len(encoded), np.bool_)
    merged[item_of_row(encoded.offsets)[counts > 1]] = True
    if budget.share is None or not merged.any():
        return shrink(encoded, budget)
    parts = [np.flatnonzero(merged), np.flatnonzero(~merged)]
    once = replace(budget, share=None)
    halves = [shrink(encoded.take(parts[0]), once), shrink(encoded.take(parts[1]), budget)]
    return concatenate(halves).take(np.argsort(np.concatenate(parts)))


def _finished(part: Part) -> bool:
    """Nothing to gain from writing it again."""
    return bool(part.alive.all()) and _full(part.row)


def _full(row: SegmentRow) -> bool:
    """As large as segments get; the file may have half the bytes that were collected for it."""
    return row.bytes >= SEGMENT_BYTES // 2
