"""The branches against brute force, ties at the edge of a pool, and the approximate path."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brute_force import (
    ALPHAS,
    ROUNDING,
    Corpus,
    QuickDisk,
    assert_found,
    corpora,
    index_of,
    row_errors,
    view_errors,
)
from builders import joined, random_encoded, random_vectors, random_weights, with_units
from hplus.filters.syntax import parse
from hplus.index import Index
from hplus.search import local
from hplus.search.engine import best
from hplus.search.local import LocalBranches, by_part
from hplus.search.results import Results
from hplus.storage import lists as ivf
from hplus.storage import sketches
from hplus.storage.segment import Format, dequantise, quantise
from hplus.types import F32, I64, Encoded, View, concatenate
from hplus.units.vectors import normalise
from hplus.views import fusion, lexical, phrase

some = settings(deadline=None, max_examples=30)


TOPICS, WIDTH = 60, 16


def clustered(random: np.random.Generator, lengths: Sequence[int], topics: F32) -> Encoded:
    """Texts of a few topics each, with vectors near those topics, as in a real corpus."""
    encoded = random_encoded(random, lengths, WIDTH)
    mine = random.integers(0, len(topics), (len(lengths), 3))
    of_units = joined(
        [random.choice(some, size) for some, size in zip(mine, lengths, strict=True)], np.int64
    )

    def near(topic: I64) -> F32:
        noise = 0.12 * random.normal(size=(len(topic), WIDTH))
        return normalise((topics[topic] + noise).astype(np.float32))

    weights = random_weights(random, len(of_units))
    for a, b in pairwise(encoded.units.offsets):
        weights[a:b] = -np.sort(-weights[a:b])
    encoded = with_units(encoded, vectors=near(of_units), weights=weights)
    return replace(encoded, global_=near(mine[:, 0]))


def clustered_corpus(n: int) -> Corpus:
    random = np.random.default_rng(3)
    topics = random_vectors(random, TOPICS, WIDTH)
    return Corpus(
        query=clustered(random, [5], topics),
        documents=clustered(random, random.integers(0, 9, n).tolist(), topics),
        ids=[f"d{i:04d}" for i in random.permutation(n)],
        copies=list(range(n)),
        cuts=[],
        format="f32",
    )


def plain_corpus(n: int) -> Corpus:
    """Random documents in one segment."""
    random = np.random.default_rng(2)
    names = [f"d{i:03d}" for i in range(n)]
    documents = random_encoded(random, [3] * n)
    return Corpus(random_encoded(random, [4]), documents, names, list(range(n)), [], "int8")


def clustered_queries(count: int) -> list[Encoded]:
    """Other queries about the topics of the corpus."""
    topics = random_vectors(np.random.default_rng(3), TOPICS, WIDTH)
    random = np.random.default_rng(99)
    return [clustered(random, [int(random.integers(1, 7))], topics) for _ in range(count)]


def make_segments_large(patch: pytest.MonkeyPatch) -> None:
    """Every segment of fifty documents gets sketches, and lists of ten global vectors each."""
    patch.setattr(sketches, "SKETCHED", 50)
    patch.setattr(ivf, "LISTED_DOCUMENTS", 50)
    patch.setattr(ivf, "PER_LIST", 10)


@pytest.fixture
def too_large_to_scan(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every corpus is; few lists are read, few survivors scored."""
    make_segments_large(monkeypatch)
    monkeypatch.setattr(local, "SCANNED", 0)
    monkeypatch.setattr(local, "SURVIVORS", 100)


@pytest.fixture(scope="module")
def listed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Corpus, Index]]:
    """Two thousand documents in three segments, two of which have sketches and lists."""
    corpus = clustered_corpus(2000)
    path = tmp_path_factory.mktemp("listed") / "index"
    options: dict[str, Any] = {"width": WIDTH, "global_width": WIDTH, "fingerprint": "x"}
    with pytest.MonkeyPatch.context() as patch:
        make_segments_large(patch)
        index = Index.create(path, format="f32", disk=QuickDisk(), **options)
        for a, b in ((0, 900), (900, 910), (910, 2000)):
            metadata = [{"n": i} for i in range(a, b)]
            index.add_encoded(corpus.ids[a:b], corpus.documents[a:b], metadata=metadata)
    with index:
        yield corpus, index


BY = {"global": "lists", "phrase": "sketches"}
PATHS = {view: f"{by} of 2 of 3 segments" for view, by in BY.items()}


def ids_of(results: Results) -> list[str]:
    return [hit.id for hit in results]


@some
@given(st.data(), corpora())
def test_scores_of_any_places_of_a_segment(data: st.DataObject, corpus: Corpus) -> None:
    corpus = replace(corpus, cuts=[])
    n = len(corpus)
    places = np.array(sorted(data.draw(st.sets(st.integers(0, n - 1)))), np.int64)
    budget = data.draw(st.one_of(st.none(), st.integers(1, 8)))
    width = data.draw(corpus.widths())
    query = corpus.query.at(width=width)
    expected = fusion.score(
        query,
        corpus.documents.at(budget=budget, width=width),
        {"global": 1, "phrase": 1, "lexical": 1},
    )
    errors = view_errors(query, corpus.documents, corpus.format, corpus.mean)
    total = phrase.scale(query.units)
    with index_of(corpus) as index:
        segment = index.engine.snapshot.parts[0].segment
        found = local.global_scores(segment, query.global_, places)
        assert (np.abs(found - expected.global_[places]) <= errors["global"][places]).all()
        found = local.phrase_scores(segment, query.units, places, budget)
        slack = errors["phrase"][places] * total
        assert (np.abs(found - expected.phrase_raw[places]) <= slack).all()
        found = local.lexical_scores(segment, query.lexical, places)
        slack = errors["lexical"][places] * lexical.scale(query.lexical)
        assert (np.abs(found - expected.lexical_raw[places]) <= slack).all()
        with pytest.MonkeyPatch.context() as patch:  # the same sums, list by list
            patch.setattr(local, "BISECTION", 0)
            bisected = local.lexical_scores(segment, query.lexical, places)
        np.testing.assert_array_equal(bisected, found)


@some
@given(st.data(), corpora())
def test_each_branch_finds_the_best_of_those_allowed(data: st.DataObject, corpus: Corpus) -> None:
    k = data.draw(st.integers(1, 14))
    mask = np.array(data.draw(st.lists(st.booleans(), min_size=len(corpus), max_size=len(corpus))))
    expected = fusion.score(
        corpus.query, corpus.documents, {"global": 1, "phrase": 1, "lexical": 1}
    )
    errors = view_errors(corpus.query, corpus.documents, corpus.format, corpus.mean)
    numbers = np.flatnonzero(mask).tolist()
    where = parse(f"n in ({', '.join(map(str, numbers))})" if numbers else "n < 0")
    with index_of(corpus) as index:
        branches = index.engine.branches(corpus.query, where=where)
        found = {view: branches.candidates(view, k) for view in errors}
        again = {view: branches.scores(view, np.sort(own.documents)) for view, own in found.items()}
    views = {"global": expected.global_, "phrase": expected.phrase, "lexical": expected.lexical}
    for view, own in found.items():
        documents = own.documents
        assert own.path == "exact"
        scores, error = views[view], errors[view]
        assert (np.abs(own.scores - scores[documents]) <= error[documents]).all()
        np.testing.assert_array_equal(again[view], own.scores[np.argsort(documents)])
        may = mask if view != "lexical" else mask & (scores > 0)
        assert len(documents) == len(set(documents.tolist())) == min(k, may.sum())
        assert may[documents].all()
        missed = np.setdiff1d(np.flatnonzero(may), documents)
        if len(missed) and len(documents):
            lowest = (scores + error)[documents].min()
            assert ((scores - error)[missed] <= lowest).all()
        for i in missed:  # of equal documents the smallest ids are found
            same = [j for j in documents if corpus.copies[j] == corpus.copies[i]]
            assert all(corpus.ids[j] < corpus.ids[i] for j in same)


@some
@given(st.data(), corpora(formats=["f32"]))
def test_the_best_are_those_a_full_sort_puts_first(data: st.DataObject, corpus: Corpus) -> None:
    n = len(corpus)
    scores = np.array(data.draw(st.lists(st.integers(0, 3), min_size=n, max_size=n)), np.float64)
    k = data.draw(st.integers(1, n + 2))
    documents = np.array(data.draw(st.permutations(range(n))), np.int64)
    with index_of(corpus) as index:
        found = documents[best(index.engine, documents, scores[documents], k)]
    by_hand = sorted(range(n), key=lambda i: (-scores[i], corpus.ids[i]))[:k]
    assert sorted(found.tolist()) == sorted(by_hand)


def test_the_best_of_nothing() -> None:
    with index_of(clustered_corpus(5)) as index:
        empty = np.empty(0, np.int64)
        assert best(index.engine, empty, np.empty(0), 3).tolist() == []
        assert list(by_part(index.engine.snapshot, empty)) == []


def test_documents_numbered_across_segments_find_their_places() -> None:
    corpus = replace(clustered_corpus(9), cuts=[1, 4])
    with index_of(corpus) as index:
        snapshot = index.engine.snapshot
        found = by_part(snapshot, np.array([0, 2, 3, 4, 8]))
        segments = [id(part.segment) for part in snapshot.parts]
        assert [(segments.index(id(s)), first, places.tolist()) for s, first, places in found] == [
            (0, 0, [0]),
            (1, 1, [1, 2]),
            (2, 4, [0, 4]),
        ]


@some
@given(st.data(), corpora())
def test_scores_do_not_depend_on_what_was_scored_before(
    data: st.DataObject, corpus: Corpus
) -> None:
    every = np.arange(len(corpus))
    with index_of(corpus) as index:
        branches = index.engine.branches(corpus.query)
        for view in ("global", "phrase", "lexical"):
            expected = index.engine.branches(corpus.query).scores(view, every)
            for _ in range(3):
                some = np.array(sorted(data.draw(st.sets(st.sampled_from(every.tolist())))), int)
                np.testing.assert_array_equal(branches.scores(view, some), expected[some])


def best_of_union(
    index: Index, branches: LocalBranches, alphas: dict[str, float], pools: dict[str, int], k: int
) -> I64:
    """By hand: the candidates of both branches united, all of them scored by every view."""
    found = [branches.candidates(view, pools[view]).documents for view in ("global", "phrase")]
    documents = np.unique(np.concatenate(found))
    fused = fusion.fuse({view: branches.scores(view, documents) for view in alphas}, alphas)
    return np.sort(documents[best(index.engine, documents, fused, k)])


@settings(deadline=None, max_examples=100)
@given(st.data(), corpora(documents=20))
def test_leaders_are_the_best_of_the_union(data: st.DataObject, corpus: Corpus) -> None:
    """Whatever the weights, ties and segments: the very documents; or no answer, and what was
    scored for it does not change the candidates."""
    weights = st.sampled_from([0.01, 0.5, 1.0, 20.0])
    alphas = {view: data.draw(weights) for view in ("global", "phrase", "lexical")}
    if data.draw(st.booleans()):
        del alphas["lexical"]
    k = data.draw(st.integers(1, 4))
    pools = {view: data.draw(st.integers(k, 8)) for view in ("global", "phrase")}
    with index_of(corpus) as index:
        branches = index.engine.branches(corpus.query)
        leaders = branches.leaders(alphas, pools, k)
        if leaders is None:
            found = best_of_union(index, branches, alphas, pools, k)
        else:
            assert len(corpus) > max(pools.values())
            fused = fusion.fuse({view: branches.scores(view, leaders) for view in alphas}, alphas)
            found = np.sort(leaders[best(index.engine, leaders, fused, k)])
        fresh = index.engine.branches(corpus.query)
        expected = best_of_union(index, fresh, alphas, pools, k)
        np.testing.assert_array_equal(found, expected)


def test_leaders_of_each_kind() -> None:
    """Candidates of the global branch, others that only the phrase branch puts forward, and
    documents that neither does: then the candidates are united."""
    corpus = replace(clustered_corpus(300), cuts=[90, 200], format="int8")
    known: dict[str, int] = {"global": 0, "phrase": 0, "none": 0}
    with index_of(corpus) as index:
        for query in clustered_queries(40):
            for pools in ({"global": 250, "phrase": 5}, {"global": 5, "phrase": 9}):
                branches = index.engine.branches(query)
                leaders = branches.leaders(ALPHAS, pools, 5)
                united = best_of_union(index, index.engine.branches(query), ALPHAS, pools, 5)
                if leaders is None:
                    known["none"] += 1
                    found = best_of_union(index, branches, ALPHAS, pools, 5)
                else:
                    candidates = branches.candidates("global", pools["global"]).documents
                    known["global" if np.isin(united, candidates).all() else "phrase"] += 1
                    fused = fusion.fuse({v: branches.scores(v, leaders) for v in ALPHAS}, ALPHAS)
                    found = np.sort(leaders[best(index.engine, leaders, fused, 5)])
                np.testing.assert_array_equal(found, united)
    assert min(known.values()) > 2, known


def test_a_hybrid_search_finds_what_its_candidates_would(listed: tuple[Corpus, Index]) -> None:
    """With the usual pools and with the same ones given, whose candidates are united."""
    _, index = listed
    some = {"k": 7, "pool": (1000, 1001)}
    for query in clustered_queries(20):
        for options in ({}, {"from_": 5}, {"min_score": 0.5}, {"budget": 2, "where": "n > 50"}):
            found = index.search(query, **{"k": 7, **options})
            assert list(found) == list(index.search(query, **{**some, **options}))
            assert found.paths == {"global": "exact", "phrase": "exact"}
        near = index.more_like("d0003", k=4)
        assert list(near) == list(index.more_like("d0003", k=4, pool=(1000, 1001)))


@pytest.mark.parametrize("estimated", [False, True])
@pytest.mark.parametrize("view", ["phrase", "global", "hybrid"])
def test_queries_of_a_list_find_what_each_finds(
    listed: tuple[Corpus, Index], view: View, estimated: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Queries of several lengths in one pass, over several segments and under a filter."""
    if estimated:
        monkeypatch.setattr(local, "SCANNED", 0)
        monkeypatch.setattr(local, "SURVIVORS", 100)
    _, index = listed
    queries = clustered_queries(20)
    for options in ({}, {"pool": 30}, {"k": 3, "where": "n < 900", "budget": 2}):
        together = index.search(queries, view=view, **options)
        assert together == [index.search(query, view=view, **options) for query in queries]
        assert together == index.search(queries, view=view, threads=2, **options)


def test_no_document_is_scored_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each view scores a document of the union once, by its scan or afterwards, and no other, but
    for the global view in int8, which scores all; a view that is off scores none."""
    corpus = plain_corpus(30)
    scored: dict[str, list[int]] = {"global": [], "phrase": [], "lexical": []}
    score, scan = LocalBranches._score, LocalBranches._scan

    def noted(self: LocalBranches, view: str, segment: Any, places: I64) -> Any:
        scored[view] += places.tolist()
        return score(self, view, segment, places)

    def noted_scan(self: LocalBranches, view: str, *arguments: Any) -> Any:
        found, raw = scan(self, view, *arguments)
        scored[view] += found.tolist()
        return found, raw

    monkeypatch.setattr(LocalBranches, "_score", noted)
    monkeypatch.setattr(LocalBranches, "_scan", noted_scan)
    with index_of(corpus) as index:
        results = index.search(corpus.query, k=3, pool=8)
        assert results.candidates <= 16
        for view, places in scored.items():
            assert len(places) == len(set(places))
            assert len(places) == (30 if view == "global" else results.candidates)
            places.clear()
        index.search(corpus.query, view="phrase", k=4)
        assert len(scored["phrase"]) == 4
        assert scored["global"] == scored["lexical"] == []


@pytest.mark.usefixtures("too_large_to_scan")
@pytest.mark.parametrize("view", ["phrase", "global", "hybrid"])
def test_estimates_keep_the_recall(listed: tuple[Corpus, Index], view: View) -> None:
    """recall@10 against the scan, with a twentieth of the documents in each pool."""
    _, index = listed
    found = 0
    for query in clustered_queries(40):
        near = index.search(query, view=view, pool=50)
        exact = index.search(query, view=view, pool=50, exact=True)
        assert near.paths == {name: PATHS[name] for name in near.paths}
        assert set(exact.paths.values()) == {"exact"}
        found += len(set(ids_of(near)) & set(ids_of(exact)))
    assert found / 400 >= 0.95


@pytest.mark.usefixtures("too_large_to_scan")
@pytest.mark.parametrize("options", [{"budget": 3}, {"width": 8}, {"budget": 2, "width": 10}])
def test_sketches_serve_smaller_budgets_and_widths(
    listed: tuple[Corpus, Index], options: dict[str, int]
) -> None:
    _, index = listed
    found = 0
    for query in clustered_queries(30):
        near = index.search(query, view="phrase", pool=100, **options)
        exact = index.search(query, view="phrase", pool=100, exact=True, **options)
        assert near.paths == {"phrase": PATHS["phrase"]}
        found += len(set(ids_of(near)) & set(ids_of(exact)))
    assert found / 300 >= 0.9


@pytest.mark.usefixtures("too_large_to_scan")
def test_what_estimates_find_has_its_exact_score(listed: tuple[Corpus, Index]) -> None:
    """Estimates choose, they do not score: hits are as the scan gives them."""
    _, index = listed
    for query in clustered_queries(5):
        every = {hit.id: hit for hit in index.search(query, k=2000, exact=True)}
        results = index.search(query, pool=20)
        assert results.paths == PATHS
        for hit in results:
            assert hit == every[hit.id]


@pytest.mark.usefixtures("too_large_to_scan")
@pytest.mark.parametrize("view", ["phrase", "global", "hybrid"])
@pytest.mark.parametrize("pool", [1, 12])
@pytest.mark.parametrize(
    ("where", "allowed"),
    [
        ("n < 950", set(range(950))),
        ("n >= 1955", set(range(1955, 2000))),
        ("n >= 700 and n < 721 or n = 950", {*range(700, 721), 950}),
        ("n in (3, 950, 1111)", {3, 950, 1111}),
        ("n > 5000", set()),
    ],
)
def test_estimates_behind_a_filter_still_find_k(
    listed: tuple[Corpus, Index], where: str, allowed: set[int], pool: int, view: View
) -> None:
    corpus, index = listed
    for query in clustered_queries(6):
        results = index.search(query, view=view, where=where, pool=pool)
        assert len(results) == min(10, len(allowed))
        assert {corpus.ids.index(id_) for id_ in ids_of(results)} <= allowed


@pytest.mark.usefixtures("too_large_to_scan")
def test_fewer_documents_than_survivors_are_all_scored(listed: tuple[Corpus, Index]) -> None:
    corpus, index = listed
    query = clustered_queries(1)[0]
    for view in ("phrase", "global"):
        results = index.search(query, view=view, pool=999)  # 1,090 in the largest segment
        assert results.paths == {view: "exact"}
        assert_found(results, replace(corpus, query=query), {view: 1.0}, k=10)
        results = index.search(query, view=view, pool=20, where="n < 40")
        assert results.paths == {view: "exact"}


@pytest.mark.usefixtures("too_large_to_scan")
def test_a_query_without_units_finds_k_through_sketches(listed: tuple[Corpus, Index]) -> None:
    _, index = listed
    empty = random_encoded(np.random.default_rng(0), [0], WIDTH)
    results = index.search(empty, view="phrase", pool=10)
    assert results.paths == {"phrase": PATHS["phrase"]}
    assert [hit.score for hit in results] == [0.0] * 10
    assert ids_of(results) == sorted(ids_of(results))


@pytest.mark.usefixtures("too_large_to_scan")
@pytest.mark.parametrize("view", ["phrase", "global"])
def test_deleted_documents_are_not_found_through_estimates(tmp_path: Path, view: View) -> None:
    corpus = clustered_corpus(500)
    options: dict[str, Any] = {"width": WIDTH, "global_width": WIDTH, "fingerprint": "x"}
    with Index.create(tmp_path / "index", disk=QuickDisk(), **options) as index:
        index.add_encoded(corpus.ids, corpus.documents)
        first = ids_of(index.search(corpus.query, view=view, pool=10))
        index.delete(first)
        second = index.search(corpus.query, view=view, pool=10)
        assert second.paths == {view: f"{BY[view]} of 1 of 1 segments"}
        assert len(second) == 10
        assert not set(ids_of(second)) & set(first)
        index.compact()  # the new segment has sketches and lists of its own
        third = index.search(corpus.query, view=view, pool=10)
        assert third.paths == {view: f"{BY[view]} of 1 of 1 segments"}
        assert not set(ids_of(third)) & set(first)


@pytest.mark.usefixtures("too_large_to_scan")
def test_equal_documents_are_ranked_by_id_through_estimates(tmp_path: Path) -> None:
    """Lists guarantee which of them are found in the global view alone, and within a segment: there
    equal documents are in the same list."""
    one = clustered_corpus(1).query
    ids = [f"d{i:03d}" for i in np.random.default_rng(1).permutation(120)]
    options: dict[str, Any] = {"width": WIDTH, "global_width": WIDTH, "fingerprint": "x"}
    with Index.create(tmp_path / "index", disk=QuickDisk(), **options) as index:
        index.add_encoded(ids, concatenate([one] * 120))
        found = {}
        for view in ("global", "phrase"):
            results = index.search(one, view=view, k=4, pool=4)
            assert results.paths == {view: f"{BY[view]} of 1 of 1 segments"}
            found[view] = ids_of(results)
        assert found["global"] == sorted(ids)[:4]
        assert found["phrase"] == sorted(found["phrase"])


@pytest.mark.usefixtures("too_large_to_scan")
def test_recall_is_the_share_of_the_exact_hits_that_estimates_find(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the estimate keeps the last 2,000 of 2,500 documents, a fifth of the hits is missed."""
    corpus = clustered_corpus(2500)
    options: dict[str, Any] = {"width": WIDTH, "global_width": WIDTH, "fingerprint": "x"}
    with Index.create(tmp_path / "index", disk=QuickDisk(), **options) as index:
        index.add_encoded(corpus.ids, corpus.documents)
        assert local.recall(index.engine) > 0.97
        monkeypatch.setattr(local, "estimates", lambda _segment, _query, places, *_: 1.0 * places)
        assert 0.7 < local.recall(index.engine) < 0.9
        assert index.verify().recall == local.recall(index.engine)
        monkeypatch.setattr(local, "SCANNED", 10**9)
        assert local.recall(index.engine) is None


@pytest.mark.usefixtures("too_large_to_scan")
def test_each_branch_is_scanned_up_to_its_own_number_of_vectors(
    listed: tuple[Corpus, Index], monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus, index = listed
    assert len(corpus) < 3000 < len(corpus.documents.units.weights)
    monkeypatch.setattr(local, "SCANNED", 3000)
    results = index.search(corpus.query, pool=20)
    assert results.paths == {"global": "exact", "phrase": PATHS["phrase"]}


@pytest.mark.usefixtures("too_large_to_scan")
def test_one_in_so_many_documents_survives(
    listed: tuple[Corpus, Index], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, index = listed
    (query,) = clustered_queries(1)
    for share, expected in ((1000, 100), (10, 199)):
        monkeypatch.setattr(local, "SURVIVING", share)
        documents, path = index.engine.branches(query)._phrase(5)
        assert path == PATHS["phrase"]
        assert len(documents) == expected + 10  # the small segment is scanned


def test_a_corpus_small_enough_is_scanned(listed: tuple[Corpus, Index]) -> None:
    _, index = listed
    results = index.search(clustered_queries(1)[0], pool=10)
    assert results.paths == {"global": "exact", "phrase": "exact"}


def test_the_bound_of_a_stored_row_is_not_idle() -> None:
    """Rounding does happen, and the bound is within an order of magnitude of it."""
    rows = random_vectors(np.random.default_rng(0), 200, 12)
    formats: list[Format] = ["int8", "f16"]
    for format in formats:
        off = np.linalg.norm(dequantise(*quantise(rows, format)) - rows, axis=1)
        bound = row_errors(rows, format, 12)
        assert (off <= bound + ROUNDING).all()
        assert off.max() > 0.2 * bound.max()


def test_a_merged_segment_reads_as_many_global_lists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Putting segments together must not leave a search with the few lists of one small segment."""
    for module, name, value in (
        (ivf, "LISTED_DOCUMENTS", 50),
        (ivf, "PER_LIST", 2),
        (ivf, "LEARNED", 20),
        (local, "SCANNED", 0),
        (local, "SURVIVORS", 0),
        (local, "GLOBAL_PROBES", 2),
    ):
        monkeypatch.setattr(module, name, value)
    random = np.random.default_rng(5)
    options: dict[str, Any] = {"width": 8, "global_width": 8, "fingerprint": "x"}
    with Index.create(tmp_path / "index", disk=QuickDisk(), **options) as index:
        for call in range(7):
            ids = [f"{call}-{i}" for i in range(60)]
            index.add_encoded(ids, random_encoded(random, [1] * 60, 8))
        query = random_encoded(random, [1], 8)
        met = []
        for _ in range(2):
            documents, path = index.engine.branches(query)._global(1)
            assert path.startswith("lists of")
            met.append(len(documents))
            index.compact()
    assert met[1] >= met[0] // 2
