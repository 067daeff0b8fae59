"""Requests out and results in, in the format of OpenAI's batch files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hplus import InputError
from hplus.teach.llm import Question
from hplus.teach.llm_answers import Answers, open_answers
from hplus.teach.llm_batch import read_results, write_requests
from llm_server import completion, good, run_batch

TEXTS = ["Metformin treats type 2 diabetes.", "心力衰竭", "half \ud800"]
QUESTION = Question("m", {"seed": 1})


@pytest.fixture
def answers(tmp_path: Path) -> Iterator[Answers]:
    with open_answers(tmp_path / "answers.sqlite") as made:
        yield made


def result(text: str, **fields: Any) -> dict[str, Any]:
    response = {"status_code": 200, "body": completion(["x"])}
    return {"custom_id": QUESTION.key(text), "response": response, "error": None, **fields}


def written(path: Path, *rows: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_requests_are_what_the_endpoint_would_get(tmp_path: Path) -> None:
    path = tmp_path / "new" / "requests.jsonl"
    assert write_requests(path, QUESTION, [*TEXTS, TEXTS[0]]) == 3
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert [row["custom_id"] for row in rows] == [QUESTION.key(text) for text in TEXTS]
    assert all(len(row["custom_id"]) <= 64 for row in rows), "the longest that servers take"
    assert [row["body"] for row in rows] == [QUESTION.body(text) for text in TEXTS]
    assert {(row["method"], row["url"]) for row in rows} == {("POST", "/v1/chat/completions")}


@pytest.mark.parametrize("name", ["results.jsonl", "results.jsonl.gz"])
def test_results_in_any_order_are_answers(tmp_path: Path, answers: Answers, name: str) -> None:
    requests, results = tmp_path / "requests.jsonl", tmp_path / name
    write_requests(requests, QUESTION, TEXTS)
    run_batch(requests, results)
    for _ in range(2):
        assert not read_results(results, QUESTION, TEXTS, answers)
        for text in TEXTS:
            assert answers.get(QUESTION.key(text)) == good(QUESTION.body(text)).content


def test_failures_are_counted(tmp_path: Path, answers: Answers) -> None:
    path = written(
        tmp_path / "results.jsonl",
        result("a"),
        result("b", response={"status_code": 400, "body": None}, error={"message": "too long"}),
        result("c", response=None, error={"code": "batch_expired"}),
        result("d", response={"status_code": 200, "body": {"object": "list"}}),
        result("e", response="fine"),
        result("another text"),
    )
    assert read_results(path, QUESTION, list("abcde"), answers) == {
        "failed results: HTTP 400": 1,
        "failed results: no response": 1,
        "failed results: a response that is not a chat completion": 2,
        "results about other texts, models or parameters": 1,
    }
    assert [QUESTION.key(text) in answers for text in "abcde"] == [True, *[False] * 4]


def test_results_of_another_model_are_refused(tmp_path: Path, answers: Answers) -> None:
    path = written(tmp_path / "results.jsonl", result("a"), result("b"))
    with pytest.raises(InputError, match=r"answers none of these texts \(2 results about other"):
        read_results(path, Question("n", QUESTION.parameters), ["a", "b"], answers)
    assert len(answers) == 0


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"custom_id": "x", "method": "POST", "body": {}}, r"results\.jsonl:2 is a request"),
        ({"response": {}}, r"results\.jsonl:2 lacks custom_id"),
        ({"custom_id": 5, "response": {}}, r"results\.jsonl:2 lacks custom_id"),
    ],
)
def test_a_row_that_is_no_result(
    tmp_path: Path, answers: Answers, row: dict[str, Any], message: str
) -> None:
    path = written(tmp_path / "results.jsonl", result("a"), row)
    with pytest.raises(InputError, match=message):
        read_results(path, QUESTION, ["a"], answers)
