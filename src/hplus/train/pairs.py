"""Training pairs: read, sampled, without near duplicates of evaluation texts, with negatives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hplus.errors import InputError
from hplus.evaluate.bm25 import BM25
from hplus.teach.duplicates import Collection, near_duplicates
from hplus.teach.marked import read_rows
from hplus.types import I64

# Hard negatives are drawn from this many of BM25's best; the very best are often unmarked answers.
NEGATIVES_FROM = 50
# BM25's negatives share the query's rare words, and alone would teach that rare words mean little;
# random ones teach the opposite. As in a search, most documents are of the second kind.
HARD, RANDOM = 4, 12


@dataclass(frozen=True)
class Pairs:
    """n queries over m distinct documents; groups i64[n, g] holds document numbers, the positive
    in column 0."""

    queries: list[str]
    documents: list[str]
    groups: I64
    report: dict[str, dict[str, int]]
    """Per file: rows read, sampled, and kept after removing near duplicates."""


def read_pairs(
    files: Sequence[Path],
    *,
    sample: int,
    apart_from: Collection | None = None,
    hard: int = HARD,
    others: int = RANDOM,
    seed: int = 13,
) -> Pairs:
    """At most `sample` pairs of each file (`{"query", "positive"}` per line), chosen by the seed.

    A pair is left out if its query or its passage nearly duplicates a text of `apart_from`. Each
    query gets `hard` negatives from BM25 and `others` at random.
    """
    rows: list[tuple[str, str]] = []
    report: dict[str, dict[str, int]] = {}
    for path in files:
        own = [(row["query"], row["positive"]) for _, row in read_rows(path, "query", "positive")]
        random = np.random.default_rng([seed, len(own)])
        chosen = np.sort(random.permutation(len(own))[:sample])
        kept = [own[i] for i in chosen]
        if apart_from is not None:
            near = near_duplicates([q for q, _ in kept], apart_from)
            near |= near_duplicates([p for _, p in kept], apart_from)
            kept = [pair for pair, drop in zip(kept, near, strict=True) if not drop]
        name = path.name.split(".")[0]
        report[str(path) if name in report else name] = {
            "rows": len(own),
            "sampled": len(chosen),
            "kept": len(kept),
        }
        rows += kept
    if len(rows) < 2:
        raise InputError(f"expected two pairs or more, got {len(rows)} from {len(files)} files")
    documents = list(dict.fromkeys(positive for _, positive in rows))
    number = {text: i for i, text in enumerate(documents)}
    queries = [query for query, _ in rows]
    positive = np.array([number[text] for _, text in rows])
    groups = _with_negatives(queries, documents, positive, hard, others, seed)
    return Pairs(queries, documents, groups, report)


def _with_negatives(
    queries: list[str], documents: list[str], positive: I64, hard: int, others: int, seed: int
) -> I64:
    """The positive, then negatives that are not a positive of the same query in another row."""
    answers: dict[str, set[int]] = {}
    for query, document in zip(queries, positive.tolist(), strict=True):
        answers.setdefault(query, set()).add(document)
    most = max(map(len, answers.values()))
    size = min(hard + others, len(documents) - most)
    found, _ = BM25(documents).search(queries, NEGATIVES_FROM + most)
    random = np.random.default_rng([seed, len(queries)])
    groups = np.empty((len(queries), 1 + size), np.int64)
    for row, query in enumerate(queries):
        right = answers[query]
        near = [d for d in found[row].tolist() if d not in right][:NEGATIVES_FROM]
        chosen = dict.fromkeys(random.permutation(near)[: min(hard, size)].tolist())
        while len(chosen) < size:
            drawn = random.integers(len(documents), size=2 * size).tolist()
            chosen |= dict.fromkeys(d for d in drawn if d not in right)
        groups[row] = [positive[row], *list(chosen)[:size]]
    return groups
