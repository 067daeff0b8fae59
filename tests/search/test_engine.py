"""Search through an engine of plain arrays finds what the index finds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brute_force import ALPHAS, Corpus, corpora, index_of, view_errors
from builders import random_encoded
from hplus import Budget
from hplus.filters.ast import Filter, matches
from hplus.search import searcher
from hplus.search.engine import Branches, Candidates, Engine, best
from hplus.types import F64, I32, I64, Encoded, Search, Span, concatenate
from hplus.views import fusion


@dataclass(frozen=True)
class Kept:
    """How the arrays are kept."""

    global_width: int
    width: int
    fusion: dict[str, float]
    budget: Budget


@dataclass(frozen=True)
class Named:
    """A document for people."""

    id: str
    text: str
    metadata: dict[str, Any]
    passage: Span | None = None


class Arrays:
    """An engine in memory: every answer comes from the plain functions of the views."""

    def __init__(self, corpus: Corpus) -> None:
        self.corpus = corpus
        documents = corpus.documents
        self.settings = Kept(documents.global_.shape[1], documents.units.width, ALPHAS, Budget())

    def branches(
        self,
        query: Encoded,
        *,
        where: Filter | None = None,
        budget: int | None = None,
        exact: bool = False,
        threads: int = 1,
    ) -> Branches:
        del exact, threads
        return PlainBranches(self, query, where, budget)

    def find(self, ids: Sequence[str]) -> I64:
        return np.array([self.corpus.ids.index(id_) for id_ in ids], np.int64)

    def passages(self, documents: I64) -> tuple[I64, I64]:
        return documents, np.arange(len(documents) + 1)

    def rows(self, documents: I64) -> list[Named]:
        return [Named(self.corpus.ids[i], "", {"n": i}) for i in documents.tolist()]

    def ids(self, documents: I64) -> list[str]:
        return [self.corpus.ids[i] for i in documents.tolist()]

    def read(self, documents: I64, tokens: I32) -> Encoded:
        del tokens
        return self.corpus.documents.take(documents)


class PlainBranches:
    """One query against everything."""

    def __init__(
        self, engine: Arrays, query: Encoded, where: Filter | None, budget: int | None
    ) -> None:
        self.engine, self.where = engine, where
        documents = engine.corpus.documents.at(budget=budget, width=query.units.width)
        alphas = {"global": 1.0, "phrase": 1.0, "lexical": 1.0}
        self.views = fusion.score(query, documents, alphas).views()

    def leaders(self, alphas: Mapping[str, float], pools: Mapping[str, int], k: int) -> I64 | None:
        del alphas, pools, k
        return None

    def candidates(self, view: str, k: int) -> Candidates:
        every = range(len(self.engine.corpus))
        passing = [i for i in every if self.where is None or matches(self.where, "", {"n": i})]
        documents = np.array(passing, np.int64)
        scores = self.views[view][documents]
        if view == "lexical":
            documents, scores = documents[scores > 0], scores[scores > 0]
        chosen = best(self.engine, documents, scores, k)
        return Candidates(documents[chosen], scores[chosen], "plain")

    def scores(self, view: str, documents: I64) -> F64:
        return self.views[view][documents]


@settings(deadline=None, max_examples=40)
@given(st.data(), corpora(formats=["f32"]))
def test_any_engine_serves(data: st.DataObject, corpus: Corpus) -> None:
    """The same hits in the same order, up to what float32 and float16 make of equal scores."""
    engine: Engine = Arrays(corpus)
    request = Search(
        corpus.query,
        view=data.draw(st.sampled_from(["hybrid", "global", "phrase", "lexical"])),
        k=data.draw(st.integers(1, 14)),
        where=data.draw(st.sampled_from([None, "n < 4", "n >= 2"])),
        budget=data.draw(st.sampled_from([None, 1, 3])),
        query_budget=data.draw(st.sampled_from([None, 2])),
        pool=data.draw(st.sampled_from([2, 1000])),
        explain=data.draw(st.booleans()),
    )
    found = searcher.search(engine, request, corpus.query)
    with index_of(corpus) as index:
        expected = index.search(request)
    assert len(found) == len(expected)
    assert found.candidates == expected.candidates
    errors = view_errors(corpus.query, corpus.documents, "f32")
    alphas = ALPHAS if request.view == "hybrid" else {request.view: 1.0}
    worst = sum(alpha * errors[view].max() for view, alpha in alphas.items())
    for ours, theirs in zip(found, expected, strict=True):
        assert abs(ours.score - theirs.score) <= worst


class Rough(PlainBranches):
    """Equal documents differ a little, as rounding may make them, later ones being better."""

    def scores(self, view: str, documents: I64) -> F64:
        return super().scores(view, documents) + 1e-7 * documents


def test_explained_pages_share_no_document_and_miss_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages follow the scores of the engine, though explanations rank by their own."""
    one = random_encoded(np.random.default_rng(0), [3])
    corpus = Corpus(one, concatenate([one] * 7), list("abcdefg"), [0] * 7, [], "f32")
    monkeypatch.setattr(Arrays, "branches", lambda self, query, **_: Rough(self, query, None, None))

    def found(**options: Any) -> list[str]:
        return [hit.id for hit in searcher.search(Arrays(corpus), Search(one, **options), one)]

    assert found() == list("gfedcba")
    assert found(explain=True) == list("abcdefg")
    assert [found(explain=True, k=3, from_=first) for first in (0, 3, 6)] == [
        ["e", "f", "g"],
        ["b", "c", "d"],
        ["a"],
    ]
