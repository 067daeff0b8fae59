"""A list of queries gives what its queries give one by one, to the last bit, in any thread."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import pytest

from builders import random_encoded
from hplus import HPlus, Index, InputError, Search
from hplus.filters.syntax import parse
from hplus.search import requests
from hplus.search.requests import in_threads

DOCUMENTS = [
    ("Metformin treats type 2 diabetes and lowers HbA1c.", "drug"),
    ("Insulin treats type 1 diabetes.", "drug"),
    ("Heart failure with reduced ejection fraction.", "disease"),
    ("Hypokalaemia flattens the T wave and brings out U waves.", "disease"),
    ("Aspirin inhibits platelets irreversibly.", "drug"),
    ("Chronic kidney disease raises potassium.", "disease"),
]
QUERIES = [
    "type 2 diabetes",
    "ECG changes in hypokalaemia",
    "irreversible inhibition of platelets by aspirin, and how long it lasts after the last dose",
    "heart failure",
    "type 2 diabetes",
    "?",
]
OPTIONS: list[dict[str, Any]] = [
    {},
    {"explain": True, "k": 2},
    {"view": "phrase", "budget": 2, "query_budget": 1, "width": 64},
    {"where": 'kind = "drug"', "from_": 1, "min_score": 0.1},
    {"group_by": "kind"},
]


@pytest.fixture(scope="module")
def index(mini: HPlus, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Index]:
    path = tmp_path_factory.mktemp("requests") / "index"
    with Index.create(path, mini) as made:
        made.add([{"id": f"d{i}", "text": t, "kind": k} for i, (t, k) in enumerate(DOCUMENTS)])
        yield made


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_a_list_gives_what_its_queries_give(
    index: Index, options: dict[str, Any], threads: int
) -> None:
    one_by_one = [index.search(query, **options) for query in QUERIES]
    assert index.search(QUERIES, threads=threads, **options) == one_by_one


def test_a_list_of_texts_encodings_and_requests(index: Index, mini: HPlus) -> None:
    encoded = mini.encode_query("heart failure")
    queries = ["type 2 diabetes", encoded, Search("aspirin", k=1)]
    found = index.search(queries, where='kind = "drug"')
    assert found == [index.search(query, where='kind = "drug"') for query in queries]
    assert [len(one) for one in found] == [3, 3, 1]
    assert index.search(np.array(QUERIES)) == index.search(tuple(QUERIES)) == index.search(QUERIES)
    assert index.search([]) == []


@pytest.mark.parametrize(
    ("queries", "says"),
    [
        (["a", 3], r"queries\[1\] is int, expected a text, an encoding or a Search"),
        ([["a"]], r"queries\[0\] is list"),
        (b"ab", "a text, an encoding, a Search, or a list of them, got bytes"),
        ({"a": 1}, "or a list of them, got dict"),
        (iter("ab"), "or a list of them, got str"),
        (None, "or a list of them, got NoneType"),
    ],
)
def test_what_is_no_list_of_queries(index: Index, queries: Any, says: str) -> None:
    with pytest.raises(InputError, match=says):
        index.search(queries)


def test_a_query_that_fails_fails_the_list_and_those_not_yet_begun_are_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun = []
    cancelled = Event()

    class Pool(ThreadPoolExecutor):
        def shutdown(self, *arguments: Any, **options: Any) -> None:
            super().shutdown(wait=False, cancel_futures=options.get("cancel_futures", False))
            cancelled.set()
            super().shutdown(*arguments, **options)

    def answer(alike: Sequence[Search]) -> list[int]:
        (request,) = alike  # no two have the same options
        begun.append(request.k)
        if request.k == 1:
            raise InputError("no")
        cancelled.wait()
        return [request.k]

    monkeypatch.setattr(requests, "ThreadPoolExecutor", Pool)
    with pytest.raises(InputError, match="no"):
        in_threads(answer, [Search("a", k=k, threads=2) for k in range(1, 500)])
    assert set(begun) <= {1, 2, 3}


@pytest.mark.parametrize(
    ("threads", "runs"), [(1, [22, 18]), (2, [22, 18]), (3, [15, 15, 10]), (100, [1] * 40)]
)
def test_requests_alike_are_answered_together_in_their_order(threads: int, runs: list[int]) -> None:
    """Runs of up to 32, and all of a length: 43 requests make two, or one for each thread."""
    sizes = []

    def answer(alike: Sequence[Search]) -> list[str]:
        assert len({repr(replace(request, query="")) for request in alike}) == 1
        sizes.append(len(alike))
        return [f"{request.query} {request.where}" for request in alike]

    same = [Search(str(i), threads=threads) for i in range(40)]
    others = [
        Search("a", where=parse(where), threads=threads) for where in ("x = 1", "x = true", "x = 1")
    ]
    found = in_threads(answer, [*same, *others])
    assert found == [f"{request.query} {request.where}" for request in [*same, *others]]
    assert sorted(sizes, reverse=True) == [*runs, 1, 1, 1]


def test_searches_of_many_threads_share_an_index(index: Index) -> None:
    """Each thread searches with every set of options while the others do; a writer adds and
    deletes a document meanwhile, which an index that others hold open does not show."""
    expected = [[index.search(query, **options) for options in OPTIONS] for query in QUERIES]
    with Index.open(index.path, model=index.model) as own, ThreadPoolExecutor(8) as pool:

        def ask(i: int) -> list[Any]:
            return [own.search(QUERIES[i % len(QUERIES)], **options) for options in OPTIONS]

        asked = [pool.submit(ask, i) for i in range(48)]
        with Index.open(index.path, model=index.model) as other:
            for _ in range(3):
                other.add([("new", "Metformin treats type 2 diabetes in adults.")])
                other.delete("new")
        for i, found in enumerate(asked):
            assert found.result() == expected[i % len(QUERIES)]


def test_searches_go_on_while_the_same_index_is_changed(mini: HPlus, tmp_path: Path) -> None:
    """Every answer is that of a generation: a document is found whole or not at all."""
    with Index.create(tmp_path / "index", mini) as made, ThreadPoolExecutor(4) as pool:
        made.add([("a", "Metformin treats type 2 diabetes.")])
        query = mini.encode_query("insulin")
        stop = Event()

        def ask() -> set[frozenset[str]]:
            seen = set()
            while not stop.is_set():
                seen.add(frozenset(hit.id for hit in made.search(query, explain=True)))
            return seen

        asking = [pool.submit(ask) for _ in range(4)]
        try:
            for _ in range(5):
                made.add([("b", "Insulin treats type 1 diabetes.")])
                made.delete("b")
        finally:
            stop.set()
        for seen in asking:
            assert seen.result() <= {frozenset("a"), frozenset("ab")}


def test_requests_with_encodings_need_no_model(tmp_path: Path) -> None:
    encoded = random_encoded(np.random.default_rng(0), [3, 2])
    options: dict[str, Any] = {"width": 8, "global_width": 8, "fingerprint": "x"}
    with Index.create(tmp_path / "index", **options) as made:
        made.add_encoded(["a", "b"], encoded)
        found = made.search([encoded[0], encoded[1]], k=1)
        assert [one[0].id for one in found] == ["a", "b"]
