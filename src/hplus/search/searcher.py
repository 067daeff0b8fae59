"""Search: branches, candidate union, all scores of every candidate, fusion, explanation.

eq:candidate_union and eq:fusion. The kernels rank the candidates; the best few are scored once more
by the plain functions of the views, so that a hit's score and its explanation are the same sum.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np

from hplus.errors import BudgetError, InputError
from hplus.index.segment import read
from hplus.index.snapshot import Snapshot
from hplus.search.candidates import (
    best,
    by_part,
    global_branch,
    global_scores,
    lexical_branch,
    lexical_scores,
    phrase_branch,
    phrase_scores,
)
from hplus.types import F64, I64, Encoded, Explanation, concatenate
from hplus.units.pool import normalise
from hplus.views import fusion, lexical, phrase

View = Literal["hybrid", "global", "phrase", "lexical"]
# Documents scored once more beyond the k asked for: what rounding may have put behind.
MARGIN = 16


@dataclass(frozen=True)
class Hit:
    """A document found: the score of each view that is on, and their weighted sum."""

    id: str
    score: float
    views: dict[str, float]
    text: str
    metadata: dict[str, Any]
    explanation: Explanation | None = None


@dataclass(frozen=True)
class Results(Sequence[Hit]):
    """Hits, best first, and how they were found: the path of each branch, how many candidates."""

    hits: list[Hit]
    paths: dict[str, str]
    candidates: int

    def __len__(self) -> int:
        return len(self.hits)

    def __getitem__(self, i: Any) -> Any:
        return self.hits[i]

    def __iter__(self) -> Iterator[Hit]:
        return iter(self.hits)


def search(
    snapshot: Snapshot,
    query: Encoded,
    *,
    query_text: str,
    spell: Callable[[int], str],
    view: View,
    k: int,
    where: str | None,
    budget: int | None,
    width: int | None,
    alphas: Mapping[str, float] | None,
    pool: int | tuple[int, int],
    exact: bool,
    explain: bool,
    threads: int,
) -> Results:
    """See `Index.search`."""
    if view not in get_args(View):
        raise InputError(f"view {view!r} asked; known: {', '.join(get_args(View))}")
    if type(k) is not int or k < 1:
        raise InputError(f"k={k!r} asked; 1 or more is expected")
    pools = pool if isinstance(pool, tuple) else (pool, pool)
    if len(pools) != 2 or any(type(size) is not int or size < 1 for size in pools):
        raise InputError(f"pool={pool!r} asked; 1 or more is expected, or a pair of such")
    if type(threads) is not int or threads < 1:
        raise InputError(f"threads={threads!r} asked; 1 or more is expected")
    weights = _alphas(snapshot, view, alphas)
    query = _at(snapshot, query, budget, width)
    allowed = snapshot.allowed(where)
    k_global, k_phrase = (max(k, size) for size in pools)
    found: dict[str, tuple[I64, str]] = {}
    if "global" in weights and view in ("hybrid", "global"):
        found["global"] = global_branch(snapshot, query, k_global, allowed, threads, exact=exact)
    if "phrase" in weights:
        found["phrase"] = phrase_branch(
            snapshot, query, k_phrase, allowed, threads, budget=budget, exact=exact
        )
    if set(weights) == {"lexical"}:
        found["lexical"] = lexical_branch(snapshot, query, max(k_global, k_phrase), allowed)
    # eq:candidate_union
    candidates = np.unique(np.concatenate([documents for documents, _ in found.values()]))
    scores = _scores(snapshot, query, candidates, weights, budget)
    chosen = best(snapshot, [(candidates, fusion.fuse(scores, weights))], k + MARGIN)
    hits = _hits(snapshot, query, np.sort(chosen), k, weights, budget, query_text, spell, explain)
    paths = {name: path for name, (_, path) in found.items()}
    return Results(hits, paths, len(candidates))


def rerank(
    snapshot: Snapshot,
    query: Encoded,
    ids: Sequence[str],
    *,
    query_text: str,
    spell: Callable[[int], str],
    budget: int | None,
    width: int | None,
    alphas: Mapping[str, float] | None,
    explain: bool,
) -> Results:
    """See `Index.rerank`."""
    if isinstance(ids, str):
        raise InputError("a list of ids expected, a single one came; put it in brackets")
    query = _at(snapshot, query, budget, width)
    documents = np.unique(snapshot.find(ids))
    weights = _alphas(snapshot, "hybrid", alphas)
    n = len(documents)
    hits = _hits(snapshot, query, documents, n, weights, budget, query_text, spell, explain)
    return Results(hits, {"given": "exact"}, n)


def _alphas(snapshot: Snapshot, view: View, alphas: Mapping[str, float] | None) -> dict[str, float]:
    if view != "hybrid":
        if alphas is not None:
            raise InputError(f"alphas are for view='hybrid'; view={view!r} has one score")
        return {view: 1.0}
    return fusion.check_alphas(snapshot.settings.fusion if alphas is None else alphas)


def _at(snapshot: Snapshot, query: Encoded, budget: int | None, width: int | None) -> Encoded:
    """The query at the width asked for; neither may exceed what is stored."""
    settings = snapshot.settings
    kept = settings.budget.count
    if budget is not None and (type(budget) is not int or budget < 1):
        raise BudgetError(f"budget {budget!r} asked; 1 unit or more is expected")
    if budget is not None and kept is not None and budget > kept:
        raise BudgetError(
            f"budget {budget} asked, but the index keeps {kept} units per document; ask for "
            f"{kept} or less, or rebuild with --budget {budget}"
        )
    if width is None or width == settings.width:
        return query
    if type(width) is not int or not 1 <= width < settings.width:
        raise BudgetError(
            f"width {width!r} asked, but the index keeps {settings.width}; ask for 1 to "
            f"{settings.width}, or rebuild with --width"
        )
    return replace(query, vectors=normalise(query.vectors[:, :width]))


def _scores(
    snapshot: Snapshot,
    query: Encoded,
    candidates: I64,
    weights: Mapping[str, float],
    budget: int | None,
) -> dict[str, F64]:
    """Normalised scores of every candidate by every view that is on."""
    parts: dict[str, list[F64]] = {view: [] for view in weights}
    for part, places in by_part(snapshot, candidates):
        segment = snapshot.parts[part].segment
        if "global" in weights:
            parts["global"].append(global_scores(segment, query, places).astype(np.float64))
        if "phrase" in weights:
            raw = phrase_scores(segment, query, places, budget).astype(np.float64)
            parts["phrase"].append(raw / phrase.scale(query))
        if "lexical" in weights:
            parts["lexical"].append(lexical_scores(segment, query, places) / lexical.scale(query))
    return {view: np.concatenate(some) if some else np.empty(0) for view, some in parts.items()}


def _hits(
    snapshot: Snapshot,
    query: Encoded,
    documents: I64,
    k: int,
    weights: Mapping[str, float],
    budget: int | None,
    query_text: str,
    spell: Callable[[int], str],
    explain: bool,
) -> list[Hit]:
    """The k best of these documents, given ascending; ties by id."""
    if not len(documents):
        return []
    encoded = concatenate(
        [
            read(snapshot.parts[part].segment, places, terms=query.lexical_ids)
            for part, places in by_part(snapshot, documents)
        ]
    )
    width = query.vectors.shape[1]
    encoded = encoded.at(budget=budget, width=None if width == encoded.vectors.shape[1] else width)
    rows = snapshot.rows(documents)
    scores = fusion.score(query, encoded, weights)
    order = sorted(range(len(rows)), key=lambda i: (-scores.fused[i], rows[i].id))[:k]
    explanations: Sequence[Explanation | None] = [None] * len(order)
    if explain:
        explained = fusion.score(
            query,
            encoded.take(np.array(order)),
            weights,
            query_text=query_text,
            document_texts=[rows[i].text for i in order],
            spell=spell,
        )
        explanations = explained.explanations or explanations
    columns = {"global": scores.global_, "phrase": scores.phrase, "lexical": scores.lexical}
    return [
        Hit(
            id=rows[i].id,
            score=float(scores.fused[i]),
            views={
                name: float(column[i]) for name, column in columns.items() if column is not None
            },
            text=rows[i].text,
            metadata=rows[i].metadata,
            explanation=explanation,
        )
        for i, explanation in zip(order, explanations, strict=True)
    ]
