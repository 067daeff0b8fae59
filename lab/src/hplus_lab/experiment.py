"""A set under a protocol: its candidates, its units, and the rankers and lines made of them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from hplus.errors import InputError
from hplus.evaluate import rescore
from hplus.evaluate.bench import Bench
from hplus.evaluate.data import RetrievalSet
from hplus.evaluate.metrics import measure, oracle_ndcg, recall
from hplus.states_file import StoredStates
from hplus.storage.segment import dequantise, quantise
from hplus.types import F32, F64, I64, Units
from hplus.units.select import Budget, bring_to
from hplus.units.terms import Terms
from hplus.views import global_
from hplus_lab import rankers
from hplus_lab.baselines import cut_at, named
from hplus_lab.cache import array_made_once
from hplus_lab.line import At, Line
from hplus_lab.protocol import Protocol
from hplus_lab.rankers import Ranker

ALL = Budget()
# Candidates of more than this share of the corpus gate little: their figures say so.
DEGENERATE = 0.5
Pools = Sequence[I64] | I64
"""Candidates of each query."""


@dataclass(frozen=True)
class Inputs:
    """What a protocol may need beside a model and a set. dev: sets to tune on, by name. baselines:
    the folder of other systems' weights."""

    terms: Terms | None = None
    dev: tuple[tuple[str, RetrievalSet], ...] = ()
    baselines: Path | None = None


class Experiment:
    """What a protocol fixes on one bench; units once pooled are kept for the next line.

    n: documents. gate: the candidates, i64[queries, K], best first. units: the model's own rule,
    with terminology where the protocol has it. budget: to how many phrases the documents of the
    phrase view are merged; 0: they keep all.
    """

    def __init__(self, bench: Bench, protocol: Protocol, inputs: Inputs | None = None) -> None:
        if protocol.boundaries == "model+terms" and bench.terms is None:
            raise InputError(needs_terms(protocol))
        self.bench, self.protocol, self.inputs = bench, protocol, inputs or Inputs()
        recipe, dim = bench.model.recipe, bench.model.dim
        self.n, self.threads = len(bench.ids), bench.model.threads
        self.importance, self.model_units = recipe.importance, recipe.units
        self.units = recipe.units + ("+terms" if protocol.boundaries == "model+terms" else "")
        self.width = min(protocol.widths[0], dim)
        self.gate_width = min(protocol.gate_width, dim)
        self.budget = (
            protocol.budgets[0] if protocol.counts == "natural" and protocol.budgets else 0
        )
        self.gate = bench.gate(self.global_scores(self.gate_width), max(protocol.pools))
        self._units: dict[tuple[str, str, bool, int], Units] = {}
        self._baselines: dict[str, Ranker] = {}

    @property
    def sides(self) -> tuple[StoredStates, StoredStates]:
        """Queries and documents."""
        return self.bench.queries, self.bench.documents

    @property
    def every(self) -> I64:
        """All documents as the candidates of each query."""
        return np.tile(np.arange(self.n), (len(self.gate), 1))

    def as_stored(self, vectors: F32) -> F32:
        """Documents' vectors as the protocol's format keeps them; queries stay as they are."""
        format = self.protocol.format
        return vectors if format == "f32" else dequantise(*quantise(vectors, format))

    def global_scores(self, width: int) -> F32:
        """S_G of every query and document at a width."""
        queries, documents = (global_.represent(side.pooled, width) for side in self.sides)
        scores: F32 = queries @ self.as_stored(documents).T
        return scores

    def units_of(self, side: StoredStates, rule: str, width: int, importance: str = "") -> Units:
        """All units of one side in order of importance, by default the model's importance."""
        importance = importance or self.importance
        key = (rule, importance, side is self.bench.queries, width)
        if key not in self._units:
            self._units[key] = self.bench.units(side, rule, importance, width, ALL)
        return self._units[key]

    def forget(self) -> None:
        """Units of one width take a gigabyte."""
        self._units.clear()

    def global_ranker(self, width: int) -> Ranker:
        """S_G at a width."""
        queries, documents = (global_.represent(side.pooled, width) for side in self.sides)
        scores = self.global_scores(width)
        return rankers.by_global(scores, queries, documents, self.protocol.format)

    @property
    def dense_ranker(self) -> Ranker:
        """The encoder's own vector at full width, in float32."""
        queries, documents = (global_.represent(s.pooled, s.pooled.shape[1]) for s in self.sides)
        scores: F32 = queries @ documents.T
        return rankers.by_global(scores, queries, documents, "f32")

    @cached_property
    def lexical_ranker(self) -> Ranker:
        """S_L with the model's importance."""
        queries, documents = (self.bench.lexical_view(side, self.importance) for side in self.sides)
        vocabulary = self.bench.model.checkpoint.backbone.tokenizer.vocabulary
        return rankers.by_lexical(queries, documents, vocabulary)

    def phrases(self, rule: str = "", width: int = 0) -> tuple[Units, Units]:
        """All units of the queries, and those of the documents within the budget; by default the
        model's own with terminology, at the usual width."""
        rule, width = rule or self.units, width or self.width
        queries, documents = (self.units_of(side, rule, width) for side in self.sides)
        if self.budget:
            documents = bring_to(self.within_budget(documents), "merge", documents)
        return queries, documents

    def within_budget(self, documents: Units) -> I64:
        """How many vectors each document has in the phrase view."""
        found = np.diff(documents.offsets)
        return np.minimum(found, self.budget) if self.budget else found

    def phrase_ranker(self, pools: Pools, rule: str = "", width: int = 0) -> Ranker:
        """S_P of `phrases`."""
        return self.unit_ranker(*self.phrases(rule, width), pools)

    def token_ranker(self, pools: Pools, width: int = 0, *, weighted: bool) -> Ranker:
        """Late interaction over all tokens; a query token counts once, or by its importance as a
        phrase does."""
        width = width or self.width
        importance = "" if weighted else "uniform"
        queries = self.units_of(self.bench.queries, "tokens", width, importance)
        documents = self.units_of(self.bench.documents, "tokens", width, "uniform")
        return self.unit_ranker(queries, documents, pools, keep=not weighted)

    def pooled_token_ranker(self, pools: Pools, width: int = 0) -> Ranker:
        """Token pooling: the tokens of each document clustered (Ward) to as many vectors as the
        document has phrases; a query keeps all its tokens, weighted."""
        width = width or self.width
        counts = self.within_budget(self.units_of(self.bench.documents, self.units, width))
        queries = self.units_of(self.bench.queries, "tokens", width)
        documents = self.units_of(self.bench.documents, "tokens", width, "uniform")
        return self.unit_ranker(queries, bring_to(counts, "ward", documents), pools)

    def beside_phrases(self, pools: Pools, width: int = 0) -> dict[str, Ranker]:
        """What every phrase line is to be read against: the same encoder's tokens."""
        return {
            "weighted token": self.token_ranker(pools, width, weighted=True),
            "unweighted token": self.token_ranker(pools, width, weighted=False),
            "pooled token": self.pooled_token_ranker(pools, width),
        }

    def unit_ranker(
        self, queries: Units, documents: Units, pools: Pools, *, keep: bool = False
    ) -> Ranker:
        """S_P of any units. keep: the scores are put in the cache, since tokens are the same
        whatever a system makes of them, and the next system need not score them again."""
        stored = replace(documents, vectors=self.as_stored(documents.vectors))

        def make() -> F32:
            return rescore.maxsim_of_pools(queries, stored, pools, threads=self.threads)

        if keep:
            sizes = np.array([len(own) for own in pools])
            made_from: list[F32 | I64] = [
                *(queries.vectors, queries.weights, queries.offsets),
                *(stored.vectors, stored.offsets, sizes, np.concatenate(list(pools))),
            ]
            scores = array_made_once(self.bench.cache / "scores", made_from, make)
        else:
            scores = make()
        return rankers.by_units(scores, queries, documents, self.protocol.format)

    def views(self, pools: Pools) -> dict[str, Ranker]:
        """The three views."""
        return {
            "global": self.global_ranker(self.gate_width),
            "phrase": self.phrase_ranker(pools),
            "lexical": self.lexical_ranker,
        }

    def hybrid(self, views: Mapping[str, Ranker]) -> Ranker:
        """Their weighted sum, with the weights of the model."""
        return rankers.fused(views, self.bench.model.recipe.fusion)

    def baseline(self, name: str) -> Ranker:
        """Another system on this set."""
        if name not in self._baselines:
            self._baselines[name] = rankers.by_baseline(
                cut_at(named(name), self.protocol.window),
                self.bench.data,
                folder=self.inputs.baselines,
                cache=self.bench.cache / "baselines",
                format=self.protocol.format,
                threads=self.threads,
            )
        return self._baselines[name]

    def best(self, ranker: Ranker) -> I64:
        """The candidates that a ranker gives, as many as the protocol's pool."""
        scores = ranker.scores.astype(np.float32, copy=False)
        return self.bench.gate(scores, self.protocol.pools[0])

    def values(self, scores: F32 | F64, pools: Pools) -> F64:
        """The protocol's measure of every query over its own candidates."""
        pooled = [scores[row, own].astype(np.float64) for row, own in enumerate(pools)]
        return self.measured(pooled, pools)

    def measured(self, pooled: Sequence[F64], pools: Pools) -> F64:
        """The same from the scores of the candidates alone; ties by document id."""
        metric, data = self.protocol.metric, self.bench.data
        if metric == "ndcg@10":
            return self.bench.ndcg10(pooled, pools)
        depth = int(metric.split("@")[1])
        run = {}
        for query, scores, own in zip(data.query_ids, pooled, pools, strict=True):
            # Only those that may be among the best are sorted by their names.
            edge = np.partition(scores, -depth)[-depth] if len(scores) > depth else -np.inf
            near = np.flatnonzero(scores >= edge)
            names = self.bench.ids[own[near]].tolist()
            run[query] = dict(zip(names, scores[near].tolist(), strict=True))
        judged = {query: data.judgements[query] for query in data.query_ids}
        return measure(run, judged, [metric]).values[metric]

    def line(
        self,
        name: str,
        ranker: Ranker,
        pools: Pools,
        at: At,
        facts: Mapping[str, float] | None = None,
    ) -> Line:
        """What a ranker makes of candidates; at: the coordinates of the line."""
        candidates = [np.sort(own) for own in pools]
        return Line(
            name,
            self.values(ranker.scores, pools),
            ranker.cost(float(np.mean([len(own) for own in pools]))),
            at,
            dict(facts or {}),
            ranker.file,
            lambda row: ranker.rank(row, candidates[row]),
            candidates,
            ranker.encode or self.bench.model.encode_document,
        )

    def describe(self, pools: Pools) -> dict[str, float]:
        """Number, recall and oracle nDCG@10 of candidates, means over queries; degenerate: 1 where
        they hold most of the corpus."""
        found = [self.bench.ids[own].tolist() for own in pools]
        judged = [self.bench.data.judgements[name] for name in self.bench.data.query_ids]
        pairs = list(zip(found, judged, strict=True))
        size = float(np.mean([len(own) for own in found]))
        recalls = [recall(own, grades, depth=len(own)) for own, grades in pairs]
        oracles = [oracle_ndcg(own, grades, depth=10) for own, grades in pairs]
        return {
            "candidates": size,
            "recall": float(np.mean(recalls)),
            "oracle": float(np.mean(oracles)),
            "degenerate": float(size > DEGENERATE * self.n),
        }

    def candidates_hash(self, pools: Pools) -> str:
        """Of the candidates' ids, query by query: equal hashes, equal candidates."""
        digest = hashlib.sha256()
        for name, own in zip(self.bench.data.query_ids, pools, strict=True):
            ids = sorted(self.bench.ids[own].tolist())
            digest.update("\0".join([name, *ids, "\n"]).encode("utf-8", "surrogatepass"))
        return digest.hexdigest()


def union(parts: Sequence[Pools]) -> list[I64]:
    """The union of several pools, query by query, ascending (eq:candidate_union)."""
    return [np.unique(np.concatenate(rows)).astype(np.int64) for rows in zip(*parts, strict=True)]


def needs_terms(protocol: Protocol) -> str:
    """What to say where a protocol with terminology gets none."""
    return f"protocol {protocol.name} is CRF with terminology: give --terms FILE, one term a line"
