"""Scores that one query has given so far: no view scores a document twice."""

from __future__ import annotations

from collections.abc import Callable
from weakref import WeakMethod

import numpy as np

from hplus.types import F64, I64


class Met:
    """By view, the documents met so far, ascending, and their scores; `score` scores others.

    score: a method of the object that has this one. Were it held, each search would be a cycle, and
    would keep its generation of the index mapped until the garbage collector comes by.
    """

    def __init__(self, score: Callable[[str, I64], F64]) -> None:
        self._method = WeakMethod(score)
        self._met: dict[str, tuple[I64, F64]] = {}

    def scores(self, view: str, documents: I64) -> F64:
        """Scores of documents, ascending and distinct: looked up, or scored now."""
        if view not in self._met:
            self.note(view, documents, self._score(view, documents))
            return self._met[view][1]
        met, known_scores = self._met[view]
        if documents is met:  # a scan asks for all of them more than once
            return known_scores
        place = np.searchsorted(met, documents)
        known = place < len(met)
        known[known] = met[place[known]] == documents[known]
        if not known.all():
            new = documents[~known]
            self.note(view, new, self._score(view, new))
            met, known_scores = self._met[view]
            place = np.searchsorted(met, documents)
        found: F64 = known_scores[place]
        return found

    def _score(self, view: str, documents: I64) -> F64:
        score = self._method()
        assert score is not None
        return score(view, documents)

    def note(self, view: str, documents: I64, scores: F64) -> None:
        """Scores of documents, ascending and distinct; those noted before keep theirs."""
        if view not in self._met:
            self._met[view] = documents, scores
            return
        met, known = self._met[view]
        every, first = np.unique(np.append(met, documents), return_index=True)
        self._met[view] = every, np.append(known, scores)[first]
