"""What is particular to Qdrant: known traps, and one clear error for whatever goes wrong."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from brute_force import ALPHAS
from builders import random_encoded
from engine_servers import Node, address
from hplus import IndexDamagedError, InputError, ServiceError
from hplus.index import Index
from hplus.types import Encoded, Units, offsets_of
from hplus.units.vectors import normalise

pytest.importorskip("qdrant_client", reason="needs hplus[qdrant]")

from qdrant_client import grpc

from hplus.engines.connected import ConnectedIndex
from hplus.engines.qdrant import engine, filters, nodes, points
from hplus.engines.qdrant.collection import Collection
from hplus.engines.qdrant.points import MOST_NUMBERS, point_id

WIDTH = 16


@pytest.fixture
def url(new_url: Callable[[str], str]) -> str:
    return new_url("qdrant")


def new(url: str, width: int = WIDTH, **options: Any) -> ConnectedIndex:
    settings = {"width": width, "global_width": WIDTH, "fusion": ALPHAS, "fingerprint": "none"}
    return Index.connect(url, create=True, **settings, **options)


@pytest.fixture
def index(url: str) -> Iterator[ConnectedIndex]:
    with new(url) as made:
        yield made


def documents(count: int, seed: int = 0) -> tuple[list[str], Encoded]:
    random = np.random.default_rng(seed)
    lengths = random.integers(1, 7, count).tolist()
    return [f"d{i:04d}" for i in range(count)], random_encoded(random, lengths, WIDTH)


def weighted(query: Encoded, factor: float) -> Encoded:
    """The same query with every weight multiplied."""
    units = replace(query.units, weights=(query.units.weights * factor).astype(np.float32))
    return replace(query, units=units)


def one_document(rows: Any) -> Encoded:
    """A document of these unit vectors and of nothing else."""
    vectors = np.asarray(rows, np.float32)
    m = len(vectors)
    made = random_encoded(np.random.default_rng(0), [0], WIDTH)
    units = Units(
        vectors=vectors,
        weights=np.linspace(2, 1, m, dtype=np.float32),
        offsets=offsets_of([m]),
        spans=np.zeros((m, 2), np.int32),
        span_offsets=np.arange(m + 1),
    )
    return replace(made, units=units)


def has_codes(folder: Path) -> bool:
    """Whether the unit vectors have codes. os.walk passes over folders that the server removes
    meanwhile, as it does while it optimises; Path.rglob fails on them."""
    return any(
        Path(here).name == "vector_storage-units" and "quantized.data" in files
        for here, _, files in os.walk(folder)
    )


@pytest.fixture
def quantised(url: str, qdrant_node: Node) -> Iterator[ConnectedIndex]:
    """A collection whose 8-bit codes exist: Qdrant makes them when it optimises a segment."""
    with new(url, codes="int8") as made:
        made.add_encoded(*documents(400))
        store: Any = made.store
        update = grpc.UpdateCollection(
            collection_name=store.name,
            optimizers_config=grpc.OptimizersConfigDiff(indexing_threshold=1),
        )
        store.nodes.collections("Update", update)
        folder = qdrant_node.folder / "storage" / "collections" / store.name
        until = time.monotonic() + 300
        while not has_codes(folder):
            assert time.monotonic() < until, "Qdrant made no codes"
            time.sleep(0.1)
        while store.stats().figures["status"] != "Green":
            time.sleep(0.1)
        yield made


def test_a_scaled_query_is_the_same_query_under_quantisation(
    quantised: ConnectedIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Qdrant's quantised search with rescoring depends on the length of a dot query (its issue
    9352): ours always has the same one."""
    monkeypatch.setattr(engine, "RESCORED", 80)  # of 400 documents, not all
    _, encoded = documents(400)
    for i in range(20):
        query = encoded[i]
        plain = quantised.search(query, view="phrase", k=20)
        assert plain.paths == {"phrase": "8-bit codes"}
        for factor in (1e-6, 1e-2, 1e4):
            found = quantised.search(weighted(query, factor), view="phrase", k=20)
            assert [hit.id for hit in found] == [hit.id for hit in plain]
            expected = [hit.score for hit in plain]
            assert [hit.score for hit in found] == pytest.approx(expected, abs=1e-6)


def test_eight_bit_codes_find_what_an_exact_scan_finds(
    quantised: ConnectedIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Recall at 10 of at least 0.98; scores are exact, because what was found is scored again."""
    monkeypatch.setattr(engine, "RESCORED", 80)  # of 400 documents, not all
    queries = [random_encoded(np.random.default_rng(100 + i), [4], WIDTH) for i in range(30)]
    found = wanted = 0
    for query in queries:
        near = {hit.id: hit.score for hit in quantised.search(query, view="phrase", k=10)}
        exact = {
            hit.id: hit.score for hit in quantised.search(query, view="phrase", k=10, exact=True)
        }
        both = near.keys() & exact.keys()
        found, wanted = found + len(both), wanted + len(exact)
        assert [near[i] for i in both] == pytest.approx([exact[i] for i in both], abs=1e-6)
    assert found / wanted >= 0.98


def test_whole_numbers_in_two_rows_are_a_multivector(url: str) -> None:
    """As JSON, [[1, 0], [0, 1]] may be read as a sparse vector; over gRPC it cannot."""
    with new(url, width=2) as made:
        made.add_encoded(["a", "b"], both := _two_by_two())
        searched = made.engine
        numbers = np.sort(searched.find(["a", "b"]))
        stored = searched.read(numbers, None)
        np.testing.assert_array_equal(stored.units.vectors, both.units.vectors)
        query = both[0]
        found = {hit.id: hit.score for hit in made.search(query, view="phrase")}
        assert found == pytest.approx({"a": 1.0, "b": 2 / 3 * 1.0 + 0.0}, abs=1e-6)


def _two_by_two() -> Encoded:
    """a has the two axes, b the first of them twice."""
    one = one_document([[1, 0], [0, 1]])
    vectors = np.array([[1, 0], [0, 1], [1, 0], [1, 0]], np.float32)
    units = replace(one.take(np.array([0, 0])).units, vectors=vectors)
    return replace(one.take(np.array([0, 0])), units=units)


def test_numbers_of_a_point_have_a_limit(url: str) -> None:
    """The largest document that Qdrant accepts is accepted, and none above it is sent."""
    width = 1023
    most = MOST_NUMBERS // width
    assert most * width == MOST_NUMBERS
    rows = normalise(np.random.default_rng(0).normal(size=(most + 1, width)).astype(np.float32))
    with new(url, width=width) as made:
        made.add_encoded(["most"], one_document(rows[:most]))
        with pytest.raises(InputError, match=f"'more' has {most + 1:,} units .* at most 1,048,575"):
            made.add_encoded(["more"], one_document(rows))
        assert {document.id for document in made} == {"most"}


def strict(index: ConnectedIndex, **settings: Any) -> None:
    store: Any = index.store
    update = grpc.UpdateCollection(
        collection_name=store.name,
        strict_mode_config=grpc.StrictModeConfig(enabled=True, **settings),
    )
    store.nodes.collections("Update", update)


def test_strict_mode_is_obeyed_and_named(index: ConnectedIndex) -> None:
    ids, encoded = documents(20)
    index.add_encoded(ids, encoded, metadata=[{"year": i} for i in range(20)])
    strict(index, unindexed_filtering_retrieve=False, unindexed_filtering_update=False)
    assert len(index.search(encoded[0], k=5)) == 5
    assert len(index.search(encoded[0], k=5, where="year exists")) == 5
    with pytest.raises(ServiceError, match=r"refuses.*[Ii]ndex required.*fields"):
        index.search(encoded[0], k=5, where="year > 3")
    index.store.index_field('fields."year"', grpc.FieldType.FieldTypeFloat)  # type: ignore[attr-defined]
    assert len(index.search(encoded[0], k=30, where="year > 3")) == 16
    strict(index, max_query_limit=50)
    with pytest.raises(ServiceError, match=r"refuses.*[Ll]imit"):
        index.search(encoded[0])
    assert len(index.search(encoded[0], k=5, pool=40)) == 5
    strict(index, upsert_max_batchsize=5)
    with pytest.raises(ServiceError, match=r"refuses.*[Uu]psert"):
        index.add_encoded([f"x{id_}" for id_ in ids], encoded)
    assert len(index) == 20  # nothing half done


def test_a_wrong_host_is_told_at_once() -> None:
    with pytest.raises(ServiceError, match=r"127\.0\.0\.1:9/papers cannot be reached: check"):
        Index.connect("qdrant://127.0.0.1:9/papers?patience=60")


def test_the_port_of_the_web_interface_is_recognised(qdrant_node: Node) -> None:
    with pytest.raises(ServiceError, match="this port speaks HTTP; give the one for gRPC"):
        Index.connect(f"qdrant://127.0.0.1:{qdrant_node.http}/papers")


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("qdrant://localhost", "expected one name after the host"),
        ("qdrant://localhost/a/b", "expected one name after the host"),
        ("qdrant://localhost:port/a", "expected host:port"),
        ("http://localhost/a", "expected an address such as qdrant://"),
        ("qdrant://localhost/a?time=3", "unknown option 'time'; known: timeout, patience, tls"),
        ("qdrant://localhost/a?timeout=-1", "expected timeout to be a number above 0, got '-1'"),
        (17, "expected an address such as qdrant://.* got int"),
    ],
)
def test_an_address_that_cannot_be(url: Any, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        Index.connect(url)


def test_another_node_is_asked_if_one_does_not_answer(qdrant_node: Node, index: Any) -> None:
    name = index.store.name
    with Index.connect(f"qdrant://127.0.0.1:9,127.0.0.1:{qdrant_node.grpc}/{name}") as again:
        assert len(again) == 0


def test_a_server_that_lacks_a_feature(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodes, "OLDEST", (99, 0))
    with pytest.raises(ServiceError, match=r"is Qdrant 1\.\d+\.\d+, but .* since 99\.0; update"):
        new(url)
    monkeypatch.undo()
    with pytest.raises(InputError, match="does not exist"):  # nothing half done
        Index.connect(url)


def test_a_collection_is_made_as_a_whole_or_not_at_all(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    index_field = Collection.index_field

    def failing(self: Collection, name: str, kind: Any) -> None:
        if name == "names":
            raise ServiceError("the network is gone")
        index_field(self, name, kind)

    monkeypatch.setattr(Collection, "index_field", failing)
    with pytest.raises(ServiceError, match="the network is gone"):
        new(url)
    monkeypatch.undo()
    with pytest.raises(InputError, match="does not exist"):
        Index.connect(url)
    new(url).close()


def test_a_server_that_does_not_answer(qdrant_node: Node, index: ConnectedIndex) -> None:
    ids, encoded = documents(3)
    index.add_encoded(ids, encoded)
    name: str = index.store.name  # type: ignore[attr-defined]
    with Index.connect(address([qdrant_node], name, "?timeout=60&patience=7")) as busy:
        asked = busy.store.nodes  # type: ignore[attr-defined]
        assert (asked.timeout, asked.patience) == (60, 7)
        asked.timeout, asked.patience = 0.5, 0.1  # only now: a slow machine may take longer
        qdrant_node.stop()
        try:
            with pytest.raises(ServiceError, match=r"no answer within 0\.5 seconds; try again"):
                busy.search(encoded[0])
        finally:
            qdrant_node.resume()
        asked.timeout, asked.patience = 60, 60
        assert len(busy.search(encoded[0])) == 3


def test_a_collection_that_somebody_changed(url: str) -> None:
    with new(url) as made:
        store: Any = made.store
        note = store._info().config.metadata["hplus"]
        store.drop()
    vectors = {"global": grpc.VectorParams(size=WIDTH, distance=grpc.Distance.Cosine)}
    request = grpc.CreateCollection(
        collection_name=store.name,
        vectors_config=grpc.VectorsConfig(params_map=grpc.VectorParamsMap(map=vectors)),
        metadata={"hplus": note},
    )
    other = nodes.Nodes(store.address)
    other.collections("Create", request)
    with pytest.raises(IndexDamagedError, match="'global' has distance Cosine, expected Dot"):
        Index.connect(url)
    clear = grpc.DeleteCollection(collection_name=store.name)
    other.collections("Delete", clear)
    plain = grpc.CreateCollection(
        collection_name=store.name,
        vectors_config=grpc.VectorsConfig(params_map=grpc.VectorParamsMap(map=vectors)),
    )
    other.collections("Create", plain)
    with pytest.raises(InputError, match="was not made by hplus"):
        Index.connect(url)
    other.close()


def test_verify_sees_what_somebody_changed(index: ConnectedIndex) -> None:
    ids, encoded = documents(10)
    index.add_encoded(ids, encoded)
    assert index.verify().problems == []
    store: Any = index.store
    wrong = grpc.SetPayloadPoints(
        collection_name=store.name,
        wait=True,
        payload={"text": grpc.Value(string_value="another")},
        points_selector=grpc.PointsSelector(
            points=grpc.PointsIdsList(ids=[grpc.PointId(uuid=point_id(ids[3]))])
        ),
    )
    store.nodes.points("SetPayload", wrong)
    (problem,) = index.verify().problems
    assert problem == f"the text of document {ids[3]!r} is not the one that was encoded"
    moved = grpc.UpdatePointVectors(
        collection_name=store.name,
        wait=True,
        points=[
            grpc.PointVectors(
                id=grpc.PointId(uuid=point_id(ids[4])),
                vectors=grpc.Vectors(
                    vectors=grpc.NamedVectors(
                        vectors={"global": grpc.Vector(dense=grpc.DenseVector(data=[0.5] * WIDTH))}
                    )
                ),
            )
        ],
    )
    store.nodes.points("UpdateVectors", moved)
    assert any("encoding of document 'd0004'" in one for one in index.verify().problems)


def test_a_document_that_disappears_during_a_search(index: ConnectedIndex) -> None:
    ids, encoded = documents(3)
    index.add_encoded(ids, encoded)
    searched = index.engine
    numbers = searched.find(ids)
    index.delete(ids[0])
    with pytest.raises(ServiceError, match="was changed during the search; search again"):
        searched.rows(numbers)


def test_a_filter_that_names_too_many_documents_is_refused(
    index: ConnectedIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hplus.engines.qdrant import collection

    ids, encoded = documents(20)
    index.add_encoded(ids, encoded, metadata=[{"day": f"2020-01-{i:02d}"} for i in range(20)])
    monkeypatch.setattr(collection, "LISTED", 10)
    assert len(index.search(encoded[0], where='day >= "2020-01-15"')) == 5
    with pytest.raises(InputError, match="cannot compare texts or ids by order"):
        index.search(encoded[0], where='day >= "2020-01-05"')


def test_half_precision_is_offered_with_its_loss(url: str) -> None:
    ids, encoded = documents(60)
    with new(url, stored="f16") as made:
        made.add_encoded(ids, encoded)
        found = made.verify()
        assert found.problems == []
        assert 1e-6 < found.difference < 1e-3


@pytest.mark.parametrize("width", [1, 31, 32, 128, 5000])
@pytest.mark.parametrize("count", [1, 3])
def test_vectors_are_the_bytes_that_protobuf_writes(width: int, count: int) -> None:
    rows = np.random.default_rng(width).normal(size=(count, width)).astype(np.float32)
    one, *_ = lists = [grpc.DenseVector(data=row) for row in rows.tolist()]
    assert points.dense(rows[0]) == one
    assert points.multi_dense(rows) == grpc.MultiDenseVector(vectors=lists)
    for kind in (
        grpc.VectorOutput(multi_dense=grpc.MultiDenseVector(vectors=lists)),
        grpc.VectorOutput(data=rows.reshape(-1).tolist(), vectors_count=count),
    ):
        np.testing.assert_array_equal(points._rows(kind, width), rows)


def test_the_id_of_a_point_never_changes() -> None:
    assert point_id("doc-17") == point_id("doc-17") != point_id("doc-18")
    assert json.dumps(filters.key(("a", "b"))) == '"a.b"'
    assert filters.key(("a.b",)) != filters.key(("a", "b"))
