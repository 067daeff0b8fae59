"""An index in an engine elsewhere, served as one in a folder is: over HTTP, and as tools."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="the service needs hplus[serve]")

from engine_servers import Node
from hplus import HPlus, Index
from hplus.any_index import AnyIndex
from service import DOCUMENTS, Service, in_process, model_folder, served_model

__all__ = ["model_folder", "served_model"]  # fixtures

ENGINES = ["qdrant", "postgres"]
# As many as an average needs.
MANY = [dict(row, id=f"{row['id']}{i}") for i in range(4) for row in DOCUMENTS]


@pytest.fixture(params=ENGINES)
def url(request: pytest.FixtureRequest, new_url: Callable[[str], str], served_model: HPlus) -> str:
    made = new_url(request.param)
    with Index.connect(made, served_model, create=True) as index:
        index.add(MANY)
    return made


@pytest.fixture
def services(
    url: str, tmp_path: Path, served_model: HPlus
) -> Iterator[tuple[Service, str, AnyIndex]]:
    """A service over the collection and an index of the same documents; the collection's name, and
    that index."""
    with Index.create(tmp_path / "here.hplus", served_model, format="f32") as here:
        here.add(MANY)
        with in_process(url, tmp_path / "here.hplus", model=served_model) as made:
            yield made, next(iter(made.indexes)), here


def answer(service: Service, method: str, path: str, **given: Any) -> Any:
    response = service.client.request(method, path, **given)
    assert response.status_code == 200, response.text
    return response.json()


def test_a_collection_answers_as_a_folder_does(services: tuple[Service, str, AnyIndex]) -> None:
    service, name, _ = services
    for path, request in (
        ("search", {"query": "heart failure", "k": 6, "explain": True, "where": "year < 2020"}),
        ("search", {"queries": ["insulin", "kidney disease"], "view": "phrase"}),
        ("rerank", {"query": "insulin therapy", "ids": ["b1", "a0"]}),
        ("more-like/a1", {"k": 3}),
    ):
        there, here = (
            answer(service, "POST", f"/indexes/{one}/{path}", json=request)
            for one in (name, "here")
        )
        # A folder keeps lexical weights as float16.
        assert scores(there) == pytest.approx(scores(here), abs=1e-3)
    readable = {"query": "heart failure", "readable": True, "explain": True}
    found = answer(service, "POST", f"/indexes/{name}/search", json=readable)
    assert found["average"]["documents"] == len(MANY)


def scores(found: Any) -> list[float]:
    """Of every hit of an answer, best first: copies of a document may change places."""
    results = found.get("results", [found])
    return [hit["score"] for result in results for hit in result["hits"]]


def test_documents_go_in_and_out(services: tuple[Service, str, AnyIndex]) -> None:
    service, name, _ = services
    documents = f"/indexes/{name}/documents"
    new = {"text": "asthma of a child", "metadata": {"year": 2025}}
    assert answer(service, "PUT", f"{documents}/new", json=new)["added"] == 1
    assert answer(service, "GET", f"{documents}/new") == {"id": "new", **new}
    assert answer(service, "GET", f"/indexes/{name}/count?where=year>2024") == {"count": 1}
    found = answer(service, "POST", f"/indexes/{name}/search", json={"query": "asthma", "k": 1})
    assert [hit["id"] for hit in found["hits"]] == ["new"]
    line = json.dumps({"id": "line", "text": "a dose of insulin"})
    kind = {"content-type": "application/x-ndjson"}
    assert answer(service, "POST", documents, content=line, headers=kind)["added"] == 1
    assert answer(service, "DELETE", f"{documents}?where=year>2024") == {"deleted": 1}
    assert answer(service, "DELETE", f"{documents}/line") == {"deleted": 1}
    stats = answer(service, "GET", f"/indexes/{name}/stats")
    assert (stats["documents"], stats["smaller"]) == (len(MANY), [])


def test_what_it_says_of_itself(services: tuple[Service, str, AnyIndex]) -> None:
    service, name, here = services
    for path in ("/indexes", "/info"):
        there, ours = answer(service, "GET", path)["indexes"]
        assert (there["name"], ours["name"]) == (name, "here")
        assert {**ours, "name": name, "generation": None, "format": None} == there
    assert here.generation == answer(service, "GET", "/indexes")["indexes"][1]["generation"]
    figures = service.client.get("/metrics").text
    assert 'hplus_documents{index="here"}' in figures
    assert f'hplus_documents{{index="{name}"}}' not in figures
    refused = service.client.post(f"/indexes/{name}/compact", json={})
    assert refused.status_code == 422
    assert "is in an engine elsewhere, which compacts by itself" in refused.text


def test_an_engine_that_does_not_answer(
    qdrant_node: Node, new_url: Callable[[str], str], served_model: HPlus
) -> None:
    """One sentence, no address, and the next search is answered when the engine is back."""
    url = new_url("qdrant")
    Index.connect(url, served_model, create=True).close()
    with in_process(url, model=served_model) as service:
        (name,) = service.indexes
        nodes: Any = service.indexes[name].index.store.nodes  # type: ignore[attr-defined]
        usual = nodes.timeout, nodes.patience
        nodes.timeout, nodes.patience = 0.5, 0.1
        qdrant_node.stop()
        try:
            refused = service.client.post(f"/indexes/{name}/search", json={"query": "insulin"})
        finally:
            qdrant_node.resume()
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        error = refused.json()["error"]
        assert error["code"] == "engine"
        assert error["message"].startswith(f"index {name} gave no answer within 0.5 seconds")
        assert str(qdrant_node.grpc) not in refused.text
        nodes.timeout, nodes.patience = usual
        found = answer(service, "POST", f"/indexes/{name}/search", json={"query": "insulin"})
        assert found["hits"] == []


def test_tools_for_language_models(url: str, served_model: HPlus) -> None:
    pytest.importorskip("mcp", reason="the tools need hplus[mcp]")
    from mcp.client import Client

    from hplus.integrations.mcp import server_of

    async def asked(index: AnyIndex) -> list[Any]:
        async with Client(server_of(index, "med")) as client:
            calls: list[tuple[str, dict[str, Any]]] = [
                ("search", {"query": "heart failure", "k": 1}),
                ("read", {"id": "a0"}),
                ("explain", {"query": "insulin", "id": "a0"}),
            ]
            return [
                json.loads((await client.call_tool(name, given)).content[0].text)  # type: ignore[union-attr]
                for name, given in calls
            ]

    with Index.connect(url, served_model) as index:
        found, read, explained = asyncio.run(asked(index))
    assert found["hits"][0]["text"]
    assert read["text"] == DOCUMENTS[0]["text"]
    assert explained["id"] == "a0"
