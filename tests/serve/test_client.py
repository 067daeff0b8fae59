"""Code moves from `Index` to `Client` by one line: the same calls give the same answers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hplus import (
    AsyncClient,
    BudgetError,
    Client,
    FilterError,
    HPlus,
    Index,
    InputError,
    MissingDocumentError,
    Search,
    ServiceError,
)
from hplus.serve.keys import Keys
from service import on_loopback

KEY = "a-key-of-many-characters"


@pytest.fixture
def address(folder: Path, served_model: HPlus) -> Iterator[str]:
    with on_loopback(folder, model=served_model) as (found, _):
        yield found


@pytest.fixture
def both(folder: Path, served_model: HPlus, address: str) -> Iterator[tuple[Index, Client]]:
    with Index.open(folder, model=served_model) as index, Client(address, "med") as client:
        yield index, client


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"k": 2, "from_": 1, "explain": True},
        {"view": "phrase", "budget": 2, "width": 8, "query_budget": 1},
        {"alphas": {"global": 1.0}, "where": "year > 2000", "min_score": 0.1, "pool": 7},
        {"where": "yaer > 2000", "group_by": "tag", "exact": True, "threads": 2},
    ],
)
def test_results_are_the_same(both: tuple[Index, Client], options: dict[str, Any]) -> None:
    index, client = both
    assert client.search("heart failure", **options) == index.search("heart failure", **options)
    assert client.search(Search("insulin", k=1), **options) == index.search(
        Search("insulin", k=1), **options
    )
    assert client.more_like("d/e f", **options) == index.more_like("d/e f", **options)
    del_ = {name: value for name, value in options.items() if name not in ("from_", "where")}
    ids = ["a", "d/e f"]
    assert client.rerank("insulin", ids, **del_) == index.rerank("insulin", ids, **del_)


def test_lists_of_queries(both: tuple[Index, Client]) -> None:
    index, client = both
    queries: list[Any] = ["heart", "kidney", Search("insulin", k=1), "cell"]
    for one, other in zip(client.search(queries), index.search(queries), strict=True):
        assert [hit.id for hit in one] == [hit.id for hit in other]
        assert [hit.score for hit in one] == pytest.approx([hit.score for hit in other], abs=1e-5)
    assert client.search([]) == []


def test_documents(both: tuple[Index, Client], tmp_path: Path) -> None:
    index, client = both
    rows = [{"id": f"n{i}", "title": "gene", "text": f"cell {i}", "n": i} for i in range(500)]
    assert client.add(rows).added == 500
    index.refresh()
    assert client.get("n7") == index.get("n7")
    assert client.get(["n1", "zz"]) == index.get(["n1", "zz"])
    assert client["a"] == index["a"]
    assert "a" in client
    assert "zz" not in client
    with pytest.raises(MissingDocumentError, match="zz"):
        _ = client["zz"]
    assert len(client) == len(index) == client.count() == 505
    assert client.count("n >= 498") == 2
    assert client.stats() == index.stats()
    (tmp_path / "more.jsonl").write_text('{"id": "n1", "text": "protein"}\n{"text": "x"}\n')
    report = client.update(tmp_path / "more.jsonl")
    assert (report.added, report.updated) == (1, 1)
    for id_ in (".", "..", "a/../b", "%2e", "?"):
        assert client.add([{"id": id_, "text": "cell"}]).added == 1
        assert client[id_].id == id_
        assert client.delete(id_) == 1
    assert client.delete(["n1", "zz", "n2"]) == 2
    assert client.delete(where="n >= 0") == 498
    client.compact()
    assert client.stats().deleted == 0


def test_errors_are_those_of_the_library(both: tuple[Index, Client], address: str) -> None:
    index, client = both
    for where, kind in (("year >", FilterError), ("year == 3", FilterError)):
        with pytest.raises(kind) as served:
            client.search("x", where=where)
        with pytest.raises(kind) as embedded:
            index.search("x", where=where)
        assert str(served.value) == str(embedded.value)
        assert served.value.at == embedded.value.at  # type: ignore[attr-defined]
    with pytest.raises(BudgetError, match="width 999"):
        client.search("x", width=999)
    with pytest.raises(InputError, match="unknown option 'nonsense'"):
        client.search("x", nonsense=1)
    with pytest.raises(InputError, match="as text, not as encodings"):
        client.search(index.encode("x"))
    with pytest.raises(MissingDocumentError):
        client.more_like("zz")
    with Client(address, "other") as other, pytest.raises(InputError, match="no index 'other'"):
        other.search("x")
    with pytest.raises(InputError, match="http://"):
        Client("med.hplus")
    with pytest.raises(InputError, match="'p'"):
        client.add([{"id": "p", "text": "cell"}, {"id": "p", "text": "gene"}])


def test_the_only_index_needs_no_name(address: str) -> None:
    with Client(address) as client:
        assert len(client) == 5


def test_keys_and_services_that_are_not_there(
    folder: Path, served_model: HPlus, tmp_path: Path
) -> None:
    (tmp_path / "keys").write_text(f"read {KEY}\n")
    with on_loopback(folder, model=served_model, keys=Keys.read(tmp_path / "keys")) as (url, _):
        with Client(url, "med", key=KEY) as client:
            assert client.search("cell", k=1)
            with pytest.raises(ServiceError, match="may read, not write"):
                client.delete("a")
        with Client(url, "med") as client, pytest.raises(ServiceError, match="expected a key"):
            client.search("cell")
    with Client(url, "med") as client, pytest.raises(ServiceError, match="no answer from http"):
        client.search("cell")


def test_the_same_awaited(both: tuple[Index, Client], address: str) -> None:
    index, _ = both

    async def scenario() -> None:
        async with AsyncClient(address) as client:
            found = await asyncio.gather(*(client.search(f"heart {i}", k=2) for i in range(20)))
            for i, one in enumerate(found):
                expected = index.search(f"heart {i}", k=2)
                assert [hit.id for hit in one] == [hit.id for hit in expected]
            assert len(await client.search(["heart", "cell"])) == 2
            assert (await client.more_like("a", k=1)) == index.more_like("a", k=1)
            assert (await client.rerank("insulin", ["a"])) == index.rerank("insulin", ["a"])
            assert (await client.add([{"id": "n", "text": "cell"}])).added == 1
            assert (await client.update([{"id": "n", "text": "gene"}])).updated == 1
            assert (await client.get("n")).text == "gene"  # type: ignore[union-attr]
            assert await client.get(["n", "zz"]) == [await client.get("n"), None]
            assert await client.count("year > 0") == 5
            assert await client.delete("n") == 1
            await client.compact()
            assert (await client.stats()).documents == 5
            with pytest.raises(FilterError):
                await client.search("x", where="year >")

    asyncio.run(scenario())
