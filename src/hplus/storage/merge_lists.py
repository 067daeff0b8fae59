"""The lists of a merged segment: large ones are carried over, small ones learned anew together.

Carrying over costs nothing but copying, since a list of one segment is a list of all of them. But
centroids learned from few vectors are coarse, so these are learned again from more, until learning
would take long: a vector is compared with new centroids a few times in its life.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from hplus.storage import lists
from hplus.storage.merge import BLOCK, Kept
from hplus.storage.segment import Array, smallest_type
from hplus.storage.segment_file import Stream
from hplus.types import F32, I64, Bool, offsets_of


def merge_lists(kept: Sequence[Kept]) -> dict[str, Array | Stream]:
    """Lists of global vectors, if the merged segment is large enough."""
    total = sum(len(part) for part in kept)
    if total < max(1, lists.LISTED_DOCUMENTS):
        return {}
    carried = [part for part in kept if _carried(part)]
    learned = _learned(kept)
    type_ = smallest_type(total - 1)

    def centroids() -> Iterator[Array]:
        for part in carried:
            if part.segment.global_centroids is not None:
                yield part.segment.global_centroids
        yield from (own for own, _, _ in learned)

    def rows() -> Iterator[Array]:
        for part in carried:
            yield from (own.astype(type_) for _, _, own in _listed(part))
        yield from (own.astype(type_) for _, _, own in learned)

    lengths = np.concatenate([_lengths(part) for part in carried] + [own for _, own, _ in learned])
    width = min(lists.WIDTH, kept[0].segment.global_vectors.shape[1])
    return {
        "global_centroids": Stream(np.dtype(np.float32), (len(lengths), width), centroids),
        "global_list_offsets": offsets_of(lengths),
        "global_list_rows": Stream(type_, (total,), rows),
    }


def _carried(part: Kept) -> bool:
    """Its lists are fine enough, and not too many for the vectors that are left."""
    centroids = part.segment.global_centroids
    if centroids is None:
        return False
    count, width = centroids.shape
    fits = bool(width == min(lists.WIDTH, part.segment.global_vectors.shape[1]))
    return fits and 2 * count >= lists.LEARNED and 2 * len(part) >= count * lists.PER_LIST


def _listed(part: Kept) -> Iterator[tuple[int, Bool, I64]]:
    """Of the documents in its lists, some at a time: where they begin, which are kept, and the new
    places of these."""
    in_lists = part.segment.global_list_rows
    assert in_lists is not None  # as it has centroids
    for first in range(0, len(in_lists), BLOCK):
        rows = in_lists[first : first + BLOCK]
        alive = part.alive[rows]
        yield first, alive, part.new_places[rows[alive]]


def _lengths(part: Kept) -> I64:
    """How many rows of each list are kept."""
    offsets = part.segment.global_list_offsets
    assert offsets is not None  # as it has centroids
    counts = np.zeros(len(offsets) - 1, np.int64)
    for first, alive, _ in _listed(part):
        at = first + np.flatnonzero(alive)
        counts += np.bincount(np.searchsorted(offsets, at, "right") - 1, minlength=len(counts))
    return counts


def _learned(kept: Sequence[Kept]) -> list[tuple[F32, I64, I64]]:
    """New lists of the documents whose own are not carried over."""
    firsts = offsets_of([len(part) for part in kept])
    ranges = [part.first + np.arange(len(part)) for part in kept if not _carried(part)]
    pooled = np.concatenate([np.empty(0, np.int64), *ranges])
    if not len(pooled):
        return []

    def take(rows: I64) -> F32:
        """Rows come ascending, so those of one segment lie together."""
        bounds = np.searchsorted(rows, firsts)
        found = []
        for i in np.flatnonzero(np.diff(bounds)).tolist():
            segment = kept[i].segment
            places = kept[i].places[rows[bounds[i] : bounds[i + 1]] - firsts[i]]
            found.append(lists.unit_rows(segment.global_vectors, segment.global_scales, places))
        return np.concatenate(found)

    return [lists.learn(rows, take) for rows in lists.evenly(pooled)]
