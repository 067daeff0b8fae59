"""Search through any engine: branches, union, fusion, hits (eq:candidate_union, eq:fusion).

A branch gives its candidates with their scores, so that every view scores a document once. With
`explain` the hits are scored by the plain functions of `views/` from their stored encodings: a
hit's score and its explanation are then one and the same sum, which may differ from the engine's
score by the rounding of its kernel.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from hplus.errors import BudgetError, InputError
from hplus.filters import syntax
from hplus.search.engine import Branches, Candidates, Engine, best, best_passages
from hplus.search.groups import best_of_groups
from hplus.search.results import Results
from hplus.types import F64, I64, Encoded, Explanation, Hit, Search
from hplus.units.select import narrow
from hplus.units.vectors import normalise
from hplus.views import fusion
from hplus.views.lexical import Spelling

PLAIN = Spelling()
ALONE = (["global"], ["phrase"])


Begun = tuple[Encoded, Branches]
"""A query as the engine keeps its documents, and its way through the engine."""


def begin(engine: Engine, request: Search, query: Encoded) -> Begun:
    """A search before it has looked at anything; query: the request's own, encoded."""
    query = fitted(engine, request, query)
    where = syntax.parse(request.where) if isinstance(request.where, str) else request.where
    return query, engine.branches(
        query, where=where, budget=request.budget, exact=request.exact, threads=request.threads
    )


def search(engine: Engine, request: Search, query: Encoded, spelling: Spelling = PLAIN) -> Results:
    """The hits of a request; query: the request's own, encoded."""
    return finish(engine, request, begin(engine, request, query), spelling)


def finish(engine: Engine, request: Search, begun: Begun, spelling: Spelling = PLAIN) -> Results:
    """The hits of a search that was begun."""
    return _search(engine, request, begun, spelling, _text(request), np.empty(0, np.int64))


def more_like(
    engine: Engine, request: Search, document: I64, text: str, spelling: Spelling = PLAIN
) -> Results:
    """The hits of a request whose query is the encoding of a document i64[1] with this text; the
    document itself is none of them."""
    if not isinstance(request.query, Encoded):
        raise InputError("expected the query to be the encoding of a document, got a text")
    begun = begin(engine, request, request.query)
    return _search(engine, request, begun, spelling, text, document)


def _search(
    engine: Engine, request: Search, begun: Begun, spelling: Spelling, text: str, without: I64
) -> Results:
    alphas = alphas_of(engine, request)
    query, branches = begun
    wanted = request.from_ + request.k
    # The hits of one view are its best candidates; a pool beyond them only widens what lists read.
    usual = request.pools == (Search.pool, Search.pool) and request.group_by is None
    pools = (0, 0) if usual and list(alphas) in ALONE else request.pools
    k_global, k_phrase = (max(wanted, size) + len(without) for size in pools)
    sizes = {"global": k_global, "phrase": k_phrase, "lexical": max(k_global, k_phrase)}
    # The lexical view finds candidates only where no other view is on.
    leading = [view for view in alphas if view != "lexical"] or ["lexical"]
    leaders = branches.leaders(alphas, sizes, wanted + len(without)) if usual else None
    while True:
        paths, more = dict.fromkeys(leading, "exact"), False
        if leaders is None:
            found = {view: branches.candidates(view, sizes[view]) for view in leading}
            paths = {view: candidates.path for view, candidates in found.items()}
            more = any(len(found[view].documents) == sizes[view] for view in leading)
        documents = _union(list(found.values())) if leaders is None else leaders
        if len(without):
            documents = np.setdiff1d(documents, without, assume_unique=True)
        documents, scores = _scored(engine, branches, documents, alphas)
        fused = fusion.fuse(scores, alphas)
        page = _page(engine, request, documents, fused)
        if request.group_by is None or len(page) == request.k or not more or _low(request, fused):
            break
        sizes = {view: 4 * size for view, size in sizes.items()}  # the pool has too few groups
    hits = _hits(engine, request, query, documents, scores, alphas, page, (text, spelling))
    return Results(text, hits, paths, len(documents), request.from_)


def rerank(
    engine: Engine, request: Search, query: Encoded, ids: Sequence[str], spelling: Spelling = PLAIN
) -> Results:
    """All of these documents, best first; k, from_, where and pool of the request do not count."""
    alphas = alphas_of(engine, request)
    query = fitted(engine, request, query)
    documents = np.unique(engine.find(ids))
    branches = engine.branches(query, budget=request.budget, threads=request.threads)
    documents, scores = _scored(engine, branches, documents, alphas)
    every = replace(request, from_=0, k=max(1, len(documents)))
    page = _page(engine, every, documents, fusion.fuse(scores, alphas))
    text = _text(request)
    hits = _hits(engine, every, query, documents, scores, alphas, page, (text, spelling))
    return Results(text, hits, {"given": "exact"}, len(documents))


def _scored(
    engine: Engine, branches: Branches, documents: I64, alphas: Mapping[str, float]
) -> tuple[I64, dict[str, F64]]:
    """The best passage of each document by the fused score, and what every view gives it."""
    passages, offsets = engine.passages(documents)
    scores = {view: branches.scores(view, passages) for view in alphas}
    if len(passages) == len(documents):
        return passages, scores
    chosen = best_passages(fusion.fuse(scores, alphas), offsets)
    return passages[chosen], {view: own[chosen] for view, own in scores.items()}


def _union(found: list[Candidates]) -> I64:
    """eq:candidate_union: the documents that any branch puts forward, ascending."""
    if len(found) == 1:
        documents = found[0].documents
        # Ascending already: the very same array, whose scores an engine knows without a search.
        return documents if (documents[1:] > documents[:-1]).all() else np.sort(documents)
    every: I64 = np.sort(np.concatenate([candidates.documents for candidates in found]))
    first = np.ones(len(every), np.bool_)
    first[1:] = every[1:] != every[:-1]
    return every[first]


def alphas_of(engine: Engine, request: Search) -> dict[str, float]:
    """The weights of the views that are on."""
    if request.view != "hybrid":
        return {request.view: 1.0}
    return fusion.check_alphas(engine.settings.fusion if request.alphas is None else request.alphas)


def _text(request: Search) -> str:
    return request.query if isinstance(request.query, str) else ""


def fitted(engine: Engine, request: Search, query: Encoded) -> Encoded:
    """The query at the widths of the engine, or the smaller ones of the request, and under B_q;
    no budget and no width may exceed what is stored."""
    settings = engine.settings
    if len(query) != 1:
        raise InputError(f"expected one query, got {len(query)}")
    kept = settings.budget.count
    if request.budget is not None and kept is not None and request.budget > kept:
        raise BudgetError(
            f"budget {request.budget} requested, but the index keeps {kept} units per document; "
            f"request {kept} or fewer, or rebuild with --budget {request.budget}"
        )
    if request.width is not None and request.width > settings.width:
        raise BudgetError(
            f"width {request.width} requested, but the index keeps {settings.width}; request "
            f"{settings.width} or less, or rebuild with --width {request.width}"
        )
    for name, found, stored in (
        ("global", query.global_.shape[1], settings.global_width),
        ("phrase", query.units.width, settings.width),
    ):
        if found < stored:
            raise InputError(f"the query's {name} width is {found}, but the index keeps {stored}")
    if query.global_.shape[1] > settings.global_width:
        query = replace(query, global_=normalise(query.global_[:, : settings.global_width]))
    units = narrow(query.units, request.width or settings.width)
    if units is not query.units:
        query = replace(query, units=units)
    return query if request.query_budget is None else query.at(budget=request.query_budget)


def _hits(
    engine: Engine,
    request: Search,
    query: Encoded,
    documents: I64,
    scores: Mapping[str, F64],
    alphas: Mapping[str, float],
    page: I64,
    spelled: tuple[str, Spelling],
) -> list[Hit]:
    """The documents of a page, best first, ties by id; explained if the request says so."""
    if not len(page):
        return []
    documents = documents[page]
    scores = {view: own[page] for view, own in scores.items()}
    fused = fusion.fuse(scores, alphas)
    rows = engine.rows(documents)
    explanations: Sequence[Explanation | None] = [None] * len(rows)
    if request.explain:
        text, spelling = spelled
        stored = engine.read(documents, query.lexical.ids)
        explained = fusion.score(
            query,
            stored.at(budget=request.budget, width=query.units.width),
            alphas,
            query_text=text,
            document_texts=[row.text for row in rows],
            spelling=spelling,
        )
        fused, scores = explained.fused, explained.views()
        explanations = explained.explanations or explanations
    total = fused.tolist()  # reading an array number by number is slow
    views = {view: own.tolist() for view, own in scores.items()}
    return [
        Hit(
            id=rows[i].id,
            score=total[i],
            views={view: own[i] for view, own in views.items()},
            text=rows[i].text,
            metadata=rows[i].metadata,
            explanation=explanations[i],
            passage=rows[i].passage,
        )
        for i in sorted(range(len(rows)), key=lambda i: (-total[i], rows[i].id))
    ]


def _page(engine: Engine, request: Search, documents: I64, fused: F64) -> I64:
    """Rows of hits from_ + 1 to from_ + k among the documents that score enough, ascending."""
    high = None if request.min_score is None else np.flatnonzero(fused >= request.min_score)
    if high is not None:
        documents, fused = documents[high], fused[high]
    last = request.from_ + request.k
    if request.group_by is not None:
        page = best_of_groups(engine, request.group_by, documents, fused, last)[request.from_ :]
    else:
        page = best(engine, documents, fused, last)
        if request.from_:  # by the same scores, so that pages share no document and miss none
            page = np.setdiff1d(page, best(engine, documents, fused, request.from_))
    page = np.sort(page)
    return page if high is None else high[page]


def _low(request: Search, fused: F64) -> bool:
    """Whether the pool reaches down to the lowest score wanted."""
    return request.min_score is not None and bool((fused < request.min_score).any())
