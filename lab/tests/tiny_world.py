"""A world small enough to be worked out in plain Python: a few texts of made-up words, each token
with made-up states and a made-up importance, and everything a line of a table is made of, computed
a second time without the laboratory's code.

A token is a syllable of two letters, a word one to three of them. States, means and judgements come
from a seed, so that every choice a line could get wrong (weights, width, candidates, order) changes
its nDCG@10 for some query; `test_lines.py` says so choice by choice.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform

from hplus.evaluate.bench import Bench
from hplus.evaluate.data import RetrievalSet
from hplus.heads.importance import Idf
from hplus.recipe import Recipe
from hplus.states_file import StoredStates
from hplus.types import Tokens, offsets_of
from hplus.units.terms import Terms

SYLLABLES = [a + b for a in "bdklmnprst" for b in "aeiou"]
DIM, DOCUMENTS, QUERIES = 8, 24, 10
TERM = ("bado", "kelimu")
UNKNOWN = 3
Unit = tuple[list[float], float]
"""Vector and weight."""


class World:
    """Texts as lists of words, words as lists of token ids; the bench made of them."""

    def __init__(self, cache: Path, seed: int = 5, units: str = "ngrams-3") -> None:
        self.random = np.random.default_rng(seed)
        term = [[SYLLABLES.index(word[i : i + 2]) for i in range(0, len(word), 2)] for word in TERM]
        self.queries = [self._text(3, 5, term if i % 2 else []) for i in range(QUERIES)]
        self.documents = [self._text(2, 12, term if i % 3 else []) for i in range(DOCUMENTS)]
        self.table = self.random.uniform(0.2, 3.0, len(SYLLABLES)).astype(np.float32)
        sides = [self._side(self.queries), self._side(self.documents)]
        names = [f"d{i:02}" for i in self.random.permutation(DOCUMENTS)]
        asked = [f"q{i}" for i in range(QUERIES)]
        judged = {
            name: {
                names[i]: int(self.random.integers(1, 4))
                for i in self.random.permutation(DOCUMENTS)[:5]
            }
            for name in asked
        }
        texts = [side.tokens.texts for side in sides]
        data = RetrievalSet(names, list(texts[1]), asked, list(texts[0]), judged)
        tokenizer = SimpleNamespace(vocabulary=len(SYLLABLES), unknown=UNKNOWN)
        recipe = Recipe(
            units=units,
            importance="idf",
            fusion={"global": 0.7, "phrase": 1.0, "lexical": 0.4},
        )
        model: Any = SimpleNamespace(
            recipe=recipe,
            dim=DIM,
            threads=1,
            fingerprint="made up",
            encode_document=len,
            checkpoint=SimpleNamespace(
                crf=None,
                head=None,
                lexical=None,
                idf=Idf(self.table),
                source=str(cache),
                backbone=SimpleNamespace(tokenizer=tokenizer),
            ),
        )
        by_text = {texts[i]: side for i, side in enumerate(sides)}
        with patch(
            "hplus.evaluate.bench.stored_states",
            lambda _, found, *__, **___: by_text[tuple(found)],
        ):
            self.bench = Bench(model, data, cache, Terms([" ".join(TERM)]))
        self.sides = sides
        self.ids, self.query_ids, self.judged = names, asked, judged

    def _text(self, low: int, high: int, term: list[list[int]]) -> list[list[int]]:
        words = [
            [int(i) for i in self.random.integers(0, len(SYLLABLES), self.random.integers(1, 4))]
            for _ in range(self.random.integers(low, high))
        ]
        place = int(self.random.integers(0, len(words)))
        return words[:place] + term + words[place:]

    def _side(self, texts: Sequence[list[list[int]]]) -> StoredStates:
        spelled, ids, spans, lengths = [], [], [], []
        for text in texts:
            spelled.append(" ".join("".join(SYLLABLES[i] for i in word) for word in text))
            place = 0
            for word in text:
                for i in word:
                    ids.append(i)
                    spans.append((place, place + 2))
                    place += 2
                place += 1
            lengths.append(sum(map(len, text)))
        tokens = Tokens(
            tuple(spelled), np.array(ids, np.int32), np.array(spans, np.int32), offsets_of(lengths)
        )
        states = self.random.normal(size=(len(ids), DIM)).astype(np.float16)
        pooled = self.random.normal(size=(len(texts), DIM)).astype(np.float32)
        return StoredStates(tokens, states, states, pooled)

    # Everything below is a second way to the same numbers.

    def importance(self, i: int) -> float:
        """Of a token id."""
        return float(self.table[i])

    def cuts(self, side: int, rule: str) -> list[list[tuple[int, int]]]:
        """Units of each text as ranges of its tokens. RULE+terms: the term is one unit."""
        rule, _, terms = rule.partition("+")
        found = []
        for text in (self.queries, self.documents)[side]:
            words = list(pairwise(np.cumsum([0, *map(len, text)]).tolist()))
            n = words[-1][1]
            if rule == "tokens":
                starts = set(range(n))
            elif rule.startswith("ngrams"):
                starts = set(range(0, n, int(rule[-1])))
            else:  # words, or what stands between white space
                starts = {first for first, _ in words}
            spelled = ["".join(SYLLABLES[i] for i in word) for word in text]
            for k in range(len(words) - 1 if terms else 0):
                if tuple(spelled[k : k + 2]) == TERM:
                    first, last = words[k][0], words[k + 1][1]
                    starts = {s for s in starts if not first < s < last} | {first, last}
            found.append(list(pairwise([*sorted(starts - {n}), n])))
        return found

    def units(
        self, side: int, cuts: Sequence[Sequence[tuple[int, int]]], width: int, weigh: str = "sum"
    ) -> list[list[Unit]]:
        """Vector and weight of every unit, in reading order."""
        stored, found = self.sides[side], []
        for text, (own, begin) in enumerate(zip(cuts, stored.tokens.offsets[:-1], strict=True)):
            ids = [i for word in (self.queries, self.documents)[side][text] for i in word]
            units = []
            for first, last in own:
                rows = stored.states[begin + first : begin + last, :width].astype(np.float64)
                weights = [self.importance(i) for i in ids[first:last]]
                units.append((unit_length(rows.mean(axis=0)), reading(weigh, weights)))
            found.append(units)
        return found

    def ndcg(self, scores: Sequence[dict[int, float]], depth: int = 10) -> list[float]:
        """nDCG@depth of every query from scores of its candidates; ties by document id."""
        found = []
        for query, own in zip(self.query_ids, scores, strict=True):
            ranked = sorted(own, key=lambda d: (-own[d], self.ids[d]))[:depth]
            grades = self.judged[query]
            gained = [2 ** grades.get(self.ids[d], 0) - 1 for d in ranked]
            ideal = sorted((2**grade - 1 for grade in grades.values()), reverse=True)[:depth]
            dcg, best = (
                sum(gain / math.log2(place + 2) for place, gain in enumerate(gains))
                for gains in (gained, ideal)
            )
            found.append(dcg / best)
        return found

    def recall_top(self, scores: Sequence[dict[int, float]], depth: int) -> list[float]:
        """Of every query, the share of the documents of its highest grade among the first."""
        found = []
        for query, own in zip(self.query_ids, scores, strict=True):
            first = sorted(own, key=lambda d: (-own[d], self.ids[d]))[:depth]
            grades = self.judged[query]
            best = [name for name, grade in grades.items() if grade == max(grades.values())]
            found.append(sum(self.ids[d] in best for d in first) / len(best))
        return found

    def global_scores(self, width: int) -> list[list[float]]:
        """S_G of every query and document."""
        queries, documents = (
            [unit_length(row[:width].astype(np.float64)) for row in side.pooled]
            for side in self.sides
        )
        return [[float(np.dot(q, d)) for d in documents] for q in queries]

    def lexical_scores(self) -> list[list[float]]:
        """Normalised S_L of every query and document."""
        queries, documents = (
            [{i for word in text for i in word} - {UNKNOWN} for text in texts]
            for texts in (self.queries, self.documents)
        )
        return [
            [
                sum(self.importance(i) ** 2 for i in own & other)
                / sum(self.importance(i) ** 2 for i in own)
                for other in documents
            ]
            for own in queries
        ]

    def best(self, scores: Sequence[Sequence[float]], count: int) -> list[list[int]]:
        """The best documents of every query."""
        return [
            sorted(range(DOCUMENTS), key=lambda d, row=row: (-row[d], self.ids[d]))[:count]
            for row in scores
        ]


def unit_length(vector: Any) -> list[float]:
    return list(vector / np.linalg.norm(vector))


def reading(way: str, weights: Sequence[float]) -> float:
    """A unit's weight from those of its tokens."""
    ways = {
        "sum": sum(weights),
        "mean": sum(weights) / len(weights),
        "max": max(weights),
        "uniform": 1.0,
    }
    return ways[way]


def by_importance(texts: Sequence[Sequence[Unit]]) -> list[list[Unit]]:
    """Units of each text, the most important first."""
    return [sorted(units, key=lambda unit: -unit[1]) for units in texts]


def maxsim(query: Sequence[Unit], document: Sequence[Unit]) -> float:
    """Normalised S_P."""
    best = [(w, max(float(np.dot(v, u)) for u, _ in document)) for v, w in query]
    return sum(w * s for w, s in best) / sum(w for w, _ in best)


def heavy_groups(squares: np.ndarray, masses: Sequence[float], count: int) -> list[int]:
    """The group of each point: again and again the two join that add least to the sum over groups
    of m n d² between their points, over the group's mass."""

    def within(group: list[int]) -> float:
        pairs = [masses[i] * masses[j] * squares[i, j] for i in group for j in group if j < i]
        return sum(pairs) / sum(masses[i] for i in group)

    groups = [[i] for i in range(len(masses))]
    while len(groups) > count:
        _, a, b = min(
            (within(groups[a] + groups[b]) - within(groups[a]) - within(groups[b]), a, b)
            for a in range(len(groups))
            for b in range(a)
        )
        groups[b] += groups.pop(a)
    return [number for i in range(len(masses)) for number, own in enumerate(groups) if i in own]


def clustered(units: Sequence[Unit], count: int, *, weighted: bool) -> list[Unit]:
    """Clusters by Ward, each the mean of its members: scipy's, or by definition with importance as
    mass: the join that adds least to the weighted squared distances comes first."""
    if count >= len(units):
        return list(units)
    vectors = np.array([vector for vector, _ in units], np.float64)
    distances = np.clip(1 - vectors @ vectors.T, 0, 2)
    if weighted:
        groups = heavy_groups(distances, [w for _, w in units], count)
    else:
        groups = fcluster(linkage(squareform(distances, checks=False), "ward"), count, "maxclust")
    found = []
    for group in np.unique(groups):
        members = [unit for unit, own in zip(units, groups, strict=True) if own == group]
        pulls = [w if weighted else 1.0 for _, w in members]
        mean = sum(p * np.array(v) for (v, _), p in zip(members, pulls, strict=True))
        found.append((unit_length(mean), sum(w for _, w in members)))
    return found
