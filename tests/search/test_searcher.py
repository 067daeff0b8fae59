"""Search against brute force: every view, format, budget and width; ties, pools, explanations."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brute_force import (
    ALPHAS,
    TEXT,
    Corpus,
    QuickDisk,
    assert_found,
    corpora,
    index_of,
    kernel_error,
    row_errors,
)
from builders import random_encoded, with_units
from hplus.errors import BudgetError, FilterError, InputError
from hplus.filters.syntax import parse
from hplus.index import Index
from hplus.storage.segment import FORMATS, Format
from hplus.types import Encoded, Explanation, Lexical, Search, View, concatenate
from hplus.units.select import Budget
from hplus.units.vectors import normalise
from hplus.views import fusion

some = settings(deadline=None, max_examples=40)
VIEWS: tuple[View, ...] = get_args(View)
# A view that is off is absent: every set of views that can be on.
ON = st.lists(st.sampled_from(fusion.VIEWS), min_size=1, unique=True)


def plain(lengths: Sequence[int], *, cuts: Sequence[int] = ()) -> Corpus:
    """Documents of `lengths` units, ids in order."""
    random = np.random.default_rng(0)
    return Corpus(
        query=random_encoded(random, [4]),
        documents=random_encoded(random, lengths),
        ids=[f"d{i:03d}" for i in range(len(lengths))],
        copies=list(range(len(lengths))),
        cuts=list(cuts),
        format="f32",
    )


@pytest.fixture
def five() -> Iterator[tuple[Corpus, Index]]:
    """A corpus of five documents."""
    corpus = plain([3, 0, 1, 6, 2], cuts=[2])
    with index_of(corpus) as index:
        yield corpus, index


@some
@given(st.data(), corpora())
def test_every_view_and_format_agrees_with_brute_force(data: st.DataObject, corpus: Corpus) -> None:
    with index_of(corpus) as index:
        for view in VIEWS:
            k = data.draw(st.integers(1, 15))
            width = data.draw(st.one_of(st.none(), corpus.widths()), label="width")
            budget = data.draw(st.one_of(st.none(), st.integers(1, 8)), label="budget")
            below = data.draw(st.one_of(st.none(), st.integers(0, len(corpus))), label="below")
            results = index.search(
                corpus.query,
                view=view,
                k=k,
                where=None if below is None else f"n < {below}",
                budget=budget,
                width=width,
            )
            alphas = ALPHAS if view == "hybrid" else {view: 1.0}
            allowed = None if below is None else range(below)
            assert_found(results, corpus, alphas, k=k, allowed=allowed, budget=budget, width=width)
            assert set(results.paths.values()) == {"exact"}
            for hit in results:
                assert hit.text == TEXT
                assert hit.metadata == {"n": corpus.ids.index(hit.id)}


@pytest.mark.parametrize("format", FORMATS)
def test_the_best_two_of_many_documents(format: Format) -> None:
    """The kernels choose well."""
    corpus = replace(plain([i % 7 for i in range(150)], cuts=[20, 90]), format=format)
    random = np.random.default_rng(7)
    with index_of(corpus) as index:
        for _ in range(4):
            asked = replace(corpus, query=random_encoded(random, [5]))
            for view in VIEWS:
                some = [{}, {"budget": 1}, {"width": 3}, {"budget": 2, "width": 5}]
                for options in some[: 2 if format == "int4" else 4]:
                    results = index.search(asked.query, view=view, k=2, **options)
                    alphas = ALPHAS if view == "hybrid" else {view: 1.0}
                    assert_found(results, asked, alphas, k=2, **options)


def test_candidates_too_are_ranked_under_the_budget_of_the_search() -> None:
    """Forty documents whose second unit is the query's, and one whose only unit is half of it."""
    query = np.eye(8, dtype=np.float32)[:1]
    weak, half = np.eye(8, dtype=np.float32)[1:2], normalise(query + 1.7 * np.eye(8)[2:3])
    corpus = plain([*[2] * 40, 1])
    vectors = np.concatenate([*[weak, query] * 40, half]).astype(np.float32)
    corpus = replace(
        corpus,
        query=with_units(corpus.query[0].at(budget=1), vectors=query),
        documents=with_units(corpus.documents, vectors=vectors),
    )
    with index_of(corpus) as index:
        for view in ("phrase", "hybrid"):
            alphas = {"phrase": 1.0} if view == "hybrid" else None
            (hit,) = index.search(corpus.query, view=view, alphas=alphas, k=1, budget=1)
            assert hit.id == "d040"
        assert index.search(corpus.query, view="phrase", k=1)[0].id == "d000"


@some
@given(st.data(), corpora(), ON)
def test_weights_of_the_views_for_one_query(
    data: st.DataObject, corpus: Corpus, views: list[str]
) -> None:
    alphas = {view: data.draw(st.sampled_from([0.0, 0.25, 1, 3.5])) for view in views}
    k = data.draw(st.integers(1, 15))
    with index_of(corpus) as index:
        results = index.search(corpus.query, alphas=alphas, k=k)
        branches = {"lexical"} if views == ["lexical"] else set(views) - {"lexical"}
        assert set(results.paths) == branches
        assert_found(results, corpus, alphas, k=k)


@some
@given(corpora(formats=["f32"]), st.integers(1, 4), st.integers(1, 6), st.integers(1, 6))
def test_candidates_are_the_union_of_two_pools(
    corpus: Corpus, k: int, of_global: int, of_phrase: int
) -> None:
    """Documents that neither branch puts forward are not found, however well they fuse."""
    k_global, k_phrase = max(k, of_global), max(k, of_phrase)
    with index_of(corpus) as index:
        united: set[str] = set()
        for view, size in (("global", k_global), ("phrase", k_phrase)):
            united |= {hit.id for hit in index.search(corpus.query, view=view, k=size)}
        results = index.search(corpus.query, k=k, pool=(of_global, of_phrase))
        assert results.candidates == len(united)
        allowed = {corpus.ids.index(id_) for id_ in united}
        assert_found(results, corpus, ALPHAS, k=k, allowed=allowed)


def test_one_pool_is_for_both_branches() -> None:
    corpus = plain([2] * 30, cuts=[9, 20])
    with index_of(corpus) as index:
        assert index.search(corpus.query, pool=7) == index.search(corpus.query, pool=(7, 7))
        assert index.search(corpus.query, k=2, pool=2).candidates in (2, 3, 4)
        # A pool below k would leave fewer than k documents to find.
        assert len(index.search(corpus.query, k=9, pool=3)) == 9


@pytest.mark.parametrize("pool", [(3, 9), (9, 3)])
def test_the_lexical_branch_alone_has_the_larger_pool(pool: tuple[int, int]) -> None:
    corpus = plain([2] * 30, cuts=[9, 20])
    shared = fusion.score(corpus.query, corpus.documents, {"lexical": 1.0}).fused
    assert (shared > 0).sum() > 9
    with index_of(corpus) as index:
        assert index.search(corpus.query, view="lexical", k=1, pool=pool).candidates == 9


def test_a_candidate_of_one_branch_has_all_three_scores() -> None:
    """By global alone document 0 is found, by phrase alone document 1; both get every score."""
    corpus = plain([3] * 40)
    vectors, global_ = corpus.documents.units.vectors.copy(), corpus.documents.global_.copy()
    global_[0] = corpus.query.global_[0]
    vectors[3:6] = corpus.query.units.vectors[:3]
    documents = with_units(corpus.documents, vectors=vectors)
    corpus = replace(corpus, documents=replace(documents, global_=global_))
    with index_of(corpus) as index:
        results = index.search(corpus.query, k=1, pool=1)
        assert results.candidates == 2
        (hit,) = results
        expected = fusion.score(corpus.query, corpus.documents, ALPHAS)
        best = max((0, 1), key=lambda i: expected.fused[i])
        assert hit.id == corpus.ids[best]
        assert set(hit.views) == {"global", "phrase", "lexical"}
        assert hit.score == pytest.approx(expected.fused[best], rel=1e-3)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("pool", [3, 1000])
def test_more_equal_documents_than_hits(format: Format, view: View, pool: int) -> None:
    """Of sixty equal documents those of the smallest ids are found, wherever they lie."""
    n = 60
    random = np.random.default_rng(5)
    one = random_encoded(random, [5])
    corpus = Corpus(
        query=one,
        documents=concatenate([one] * n),
        ids=[f"d{i:02d}" for i in random.permutation(n)],
        copies=[0] * n,
        cuts=[1, 2, 19, 40],
        format=format,
    )
    with index_of(corpus) as index:
        results = index.search(corpus.query, view=view, k=5, pool=pool)
        assert [hit.id for hit in results] == [f"d{i:02d}" for i in range(5)]
        assert len({hit.score for hit in results}) == 1


def test_ids_rank_by_code_point_not_by_length_or_case() -> None:
    one = random_encoded(np.random.default_rng(1), [3])
    ids = ["ä", "Z", "a", "10", "9", "a ", "糖", "𝛼", "\ufb01"]
    corpus = Corpus(one, concatenate([one] * len(ids)), ids, [0] * len(ids), [4], "int8")
    with index_of(corpus) as index:
        assert [hit.id for hit in index.search(one)] == sorted(ids)
        assert [hit.id for hit in index.search(one, k=4, pool=4)] == sorted(ids)[:4]


def test_a_query_without_units_or_terms_ranks_by_id(five: tuple[Corpus, Index]) -> None:
    corpus, index = five
    empty = random_encoded(np.random.default_rng(0), [0])
    empty = replace(
        empty,
        global_=np.zeros_like(empty.global_),
        lexical=Lexical(np.empty(0, np.int32), np.empty(0, np.float32), np.zeros(2, np.int64)),
    )
    for view in ("hybrid", "global", "phrase"):
        results = index.search(empty, view=view, k=3, explain=True)
        assert [(hit.id, hit.score) for hit in results] == [(id_, 0.0) for id_ in corpus.ids[:3]]
        assert all(hit.explanation.phrase == [] for hit in results)
    assert len(index.search(empty, view="lexical")) == 0


@pytest.mark.parametrize("view", VIEWS)
def test_nothing_is_found_in_an_empty_index_or_behind_a_filter(view: View) -> None:
    corpus = plain([2, 3])
    with index_of(corpus) as index:
        results = index.search(corpus.query, view=view, where="n > 99", explain=True)
        assert list(results) == []
        assert results.candidates == 0
        index.delete(corpus.ids)
        assert list(index.search(corpus.query, view=view)) == []
        index.compact()
        results = index.search(corpus.query, view=view)
        assert list(results) == []
        assert set(results.paths.values()) == {"exact"}


def test_a_filter_changes_who_may_be_found_not_what_they_score(five: tuple[Corpus, Index]) -> None:
    corpus, index = five
    every = {hit.id: hit for hit in index.search(corpus.query)}
    assert len(every) == 5
    for where in ("n >= 3", 'id = "d001"', "n in (0, 4) or n = 2", "missing exists", "n exists"):
        found = index.search(corpus.query, where=where)
        assert [every[hit.id] for hit in found] == list(found)
    with pytest.raises(FilterError):
        index.search(corpus.query, where="n >")


@some
@given(st.data(), corpora())
def test_rerank_gives_every_document_asked_for_its_fused_score(
    data: st.DataObject, corpus: Corpus
) -> None:
    chosen = data.draw(st.lists(st.integers(0, len(corpus) - 1), max_size=8))
    budget = data.draw(st.one_of(st.none(), st.integers(1, 8)))
    alphas = data.draw(st.sampled_from([None, {"phrase": 1.0}, {"global": 1, "lexical": 2}]))
    with index_of(corpus) as index:
        results = index.rerank(
            corpus.query, [corpus.ids[i] for i in chosen], budget=budget, alphas=alphas
        )
        ids = {hit.id for hit in results}
        assert ids == {corpus.ids[i] for i in chosen}
        assert len(results) == len(ids) == results.candidates
        # Without a pool there is no lexical branch: a document that shares nothing is there too.
        query, documents = corpus.query, corpus.documents.at(budget=budget)
        expected = fusion.score(query, documents, alphas or ALPHAS)
        found = {hit.id: hit for hit in index.search(query, k=99, budget=budget, alphas=alphas)}
        assert [hit.score for hit in results] == sorted((h.score for h in results), reverse=True)
        for hit in results:
            assert hit == found[hit.id]
            if corpus.format == "f32" and "lexical" not in hit.views:
                i = corpus.ids.index(hit.id)
                assert hit.score == pytest.approx(expected.fused[i], abs=2e-6)


def test_rerank_names_the_document_that_is_not_there(five: tuple[Corpus, Index]) -> None:
    corpus, index = five
    index.delete("d002")
    with pytest.raises(InputError, match="no document 'd002'"):
        index.rerank(corpus.query, ["d001", "d002"])
    assert list(index.rerank(corpus.query, [])) == []
    with pytest.raises(InputError, match="list of ids"):
        index.rerank(corpus.query, "d001")


def test_rerank_says_its_path(five: tuple[Corpus, Index]) -> None:
    corpus, index = five
    assert index.rerank(corpus.query, ["d001"]).paths == {"given": "exact"}


@some
@given(st.data(), corpora(), ON)
def test_an_explanation_is_its_score(data: st.DataObject, corpus: Corpus, views: list[str]) -> None:
    alphas = {view: data.draw(st.sampled_from([0.0, 0.25, 1, 3.5])) for view in views}
    alphas = {view: alphas[view] for view in fusion.VIEWS if view in alphas}
    budget = data.draw(st.one_of(st.none(), st.integers(1, 8)))
    with index_of(corpus) as index:
        results = index.search(corpus.query, alphas=alphas, budget=budget, k=20, explain=True)
        silent = index.search(corpus.query, alphas=alphas, budget=budget, k=20)
        scores = {hit.id: hit.score for hit in silent}  # the kernel's: the same up to rounding
        assert {hit.id for hit in results} == set(scores)
        leeway = sum(alphas.values()) * kernel_error(corpus.query.units.vectors, corpus.format)
        leeway += sum(alphas.values()) * kernel_error(corpus.query.global_, corpus.format)
        for hit in results:
            assert abs(hit.score - scores[hit.id]) <= leeway
        for hit in results:
            explained = hit.explanation
            assert isinstance(explained, Explanation)
            assert explained.fused == hit.score
            assert list(explained.shares) == list(alphas)
            assert reduce(add, explained.shares.values()) == hit.score
            for view, share in explained.shares.items():
                assert share == alphas[view] * hit.views[view]
            if "phrase" in alphas:
                raw = reduce(add, (match.contribution for match in explained.phrase), 0.0)
                assert raw == explained.phrase_raw
                scale = float(corpus.query.units.weights.sum(dtype=np.float64)) or 1.0
                assert hit.views["phrase"] == raw / scale
                for match in explained.phrase:
                    product = match.weight * match.similarity
                    assert match.contribution == pytest.approx(product, rel=1e-12)
            else:
                assert explained.phrase == []
                assert explained.phrase_raw is None
            if "lexical" in alphas:
                raw = math.fsum(match.contribution for match in explained.lexical)
                assert raw == pytest.approx(explained.lexical_raw, rel=1e-12)
            else:
                assert explained.lexical == []
                assert explained.lexical_raw is None


@some
@given(corpora(), st.one_of(st.none(), st.integers(1, 8)))
def test_an_explanation_cites_the_units_it_matched(corpus: Corpus, budget: int | None) -> None:
    """Spans are those of the very unit that is most similar; the words there say its number."""
    documents = corpus.documents.at(budget=budget)
    units = corpus.documents.units
    off = row_errors(units.vectors, corpus.format, units.width, corpus.mean)
    with index_of(corpus) as index:
        for hit in index.search(corpus.query, k=20, budget=budget, explain=True):
            document = documents[corpus.ids.index(hit.id)]
            similarity = corpus.query.units.vectors @ document.units.vectors.T
            for s, match in enumerate(hit.explanation.phrase):
                assert match.spans == corpus.query.units.spans_of(s)
                assert match.text == ""  # the query was given without its text
                if not len(document.units.weights):
                    assert (match.document_spans, match.document_text) == ([], "")
                    assert match.similarity == 0
                    continue
                every = [document.units.spans_of(u) for u in range(len(document.units.weights))]
                unit = every.index(match.document_spans)
                slack = off.max(initial=0) + 1e-3
                assert similarity[s, unit] >= similarity[s].max() - 2 * slack
                assert match.similarity == pytest.approx(similarity[s, unit], abs=slack)
                cited = " … ".join(TEXT[a:b] for a, b in match.document_spans)
                assert match.document_text == cited
            terms = dict(zip(document.lexical.ids.tolist(), document.lexical.weights, strict=True))
            shared = sorted(set(terms) & set(corpus.query.lexical.ids.tolist()))
            assert [match.id for match in hit.explanation.lexical] == shared
            for term in hit.explanation.lexical:
                assert term.token == str(term.id)  # no model, no spelling
                stored = min(terms[term.id], np.finfo(np.float16).max)  # docs/index-format.md
                assert term.document_weight == pytest.approx(stored, rel=2**-11, abs=2**-25)


@some
@given(corpora(), st.one_of(st.none(), st.integers(1, 8)), st.one_of(st.none(), st.integers(1, 8)))
def test_an_explanation_shows_what_both_budgets_left_out(
    corpus: Corpus, stored: int | None, asked: int | None
) -> None:
    """First what the search drops, then what the index did, then what the input lacked."""
    if stored is not None and asked is not None:
        asked = min(stored, asked)
    expected = corpus.documents.at(budget=stored).at(budget=asked)
    with index_of(corpus, budget=Budget(stored)) as index:
        for hit in index.search(corpus.query, k=20, budget=asked, explain=True):
            document = expected[corpus.ids.index(hit.id)]
            lost = hit.explanation.dropped
            assert [unit.spans for unit in lost] == [
                document.dropped.spans_of(u) for u in range(len(document.dropped.weights))
            ]
            assert [unit.weight for unit in lost] == document.dropped.weights.tolist()
            weights = [unit.weight for unit in lost]
            assert weights == sorted(weights, reverse=True)
            for unit in lost:
                assert unit.text == " … ".join(TEXT[a:b] for a, b in unit.spans)


def test_threads_change_nothing(five: tuple[Corpus, Index]) -> None:
    corpus, index = five
    assert index.search(corpus.query, threads=4) == index.search(corpus.query)


def test_results_are_a_sequence(five: tuple[Corpus, Index]) -> None:
    corpus, index = five
    results = index.search(corpus.query, k=4)
    assert len(results) == 4
    assert results[0] == next(iter(results))
    assert results[-1] == list(results)[3]
    assert [hit.id for hit in results[1:3]] == [hit.id for hit in results][1:3]
    assert results[0] in results


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        (
            {"view": "dense"},
            InputError,
            "one of hybrid, global, phrase, lexical, got 'dense'",
        ),
        ({"k": 0}, InputError, "k to be a whole number of 1 or more, got 0"),
        ({"k": True}, InputError, "1 or more, got True"),
        ({"k": 2.0}, InputError, "1 or more"),
        ({"budget": 0}, BudgetError, "whole number of 1 or more"),
        ({"budget": 2.0}, BudgetError, "whole number of 1 or more"),
        ({"width": 9}, BudgetError, "width 9 requested, but the index keeps 8; request 8 or less"),
        ({"width": 0}, BudgetError, "width to be a whole number of 1 or more, got 0"),
        ({"alphas": {}}, InputError, "no view"),
        ({"alphas": {"dense": 1}}, InputError, "dense"),
        ({"alphas": {"phrase": -1}}, InputError, "0 or more"),
        ({"alphas": {"phrase": 1}, "view": "phrase"}, InputError, "view='phrase' has one score"),
        ({"pool": 0}, InputError, "pool"),
        ({"pool": (5, 2.5)}, InputError, "pool"),
        ({"pool": (5, 5, 5)}, InputError, "pool"),
        ({"threads": 0}, InputError, "threads"),
        ({"where": {"n": 1}}, InputError, "where to be a text or a tree of comparisons, got dict"),
        ({"query_budget": 0}, BudgetError, "query_budget to be a whole number of 1 or more"),
        ({"from_": -1}, InputError, "from_ to be a whole number of 0 or more, got -1"),
        ({"min_score": math.nan}, InputError, "min_score to be a finite number, got nan"),
        ({"min_score": "1"}, InputError, "min_score"),
        ({"group_by": 3}, InputError, "group_by to be the name of a field, got int"),
        ({"group_by": "a b"}, FilterError, "expected the end of the field, got 'b'"),
        ({"group_by": ""}, FilterError, "expected a field"),
        ({"top": 3}, InputError, "unknown option 'top'; known: view, k, where"),
    ],
)
def test_what_cannot_be_asked(
    five: tuple[Corpus, Index], options: dict[str, Any], error: type[Exception], says: str
) -> None:
    corpus, index = five
    with pytest.raises(error, match=says.replace("(", r"\(")):
        index.search(corpus.query, **options)


def test_a_budget_or_query_beyond_what_is_stored() -> None:
    corpus = plain([6, 2])
    with index_of(corpus, budget=4) as index:
        with pytest.raises(BudgetError, match=r"budget 5 requested, .* keeps 4 .* 4 or fewer"):
            index.search(corpus.query, budget=5)
        assert index.search(corpus.query, budget=4) == index.search(corpus.query)
        narrow: Encoded = corpus.query.at(width=7)
        with pytest.raises(InputError, match="phrase width is 7, but the index keeps 8"):
            index.search(narrow)
        thin = replace(corpus.query, global_=corpus.query.global_[:, :3])
        with pytest.raises(InputError, match="global width is 3, but the index keeps 8"):
            index.search(thin)
        with pytest.raises(InputError, match="expected one query, got 2"):
            index.search(concatenate([corpus.query] * 2))
        with pytest.raises(InputError, match="give the model, or encoded queries"):
            index.search("type 2 diabetes")


def test_a_wider_query_is_cut_to_the_index() -> None:
    corpus = plain([3, 2, 4])
    narrow = replace(corpus, documents=corpus.documents.at(width=5))
    with index_of(narrow) as index:
        wide, fitting = index.search(corpus.query), index.search(corpus.query.at(width=5))
        assert [hit.id for hit in wide] == [hit.id for hit in fitting]
        for left, right in zip(wide, fitting, strict=True):
            assert left.score == pytest.approx(right.score, abs=1e-6)
    shorter = normalise(corpus.documents.global_[:, :3])
    with index_of(replace(corpus, documents=replace(corpus.documents, global_=shorter))) as index:
        asked = normalise(corpus.query.global_[:, :3])[0]
        for hit in index.search(corpus.query, view="global"):
            cosine = float(asked @ shorter[corpus.ids.index(hit.id)])
            assert hit.score == pytest.approx(cosine, abs=1e-6)


def test_pages_of_hits_are_slices_of_one_ranking(five: tuple[Corpus, Index]) -> None:
    corpus, index = five
    every = list(index.search(corpus.query, k=5))
    for first in range(6):
        page = index.search(corpus.query, k=2, from_=first)
        assert list(page) == every[first : first + 2]
        assert page.from_ == first
        assert list(index.search(corpus.query, k=2, from_=first, pool=1)) != [] or first > 4


def test_hits_below_the_lowest_score_are_left_out(five: tuple[Corpus, Index]) -> None:
    corpus, index = five
    every = list(index.search(corpus.query))
    for hit in every:
        kept = index.search(corpus.query, min_score=hit.score)
        assert list(kept) == every[: every.index(hit) + 1]
        assert kept.candidates == 5
    assert list(index.search(corpus.query, min_score=every[0].score + 1, explain=True)) == []


@some
@given(corpora(), st.integers(1, 6), st.booleans())
def test_a_query_budget_uses_the_weightiest_units(
    corpus: Corpus, budget: int, explain: bool
) -> None:
    """B_q: the same as a query encoded under that budget."""
    with index_of(corpus) as index:
        found = index.search(corpus.query, query_budget=budget, explain=explain)
        small = index.search(corpus.query.at(budget=budget), explain=explain)
        assert list(found) == list(small)
        if explain and found:
            units = min(budget, len(corpus.query.units.weights))
            assert len(found[0].explanation.phrase) == units


def test_a_request_is_an_object(five: tuple[Corpus, Index]) -> None:
    corpus, index = five
    request = Search(corpus.query, k=3, where="n > 0", explain=True)
    assert index.search(request) == index.search(corpus.query, k=3, where="n > 0", explain=True)
    assert len(index.search(request, k=1)) == 1
    assert index.search(corpus.query, k=np.int64(2)) == index.search(corpus.query, k=2)
    assert index.search(corpus.query, where=parse("n > 0")) == index.search(
        corpus.query, where="n > 0"
    )
    assert index.rerank(request, ["d001", "d003"]).paths == {"given": "exact"}
    with pytest.raises(InputError, match="query to be a text or an encoding of one, got list"):
        index.rerank([corpus.query], ["d001"])  # type: ignore[arg-type]


def test_rerank_leaves_out_only_what_scores_too_little(five: tuple[Corpus, Index]) -> None:
    corpus, index = five
    every = index.rerank(corpus.query, corpus.ids)
    assert len(every) == 5
    request = Search(corpus.query, k=1, from_=2, pool=1, where="n = 0")
    assert index.rerank(request, corpus.ids) == every
    assert list(index.rerank(request, corpus.ids, min_score=every[1].score)) == every[:2]


def test_filters_that_python_takes_for_equal_are_not(tmp_path: Path) -> None:
    """1 == True == 1.0, but `x = 1` and `x = true` are two filters, one after the other."""
    encoded = random_encoded(np.random.default_rng(0), [1, 1, 1])
    options: dict[str, Any] = {"width": 8, "global_width": 8, "fingerprint": "x"}
    with Index.create(tmp_path / "index", disk=QuickDisk(), **options) as index:
        metadata = [{"x": 1}, {"x": True}, {"x": 1.0}]
        index.add_encoded(["whole", "boolean", "real"], encoded, metadata=metadata)
        for _ in range(2):
            for where, ids in (
                ("x = 1", ["real", "whole"]),
                ("x = true", ["boolean"]),
                ("x in (1.0)", ["real", "whole"]),
                ("x in (true)", ["boolean"]),
            ):
                found = index.search(encoded[0], where=where)
                assert sorted(hit.id for hit in found) == ids, where


@pytest.mark.parametrize("view", VIEWS)
def test_a_filter_seen_before_forgets_no_deletion(five: tuple[Corpus, Index], view: View) -> None:
    corpus, index = five
    before = {
        where: index.search(corpus.query, view=view, where=where) for where in (None, "n > 1")
    }
    index.delete("d003")
    for where, found in before.items():
        left = [hit for hit in found if hit.id != "d003"]
        assert list(index.search(corpus.query, view=view, where=where)) == left
        assert list(index.search(corpus.query, view=view, where=where)) == left


@some
@given(st.data(), corpora())
def test_more_like_this_is_a_search_for_its_encoding_without_itself(
    data: st.DataObject, corpus: Corpus
) -> None:
    i = data.draw(st.integers(0, len(corpus) - 1))
    options: dict[str, Any] = {
        "view": data.draw(st.sampled_from(VIEWS)),
        "k": data.draw(st.integers(1, 14)),
        "from_": data.draw(st.integers(0, 3)),
        "pool": data.draw(st.sampled_from([1, 1000])),
    }
    with index_of(corpus) as index:
        stored = index.engine.read(index.engine.find([corpus.ids[i]]), None)
        found = index.more_like(corpus.ids[i], **options)
        others = f'id != "{corpus.ids[i]}"'
        assert list(found) == list(index.search(stored, where=others, **options))
        assert corpus.ids[i] not in {hit.id for hit in found}


def test_more_like_this_is_explained_by_the_words_of_both(five: tuple[Corpus, Index]) -> None:
    _, index = five
    found = index.more_like("d003", k=2, explain=True)
    assert found.query == TEXT
    for hit in found:
        assert hit.explanation is not None
        for match in hit.explanation.phrase:
            assert match.text == " … ".join(TEXT[a:b] for a, b in match.spans) != ""


def test_more_like_what_is_not_there(five: tuple[Corpus, Index]) -> None:
    _, index = five
    with pytest.raises(InputError, match="no document 'd9'"):
        index.more_like("d9")
    with pytest.raises(InputError, match="the id of a document, got int"):
        index.more_like(3)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="unknown option 'top'"):
        index.more_like("d001", top=3)
