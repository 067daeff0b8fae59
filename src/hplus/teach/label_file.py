"""Labels on disk and in figures.

One text per line: `{"source": …, "text": …, "units": [[start, end, layer], …]}`. Units are given in
characters, so a file of labels serves any tokenizer.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np

from hplus.errors import InputError
from hplus.files import writing
from hplus.heads.crf import O
from hplus.teach.align import tags_of_units
from hplus.teach.labels import LAYERS, Labelled
from hplus.teach.marked import read_rows
from hplus.types import Span, Tokens
from hplus.units.partition import begins_of_tags

PAPER = {"multi-token segments": 1_739_921, "median tokens": 2, "mean tokens": "2.4 to 2.9"}
"""What the paper reports of its teacher's labels (a diagnostic part of 964,155 rows)."""


def write_labels(path: Path, labels: Iterable[tuple[str, Labelled]]) -> int:
    """Write (source, labelled text) rows, gz if the name ends in .gz; returns their number."""
    path.parent.mkdir(parents=True, exist_ok=True)
    count = 0
    with writing(path) as file:
        for source, item in labels:
            units = [[*span, layer] for span, layer in zip(item.units, item.layers, strict=True)]
            row = {"source": source, "text": item.text, "units": units}
            # Escaped, so that lone surrogates survive, which UTF-8 cannot encode.
            file.write((json.dumps(row) + "\n").encode())
            count += 1
    return count


def read_labels(*paths: Path) -> dict[str, list[Labelled]]:
    """Labelled texts by source, in the order of the files; a bad row is named by its line."""
    found: dict[str, list[Labelled]] = {}
    for path in paths:
        for source, labelled in stream_labels(path):
            found.setdefault(source, []).append(labelled)
    if not found:
        raise InputError(f"{', '.join(map(str, paths))} has no labels")
    return found


def stream_labels(path: Path) -> Iterator[tuple[str, Labelled]]:
    """Sources and labelled texts of a file, one by one."""
    for number, row in read_rows(path, "source", "text"):
        units, layers, free = [], [], 0
        listed = row.get("units")
        for unit in listed if isinstance(listed, list) else [listed]:
            match unit:
                case [start, end, str(layer)] if (
                    type(start) is type(end) is int
                    and free <= start < end <= len(row["text"])
                    and layer in LAYERS
                ):
                    units.append(Span(start, end))
                    layers.append(layer)
                    free = end
                case _:
                    raise InputError(
                        f"{path}:{number}: expected units [start, end, layer] in reading order "
                        f"within {len(row['text'])} characters, got {json.dumps(unit)}"
                    )
        yield row["source"], Labelled(row["text"], tuple(units), tuple(layers))


def statistics(labels: list[Labelled], tokens: Tokens) -> dict[str, float | int]:
    """Figures about labels; `tokens` are those of the same texts."""
    layers = Counter(layer for item in labels for layer in item.layers)
    tags = tags_of_units(tokens, [item.units for item in labels])
    begins = begins_of_tags(tags, tokens.offsets)
    starts = np.flatnonzero(begins)
    lengths = np.diff(np.append(starts, len(tags)))
    longer = lengths[(lengths > 1) & (tags[starts] != O)]
    several = sum(
        any(c.isspace() for c in item.text[a:b]) for item in labels for a, b in item.units
    )
    units = sum(len(item.units) for item in labels)
    return {
        "texts": len(labels),
        "tokens": len(tokens.ids),
        "units": units,
        **{layer: layers[layer] for layer in LAYERS},
        "units of several words": several,
        "share of several words": several / max(1, units),
        "multi-token segments": len(longer),
        "median tokens": float(np.median(longer)) if len(longer) else 0.0,
        "mean tokens": float(longer.mean()) if len(longer) else 0.0,
        "longest text in tokens": max(
            (b - a for a, b in pairwise(tokens.offsets.tolist())), default=0
        ),
    }
