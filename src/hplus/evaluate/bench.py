"""One model on one set: nDCG@10 of every view over the model's own global pool.

The everyday protocol: texts cut at the window, the top 1,000 of the global view rescored by each
view, the model's units without terminology, exponential gain. "token" is late interaction over all
tokens, every query token counting the same; a budget of units is compared with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hplus.errors import InputError
from hplus.evaluate import rescore
from hplus.evaluate.data import RetrievalSet
from hplus.evaluate.metrics import ndcg
from hplus.recipe import Side
from hplus.states_file import StoredStates, stored_states, unit_begins, weigh
from hplus.types import F32, F64, I64, Bool, Lexical, Units
from hplus.units import rules
from hplus.units.partition import keep_characters_whole
from hplus.units.select import Budget
from hplus.units.terms import Terms, override
from hplus.views import global_, lexical
from hplus.views.fusion import fuse

if TYPE_CHECKING:
    from hplus.model import HPlus

POOL = 1_000


@dataclass(frozen=True)
class Result:
    """nDCG@10 of every query, in the order of the set, by view, and what each view costs."""

    ndcg10: dict[str, F64]
    vectors: dict[str, float]
    """Vectors per document, of the views that keep vectors."""
    pools: I64
    scores: dict[str, F64]
    """By view, f64[queries, pool], for the documents of `pools`."""


def evaluate(model: HPlus, data: RetrievalSet, cache: Path) -> Result:
    """All views; token states come from the cache, or are encoded into it."""
    bench = Bench(model, data, cache)
    recipe = model.recipe
    width = recipe.phrase_width or model.dim
    token, tokens = bench.phrase("tokens", "uniform", width, Budget(), Budget())
    phrase, units = bench.phrase(
        recipe.units, recipe.importance, width, recipe.query_budget, recipe.document_budget
    )
    scores = {
        "global": bench.global_,
        "token": token,
        "phrase": phrase,
        "lexical": bench.lexical(recipe.importance),
    }
    pooled = {name: bench.pooled(score) for name, score in scores.items()}
    pooled["hybrid"] = fuse({name: pooled[name] for name in recipe.fusion}, recipe.fusion)
    values = {name: bench.ndcg10(own) for name, own in pooled.items()}
    vectors = {"global": 1.0, "token": tokens, "phrase": units}
    return Result(values, vectors, bench.pools, pooled)


class Bench:
    """A set with its states and pools, on which units, weights, widths and budgets are tried."""

    def __init__(
        self, model: HPlus, data: RetrievalSet, cache: Path, terms: Terms | None = None
    ) -> None:
        if not data.queries or not data.documents:
            raise InputError(
                f"the set has {len(data.queries)} judged queries and {len(data.documents)} "
                "documents; expected at least one of each"
            )
        self.model, self.data, self.terms, self.cache = model, data, terms, cache
        self._begin: dict[tuple[bool, str, int], Bool] = {}
        self._weights: dict[tuple[bool, int], F32] = {}
        self.documents = stored_states(model, data.documents, cache, progress="documents")
        self.queries = stored_states(model, data.queries, cache, side="query", progress="queries")
        self.ids = np.array(data.document_ids)
        self.global_ = self.global_scores(model.recipe.global_width or model.dim)
        self.pools = self.gate(self.global_, POOL)

    def global_scores(self, width: int) -> F32:
        """S_G of every query and document at a width."""
        sides = (global_.represent(side.pooled, width) for side in (self.queries, self.documents))
        queries, documents = sides
        scores: F32 = queries @ documents.T
        return scores

    def gate(self, scores: F32, count: int) -> I64:
        """The best documents of each query, i64[queries, count]; ties by id."""
        by_id = np.argsort(self.ids, kind="stable")
        order = np.argsort(-scores[:, by_id], axis=1, kind="stable")[:, :count]
        return np.ascontiguousarray(by_id[order])

    def begins(self, side: StoredStates, units: str) -> Bool:
        """Where units begin by the model's CRF or a rule; RULE+terms: with terms overriding."""
        # Kept, since a table needs them for many lines and Viterbi over a million tokens is slow.
        key = (side is self.queries, units, id(self.model.checkpoint.crf))
        if key not in self._begin:
            self._begin[key] = self._begins(side, units)
        return self._begin[key]

    def _begins(self, side: StoredStates, units: str) -> Bool:
        crf = self.model.checkpoint.crf
        rule, _, overridden = units.partition("+")
        if overridden:
            if self.terms is None:
                raise InputError(f"units {units!r} need terms; give a file of them")
            own = override(self.begins(side, rule), side.tokens, self.terms)
            return keep_characters_whole(own, side.tokens)
        if rule == "crf" and crf:
            return unit_begins(crf, side, settled=self.model.recipe.patterns)
        return rules.rule(rule)(side.tokens)

    def importance(self, side: StoredStates, kind: str) -> F32:
        """Importance of every token: by the head, by the checkpoint's idf, or 1."""
        head, idf = self.model.checkpoint.head, self.model.checkpoint.idf
        if kind == "head" and head:
            key = (side is self.queries, id(head))
            if key not in self._weights:
                self._weights[key] = weigh(head, side)
            return self._weights[key]
        if kind == "idf" and idf:
            return idf.importance(side.tokens.ids)
        return np.ones(len(side.tokens.ids), np.float32)

    def units(self, side: StoredStates, units: str, kind: str, width: int, budget: Budget) -> Units:
        """One side's units, pooled and under a budget."""
        importance = self.importance(side, kind)
        return rescore.units_of(side, self.begins(side, units), importance, width, budget)

    def phrase(
        self, units: str, kind: str, width: int, query_budget: Budget, budget: Budget
    ) -> tuple[F32, float]:
        """Normalised S_P of every query and document, and vectors per document."""
        queries = self.units(self.queries, units, kind, width, query_budget)
        documents = self.units(self.documents, units, kind, width, budget)
        scores = rescore.maxsim(queries, documents)
        return scores, len(documents.weights) / max(1, len(self.ids))

    def lexical_view(self, side: StoredStates, kind: str) -> Lexical:
        """One side's lexical view."""
        unknown = self.model.checkpoint.backbone.tokenizer.unknown
        importance = self.importance(side, kind)
        head = self.model.checkpoint.lexical
        if self.model.recipe.lexical == "head" and head is not None:
            inner = side.inner.astype(np.float32)
            which: Side = "query" if side is self.queries else "document"
            importance = head.weights(side.tokens, inner, which)
        return lexical.represent(side.tokens, importance, unknown)

    def lexical(self, kind: str) -> F32:
        """Normalised S_L of every query and document."""
        queries, documents = (
            self.lexical_view(side, kind) for side in (self.queries, self.documents)
        )
        vocabulary = self.model.checkpoint.backbone.tokenizer.vocabulary
        return rescore.lexical(queries, documents, vocabulary)

    def pooled(self, scores: F32) -> F64:
        """The scores of each query's pool, f64[queries, pool]."""
        return np.take_along_axis(scores, self.pools, axis=1).astype(np.float64)

    def ndcg10(self, pooled: Sequence[F64] | F64, pools: Sequence[I64] | I64 | None = None) -> F64:
        """nDCG@10 of every query from the scores of its pool, ties by document id."""
        pools = self.pools if pools is None else pools
        values = np.empty(len(pooled))
        for row, (name, scores) in enumerate(zip(self.data.query_ids, pooled, strict=True)):
            # Sorting names is slow, so only those that may be among the best ten are sorted.
            edge = np.partition(scores, -10)[-10] if len(scores) > 10 else -np.inf
            near = np.flatnonzero(scores >= edge)
            names = self.ids[pools[row][near]]
            best = np.lexsort((names, -scores[near]))[:10]
            values[row] = ndcg(names[best].tolist(), self.data.judgements[name])
        return values
