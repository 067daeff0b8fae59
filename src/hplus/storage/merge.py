"""Several segments as one, array by array, without what was deleted.

Nothing is decoded, and nothing large is held in memory: the new file is written block by block from
the mapped ones. What grows with the number of documents is a few dozen bytes for each of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np

from hplus.storage.segment import Array, Segment, smallest_type
from hplus.storage.segment_file import Stream
from hplus.types import I32, I64, Bool, offsets_of, rows_of

# Rows, or postings, that are copied at a time.
BLOCK = 65_536
# What the rows of each array belong to: documents, or what offsets give to each of them. (Where
# documents are divided, read passages for documents here.)
ROWS = {
    "": (
        "numbers",
        "global_vectors",
        "global_scales",
        "tokens",
        "windows",
        "cut",
        "importance",
        "kept",
        "passage_starts",
        "passage_lengths",
    ),
    "offsets": ("vectors", "scales", "weights", "span_counts"),
    "span_offsets": ("span_starts", "span_lengths"),
    "dropped_offsets": ("dropped_weights", "dropped_counts"),
    "dropped_span_offsets": ("dropped_starts", "dropped_lengths"),
}


@dataclass(frozen=True)
class Kept:
    """A segment of which some documents are kept: bool[n]; `first` is the new place of its first
    one."""

    segment: Segment
    alive: Bool
    first: int

    @cached_property
    def places(self) -> I64:
        """The places of the documents that are kept."""
        return np.flatnonzero(self.alive)

    def __len__(self) -> int:
        return len(self.places)

    @cached_property
    def new_places(self) -> I64:
        """The place in the new segment of each document; of those not kept, the next one's."""
        return self.first + offsets_of(self.alive)[:-1]

    def offsets(self, owner: str) -> I64:
        """The offsets of a kind of rows, where "" is one row for each document."""
        if not owner:
            return np.arange(len(self.segment) + 1)
        offsets: I64 = getattr(self.segment, owner)
        return offsets

    def lengths(self, owner: str) -> I64:
        """How many rows each document that is kept has."""
        return np.diff(self.offsets(owner))[self.places]

    def rows(self, owner: str) -> Iterator[I64 | slice]:
        """The rows of the documents that are kept, some at a time."""
        offsets = self.offsets(owner)
        if len(self) == len(self.alive):
            for first in range(0, int(offsets[-1]), BLOCK):
                yield slice(first, min(first + BLOCK, int(offsets[-1])))
            return
        for first, last in _ranges(self.lengths(owner)):
            yield rows_of(offsets, self.places[first:last])[0]

    def blocks(self, name: str, owner: str) -> Iterator[Array]:
        """An array's rows of the documents that are kept, some at a time."""
        array = getattr(self.segment, name)
        for rows in self.rows(owner):
            yield array[rows]


def kept_of(segments: Sequence[tuple[Segment, Bool]]) -> list[Kept]:
    """Segments, each with what is alive in it, one after another."""
    firsts = offsets_of([int(alive.sum()) for _, alive in segments]).tolist()
    return [
        Kept(segment, alive, first)
        for (segment, alive), first in zip(segments, firsts, strict=False)
    ]


def merge(kept: Sequence[Kept]) -> dict[str, Array | Stream]:
    """The arrays of a segment of all that is kept, except its sketches and lists."""
    arrays: dict[str, Array | Stream] = {}
    for owner, names in ROWS.items():
        offsets = offsets_of(np.concatenate([part.lengths(owner) for part in kept]))
        if owner:
            arrays[owner] = offsets
        for name in names:
            if getattr(kept[0].segment, name) is not None:  # scales are for codes alone
                arrays[name] = _rows(kept, name, owner, int(offsets[-1]))
    return arrays | _lexical(kept)


def _rows(kept: Sequence[Kept], name: str, owner: str, count: int) -> Stream:
    array = getattr(kept[0].segment, name)
    dtype = array.dtype
    if name.endswith(("_counts", "_starts", "_lengths")):
        blocks = (block for part in kept for block in part.blocks(name, owner))
        dtype = smallest_type(max((int(block.max(initial=0)) for block in blocks), default=0))

    def made() -> Iterator[Array]:
        for part in kept:
            for block in part.blocks(name, owner):
                yield block.astype(dtype, copy=False)

    return Stream(dtype, (count, *array.shape[1:]), made)


def _lexical(kept: Sequence[Kept]) -> dict[str, Array | Stream]:
    """Token id -> documents: the lists of a token one after another, in the order of segments."""
    counts = [_postings_kept(part) for part in kept]
    tokens: I32 = np.unique(
        np.concatenate(
            [part.segment.lexical_ids[own > 0] for part, own in zip(kept, counts, strict=True)]
        )
    )
    total = np.zeros(len(tokens), np.int64)
    for part, own in zip(kept, counts, strict=True):
        there = own > 0
        total[np.searchsorted(tokens, part.segment.lexical_ids[there])] += own[there]

    def made(name: str, dtype: np.dtype[Any]) -> Iterator[Array]:
        for first, last in _ranges(total):
            found = [_postings(part, name, tokens[first], tokens[last - 1]) for part in kept]
            if last - first == 1:  # maybe more than fit in memory at once, and in order
                yield from (values.astype(dtype) for part in found for _, values in part)
                continue
            pairs = [pair for part in found for pair in part]
            order = np.argsort(np.concatenate([own for own, _ in pairs]), kind="stable")
            yield np.concatenate([values for _, values in pairs])[order].astype(dtype)

    count = int(total.sum())
    place = smallest_type(_last_place(kept, counts))
    weight = np.dtype(np.float16)
    return {
        "lexical_ids": tokens,
        "lexical_offsets": offsets_of(total),
        "lexical_documents": Stream(place, (count,), partial(made, "lexical_documents", place)),
        "lexical_weights": Stream(weight, (count,), partial(made, "lexical_weights", weight)),
    }


def _postings_kept(part: Kept) -> I64:
    """How many documents that are kept have each token of a segment, i64[T]."""
    segment = part.segment
    lengths = np.diff(segment.lexical_offsets)
    if len(part) == len(part.alive):
        return lengths
    counts = np.zeros(len(lengths), np.int64)
    for first, last in _ranges(lengths):
        start, end = segment.lexical_offsets[[first, last]]
        token = np.repeat(np.arange(last - first), lengths[first:last])
        alive = part.alive[segment.lexical_documents[start:end]]
        counts[first:last] = np.bincount(token[alive], minlength=last - first)
    return counts


def _last_place(kept: Sequence[Kept], counts: Sequence[I64]) -> int:
    """The last place that has a token at all."""
    for part, own in zip(reversed(kept), reversed(counts), strict=True):
        if own.any():
            documents = part.segment.lexical_documents
            largest = 0
            for first in range(0, len(documents), BLOCK):
                some = documents[first : first + BLOCK]
                alive = some[part.alive[some]]
                largest = max(largest, int(alive.max(initial=0)))
            return int(part.new_places[largest])
    return 0


def _postings(part: Kept, name: str, least: int, most: int) -> Iterator[tuple[I32, Array]]:
    """Tokens and values of the postings of tokens from `least` to `most`, some at a time."""
    segment = part.segment
    first, last = (
        np.searchsorted(segment.lexical_ids, least),
        np.searchsorted(segment.lexical_ids, most, side="right"),
    )
    offsets = segment.lexical_offsets
    for start in range(int(offsets[first]), int(offsets[last]), BLOCK):
        end = min(start + BLOCK, int(offsets[last]))
        token = segment.lexical_ids[np.searchsorted(offsets, np.arange(start, end), "right") - 1]
        documents = segment.lexical_documents[start:end]
        alive = part.alive[documents]
        if name == "lexical_documents":
            values = part.new_places[documents[alive]]
        else:
            values = getattr(segment, name)[start:end][alive]
        yield token[alive], values


def _ranges(lengths: I64) -> Iterator[tuple[int, int]]:
    """Items first : last with up to BLOCK rows in all, or one item that has more."""
    ends = np.cumsum(lengths)
    first = 0
    while first < len(ends):
        before = int(ends[first - 1]) if first else 0
        last = max(first + 1, int(np.searchsorted(ends, before + BLOCK, side="right")))
        yield first, last
        first = last
