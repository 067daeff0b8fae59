"""Files of texts -> labelled texts, without near duplicates of evaluation texts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hplus.errors import CheckpointError
from hplus.progress import show_progress
from hplus.states_file import stored_states, unit_begins
from hplus.teach.duplicates import Collection, near_duplicates
from hplus.teach.labels import Labelled, Length, label
from hplus.teach.marked import Marked, read_marked
from hplus.types import Span
from hplus.units.partition import partition, spans_of_units
from hplus.units.terms import Terms

if TYPE_CHECKING:
    from hplus.model import HPlus

_SPLITS = ("train", "dev", "test")


@dataclass(frozen=True)
class Unlabelled:
    """The texts of one file that are to be labelled, and what was left out of it."""

    name: str
    rows: list[Marked]
    dropped: Counter[str]


@dataclass(frozen=True)
class Source:
    """The labelled texts of one file, and what was left out of it."""

    name: str
    labels: list[Labelled]
    dropped: dict[str, int]


def source_name(path: Path) -> str:
    """craft_np/train.jsonl.gz -> craft_np; notes.txt -> notes.

    >>> source_name(Path("spans/craft_np/train.jsonl.gz")), source_name(Path("notes.txt"))
    ('craft_np', 'notes')
    """
    stem = path.name.split(".")[0]
    return path.parent.name if stem in _SPLITS and path.parent.name else stem


def label_file(
    path: Path,
    *,
    terms: Terms | None,
    chunker: HPlus | None,
    length: Length,
    apart_from: Collection | None,
    cache: Path,
    patterns: bool = True,
    sample: int | None = None,
    seed: int = 13,
) -> Source:
    """Label every text of a file that `read_source` reads."""
    source = read_source(path, apart_from=apart_from, sample=sample, seed=seed)
    return label_source(
        source, terms=terms, chunker=chunker, length=length, cache=cache, patterns=patterns
    )


def read_source(
    path: Path, *, apart_from: Collection | None = None, sample: int | None = None, seed: int = 13
) -> Unlabelled:
    """Every text of a file, or `sample` of them chosen by the seed.

    Near duplicates of texts in `apart_from` are left out, and so are repetitions.
    """
    distinct: dict[str, Marked] = {}
    for row in read_marked(path):
        distinct.setdefault(row.text, row)
    rows = list(distinct.values())
    if sample is not None and sample < len(rows):
        chosen = np.random.default_rng([seed, len(rows)]).permutation(len(rows))[:sample]
        rows = [rows[i] for i in np.sort(chosen)]
    dropped: Counter[str] = Counter()
    if apart_from is not None:
        near = near_duplicates([row.text for row in rows], apart_from)
        dropped["texts near an evaluation text"] = int(near.sum())
        rows = [row for row, drop in zip(rows, near, strict=True) if not drop]
    return Unlabelled(source_name(path), rows, dropped)


def label_source(
    source: Unlabelled,
    *,
    terms: Terms | None,
    chunker: HPlus | None,
    length: Length,
    cache: Path,
    patterns: bool = True,
) -> Source:
    """Label every text."""
    name, rows, dropped = source.name, source.rows, Counter(source.dropped)
    phrases = noun_phrases(chunker, rows, cache, name) if chunker else [[] for _ in rows]
    with show_progress(f"labelling {name}", len(rows)) as bar:
        labels = []
        for row, own in zip(rows, phrases, strict=True):
            labels.append(
                label(
                    row, terms=terms, phrases=own, length=length, patterns=patterns, dropped=dropped
                )
            )
            bar.advance(1)
    return Source(name, labels, {what: count for what, count in dropped.items() if count})


def noun_phrases(
    chunker: HPlus, rows: Sequence[Marked], cache: Path, name: str
) -> list[list[Span]]:
    """The chunker's units of each text; only those of several words matter."""
    crf = chunker.checkpoint.crf
    if crf is None:
        raise CheckpointError(f"{chunker.recipe.name} has no trained CRF to find noun phrases with")
    stored = stored_states(chunker, [row.text for row in rows], cache, progress=f"encoding {name}")
    units = partition(unit_begins(crf, stored), stored.tokens.offsets)
    spans = spans_of_units(stored.tokens, units).tolist()
    return [
        [Span(*span) for span in spans[first:last]]
        for first, last in pairwise(units.offsets.tolist())
    ]
