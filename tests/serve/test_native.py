"""The service's own endpoints answer what the library answers."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest
from starlette.testclient import TestClient

from hplus import HPlus, Index
from hplus.search.results import Results
from service import DOCUMENTS, Service, error_of, in_process
from tiny import WORDS

NDJSON = {"content-type": "application/x-ndjson"}
URL = "/indexes/med"


def search(client: TestClient, **request: Any) -> Any:
    return client.post(f"{URL}/search", json=request)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"k": 2, "from": 1},
        {"view": "phrase", "budget": 2, "width": 8},
        {"view": "lexical"},
        {"alphas": {"global": 1.0, "lexical": 0.5}},
        {"where": "year >= 2015 and not tag = 'x'", "min_score": 0.1},
        {"explain": True, "query_budget": 1},
        {"group_by": "year", "exact": True, "pool": 3},
    ],
)
def test_a_search_finds_what_the_library_finds(service: Service, options: dict[str, Any]) -> None:
    renamed = {"from_" if name == "from" else name: value for name, value in options.items()}
    index = service.indexes["med"].index
    expected = index.search("heart failure therapy", **renamed).as_json()
    answer = search(service.client, query="heart failure therapy", **options)
    assert answer.status_code == 200, answer.text
    assert answer.json() == json.loads(json.dumps(expected))
    assert "encode;dur=" in answer.headers["server-timing"]


def test_several_queries(service: Service) -> None:
    queries = ["heart failure", "insulin dose", "kidney"]
    answers = search(service.client, queries=queries, k=3).json()["results"]
    for query, answer in zip(queries, answers, strict=True):
        expected = service.indexes["med"].index.search(query, k=3)
        assert [hit["id"] for hit in answer["hits"]] == [hit.id for hit in expected]
        assert [hit["score"] for hit in answer["hits"]] == pytest.approx(
            [hit.score for hit in expected], abs=1e-5
        )


def test_readable_answers_add_up(client: TestClient) -> None:
    answer = search(client, query="chronic heart failure", readable=True).json()
    weights = [unit["weight"] for unit in answer["units"]]
    assert weights == sorted(weights, reverse=True)
    units = {json.dumps(unit["spans"]) for unit in answer["units"]}
    for hit in answer["hits"]:
        shown = hit["shown"]
        assert "text" not in hit
        assert sum(shown["shares"].values()) == shown["fused"] == round(1000 * hit["score"])
        phrases = sum(line["thousandths"] for line in shown["lines"])
        assert phrases + shown["light"]["thousandths"] == shown["shares"]["phrase"]
        words = sum(word["thousandths"] for word in shown["words"])
        assert words + shown["rest"]["thousandths"] == shown["shares"]["lexical"]
        assert {json.dumps(line["spans"]) for line in shown["lines"]} <= units
        for mark in shown["excerpt"]["marks"]:
            assert 0 <= mark["start"] < mark["end"] <= len(shown["excerpt"]["text"])
            assert mark["rank"] < len(shown["lines"])


def test_the_average_document(service: Service) -> None:
    """All documents are in the sample, so it is the mean of what the library says of each."""
    index, client = service.indexes["med"].index, service.client
    body = {"query": "chronic heart failure", "budget": 3, "readable": True}
    assert "average" not in search(client, **body).json()  # too few documents
    words = WORDS.split()
    index.add([{"id": f"{i}", "text": " ".join(words[i : i + 6])} for i in range(20)])
    every = [document.id for document in index]
    average = search(client, **body).json()["average"]
    assert average["documents"] == len(every) == 25
    check_average(average, index.rerank(body["query"], every, budget=3, explain=True))
    alone = search(client, **body, view="phrase").json()["average"]
    assert list(alone["shares"]) == ["phrase"]
    like = client.post(f"{URL}/more-like/a", json={"readable": True}).json()["average"]
    query = index.engine.read(index.engine.find(["a"]), None)
    check_average(like, index.rerank(query, every, explain=True))


def check_average(average: dict[str, Any], found: Results) -> None:
    explained = [hit.explanation for hit in found]
    assert sum(average["shares"].values()) == average["fused"]
    assert sum(unit["thousandths"] for unit in average["units"]) == average["shares"]["phrase"]
    for view, share in average["shares"].items():
        mean = np.mean([why.shares[view] for why in explained if why is not None])
        assert share == pytest.approx(1000 * mean, abs=1)
    for i, unit in enumerate(average["units"]):
        matches = [why.phrase[i] for why in explained if why is not None]
        assert unit["spans"] == [list(span) for span in matches[0].spans]
        mean = np.mean([match.similarity for match in matches])
        assert unit["similarity"] == pytest.approx(mean, abs=1e-5)


def test_rerank_and_more_like(service: Service) -> None:
    index, client = service.indexes["med"].index, service.client
    found = client.post(f"{URL}/rerank", json={"query": "insulin", "ids": ["g", "a", "d/e f"]})
    assert found.json() == json.loads(
        json.dumps(index.rerank("insulin", ["g", "a", "d/e f"]).as_json())
    )
    found = client.post(f"{URL}/more-like/{quote('d/e f', safe='')}", json={"k": 2})
    assert found.json() == json.loads(json.dumps(index.more_like("d/e f", k=2).as_json()))
    assert client.post(f"{URL}/more-like/a").status_code == 200
    assert error_of(client.post(f"{URL}/more-like/zz"))["code"] == "missing_document"


def test_documents_come_and_go(service: Service, folder: Path) -> None:
    client = service.client
    first = client.get(f"{URL}/documents/a").json()
    assert first == {
        "id": "a",
        "text": DOCUMENTS[0]["text"],
        "metadata": {"year": 2021, "tag": "x"},
    }
    for id_ in ("new", "d/e/f", "ü 糖?#", "..x", "a&b=c"):
        place = f"{URL}/documents/{quote(id_, safe='')}"
        put = client.put(place, json={"text": "gene therapy", "metadata": {"n": [1]}})
        assert put.json() == {"added": 1, "updated": 0, "metadata_changed": 0, "unchanged": 0}
        assert client.put(place, json={"text": "gene"}).json()["updated"] == 1
        with Index.open(folder) as other:  # confirmed: another reader sees it
            assert other[id_].text == "gene"
        assert client.get(place).json()["text"] == "gene"
        assert client.delete(place).json() == {"deleted": 1}
        assert client.delete(place).status_code == 404
        assert client.get(place).status_code == 404


def test_a_list_of_documents(client: TestClient) -> None:
    rows = [{"id": "p", "text": "cell"}, {"text": "a gene", "year": 1}]
    assert client.post(f"{URL}/documents", json={"documents": rows}).json()["added"] == 2
    assert client.post(f"{URL}/documents", json={"documents": rows}).json()["unchanged"] == 2
    rows[0]["text"] = "protein"
    refused = client.post(f"{URL}/documents", json={"documents": rows})
    assert refused.status_code == 422
    assert "'p'" in error_of(refused)["message"]
    replaced = client.post(f"{URL}/documents?update=true", json={"documents": rows})
    assert replaced.json()["updated"] == 1


def test_a_stream_of_documents(client: TestClient) -> None:
    rows = [json.dumps({"id": f"s{i}", "text": f"cell {i}"}) for i in range(600)]
    body = "\n".join([*rows[:300], "", *rows[300:]]).encode()

    def parts() -> Any:
        for start in range(0, len(body), 1000):
            yield body[start : start + 1000]

    answer = client.post(f"{URL}/documents", content=parts(), headers=NDJSON)
    assert answer.json()["added"] == 600
    assert client.get(f"{URL}/count").json() == {"count": 605}


@pytest.mark.parametrize("bad", [b"no", b"[1]", b"\xff", b'{"text": NaN}', b'{"text": 5}'])
def test_a_bad_line_says_what_is_confirmed(client: TestClient, bad: bytes) -> None:
    body = b'{"id": "p", "text": "cell"}\n\n{"id": "q", "text": "gene"}\n' + bad + b"\n{}\n"
    answer = client.post(f"{URL}/documents", content=body, headers=NDJSON)
    error = error_of(answer)
    assert answer.status_code == 422
    assert error["message"].startswith("line 4: ")
    assert error["details"]["lines"] == 3
    assert error["details"]["confirmed"]["added"] == 2
    for id_ in ("p", "q"):
        assert client.get(f"{URL}/documents/{id_}").status_code == 200


def test_deleting_by_filter_and_counting(client: TestClient) -> None:
    where = {"where": "year < 2016"}
    assert client.get(f"{URL}/count", params=where).json() == {"count": 2}
    assert client.delete(f"{URL}/documents", params=where).json() == {"deleted": 2}
    assert client.get(f"{URL}/count").json() == {"count": 3}
    assert client.delete(f"{URL}/documents").status_code == 422  # never all of them by mistake


def test_compaction(service: Service) -> None:
    client = service.client
    before = search(client, query="insulin").json()["hits"]
    client.put(f"{URL}/documents/x", json={"text": "cell"})
    client.delete(f"{URL}/documents/x")
    assert client.get(f"{URL}/stats").json()["deleted"] == 1
    assert client.post(f"{URL}/compact", json={}).status_code == 200
    assert client.get(f"{URL}/stats").json()["deleted"] == 0
    assert search(client, query="insulin").json()["hits"] == before
    error = error_of(client.post(f"{URL}/compact", json={"width": 64}))
    assert error["code"] == "budget"
    assert str(service.indexes["med"].index.path) not in error["message"]


def test_what_others_confirm_is_shown(service: Service, folder: Path, served_model: HPlus) -> None:
    with Index.open(folder, model=served_model) as other:
        other.add([{"id": "late", "text": "protein"}])
    for _ in range(200):
        if service.client.get(f"{URL}/documents/late").status_code == 200:
            break
        time.sleep(0.05)
    assert service.client.get(f"{URL}/documents/late").status_code == 200


def test_units_and_terms(client: TestClient, served_model: HPlus) -> None:
    text = "of the heart failure"
    found = client.post("/segment", json={"texts": [text], "side": "query"}).json()["texts"][0]
    assert [unit["text"] for unit in found] == [
        unit.text for unit in served_model.segment(text, side="query")[0]
    ]
    tried = client.post("/terms/check", json={"terms": ["the heart"], "texts": [text]}).json()
    assert [unit["text"] for unit in tried["after"][0]] == ["of", "the heart", "failure"]
    assert tried["terms"] == [
        {"term": "the heart", "count": 1, "changed": {"the │ heart failure": 1}}
    ]
    assert served_model.terms is None


@pytest.mark.parametrize(
    ("request_", "status", "field"),
    [
        ({}, 422, None),
        ({"query": "x", "queries": ["x"]}, 422, None),
        ({"query": ""}, 422, "query"),
        ({"query": "  "}, 422, None),
        ({"query": "x" * 9000}, 422, "query"),
        ({"query": "x", "k": 0}, 422, "k"),
        ({"query": "x", "k": 10**9}, 422, "k"),
        ({"query": "x", "k": "3"}, 422, "k"),
        ({"query": "x", "from": 10**9}, 422, "from"),
        ({"query": "x", "nonsense": 1}, 422, "nonsense"),
        ({"query": "x", "width": 10**6}, 422, None),
        ({"query": "x", "alphas": {"other": 1}}, 422, "alphas.other.[key]"),
        ({"query": "x", "alphas": {"phrase": -1}}, 422, "alphas.phrase"),
        ({"query": "x", "alphas": {}}, 422, None),
        ({"query": "x", "view": "phrase", "alphas": {"phrase": 1}}, 422, None),
        ({"query": "x", "where": "year >"}, 422, "where"),
        ({"query": "x", "group_by": "a b"}, 422, "where"),
    ],
)
def test_mistakes_are_one_sentence(
    client: TestClient, request_: dict[str, Any], status: int, field: str | None
) -> None:
    answer = search(client, **request_)
    assert answer.status_code == status
    assert error_of(answer).get("field") == field


def test_the_caret_of_a_filter(client: TestClient) -> None:
    where = "year >= 2000 and tag == 'x'"
    error = error_of(search(client, query="x", where=where))
    assert error["code"] == "filter"
    assert where[error["caret"] :].startswith("==")
    assert error["message"].endswith("^")


def test_bodies_that_are_not_json(client: TestClient) -> None:
    headers = {"content-type": "application/json"}
    for body in (b"{", b"\xff\xfe", b"[" * 100_000, b'{"query": ' + b"9" * 5000 + b"}"):
        answer = client.post(f"{URL}/search", content=body, headers=headers)
        assert answer.status_code in (400, 422), body[:20]
        error_of(answer)
        answer = client.post(f"{URL}/documents", content=body, headers=headers)
        assert answer.status_code in (400, 422), body[:20]
        error_of(answer)
    assert client.post(f"{URL}/documents", content=b"x").status_code == 415
    assert client.post(f"{URL}/search", content=b'{"query": "x"}').status_code == 422


def test_names_that_are_not_there(client: TestClient) -> None:
    for path in (
        "/indexes/other/stats",
        "/indexes/..%2f..%2fetc/stats",
        "/indexes/med.hplus/stats",
    ):
        assert client.get(path).status_code == 404
    missing = error_of(client.get("/nothing"))
    assert missing["code"] == "missing_endpoint"
    assert missing["message"] == "no such endpoint; /openapi.json lists them"
    wrong = client.post("/health")
    assert error_of(wrong)["code"] == "method"
    assert error_of(wrong)["message"] == "expected GET at this endpoint"
    assert wrong.headers["allow"] == "GET"
    assert client.head("/").status_code == 200


def test_indexes_of_one_model_share_it(
    folder: Path, tmp_path: Path, served_model: HPlus, model_folder: Path
) -> None:
    with Index.create(tmp_path / "two.hplus", served_model) as made:
        made.add([{"id": "only", "text": "cancer"}])
    with in_process(folder, tmp_path / "two.hplus", model=str(model_folder)) as service:
        names = [one["name"] for one in service.client.get("/indexes").json()["indexes"]]
        assert names == ["med", "two"]
        one, two = service.indexes.values()
        assert one.model is two.model
        found = service.client.post("/indexes/two/search", json={"query": "cancer"}).json()
        assert [hit["id"] for hit in found["hits"]] == ["only"]
