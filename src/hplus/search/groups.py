"""Grouping by a field of the metadata: of each of its values the best document.

A list counts as a whole: documents with the same list are one group. A document without the field
is a group of its own, so that none is hidden by another it has nothing to do with.
"""

from __future__ import annotations

import json
from collections.abc import Hashable
from typing import Any

import numpy as np

from hplus.filters.ast import ID, Field, kind_of, values_at
from hplus.filters.syntax import parse_field
from hplus.search.engine import Engine
from hplus.types import F64, I64

# Documents whose metadata are read at a time: most searches find their groups among the first.
BLOCK = 256


def best_of_groups(engine: Engine, group_by: str, documents: I64, scores: F64, k: int) -> I64:
    """Rows of the best document of each of the best k groups, best first, ties by id, i64[<= k]."""
    field = parse_field(group_by)
    ids = engine.ids(documents)
    order = sorted(range(len(ids)), key=lambda i: (-scores[i], ids[i]))
    seen: set[Hashable] = set()
    leaders: list[int] = []
    for first in range(0, len(order), BLOCK):
        block = order[first : first + BLOCK]
        for i, row in zip(block, engine.rows(documents[block]), strict=True):
            group = group_of(field, row.id, row.metadata)
            if group is not None and group in seen:
                continue
            seen.add(group)
            leaders.append(i)
            if len(leaders) == k:
                return np.array(leaders, np.int64)
    return np.array(leaders, np.int64)


def group_of(field: Field, id_: str, metadata: dict[str, Any]) -> Hashable | None:
    """What the documents of a group share; None if it has no such field.

    Values are equal as in filters: 1 is 1.0, and neither is true.
    """
    values = [id_] if field == ID else values_at(metadata, field.path)
    if not values:
        return None
    return tuple(
        (kind_of(value), json.dumps(value, sort_keys=True) if isinstance(value, dict) else value)
        for value in values
    )
