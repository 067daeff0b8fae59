"""Clients of other services, pointed here, work: their own packages where they are installed."""

from __future__ import annotations

import base64
from collections.abc import Iterator

import httpx
import numpy as np
import pytest
from starlette.testclient import TestClient

from hplus import HPlus, Index
from service import Service, error_of, on_loopback

TEXTS = ["heart failure", "insulin dose", "heart failure"]


def test_embeddings_are_the_global_view(client: TestClient, served_model: HPlus) -> None:
    expected = served_model.encode_document(TEXTS).global_
    answer = client.post("/v1/embeddings", json={"input": TEXTS, "model": "med"}).json()
    assert [row["index"] for row in answer["data"]] == [0, 1, 2]
    got = np.array([row["embedding"] for row in answer["data"]], np.float32)
    np.testing.assert_allclose(got, expected, atol=1e-6)
    coded = client.post("/v1/embeddings", json={"input": TEXTS, "encoding_format": "base64"})
    rows = [np.frombuffer(base64.b64decode(r["embedding"]), "<f4") for r in coded.json()["data"]]
    np.testing.assert_array_equal(np.stack(rows), got)
    narrow = client.post("/v1/embeddings", json={"input": TEXTS[0], "dimensions": 4}).json()
    prefix = got[0, :4] / np.linalg.norm(got[0, :4])
    np.testing.assert_allclose(narrow["data"][0]["embedding"], prefix, atol=1e-6)
    wide = client.post("/v1/embeddings", json={"input": "x", "dimensions": 99})
    assert error_of(wide)["code"] == "budget"


def test_only_what_is_served_can_be_named(client: TestClient) -> None:
    for model in ("/etc/passwd", "bert-base-uncased", "../model"):
        answer = client.post("/v1/embeddings", json={"input": "x", "model": model})
        assert answer.status_code == 404
        assert error_of(answer)["field"] == "model"


def test_a_mistake_is_placed_as_the_client_wrote_it(client: TestClient) -> None:
    for path, body, field in [
        ("/v1/embeddings", {"input": 5}, "input"),
        ("/embed_all", {"inputs": {}}, "inputs"),
        ("/v1/rerank", {"query": "x", "documents": ["a", 5]}, "documents.1"),
        ("/v1/rerank", {"query": "x", "documents": [{"text": 5}]}, "documents.0"),
    ]:
        error = error_of(client.post(path, json=body))
        assert error["field"] == field
        assert error["message"].startswith(f"{field}: ")


def test_rerank_is_the_fused_score(client: TestClient, served_model: HPlus) -> None:
    documents = ["heart failure of a patient", "kidney", "acute heart failure"]
    scores = served_model.score("heart failure", documents, explain=True)
    request = {"query": "heart failure", "documents": documents, "explanations": True}
    answer = client.post("/v1/rerank", json={**request, "return_documents": True}).json()
    assert [row["index"] for row in answer["results"]] == scores.ranking().tolist()
    whole = sum(served_model.recipe.fusion.values())
    for row in answer["results"]:
        assert row["relevance_score"] == pytest.approx(scores.fused[row["index"]] / whole)
        assert row["document"] == {"text": documents[row["index"]]}
        parts = [match["contribution"] for match in row["explanation"]["phrase"]]
        assert sum(parts) == pytest.approx(row["explanation"]["phrase_raw"])
    objects = [{"text": text} for text in documents]
    short = client.post("/v1/rerank", json={"query": "cell", "documents": objects, "top_n": 1})
    assert len(short.json()["results"]) == 1


def test_sparse_and_multi_vector_shapes(client: TestClient, served_model: HPlus) -> None:
    encoded = served_model.encode_document(TEXTS)
    sparse = client.post("/embed_sparse", json={"inputs": TEXTS, "truncate": True}).json()
    assert len(sparse) == 3
    rows = [(row["index"], row["value"]) for text in sparse for row in text]
    assert [i for i, _ in rows] == encoded.lexical.ids.tolist()
    np.testing.assert_allclose([w for _, w in rows], encoded.lexical.weights, rtol=1e-6)
    vectors = client.post("/embed_all", json={"inputs": TEXTS}).json()
    assert [len(text) for text in vectors] == np.diff(encoded.units.offsets).tolist()
    flat = np.array([row for text in vectors for row in text], np.float32)
    np.testing.assert_allclose(flat, encoded.units.vectors, atol=1e-6)


@pytest.fixture(scope="module")
def address(served_model: HPlus, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A service behind a real socket."""
    folder = tmp_path_factory.mktemp("dropin") / "med.hplus"
    Index.create(folder, served_model).close()
    with on_loopback(folder, model=served_model) as (found, _):
        yield found


def test_the_client_of_openai(address: str, served_model: HPlus) -> None:
    openai = pytest.importorskip("openai")
    with openai.OpenAI(base_url=f"{address}/v1", api_key="none") as client:
        found = client.embeddings.create(input=TEXTS, model="med", dimensions=8)
        assert len(found.data) == 3
        assert len(found.data[0].embedding) == 8
        whole = client.embeddings.create(input="heart failure", model="med").data[0].embedding
        expected = served_model.encode_document(TEXTS).global_[0]
        np.testing.assert_allclose(whole, expected, atol=1e-6)
        with pytest.raises(openai.NotFoundError, match="no model 'other' is served"):
            client.embeddings.create(input="x", model="other")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_clients_of_cohere(address: str) -> None:
    cohere = pytest.importorskip("cohere")
    documents = ["kidney", "heart failure", "heart"]
    for make in (cohere.Client, cohere.ClientV2):
        with httpx.Client() as sender:
            client = make(api_key="none", base_url=address, httpx_client=sender)
            found = client.rerank(model="med", query="heart failure", documents=documents, top_n=2)
        assert found.results[0].index == 1
        assert len(found.results) == 2
        assert found.results[0].relevance_score > found.results[1].relevance_score


def test_metrics_and_info(service: Service) -> None:
    client = service.client
    client.post("/indexes/med/search", json={"query": "cell"})
    client.get("/nothing")
    figures = client.get("/metrics").text
    search = 'endpoint="/indexes/{name}/search",method="POST",status="200"'
    assert f"hplus_requests_total{{{search}}} 1.0" in figures
    assert 'endpoint="none",method="GET",status="404"' in figures
    assert 'hplus_documents{index="med"} 5.0' in figures
    assert "hplus_query_batch_count 1.0" in figures
    info = client.get("/info").json()
    assert info["model_sha"] == service.indexes["med"].model.fingerprint
    assert info["indexes"][0]["name"] == "med"
    assert client.get("/health").json() == {"status": "ok"}
    assert client.get("/ready").json() == {"status": "ready"}
