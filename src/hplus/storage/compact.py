"""Compaction: segments merged, deleted documents left out, vectors made smaller.

Documents go through `Encoded` and back, so budgets and widths are the code of `units`. The
catalogue changes in one step; the old files are removed after it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from hplus.errors import IndexDamagedError
from hplus.storage import catalogue
from hplus.storage.catalogue import SegmentRow, Settings
from hplus.storage.disk import after_commit
from hplus.storage.fit import refit
from hplus.storage.segment import SegmentBuilder, first_places, read
from hplus.storage.snapshot import SEGMENTS, Part, Snapshot
from hplus.types import I64

if TYPE_CHECKING:
    from hplus.storage.writer import Writer

# Stored bytes at which a segment is full.
SEGMENT_BYTES = 128 << 20
# Documents taken from a segment at a time: at most 50 MB of float32.
CHUNK = 512
# Small segments are merged eight at a time: a document is rewritten at most four times.
TIER = 8
SMALL = 4_096


def compact(
    writer: Writer, settings: Settings, advance: Callable[[int], None] = lambda _: None
) -> None:
    """All segments of an index that gain from being written again, at these settings."""
    snapshot = Snapshot(writer.path, writer.disk)
    try:
        smaller = settings != writer.settings
        chosen = [part for part in snapshot.parts if smaller or not _finished(part)]
        alone = len(chosen) == 1 and bool(chosen[0].alive.all())
        if smaller or (chosen and not alone):
            rewrite(writer, chosen, settings, advance)
    finally:
        snapshot.close()


def tidy(writer: Writer) -> None:
    """Merge small segments of similar size once there are eight of them."""
    while True:
        tiers: dict[int, list[SegmentRow]] = {}
        for row in catalogue.segments(writer.connection):
            if row.documents < SMALL and not _full(row):
                tiers.setdefault((row.documents.bit_length() - 1) // 3, []).append(row)
        crowded = [rows for rows in tiers.values() if len(rows) >= TIER]
        if not crowded:
            return
        numbers = {row.number for row in crowded[0]}
        snapshot = Snapshot(writer.path, writer.disk)
        try:
            chosen = [part for part in snapshot.parts if part.row.number in numbers]
            rewrite(writer, chosen, writer.settings, lambda _: None)
        finally:
            snapshot.close()


def rewrite(
    writer: Writer, parts: Sequence[Part], settings: Settings, advance: Callable[[int], None]
) -> None:
    """Documents of these segments into new ones; the catalogue changes in one step."""
    with writer.change():
        for part in parts:  # damage must not get a new, valid checksum
            file = writer.path / SEGMENTS / part.row.file
            if writer.disk.digest(file) != part.row.sha256:
                raise IndexDamagedError(
                    f"{file} has another checksum than when it was written; restore it, or index "
                    "again"
                )
        builder = SegmentBuilder(settings.format)
        for part in parts:
            alive = np.flatnonzero(part.alive)
            numbers = part.segment.numbers[alive]
            bounds = np.append(first_places(numbers), len(numbers))
            for first, last in _chunks(bounds):
                places = alive[first:last]
                encoded = read(part.segment, places)
                if settings != writer.settings:
                    encoded = refit(encoded, writer.settings, settings)
                builder.add(numbers[first:last], encoded, part.segment.passages(places))
                advance(int(np.diff(np.searchsorted(bounds, [first, last]))[0]))
                # The passages of a document stay in one segment.
                if builder.bytes >= SEGMENT_BYTES and last in bounds:
                    _move(writer, builder)
                    builder = SegmentBuilder(settings.format)
        if builder.documents:
            _move(writer, builder)
        for part in parts:
            catalogue.remove_segment(writer.connection, part.row.number)
        catalogue.write_settings(writer.connection, settings)
    writer.use(settings)
    with after_commit(f"removing old segments of {writer.path}", "the next change removes them"):
        for part in parts:
            writer.disk.remove(writer.path / SEGMENTS / part.row.file)


def _chunks(bounds: I64) -> Iterator[tuple[int, int]]:
    """Rows in parts of at most CHUNK, which end with a document unless it has more than that.

    bounds i64[n + 1]: the first row of each document, and the end.
    """
    first = 0
    while first < bounds[-1]:
        last = int(bounds[np.searchsorted(bounds, first + CHUNK, side="right") - 1])
        if last <= first:
            last = first + CHUNK
        yield first, last
        first = last


def _move(writer: Writer, builder: SegmentBuilder) -> None:
    """A new segment of documents that the catalogue has already: their rows point to it now."""
    row = writer.write_segment(builder)
    numbers = np.concatenate([part["numbers"] for part in builder.parts])
    places = first_places(numbers)
    moved = zip(places.tolist(), numbers[places].tolist(), strict=True)
    catalogue.move(writer.connection, row.number, moved)


def _finished(part: Part) -> bool:
    """Nothing to gain from writing it again."""
    return bool(part.alive.all()) and _full(part.row)


def _full(row: SegmentRow) -> bool:
    """As large as segments get; a file may have half the bytes that were collected for it."""
    return row.bytes >= SEGMENT_BYTES // 2
