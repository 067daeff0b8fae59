"""One contract for every engine: the same documents, queries, filters, budgets and views give the
same hits and the same scores, and those are what brute force gives."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

from brute_force import ALPHAS, TEXT, Corpus, QuickDisk, assert_found
from builders import assert_same, random_encoded, random_vectors
from hplus import HPlusError, Index, InputError, MissingDocumentError, ModelMismatchError
from hplus.any_index import AnyIndex
from hplus.engines.connected import ConnectedIndex
from hplus.filters import syntax
from hplus.filters.ast import matches
from hplus.search.results import Results

NEW_URL = Callable[[str], str]
ENGINES = [
    "embedded",
    "qdrant",
    "postgres",
    pytest.param("cluster", marks=pytest.mark.slow),
]
OTHERS = ENGINES[1:]
N = 40
# Sums of float32 products in another order; scores lie in [-1.7, 1.7].
ROUNDING = 5e-6
LONG = 2**60 + 1


def corpus_of(seed: int, *, merged: bool) -> Corpus:
    """Ragged documents, some without units or tokens, some twice; ids in no order.

    Lexical weights are numbers of float16, as which the embedded index keeps them.
    """
    random = np.random.default_rng(seed)
    lengths = random.integers(0, 7, N - 8)
    some = random_encoded(
        random, lengths.tolist(), 12, dropped=(lengths // 2).tolist(), merged=merged
    )
    weights = some.lexical.weights.astype(np.float16).astype(np.float32)
    some = replace(
        some,
        global_=random_vectors(random, len(some), 10),
        lexical=replace(some.lexical, weights=weights),
    )
    copies = [*range(N - 8), *random.integers(0, N - 8, 8).tolist()]
    query = random_encoded(random, [4], 12)
    return Corpus(
        query=replace(query, global_=random_vectors(random, 1, 10)),
        documents=some.take(np.array(copies)),
        ids=[f"d{number:02d}" for number in random.permutation(N)],
        copies=copies,
        cuts=[],
        format="f32",
    )


CORPUS = corpus_of(7, merged=True)
# Which of two copies a small pool holds is a matter of the last bit of a server's sum.
NO_COPIES = f"n < {N - 8}"


def metadata_of(i: int) -> dict[str, Any]:
    """Of document i: numbers, texts, lists, nested objects, and now and then something odd."""
    return {
        "n": i,
        "half": i / 2,
        "tag": ["a", "b"] if i % 3 else "c",
        "title": f"Größe {i} of Mice" if i % 2 else None,
        "day": f"2020-01-{i % 28 + 1:02d}",
        "who": [{"name": "Li", "age": i}, {"name": ["Wu", i]}],
        "a b": {'q"t': True, "x.y": False},
        **({"long": LONG + i, "mixed": [1, "1", True]} if i % 7 == 0 else {}),
    }


METADATA = [metadata_of(i) for i in range(N)]
WHERE = [
    "n >= 7 and n < 30",
    "n = 5 or half = 3.5",
    "not n in (1, 2, 3)",
    'tag = "a"',
    'tag != "a"',
    'tag in ("c", 5)',
    "title exists",
    "not title exists",
    'title contains "GRÖSSE 1"',
    'title contains ""',
    'title contains "%"',
    'day >= "2020-01-15"',
    'not day < "2020-01-15" and n < 20',
    'who.name = "Li" and who.age > 30',
    "who.name = 3",
    "who exists",
    '`a b`.`q"t` = true',
    "`a b`.`x.y` != true",
    f"long > {LONG + 5}",
    f"long = {LONG + 7}",
    "long exists",
    "mixed = 1",
    "mixed = true",
    'mixed = "1"',
    "mixed != 1",
    'id = "d05"',
    'id in ("d05", "d17", "nothing")',
    'id != "d05"',
    'id < "d10"',
    'id contains "D1"',
    "nothing = 1",
    "not nothing = 1",
]


def fill(index: AnyIndex, corpus: Corpus = CORPUS) -> None:
    index.add_encoded(
        corpus.ids, corpus.documents, texts=[TEXT] * len(corpus), metadata=METADATA[: len(corpus)]
    )


SETTINGS: dict[str, Any] = {"width": 12, "global_width": 10, "fusion": ALPHAS}


@pytest.fixture
def make(tmp_path: Any, new_url: NEW_URL) -> Iterator[Callable[..., AnyIndex]]:
    """A new, empty index of some engine."""
    made: list[Any] = []

    def one(kind: str, **options: Any) -> AnyIndex:
        own = {**SETTINGS, "fingerprint": "none", **options}
        if kind == "embedded":
            path = tmp_path / f"{len(made)}.hplus"
            made.append(Index.create(path, format="f32", disk=QuickDisk(), **own))
        else:
            cluster = {"shards": 3, "replicas": 2} if kind == "cluster" else {}
            made.append(Index.connect(new_url(kind), create=True, **own, **cluster))
        return made[-1]

    yield one
    for index in made:
        index.close()


@pytest.fixture(scope="module")
def filled(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Callable[[str], AnyIndex]]:
    """An index of CORPUS in some engine, made once for all tests that only read."""
    made: dict[str, Any] = {}

    def one(kind: str) -> AnyIndex:
        if kind not in made:
            options = {**SETTINGS, "fingerprint": "none"}
            if kind == "embedded":
                path = tmp_path_factory.mktemp("embedded") / "index.hplus"
                made[kind] = Index.create(path, format="f32", disk=QuickDisk(), **options)
            else:
                cluster = {"shards": 3, "replicas": 2} if kind == "cluster" else {}
                url = url_of(request, kind)
                made[kind] = Index.connect(url, create=True, **options, **cluster)
            fill(made[kind])
        return made[kind]

    yield one
    for index in made.values():
        index.close()


def url_of(request: pytest.FixtureRequest, kind: str) -> str:
    from engine_servers import address

    if kind == "postgres":
        return f"{request.getfixturevalue('postgres_uri')}&schema=contract"
    fixture = "qdrant_node" if kind == "qdrant" else "qdrant_cluster"
    nodes = request.getfixturevalue(fixture)
    return address(nodes if isinstance(nodes, list) else [nodes], "contract", "?timeout=20")


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("view", ["hybrid", "global", "phrase", "lexical"])
def test_hits_and_scores_are_those_of_brute_force(
    filled: Callable[[str], AnyIndex], engine: str, view: str
) -> None:
    index = filled(engine)
    alphas = ALPHAS if view == "hybrid" else {view: 1.0}
    for k, budget, width, below in product([1, 9, N + 5], [None, 2], [None, 5], [None, 13]):
        found = index.search(
            CORPUS.query,
            view=view,
            k=k,
            budget=budget,
            width=width,
            where=None if below is None else f"n < {below}",
        )
        allowed = None if below is None else range(below)
        assert_found(
            found,
            CORPUS,
            alphas,
            k=k,
            allowed=allowed,
            budget=budget,
            width=width,
            copies_tie=engine in ("embedded", "postgres"),  # Qdrant adds in an order of its own
        )


@pytest.mark.parametrize("engine", OTHERS)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"k": 3, "pool": 4, "where": NO_COPIES},
        {"k": 5, "from_": 5, "explain": True},
        {"k": 4, "group_by": "tag", "pool": 3, "where": NO_COPIES},
        {"k": N, "min_score": 0.1},
        {"query_budget": 2, "explain": True, "budget": 3, "width": 6},
        {"alphas": {"global": 0.0, "phrase": 0.3, "lexical": 2.0}},
        {"exact": True, "view": "phrase"},
        {"threads": 3, "view": "lexical", "explain": True},
    ],
    ids=str,
)
def test_every_option_means_the_same(
    filled: Callable[[str], AnyIndex], engine: str, options: dict[str, Any]
) -> None:
    ours, theirs = filled("embedded"), filled(engine)
    for query in (CORPUS.query, CORPUS.documents[3], CORPUS.documents[11]):
        assert_same_results(theirs.search(query, **options), ours.search(query, **options))


def assert_same_results(found: Results, expected: Results) -> None:
    """The same hits, scores and explanations. A server adds in an order of its own, so that the
    scores of copies may differ in the last bit: only those may change places."""
    assert [alike(hit.id) for hit in found] == [alike(hit.id) for hit in expected]
    assert found.candidates == expected.candidates
    for one, other in zip(found, expected, strict=True):
        assert one.score == pytest.approx(other.score, abs=ROUNDING)
        assert (one.text, one.metadata) == (TEXT, METADATA[CORPUS.ids.index(one.id)])
        if other.explanation is None:
            assert one.explanation is None
            continue
        assert one.explanation is not None
        assert one.explanation.dropped == other.explanation.dropped
        for a, b in zip(one.explanation.phrase, other.explanation.phrase, strict=True):
            assert (a.spans, a.text, a.document_spans, a.document_text) == (
                b.spans,
                b.text,
                b.document_spans,
                b.document_text,
            )
            assert a.contribution == pytest.approx(b.contribution, rel=1e-5, abs=1e-6)


def alike(id_: str) -> int:
    """The same number for copies of one document."""
    return CORPUS.copies[CORPUS.ids.index(id_)]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("where", WHERE)
def test_filters_mean_what_the_reference_says(
    filled: Callable[[str], AnyIndex], engine: str, where: str
) -> None:
    index = filled(engine)
    tree = syntax.parse(where)
    passing = {
        id_ for id_, own in zip(CORPUS.ids, METADATA, strict=True) if matches(tree, id_, own)
    }
    assert {
        hit.id for hit in index.search(CORPUS.query, view="global", k=N, where=where)
    } == passing
    assert {
        hit.id for hit in index.search(CORPUS.query, view="phrase", k=N, where=where)
    } == passing
    assert index.count(where) == len(passing)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_query_of_nothing_finds_everything_and_scores_nothing(
    filled: Callable[[str], AnyIndex], engine: str
) -> None:
    empty = random_encoded(np.random.default_rng(0), [0], 12)
    none = np.empty(0, np.int32)
    lexical = replace(
        empty.lexical, ids=none, weights=none.astype(np.float32), offsets=np.zeros(2, np.int64)
    )
    query = replace(empty, global_=np.zeros((1, 10), np.float32), lexical=lexical)
    found = filled(engine).search(query, k=5)
    assert [hit.id for hit in found] == sorted(CORPUS.ids)[:5]
    assert {hit.score for hit in found} == {0.0}
    assert len(filled(engine).search(query, view="lexical")) == 0


@pytest.mark.parametrize("engine", ENGINES)
def test_what_was_stored_comes_back(filled: Callable[[str], AnyIndex], engine: str) -> None:
    """Vectors, weights and spans, exactly."""
    index = filled(engine)
    searched = index.engine
    documents = searched.find(CORPUS.ids)
    order = np.argsort(documents)
    stored = searched.read(documents[order], None)
    expected = CORPUS.documents.take(order)
    assert_same(stored, expected)
    rows = searched.rows(documents[order])
    assert [row.id for row in rows] == [CORPUS.ids[i] for i in order]
    assert [row.metadata for row in rows] == [METADATA[i] for i in order]
    assert searched.ids(documents) == CORPUS.ids


@pytest.mark.parametrize("engine", OTHERS)
def test_rerank_and_more_like_are_the_same(filled: Callable[[str], AnyIndex], engine: str) -> None:
    ours, theirs = filled("embedded"), filled(engine)
    some = CORPUS.ids[5:15]
    assert_same_results(theirs.rerank(CORPUS.query, some), ours.rerank(CORPUS.query, some))
    for id_ in some[:3]:
        found, expected = theirs.more_like(id_, k=7), ours.more_like(id_, k=7)
        assert id_ not in [hit.id for hit in found]
        for one, other in zip(found, expected, strict=True):
            assert one.score == pytest.approx(other.score, abs=ROUNDING)
    with pytest.raises(MissingDocumentError, match="no document 'zz'"):
        theirs.rerank(CORPUS.query, ["zz"])


@pytest.mark.parametrize("engine", ENGINES)
def test_documents_are_added_changed_and_deleted(
    make: Callable[..., AnyIndex], engine: str
) -> None:
    index = make(engine)
    fill(index)
    assert len(index) == N
    with pytest.raises(InputError, match="exists already"):
        fill(index)
    first = CORPUS.ids[0]
    assert index[first].metadata == METADATA[0]
    assert index.update_metadata({first: {"n": 1000, "long": None, "new": {"a": [1]}}}) == 1
    assert [hit.id for hit in index.search(CORPUS.query, where="n = 1000")] == [first]
    assert index[first].metadata["new"] == {"a": [1]}
    assert "long" not in index[first].metadata
    with pytest.raises(MissingDocumentError):
        index.update_metadata({first: {"n": 5}, "zz": {"n": 5}})
    assert index[first].metadata["n"] == 1000
    assert index.delete([first, "zz"]) == 1
    assert index.get(first) is None
    assert index.delete(where="n < 10") == 9
    assert {hit.id for hit in index.search(CORPUS.query, k=N)} == set(CORPUS.ids[10:])
    assert {document.id for document in index} == set(CORPUS.ids[10:])
    assert index.verify().problems == []


@pytest.mark.parametrize("engine", OTHERS)
def test_texts_are_encoded_with_the_model(
    make: Callable[..., AnyIndex], engine: str, tiny: Any
) -> None:
    rows = [
        {"id": "a", "text": "insulin therapy for type 2 diabetes", "year": 2021},
        {"id": "b", "text": "chronic kidney disease and heart failure", "year": 2015},
        {"id": "c", "text": ""},
    ]
    index = make(engine, model=tiny, width=None, global_width=None, fingerprint=None, fusion=None)
    report = index.add(rows)
    assert (report.added, len(index)) == (3, 3)
    assert index.add(rows).unchanged == 3
    with pytest.raises(InputError, match="use update"):
        index.add([{"id": "a", "text": "heart failure"}])
    changed = [{"id": "a", "text": "heart failure"}, {**rows[1], "year": 2016}]
    done = index.update(changed, sync=True)
    assert (done.updated, done.metadata_changed, done.deleted) == (1, 1, 1)
    assert index["b"].metadata == {"year": 2016}
    found = index.search("heart failure", explain=True)
    assert found[0].id == "a"
    assert found[0].explanation.phrase[0].document_text == "heart failure"
    with pytest.raises(ModelMismatchError, match="was made with model"):
        Index.connect(index.store.address.url, model="mini")  # type: ignore[attr-defined]
    with Index.connect(index.store.address.url, model=tiny) as again:  # type: ignore[attr-defined]
        assert len(again.search("heart failure")) == 2


def test_a_connected_index_has_the_methods_of_an_index() -> None:
    """All but those that docs/engines.md names."""

    def public(kind: type) -> set[str]:
        return {name for name in dir(kind) if not name.startswith("_")}

    lacking = public(Index) - public(ConnectedIndex)
    assert lacking == {"open", "export", "add_shards", "compact"}


@pytest.mark.parametrize("engine", OTHERS)
def test_what_cannot_be_is_one_clear_error(new_url: NEW_URL, engine: str) -> None:
    url = new_url(engine)
    with pytest.raises(HPlusError, match="does not exist"):
        Index.connect(url)
    with pytest.raises(InputError, match="whole documents"):
        Index.connect(url, create=True, model="mini", passages=100)
    with pytest.raises(InputError, match="say create=True"):
        Index.connect(url, width=12)
    with Index.connect(url, create=True, fingerprint="none", **SETTINGS) as index:
        with pytest.raises(InputError, match="exists already"):
            Index.connect(url, create=True, fingerprint="none", **SETTINGS)
        with pytest.raises(InputError, match="made from encodings"):
            index.search("a text")
