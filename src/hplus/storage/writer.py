"""Changes to an index: each is confirmed by one commit of the catalogue, or did not happen.

A segment is written and synced, file and folder, before the commit that names it. If the process
dies in between, a file is left that no row names, and the next writer removes it.
"""

from __future__ import annotations

import sqlite3
import time
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from hplus import texts
from hplus.errors import IndexDamagedError, InputError, MissingDocumentError
from hplus.filters import sql
from hplus.filters.ast import Filter
from hplus.sources.document import Document
from hplus.storage import catalogue, confirmed, leftovers, lists
from hplus.storage.catalogue import DocumentRow, SegmentRow, Settings, text_hash
from hplus.storage.compact import tidy
from hplus.storage.disk import Disk, after_commit, as_storage_error
from hplus.storage.fit import fit
from hplus.storage.seen import Seen
from hplus.storage.segment import SegmentBuilder
from hplus.storage.segment_file import SEGMENTS, Arrays, file_parts
from hplus.storage.sketches import sketches_of
from hplus.storage.snapshot import CATALOGUE, LOCK, check_own
from hplus.types import I64, Coverage, Encoded, Span, Units, item_of_row, offsets_of, rows_of

# What `add` collects is confirmed at this many stored bytes, and after this many seconds.
CONFIRM_BYTES = 16 << 20
CONFIRM_SECONDS = 1.0
# A step of this many characters is encoded in about two seconds on one core: that much may be lost.
STEP_CHARACTERS = 16_000

Encode = Callable[[Iterator[list[str]]], Generator[Encoded, None, None]]
"""One encoding for each step of texts, in order; it may read ahead."""
Divide = Callable[[str], list[Span]]
"""The passages of a text."""
Encodings = tuple[Sequence[Document], Encoded, Sequence[list[Span]] | None]
"""Documents, their encodings, and the passages of each if they are divided."""


@dataclass(frozen=True)
class Report:
    """What `add` or `update` did: documents by what became of them; of the encoded texts, how much
    was read and kept.

    metadata_changed: the text is the same; skipped: bad rows and repeated ids; absent: documents of
    the index that the source does not have, if `sync` was given; deleted: how many of those are
    gone; unknown: tokens that the tokenizer does not know; other_files: of a folder, the files that
    are no documents, by ending.
    """

    added: int = 0
    updated: int = 0
    metadata_changed: int = 0
    unchanged: int = 0
    skipped: int = 0
    absent: int = 0
    deleted: int = 0
    tokens: int = 0
    unknown: int = 0
    cut_texts: int = 0
    cut_tokens: int = 0
    stitched_texts: int = 0
    importance: float = 0.0
    kept: float = 0.0
    other_files: Mapping[str, int] = field(default_factory=dict)

    def plus(self, coverage: Coverage) -> Report:
        """This report with the coverage of more texts."""
        return replace(
            self,
            tokens=self.tokens + int(coverage.tokens.sum()),
            cut_texts=self.cut_texts + int((coverage.cut > 0).sum()),
            cut_tokens=self.cut_tokens + int(coverage.cut.sum()),
            stitched_texts=self.stitched_texts + int((coverage.windows > 1).sum()),
            importance=self.importance + float(coverage.importance.sum(dtype=np.float64)),
            kept=self.kept + float(coverage.kept.sum(dtype=np.float64)),
        )


@dataclass(frozen=True)
class Plan:
    """What a step of documents changes: `new` ones are encoded, some of them replace others;
    `changed` ones only get other metadata. passages: those of each new one, if they are divided."""

    documents: int
    new: list[Document]
    replaced: list[str]
    changed: list[Document]
    unchanged: int
    passages: list[list[Span]] | None = None

    def texts(self) -> list[str]:
        """What is to be encoded."""
        if self.passages is None:
            return [document.text for document in self.new]
        divided = zip(self.new, self.passages, strict=True)
        return [document.text[a:b] for document, own in divided for a, b in own]


class Known(Protocol):
    """What is compared to tell whether a stored document has changed."""

    @property
    def hash(self) -> bytes: ...
    @property
    def metadata(self) -> dict[str, Any]: ...


def plan_of(step: list[Document], stored: Mapping[str, Known], *, update: bool) -> Plan:
    """Compare documents with those that are stored under their ids."""
    new: list[Document] = []
    changed: list[Document] = []
    for document in step:
        row = stored.get(document.id)
        if row is None:
            new.append(document)
            continue
        same_text = row.hash == text_hash(document.text)
        if same_text and row.metadata == document.metadata:
            continue
        if not update and same_text:
            raise InputError(f"the index has {document.id!r} with other metadata; use update")
        if not update:
            raise InputError(f"the index has another document {document.id!r}; use update")
        (changed if same_text else new).append(document)
    replaced = [document.id for document in new if document.id in stored]
    return Plan(len(step), new, replaced, changed, len(step) - len(new) - len(changed))


def changed_metadata(
    fields: Mapping[str, Mapping[str, Any]], stored: Mapping[str, Known]
) -> dict[str, dict[str, Any]]:
    """The metadata of those stored documents that these fields change, None removing a field."""
    changed = {}
    for id_, given in fields.items():
        if id_ not in stored:
            raise MissingDocumentError(f"no document {id_!r} in the index; nothing was changed")
        old = stored[id_].metadata
        kept = {name: value for name, value in old.items() if name not in given}
        new = kept | {name: value for name, value in given.items() if value is not None}
        Document(id_, "", new)  # checks the values
        if catalogue.dump(new) != catalogue.dump(old):
            changed[id_] = new
    return changed


@contextmanager
def open_writer(
    path: Path,
    disk: Disk,
    clock: Callable[[], float] = time.monotonic,
    changed: Callable[[Writer], None] = lambda _: None,
) -> Iterator[Writer]:
    """The one writer of an index; changed: called after every change, which it cannot undo."""
    with ExitStack() as stack:
        with as_storage_error(path, "writing to"):
            if not (path / CATALOGUE).is_file():
                raise IndexDamagedError(f"{path / CATALOGUE} is missing; restore it")
            check_own(path, disk)
            stack.enter_context(disk.lock(path / LOCK))
            connection = disk.connect(path / CATALOGUE, write=True)
            stack.callback(connection.close)
            catalogue.check_version(connection, path / CATALOGUE)
            _, generation = catalogue.read_settings(connection, path / CATALOGUE)
            noted = confirmed.noted(path, disk)
            confirmed.check(path, generation, noted)
            leftovers.refuse(path, leftovers.maybe_confirmed(path, disk, connection, noted))
            connection.execute(catalogue.LOGGED)  # only now: a foreign file stays as it is
            if noted is None:  # from now on, what is confirmed here is known
                confirmed.note(path, disk, generation)
            writer = Writer(path, disk, connection, clock, changed)
            writer.sweep()
        yield writer


class Writer:
    """Holds the lock and the writing connection; made by `open_writer`."""

    def __init__(
        self,
        path: Path,
        disk: Disk,
        connection: sqlite3.Connection,
        clock: Callable[[], float],
        changed: Callable[[Writer], None],
    ) -> None:
        self.path, self.disk, self.connection, self.clock = path, disk, connection, clock
        self.changed, self.changes = changed, 0
        self._confirmed_at = clock()
        self.use(catalogue.read_settings(connection, path / CATALOGUE)[0])
        # Collected, but not confirmed yet.
        self._new: list[Document] = []
        self._places: list[int] = []
        self._replaced: list[str] = []
        self._changed: list[Document] = []

    def use(self, settings: Settings) -> None:
        """Write at these settings from now on."""
        self.settings = settings
        self._builder = SegmentBuilder(settings.format, settings.mean_vector)

    def seen(self) -> Seen:
        """A new, empty list of the ids of a source."""
        return Seen(self.connection)

    def sweep(self) -> None:
        """Remove the files that no row names: leftovers of an unfinished write."""
        for name in leftovers.unnamed(self.path, self.disk, self.connection):
            self.disk.remove(self.path / SEGMENTS / name)

    def put(
        self,
        documents: Iterable[Document],
        encode: Encode,
        *,
        update: bool,
        advance: Callable[[float], None],
        divide: Divide | None = None,
    ) -> Report:
        """Add documents, each id once; see `Index.add` and `Index.update`.

        They are confirmed every few megabytes and every few seconds. Steps are planned as fast as
        `encode` asks for their texts and collected in order as their encodings arrive. `advance` is
        called with the number of documents that need no encoding, or of all if they are divided:
        what `encode` counts are then passages.
        """
        report = Report()
        self._confirmed_at = self.clock()
        plans: deque[Plan] = deque()

        def steps() -> Iterator[list[str]]:
            for step in texts.steps_of(documents, _characters, STEP_CHARACTERS):
                stored = catalogue.by_id(self.connection, [document.id for document in step])
                plan = plan_of(step, stored, update=update)
                if divide is not None:
                    plan = replace(plan, passages=[divide(document.text) for document in plan.new])
                plans.append(plan)
                yield plan.texts()

        try:
            with closing(encode(steps())) as encodings:
                for encoded in encodings:
                    plan = plans.popleft()
                    report = self._apply(plan, fit(encoded, self.settings), report)
                    advance(plan.documents - (0 if divide else len(plan.new)))
        finally:
            # If the stream is interrupted, everything before the interruption is kept.
            self.confirm()
        self._tidy()
        return report

    def _apply(self, plan: Plan, encoded: Encoded, report: Report) -> Report:
        self._collect(plan.new, encoded, plan.replaced, plan.passages)
        self._changed += plan.changed
        if (
            self._builder.bytes >= CONFIRM_BYTES
            or len(self._changed) >= catalogue.MANY
            or self.clock() - self._confirmed_at >= CONFIRM_SECONDS
        ):
            self.confirm()
            self._tidy()
        return replace(
            report.plus(encoded.coverage),
            added=report.added + len(plan.new) - len(plan.replaced),
            updated=report.updated + len(plan.replaced),
            metadata_changed=report.metadata_changed + len(plan.changed),
            unchanged=report.unchanged + plan.unchanged,
        )

    def put_encoded(self, documents: Sequence[Document], encoded: Encoded) -> Report:
        """Add documents that are encoded already; ids that the index has are refused."""
        ids = [document.id for document in documents]
        known = catalogue.by_id(self.connection, ids)
        if known or len(set(ids)) < len(ids):
            twice = next(iter(known), None) or Counter(ids).most_common(1)[0][0]
            raise InputError(f"the id {twice!r} exists already; ids must differ")
        report = Report(added=len(documents))
        for first in range(0, len(documents), texts.STEP_TEXTS):
            some = fit(encoded[first : first + texts.STEP_TEXTS], self.settings)
            added = documents[first : first + texts.STEP_TEXTS]
            self._collect(added, some, [], [[Span(0, len(d.text))] for d in added])
            report = report.plus(some.coverage)
            if self._builder.bytes >= CONFIRM_BYTES:
                self.confirm()
        self.confirm()
        self._tidy()
        return report

    def put_shards(
        self, shards: Iterable[Encodings], *, advance: Callable[[float], None]
    ) -> Report:
        """Like `put` with update, but of documents that are encoded already."""
        report = Report()
        self._confirmed_at = self.clock()
        try:
            for documents, encoded, passages in shards:
                counts = np.ones(len(documents), np.int64)
                if passages is not None:
                    counts = np.array([len(own) for own in passages], np.int64)
                offsets = offsets_of(counts)
                for first in range(0, len(documents), texts.STEP_TEXTS):
                    step = list(documents[first : first + texts.STEP_TEXTS])
                    stored = catalogue.by_id(self.connection, [one.id for one in step])
                    plan = plan_of(step, stored, update=True)
                    places = {document.id: first + i for i, document in enumerate(step)}
                    new = [places[document.id] for document in plan.new]
                    if passages is not None:
                        plan = replace(plan, passages=[passages[place] for place in new])
                    rows, _ = rows_of(offsets, np.array(new, np.int64))
                    report = self._apply(plan, fit(encoded.take(rows), self.settings), report)
                    advance(len(step))
        finally:
            # If a shard is damaged, everything before it is kept.
            self.confirm()
        self._tidy()
        return report

    def _collect(
        self,
        documents: Sequence[Document],
        encoded: Encoded,
        replaced: list[str],
        passages: list[list[Span]] | None,
    ) -> None:
        if not documents:
            return
        counts = np.ones(len(documents), np.int64)
        spans = None
        if self.settings.passages is not None and passages is not None:
            counts = np.array([len(own) for own in passages])
            spans = np.array([span for own in passages for span in own], np.int64)
            encoded = _shifted(encoded, spans[:, 0])
        first = catalogue.next_numbers(self.connection)[0] + len(self._new)
        self._places += (self._builder.documents + offsets_of(counts)[:-1]).tolist()
        numbers = np.repeat(np.arange(first, first + len(documents)), counts)
        self._builder.add(numbers, encoded, spans)
        self._new += documents
        self._replaced += replaced

    def confirm(self) -> None:
        """Make a segment of what was collected; once this returns it is safe."""
        new, replaced, changed, builder = self._new, self._replaced, self._changed, self._builder
        places = self._places
        self._new, self._places, self._replaced, self._changed = [], [], [], []
        self._builder = SegmentBuilder(builder.format, builder.mean)
        self._confirmed_at = self.clock()
        if not new and not changed:
            return
        with self.change():
            metadata = {document.id: document.metadata for document in changed}
            catalogue.change_metadata(self.connection, metadata)
            if new:
                first = catalogue.next_numbers(self.connection)[0]
                arrays = builder.arrays()
                more = sketches_of(arrays, builder.mean) | lists.lists_of(arrays)
                units = len(arrays["weights"])
                row = self.write_segment(arrays | more, builder.documents, units)
                catalogue.mark_deleted(self.connection, replaced)
                catalogue.insert(
                    self.connection,
                    (
                        DocumentRow(
                            number=first + i,
                            id=document.id,
                            segment=row.number,
                            place=place,
                            hash=text_hash(document.text),
                            text=document.text,
                            metadata=document.metadata,
                        )
                        for i, (place, document) in enumerate(zip(places, new, strict=True))
                    ),
                )

    def _tidy(self) -> None:
        with after_commit(f"tidying {self.path}", "the next change tries again"):
            tidy(self)

    def delete(self, ids: Sequence[str]) -> int:
        """Delete these documents; returns how many there were."""
        with self.change():
            return catalogue.mark_deleted(self.connection, ids)

    def delete_where(self, where: Filter) -> int:
        """Delete the documents that pass a filter; returns how many there were."""
        condition, values = sql.compile(where)
        sql.register(self.connection)
        with self.change():
            return catalogue.mark_deleted_where(self.connection, condition, values)

    def update_metadata(self, fields: Mapping[str, Mapping[str, Any]]) -> int:
        """Set fields of documents, all or nothing; returns how many documents changed."""
        stored = catalogue.by_id(self.connection, list(fields))
        changed = changed_metadata(fields, stored)
        if changed:
            with self.change():
                catalogue.change_metadata(self.connection, changed)
        return len(changed)

    def write_segment(
        self,
        arrays: Arrays,
        rows: int,
        units: int,
        advance: Callable[[float], None] = lambda _: None,
    ) -> SegmentRow:
        """Write the file, sync it and its folder, then insert its row; the commit makes it real.

        rows: documents, or passages; advance: called with the number of them that the bytes written
        so far amount to.
        """
        number = catalogue.next_numbers(self.connection)[1]
        row = SegmentRow(number, rows, units, 0, "")
        folder = self.path / SEGMENTS
        parts = _watched(file_parts(arrays), arrays, rows, advance)
        size, digest = self.disk.write(folder / row.file, parts)
        self.disk.sync(folder / row.file)
        self.disk.sync(folder)
        row = replace(row, bytes=size, sha256=digest)
        catalogue.insert_segment(self.connection, row)
        return row

    @contextmanager
    def change(self) -> Iterator[None]:
        """One change of the index: what happens in the block is committed, all or nothing."""
        with (
            as_storage_error(self.path, "writing to"),
            catalogue.transaction(self.disk, self.connection),
        ):
            yield
            generation = catalogue.next_generation(self.connection)
        with after_commit(f"noting generation {generation}", "the next change notes its own"):
            confirmed.note(self.path, self.disk, generation)
        self.changes += 1
        self.changed(self)


def _watched(
    parts: Iterator[bytes | memoryview],
    arrays: Arrays,
    rows: int,
    advance: Callable[[float], None],
) -> Iterator[bytes | memoryview]:
    total = max(1, sum(array.nbytes for array in arrays.values()))
    written = told = 0
    for part in parts:
        yield part
        written += len(part)
        reached = min(rows, rows * written // total)
        advance(reached - told)
        told = reached


def _shifted(encoded: Encoded, starts: I64) -> Encoded:
    """Encodings of passages with offsets into their documents' texts."""

    def moved(units: Units) -> Units:
        unit = item_of_row(units.span_offsets)
        start = starts[item_of_row(units.offsets)[unit]]
        return replace(units, spans=units.spans + start[:, None].astype(np.int32))

    return replace(encoded, units=moved(encoded.units), dropped=moved(encoded.dropped))


def _characters(document: Document) -> int:
    return len(document.text)
