"""A set under a protocol: its gate, its units, its importance, and lines of a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from hplus.errors import InputError
from hplus.evaluate import pools as candidates
from hplus.evaluate import rescore
from hplus.evaluate.array_cache import made_once
from hplus.evaluate.beir import Bench
from hplus.evaluate.cost import Cost, cost_of, global_cost, lexical_cost
from hplus.evaluate.protocol import Protocol
from hplus.index.segment import dequantise, quantise
from hplus.states_file import StoredStates
from hplus.types import F32, F64, I64
from hplus.units.select import Budget, Kept
from hplus.views import global_
from hplus.views.fusion import fuse

ALL = Budget()


@dataclass(frozen=True)
class Line:
    """One system of a table: nDCG@10 of every query, f64[queries], and what it costs."""

    name: str
    values: F64
    cost: Cost | None = None
    facts: dict[str, float] = field(default_factory=dict)
    """Measured beside: recall of the pool, its oracle …"""


class Lab:
    """What a protocol fixes on one bench; units once pooled are kept for the next line."""

    def __init__(self, bench: Bench, protocol: Protocol) -> None:
        if protocol.boundaries == "model+terms" and bench.terms is None:
            raise InputError(
                f"protocol {protocol.name} is CRF with terminology: give --terms FILE, one term "
                "a line"
            )
        self.bench, self.protocol = bench, protocol
        recipe = bench.model.recipe
        self.importance = recipe.importance
        self.rule = recipe.units
        self.units = recipe.units + ("+terms" if protocol.boundaries == "model+terms" else "")
        self.gate_width = min(protocol.gate_width, bench.model.dim)
        self.global_ = self.global_scores(self.gate_width)
        self.gate = bench.gate(self.global_, max(protocol.pools))
        self.pool: Sequence[I64] | I64 = self.gate
        """What a result names by its hash: the candidates of the gate, or of a shared pool."""
        self._kept: dict[tuple[str, bool, int], Kept] = {}

    @property
    def width(self) -> int:
        """Columns of local vectors."""
        return min(self.protocol.widths[0], self.bench.model.dim)

    @property
    def global_cost(self) -> Cost:
        """Of the global view at the gate's width."""
        return global_cost(len(self.bench.ids), self.gate_width, self.protocol.format)

    @property
    def sides(self) -> tuple[StoredStates, StoredStates]:
        """Queries and documents."""
        return self.bench.queries, self.bench.documents

    def as_stored(self, vectors: F32) -> F32:
        """Documents' vectors as the protocol's format keeps them; queries stay as they are."""
        format = self.protocol.format
        return vectors if format == "f32" else dequantise(*quantise(vectors, format))

    def global_scores(self, width: int) -> F32:
        """S_G of every query and document at a width."""
        queries, documents = (global_.represent(side.mean, width) for side in self.sides)
        scores: F32 = queries @ self.as_stored(documents).T
        return scores

    def kept(self, side: StoredStates, units: str, width: int, kind: str = "") -> Kept:
        """All units of one side in order of importance."""
        kind = kind or self.importance
        key = (f"{units} {kind}", side is self.bench.queries, width)
        if key not in self._kept:
            self._kept[key] = self.bench.units(side, units, kind, width, ALL)
        return self._kept[key]

    def forget(self) -> None:
        """Units of one width take a gigabyte."""
        self._kept.clear()

    def local(
        self, units: str, width: int, kind: str = "", pools: Sequence[I64] | I64 | None = None
    ) -> tuple[F32, Cost]:
        """Natural S_P, f32[queries, documents], of the candidates (by default those of the gate),
        and its cost over the gate."""
        queries, documents = (self.kept(side, units, width, kind) for side in self.sides)
        return self.scores(queries, documents, pools), self.cost(queries, documents, width)

    def token(self, width: int, pools: Sequence[I64] | I64 | None = None) -> tuple[F32, Cost]:
        """Late interaction over all tokens, every query token counting once."""
        queries, documents = (self.kept(side, "tokens", width, "uniform") for side in self.sides)
        scores = self.scores(queries, documents, pools, once=True)
        return scores, self.cost(queries, documents, width)

    def lexical(self) -> tuple[F32, Cost]:
        """S_L of every query and document, and what its postings cost."""
        queries, documents = (self.bench.terms_of(side, self.importance) for side in self.sides)
        vocabulary = self.bench.model.checkpoint.backbone.tokenizer.vocabulary
        scores = rescore.lexical(queries, documents, vocabulary)
        return scores, lexical_cost(queries, documents, vocabulary)

    def scores(
        self,
        queries: Kept,
        documents: Kept,
        pools: Sequence[I64] | I64 | None = None,
        *,
        once: bool = False,
    ) -> F32:
        """Normalised S_P of each query's candidates, by default those of the gate.

        once: keep them in the cache. Tokens are alike whatever a system makes of them: the next
        one need not score them again.
        """
        pools = self.gate if pools is None else pools
        stored = self.as_stored(documents.vectors)
        threads = self.bench.model.threads

        def make() -> F32:
            units = replace(documents, vectors=stored)
            return rescore.maxsim_of_pools(queries, units, pools, threads=threads)

        if not once:
            return make()
        sizes = np.array([len(own) for own in pools])
        made_from: list[F32 | I64] = [
            *(queries.vectors, queries.weights, queries.offsets, stored, documents.offsets),
            *(sizes, np.concatenate(list(pools))),
        ]
        return made_once(self.bench.cache / "scores", made_from, make)

    def cost(self, queries: Kept, documents: Kept, width: int) -> Cost:
        n, asked = len(self.bench.ids), len(self.bench.data.queries)
        return cost_of(
            queries, documents, n, asked, self.gate.shape[1], width, self.protocol.format
        )

    def values(self, scores: F32, pools: Sequence[I64] | I64) -> F64:
        """nDCG@10 of every query over its own candidates."""
        pooled = [scores[row, own].astype(np.float64) for row, own in enumerate(pools)]
        return self.bench.ndcg10(pooled, pools)

    def fused(
        self, views: Mapping[str, F32], alphas: Mapping[str, float], pools: Sequence[I64] | I64
    ) -> F64:
        """The same of a weighted sum of views."""
        pooled = [
            fuse({view: views[view][row, own].astype(np.float64) for view in alphas}, alphas)
            for row, own in enumerate(pools)
        ]
        return self.bench.ndcg10(pooled, pools)

    def line(
        self,
        name: str,
        scores: F32,
        pools: Sequence[I64] | I64,
        cost: Cost | None = None,
        facts: dict[str, float] | None = None,
    ) -> Line:
        return Line(name, self.values(scores, pools), cost, facts or {})

    def global_line(self, name: str, width: int, scores: F32, pools: I64) -> Line:
        """One vector a document over the whole corpus, with what its gate lets through."""
        cost = global_cost(len(self.bench.ids), width, self.protocol.format)
        return self.line(name, scores, pools, cost, candidates.describe(self.bench, pools))
