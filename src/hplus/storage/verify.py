"""An index that audits itself: every byte against its checksum, every row against every array."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hplus.errors import IndexDamagedError, StorageError
from hplus.storage import confirmed, leftovers
from hplus.storage.catalogue import load, next_numbers, select, stream, text_hash
from hplus.storage.disk import Disk, as_storage_error
from hplus.storage.segment import Array, Segment
from hplus.storage.segment_file import SEGMENTS
from hplus.storage.snapshot import ATTEMPTS, CATALOGUE, Part, Snapshot
from hplus.types import I64, item_of_row

Recall = Callable[[Snapshot], float | None]
"""Share of the exact results that the approximate path finds; None where every search is exact."""


@dataclass(frozen=True)
class Verification:
    """What an index holds and what is wrong with it, one sentence per problem.

    recall: of the approximate path against the exact one, with sampled documents as queries; None
    where every search is exact. unnamed: files in the folder of segments that no row names; they
    are left by an unfinished write, or being written, and the next change removes them.
    """

    documents: int
    segments: int
    bytes: int
    problems: list[str]
    recall: float | None
    unnamed: list[str]


def verify(
    path: Path,
    disk: Disk,
    advance: Callable[[int], None] = lambda _: None,
    recall: Recall = lambda _: None,
) -> Verification:
    """Read everything once; an index that cannot be opened at all raises IndexDamagedError."""
    attempt = 1
    while True:
        snapshot = Snapshot(path, disk)
        try:
            with as_storage_error(path, "verifying"):
                return _verify(path, disk, snapshot, advance, recall)
        except StorageError as error:
            # A compaction removed a segment meanwhile: read what it wrote instead.
            if not isinstance(error.__cause__, FileNotFoundError) or attempt == ATTEMPTS:
                raise
            attempt += 1
        finally:
            snapshot.close()


def _verify(
    path: Path, disk: Disk, snapshot: Snapshot, advance: Callable[[int], None], recall: Recall
) -> Verification:
    problems = [f"{path / CATALOGUE}: {text}" for text in _catalogue(snapshot)]
    for part in snapshot.parts:
        file = path / SEGMENTS / part.row.file
        sound = True
        for problem in _segment(disk, file, part):
            problems.append(f"{file}: {problem}")
            sound = False
        if sound:
            problems += [f"{file}: {problem}" for problem in _documents(snapshot, part)]
        advance(len(part.living))
    others = leftovers.unnamed(path, disk, snapshot.connection)
    lost = leftovers.maybe_confirmed(path, disk, snapshot.connection, confirmed.noted(path, disk))
    if lost:
        problems.append(leftovers.about(path, lost))
    return Verification(
        documents=sum(int(part.living.sum()) for part in snapshot.parts),
        segments=len(snapshot.parts),
        bytes=sum(part.row.bytes for part in snapshot.parts),
        problems=problems,
        recall=None if problems else recall(snapshot),
        unnamed=[name for name in others if name not in lost],
    )


def _catalogue(snapshot: Snapshot) -> Iterator[str]:
    for (text,) in select(snapshot.connection, "PRAGMA integrity_check"):
        if text != "ok":
            yield text
    try:
        next_numbers(snapshot.connection)
    except IndexDamagedError as error:
        yield str(error)
    known = {part.row.number for part in snapshot.parts}
    counts = dict(
        select(snapshot.connection, "SELECT segment, COUNT(*) FROM documents GROUP BY segment")
    )
    for number in sorted(set(counts) - known, key=str):
        yield f"{counts[number]} documents are in segment {number}, which does not exist"
    ((neither,),) = select(
        snapshot.connection, "SELECT COUNT(*) FROM documents WHERE deleted NOT IN (0, 1)"
    )
    if neither:
        yield f"{neither} documents are neither deleted nor alive"
    for part in snapshot.parts:
        found = counts.get(part.row.number, 0)
        if found != len(part.living):
            yield f"segment {part.row.number} has {len(part.living)} documents and {found} rows"


def _segment(disk: Disk, file: Path, part: Part) -> Iterator[str]:
    if disk.digest(file) != part.row.sha256:
        yield "it has another checksum than when it was written"
        return
    segment = part.segment
    n = len(segment)
    if len(segment.weights) != part.row.units:
        yield f"it has {len(segment.weights)} units, the catalogue says {part.row.units}"
    for name in ("weights", "dropped_weights", "importance", "kept", "lexical_weights"):
        if not np.isfinite(values := getattr(segment, name)).all() or (values < 0).any():
            yield f"{name} contains numbers that are negative or not finite"
    for name in ("scales", "global_scales"):
        if (scales := getattr(segment, name)) is not None and not np.isfinite(scales).all():
            yield f"{name} contains numbers that are not finite"
    for name in ("vectors", "global_vectors"):
        if (vectors := getattr(segment, name)).itemsize > 1 and not _finite(vectors):
            yield f"{name} contains numbers that are not finite"
    if not _falling(segment):
        yield "a document's units are not in order of importance"
    for kind, owners, ends in (
        ("span", segment.offsets, segment.span_offsets),
        ("dropped", segment.dropped_offsets, segment.dropped_span_offsets),
    ):
        counts = getattr(segment, f"{kind}_counts").astype(np.int64)
        found = np.bincount(item_of_row(owners), counts, minlength=n).astype(np.int64)
        if not np.array_equal(found, np.diff(ends)):
            yield f"{kind}_counts do not add up to the spans of each document"
    yield from _lists(segment.lexical_documents, segment.lexical_offsets, n, "lexical_documents")
    if (np.diff(segment.lexical_ids) <= 0).any():
        yield "lexical_ids are not ascending"
    members, offsets = segment.global_list_rows, segment.global_list_offsets
    if members is not None and offsets is not None:
        yield from _lists(members, offsets, n, "global_list_rows")
    if segment.anchor_map is not None and not _finite(segment.anchor_map):
        yield "anchor_map contains numbers that are not finite"


def _lists(members: Array, offsets: I64, n: int, name: str) -> Iterator[str]:
    """Every list ascends and stays below n."""
    if members.max(initial=0) >= n and len(members):
        yield f"{name} contains {members.max()}, expected less than {n}"
    steps = np.diff(members.astype(np.int64))
    ends = offsets[1:-1]
    steps[ends[(ends > 0) & (ends < len(members))] - 1] = 1
    if (steps <= 0).any():
        yield f"{name} has a list that is not ascending"


def _falling(segment: Segment) -> bool:
    steps = np.diff(segment.weights)
    ends = segment.offsets[1:-1]
    steps[ends[(ends > 0) & (ends < len(segment.weights))] - 1] = 0
    return bool((steps <= 0).all())


def _finite(vectors: Array) -> bool:
    return all(
        bool(np.isfinite(vectors[first : first + 65_536]).all())
        for first in range(0, len(vectors), 65_536)
    )


def _documents(snapshot: Snapshot, part: Part) -> Iterator[str]:
    """Numbers of rows and arrays agree, rows are valid, and spans stay within their texts."""
    segment = part.segment
    rows = stream(
        snapshot.connection,
        "SELECT place, number, id, hash, text, metadata FROM documents WHERE segment = ? "
        "ORDER BY place",
        (part.row.number,),
    )
    firsts = np.arange(len(segment)) if part.firsts is None else part.firsts
    ids: list[str] = []
    lengths = np.zeros(len(firsts), np.int64)
    for place, number, id_, digest, text, metadata in rows:
        if len(ids) == len(firsts) or place != firsts[len(ids)]:
            break
        if number != segment.numbers[place]:
            yield "its documents are not those of the catalogue"
            return
        if not isinstance(id_, str) or not isinstance(text, str):
            yield f"the id or the text of document {number} is not text"
            return
        if text_hash(text) != digest:
            yield f"the text of {id_!r} has changed since it was added"
        try:
            load(metadata)
        except ValueError as error:
            yield f"the metadata of {id_!r} is damaged: {error}"
        lengths[len(ids)] = len(text)
        ids.append(id_)
    if len(ids) != len(firsts):
        yield "the places of its documents in the catalogue are not those of its arrays"
        return
    owner = np.searchsorted(firsts, np.arange(len(segment)), side="right") - 1  # of each row
    passages = segment.passages(np.arange(len(segment)))
    if passages is not None and (wrong := passages[:, 1] > lengths[owner]).any():
        yield f"a passage of {ids[owner[wrong][0]]!r} is beyond the end of its text"
    for kind, ends in (("span", segment.span_offsets), ("dropped", segment.dropped_span_offsets)):
        starts = getattr(segment, f"{kind}_starts").astype(np.int64)
        beyond = starts + getattr(segment, f"{kind}_lengths")
        document = owner[item_of_row(ends)]
        # Encodings may have been added without their texts.
        wrong = (beyond > lengths[document]) & (lengths[document] > 0)
        if wrong.any():
            yield f"a unit of {ids[document[wrong][0]]!r} is beyond the end of its text"
