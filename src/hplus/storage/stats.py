"""What an index holds, its size, and what a smaller budget or width would save."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hplus.storage.catalogue import select
from hplus.storage.segment import BYTES, SCALE, Segment
from hplus.storage.snapshot import Snapshot

# The arrays of a segment in groups that mean something to people.
PARTS = {
    "units": ("vectors", "scales"),
    "weights": ("weights", "offsets"),
    "spans": ("span_counts", "span_starts", "span_lengths", "span_offsets"),
    "dropped": (
        "dropped_weights",
        "dropped_offsets",
        "dropped_counts",
        "dropped_starts",
        "dropped_lengths",
        "dropped_span_offsets",
    ),
    "lexical": ("lexical_ids", "lexical_offsets", "lexical_documents", "lexical_weights"),
    "global": ("global_vectors", "global_scales"),
    "sketches": ("sketches", "anchors", "anchor_map"),
    "lists": (
        "global_centroids",
        "global_list_offsets",
        "global_list_rows",
    ),
    "other": (
        "numbers",
        "tokens",
        "windows",
        "cut",
        "importance",
        "kept",
        "passage_starts",
        "passage_lengths",
    ),
}


@dataclass(frozen=True)
class Stats:
    """Documents (alive) and deleted ones, passages (of those alive; as many, if they are not
    divided), segments, units and tokens; importance of all units and of those kept; bytes by part
    of the segments; catalogue: bytes of texts and metadata; smaller:
    (budget, width) -> bytes of the unit vectors under them."""

    documents: int
    deleted: int
    passages: int
    segments: int
    units: int
    tokens: int
    importance: float
    kept: float
    bytes: dict[str, int]
    catalogue: int
    smaller: dict[tuple[int, int], int]


def stats(snapshot: Snapshot) -> Stats:
    """Counted from the arrays' shapes; nothing large is read."""
    parts = snapshot.parts
    sizes = {
        name: sum(_bytes(part.segment, names) for part in parts) for name, names in PARTS.items()
    }
    settings = snapshot.settings
    counts = np.concatenate(
        [np.empty(0, np.int64), *(np.diff(part.segment.offsets)[part.alive] for part in parts)]
    )
    row, scale = BYTES[settings.format], SCALE[settings.format]
    # Not the length of the file: the last changes may still be in the log beside it.
    pages, page = (
        int(select(snapshot.connection, f"PRAGMA {name}")[0][0])
        for name in ("page_count", "page_size")
    )
    largest = int(counts.max(initial=0))
    budgets = [b for b in (8, 16, 32, 64, 128) if b < largest] + ([largest] if largest else [])
    widths = [w for w in (64, 128, 256) if w < settings.width] + [settings.width]
    return Stats(
        documents=sum(int(part.living.sum()) for part in parts),
        deleted=sum(int((~part.living).sum()) for part in parts),
        passages=sum(int(part.alive.sum()) for part in parts),
        segments=len(parts),
        units=int(counts.sum()),
        tokens=sum(int(part.segment.tokens[part.alive].sum()) for part in parts),
        importance=sum(float(part.segment.importance[part.alive].sum()) for part in parts),
        kept=sum(float(part.segment.kept[part.alive].sum()) for part in parts),
        bytes=sizes,
        catalogue=pages * page,
        smaller={
            (budget, width): int(np.minimum(counts, budget).sum() * (width * row + scale))
            for budget in budgets
            for width in widths
        },
    )


def _bytes(segment: Segment, names: tuple[str, ...]) -> int:
    arrays = (getattr(segment, name) for name in names)
    return sum(array.nbytes for array in arrays if array is not None)
