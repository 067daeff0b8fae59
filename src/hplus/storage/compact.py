"""Segments put together, deleted documents left out, vectors made smaller.

Segments of similar size are put together by eights, at every size, so there are at most seven of
each order of magnitude and a document is written again only as often as the index has grown
eightfold. The catalogue changes in one step; the old files are removed after it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

from hplus.errors import IndexDamagedError
from hplus.storage import catalogue, lists
from hplus.storage.catalogue import SegmentRow, Settings
from hplus.storage.disk import after_commit
from hplus.storage.fit import refit
from hplus.storage.merge import BLOCK, Kept, kept_of, merge
from hplus.storage.merge_lists import merge_lists
from hplus.storage.segment import SegmentBuilder, chunks, first_places
from hplus.storage.segment_file import SEGMENTS
from hplus.storage.sketches import Units, sketches, sketches_of
from hplus.storage.snapshot import Part, open_parts

if TYPE_CHECKING:
    from hplus.storage.writer import Writer

Advance = Callable[[float], None]
# Stored bytes that vectors are made smaller at a time.
SEGMENT_BYTES = 128 << 20
# So many segments of similar size are put together.
TIER = 8


def compact(writer: Writer, settings: Settings, advance: Advance = lambda _: None) -> None:
    """Everything in one segment without deleted documents, at these settings."""
    if settings == writer.settings:
        _put_all_together(writer, advance)
        return
    shrink(writer, settings, advance)
    with after_commit(f"putting segments of {writer.path} together", "compact again"):
        _put_all_together(writer)


def _put_all_together(writer: Writer, advance: Advance = lambda _: None) -> None:
    rows = catalogue.segments(writer.connection)
    if len(rows) > 1 or catalogue.count_deleted(writer.connection):
        put_together(writer, rows, advance)


def tidy(writer: Writer) -> None:
    """Put segments together wherever eight have a similar size, and write those again of which
    more than half was deleted."""
    while rows := _untidy(writer):
        put_together(writer, rows)


def _untidy(writer: Writer) -> list[SegmentRow]:
    rows = catalogue.segments(writer.connection)
    deleted = catalogue.count_deleted(writer.connection)
    sparse = [row for row in rows if 2 * deleted.get(row.number, 0) > row.documents]
    if sparse:
        return sparse
    levels: dict[int, list[SegmentRow]] = {}
    for row in rows:
        levels.setdefault((row.documents.bit_length() - 1) // 3, []).append(row)
    return next((level for level in levels.values() if len(level) >= TIER), [])


def put_together(
    writer: Writer, rows: Sequence[SegmentRow], advance: Advance = lambda _: None
) -> None:
    """The documents of these segments in one new segment, array by array."""
    with _replacing(writer, rows) as parts, _as_damage(rows):
        kept = kept_of([(part.segment, part.alive) for part in parts])
        count = sum(len(part) for part in kept)
        if count:
            arrays = merge(kept)
            units = arrays["weights"].shape[0]
            arrays |= sketches(_units(part) for part in kept) | merge_lists(kept)
            documents = sum(int(part.living.sum()) for part in parts)
            row = writer.write_segment(
                arrays, count, units, lambda written: advance(written * documents / count)
            )
            catalogue.move(writer.connection, row.number, _begins(kept))


def _units(part: Kept) -> Units:
    """The units of the documents that are kept, where they lie."""
    segment, offsets = part.segment, part.segment.offsets
    starts, ends = offsets[part.places], offsets[part.places + 1]
    return segment.vectors, segment.scales, starts, ends, segment.mean


def _begins(kept: Sequence[Kept]) -> Iterator[tuple[int, int]]:
    """The new place of each document, where its first passage is, and its number."""
    for part in kept:
        numbers = part.segment.numbers[part.places]
        firsts = first_places(numbers)
        for first in range(0, len(firsts), BLOCK):
            places = firsts[first : first + BLOCK]
            yield from zip((part.first + places).tolist(), numbers[places].tolist(), strict=True)


def shrink(writer: Writer, settings: Settings, advance: Advance) -> None:
    """All segments again, at a smaller budget or width; documents go through `Encoded` and back,
    so that these are the code of `units`."""
    rows = catalogue.segments(writer.connection)
    with _replacing(writer, rows) as parts:
        builder = SegmentBuilder(settings.format, settings.mean_vector)
        for part in parts:
            alive = np.flatnonzero(part.alive)
            bounds = np.append(first_places(part.segment.numbers[alive]), len(alive))
            done = 0
            for places, encoded in chunks(part.segment, alive):
                smaller = refit(encoded, writer.settings, settings)
                passages = part.segment.passages(places)
                builder.add(part.segment.numbers[places], smaller, passages)
                done += len(places)
                ended = np.searchsorted(bounds[1:], [done - len(places), done], side="right")
                advance(int(ended[1] - ended[0]))
                # The passages of a document stay in one segment.
                if builder.bytes >= SEGMENT_BYTES and done in bounds:
                    _move(writer, builder)
                    builder = SegmentBuilder(settings.format, settings.mean_vector)
        if builder.documents:
            _move(writer, builder)
        catalogue.write_settings(writer.connection, settings)
    writer.use(settings)


@contextmanager
def _replacing(writer: Writer, rows: Sequence[SegmentRow]) -> Iterator[list[Part]]:
    """One change, in which new segments take the place of these."""
    with writer.change():
        for row in rows:
            _check_sum(writer, row)
        deleted = catalogue.deleted(writer.connection, [row.number for row in rows])
        yield open_parts(writer.path, writer.disk, writer.settings, rows, deleted)
        for row in rows:
            catalogue.remove_segment(writer.connection, row.number)
    with after_commit(f"removing old segments of {writer.path}", "the next change removes them"):
        for row in rows:
            writer.disk.remove(writer.path / SEGMENTS / row.file)


def _check_sum(writer: Writer, row: SegmentRow) -> None:
    """Damage must not get a new, valid checksum."""
    file = writer.path / SEGMENTS / row.file
    try:
        found = writer.disk.digest(file)
    except FileNotFoundError:
        raise IndexDamagedError(f"segment {file} is missing; restore it, or index again") from None
    if found != row.sha256:
        raise IndexDamagedError(
            f"{file} has another checksum than when it was written; restore it, or index again"
        )


@contextmanager
def _as_damage(rows: Sequence[SegmentRow]) -> Iterator[None]:
    """Arrays under a right checksum that contradict one another."""
    try:
        yield
    except (IndexError, ValueError) as error:
        raise IndexDamagedError(
            f"segments {', '.join(row.file for row in rows)} cannot be put together: {error}; "
            "`hplus verify` finds the damaged one"
        ) from None


def _move(writer: Writer, builder: SegmentBuilder) -> None:
    """A new segment of documents that the catalogue has already: their rows point to it now."""
    arrays = builder.arrays()
    units = len(arrays["weights"])
    more = sketches_of(arrays, builder.mean) | lists.lists_of(arrays)
    row = writer.write_segment(arrays | more, builder.documents, units)
    places = first_places(arrays["numbers"])
    moved = zip(places.tolist(), arrays["numbers"][places].tolist(), strict=True)
    catalogue.move(writer.connection, row.number, moved)
