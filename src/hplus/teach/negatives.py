"""Hard negatives: candidates from BM25, from dense vectors and from indexes, then a choice.

The hardest candidates are often unmarked answers, and alone they teach a student little about the
rest of the collection. So the choice is spread over the whole range of a teacher's scores: the
range from the lowest candidate to a margin below the positive is divided into as many equal parts
as negatives are wanted, and one is drawn from each. What scores above the margin, and what is or
nearly repeats a positive of the same query, here or elsewhere, is never a negative.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from hplus.errors import InputError
from hplus.evaluate.bm25 import BM25
from hplus.progress import show_progress
from hplus.teach.duplicates import Collection, near_duplicates, same_text, shingles
from hplus.teach.groups import Group
from hplus.teach.scorers import Teacher, global_vectors, teach_scores
from hplus.types import F64, I64

DEPTH = 50
"""Candidates from each source."""
RANDOM = 8
"""Candidates at random: the floor of a teacher's range."""
MARGIN = 0.1
"""How far below the positive a negative must score, as a share of the range."""


def find_negatives(
    groups: Sequence[Group],
    *,
    count: int,
    sources: Sequence[str] = ("bm25",),
    teachers: Sequence[Teacher],
    cache: Path,
    apart_from: Collection | None = None,
    margin: float = MARGIN,
    seed: int = 13,
) -> tuple[list[Group], Counter[str]]:
    """Each query with its positive and up to `count` negatives, and what was left out.

    sources: "bm25" and "global:MODEL", over the positives of all groups and what an index named
    before them gave, and "index:FOLDER", over the documents of an index. teachers: whose scores the
    choice is spread over. apart_from: no near duplicate of these comes out of an index.
    """
    # Sorted: `teach scores` then finds their states in the same cache.
    documents = sorted({group.documents[0] for group in groups})
    queries = [group.query for group in groups]
    candidates: list[list[int]] = [[] for _ in groups]
    for source in sources:
        tokens = any(source == f"global:{t.source}" for t in teachers if t.kind == "tokens")
        found = _candidates(source, queries, documents, cache, apart_from, tokens)
        for own, more in zip(candidates, found, strict=True):
            own += more
    number = {text: i for i, text in enumerate(documents)}
    answers: dict[str, set[int]] = {}
    for group in groups:
        answers.setdefault(group.query, set()).add(number[group.documents[0]])
    random = np.random.default_rng([seed, len(groups)])
    members: list[I64] = []
    dropped: Counter[str] = Counter()
    sets = [shingles(text) for text in documents]
    for group, own in zip(groups, candidates, strict=True):
        positive = number[group.documents[0]]
        drawn = random.integers(len(documents), size=RANDOM).tolist()
        right = answers[group.query]
        others = [d for d in dict.fromkeys([*own, *drawn]) if d not in right]
        kept = [d for d in others if not any(same_text(sets[a], sets[d]) for a in right)]
        dropped["near duplicates of the positive"] += len(others) - len(kept)
        members.append(np.array([positive, *kept], np.int64))
    scores = teach_scores(teachers, queries, documents, members, cache)
    made = []
    for group, places, score in zip(groups, members, scores, strict=True):
        chosen, above = spread_choice(score, count, margin, random)
        dropped["candidates too near the positive's score"] += above
        dropped["queries with fewer negatives"] += len(chosen) < count
        negatives = [documents[d] for d in places[chosen].tolist()]
        made.append(replace(group, documents=(group.documents[0], *negatives), scores=None))
    return made, dropped


def spread_choice(
    scores: F64, count: int, margin: float, random: np.random.Generator
) -> tuple[I64, int]:
    """Which documents of a group become negatives (places, the positive is at 0), and how many
    score too near the positive.

    >>> scores = np.array([1.0, 0.99, 0.9, 0.85, 0.5, 0.1, 0.0])
    >>> spread_choice(scores, 3, 0.05, np.random.default_rng(0))[0].tolist()
    [2, 4, 6]
    """
    low = float(scores.min())
    ceiling = float(scores[0]) - margin * (float(scores[0]) - low)
    free = np.flatnonzero(scores[1:] < ceiling) + 1
    above = len(scores) - 1 - len(free)
    free = free[random.permutation(len(free))]
    part = np.clip((scores[free] - low) / max(ceiling - low, 1e-12) * count, 0, count - 1)
    # The first of each part, then, where parts are empty, what is left over.
    parts, first = np.unique(part.astype(np.int64), return_index=True)
    rest = np.delete(free, first)
    chosen = np.concatenate([free[first], rest[: max(0, count - len(parts))]])
    return np.sort(chosen), above


def _candidates(
    source: str,
    queries: list[str],
    documents: list[str],
    cache: Path,
    apart_from: Collection | None,
    with_tokens: bool,
) -> list[list[int]]:
    """The best DEPTH documents of each query; those of an index join `documents`."""
    kind, _, place = source.partition(":")
    if kind == "bm25" and not place:
        corpus = BM25(documents)
        found = []
        with show_progress("searching by BM25", len(queries)) as bar:
            for query in queries:
                found.append(corpus.search([query], DEPTH)[0][0].tolist())
                bar.advance(1)
        return found
    if kind == "global" and place:
        asked, given = global_vectors(place, queries, documents, cache, with_tokens=with_tokens)
        best = []
        for first in range(0, len(queries), 512):
            scores = asked[first : first + 512] @ given.T
            depth = min(DEPTH, scores.shape[1])
            best += np.argpartition(-scores, depth - 1, axis=1)[:, :depth].tolist()
        return best
    if kind == "index" and place:
        return _from_index(Path(place), queries, documents, apart_from)
    raise InputError(f"source {source!r}: expected bm25, global:MODEL or index:FOLDER")


def _from_index(
    folder: Path, queries: list[str], documents: list[str], apart_from: Collection | None
) -> list[list[int]]:
    from hplus.index import Index

    texts: dict[str, int] = {}  # each once: hits of many queries are the same documents
    found = []
    with Index.open(folder) as index, show_progress(f"searching {folder.name}", len(queries)) as b:
        for query in queries:
            own = []
            for hit in index.search(query, k=DEPTH):
                text = hit.text if hit.passage is None else hit.text[slice(*hit.passage)]
                if text.strip():
                    own.append(texts.setdefault(text, len(texts)))
            found.append(own)
            b.advance(1)
    known = {text: i for i, text in enumerate(documents)}
    new = [text for text in texts if text not in known]
    if apart_from is not None:
        # Before they join the documents, of which some are drawn at random.
        near = near_duplicates(new, apart_from)
        new = [text for text, drop in zip(new, near, strict=True) if not drop]
    known |= {text: i for i, text in enumerate(new, start=len(documents))}
    documents += new
    place = {i: known[text] for text, i in texts.items() if text in known}
    return [[place[i] for i in own if i in place] for own in found]
