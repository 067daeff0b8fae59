"""The lists of a merged segment: large ones are carried over, small ones learned anew together.

Carrying over costs nothing but copying, since a list of one segment is a list of all of them. But
centroids learned from few vectors are coarse, so these are learned again from more, until learning
would take long: a vector is compared with new centroids a few times in its life.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from hplus.storage import lists
from hplus.storage.merge import BLOCK, Kept
from hplus.storage.segment import Array, smallest_type
from hplus.storage.segment_file import Stream
from hplus.types import F32, I64, Bool, offsets_of


def merge_lists(kept: Sequence[Kept]) -> dict[str, Array | Stream]:
    """Lists of units and of global vectors, where the merged segment is large enough."""
    units = _merged([_Rows(part, "", "offsets") for part in kept], lists.UNITS_PER_LIST)
    rows = [_Rows(part, "global_", "") for part in kept]
    globals_ = _merged(rows, lists.GLOBALS_PER_LIST)
    return units | {f"global_{name}": array for name, array in globals_.items()}


class _Rows:
    """The vectors of one kind in a segment: those of documents that are kept."""

    def __init__(self, part: Kept, prefix: str, owner: str) -> None:
        self.part, self.prefix = part, prefix
        self.old = part.offsets(owner)
        self.new = offsets_of(part.lengths(owner))

    def array(self, name: str) -> Any:
        return getattr(self.part.segment, f"{self.prefix}{name}")

    def __len__(self) -> int:
        return int(self.new[-1])

    def carried(self, per_list: int) -> bool:
        """Its lists are fine enough, and not too many for the vectors that are left."""
        centroids = self.array("centroids")
        if centroids is None:
            return False
        count, width = centroids.shape
        fits = bool(width == min(lists.WIDTH, self.array("vectors").shape[1]))
        return fits and 2 * count >= lists.LEARNED and 2 * len(self) >= count * per_list

    def unit_rows(self, rows: I64) -> F32:
        """Vectors by their number among those that are kept."""
        document = np.searchsorted(self.new, rows, side="right") - 1
        old = self.old[self.part.places[document]] + rows - self.new[document]
        return lists.unit_rows(self.array("vectors"), self.array("scales"), old)

    def listed(self) -> Iterator[tuple[int, Bool, I64]]:
        """Of the rows in its lists, some at a time: where they begin, which are kept, and the
        numbers of these."""
        in_lists = self.array("list_rows")
        for first in range(0, len(in_lists), BLOCK):
            rows = in_lists[first : first + BLOCK].astype(np.int64)
            document = np.searchsorted(self.old, rows, side="right") - 1
            alive = self.part.alive[document]
            rows, document = rows[alive], document[alive]
            place = self.part.new_places[document] - self.part.first
            yield first, alive, self.new[place] + rows - self.old[document]

    def lengths(self) -> I64:
        """How many rows of each list are kept."""
        offsets = self.array("list_offsets")
        counts = np.zeros(len(offsets) - 1, np.int64)
        for first, alive, _ in self.listed():
            at = first + np.flatnonzero(alive)
            counts += np.bincount(np.searchsorted(offsets, at, "right") - 1, minlength=len(counts))
        return counts


def _merged(parts: Sequence[_Rows], per_list: int) -> dict[str, Array | Stream]:
    least = lists.LISTED if parts[0].prefix == "" else lists.LISTED_DOCUMENTS
    firsts = offsets_of([len(part) for part in parts])
    total = int(firsts[-1])
    if total < max(1, least):
        return {}
    carried = [part.carried(per_list) for part in parts]
    learned = _learned(parts, firsts, carried, per_list)
    type_ = smallest_type(total - 1)

    def centroids() -> Iterator[Array]:
        for part, stays in zip(parts, carried, strict=True):
            if stays:
                yield part.array("centroids")
        yield from (own for own, _, _ in learned)

    def rows() -> Iterator[Array]:
        for part, first, stays in zip(parts, firsts.tolist(), carried, strict=False):
            if stays:
                yield from ((first + rows).astype(type_) for _, _, rows in part.listed())
        yield from (own.astype(type_) for _, _, own in learned)

    counts = [part.lengths() for part, stays in zip(parts, carried, strict=True) if stays]
    lengths = np.concatenate(counts + [own for _, own, _ in learned])
    width = min(lists.WIDTH, parts[0].array("vectors").shape[1])
    return {
        "centroids": Stream(np.dtype(np.float32), (len(lengths), width), centroids),
        "list_offsets": offsets_of(lengths),
        "list_rows": Stream(type_, (total,), rows),
    }


def _learned(
    parts: Sequence[_Rows], firsts: I64, carried: Sequence[bool], per_list: int
) -> list[tuple[F32, I64, I64]]:
    """New lists of the rows whose own are not carried over."""
    ranges = [
        np.arange(first, first + len(part))
        for part, first, stays in zip(parts, firsts.tolist(), carried, strict=False)
        if not stays
    ]
    pooled = np.concatenate([np.empty(0, np.int64), *ranges])
    if not len(pooled):
        return []

    def take(rows: I64) -> F32:
        """Rows come ascending, so those of one segment lie together."""
        bounds = np.searchsorted(rows, firsts)
        return np.concatenate(
            [
                parts[i].unit_rows(rows[bounds[i] : bounds[i + 1]] - firsts[i])
                for i in np.flatnonzero(np.diff(bounds)).tolist()
            ]
        )

    return [lists.learn(rows, take, per_list=per_list) for rows in lists.evenly(pooled, per_list)]
