"""What a language model is asked, and what of its answer is believed."""

from __future__ import annotations

import hashlib
import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hplus import InputError
from hplus.teach import llm
from hplus.teach.llm import (
    COVERAGE,
    INSTRUCTION,
    AnswerRefusedError,
    Question,
    coverage,
    is_answer,
    mark,
    segments_of,
)
from hplus.types import Span
from llm_server import completion

TEXT = "Metformin treats type 2 diabetes at 5 mg/kg."
UNITS = ["Metformin", "treats", "type 2 diabetes", "at", "5 mg/kg", "."]


def marked(text: str, content: Any, **options: Any) -> list[str]:
    found = mark(text, completion(content, **options))
    return [text[a:b] for a, b, _ in found.spans]


# The question


def test_the_instruction_has_what_the_paper_says() -> None:
    for phrase in (
        "minimal self-contained semantic units",
        "domain terms, abbreviations and compounds",
        "case, numbers and punctuation",
        "Never rewrite",
    ):
        assert phrase in INSTRUCTION


def test_the_example_of_the_instruction_is_an_answer_that_would_be_taken() -> None:
    lines = INSTRUCTION.splitlines()
    text = next(line for line in lines if line.startswith("Text: T")).removeprefix("Text: ")
    answer = next(line for line in lines if line.startswith("Answer: ")).removeprefix("Answer: ")
    assert coverage(text, [Span(a, b) for a, b, _ in mark(text, completion(answer)).spans]) == 1
    assert mark(text, completion(answer)).lost == 0


def test_the_body_of_a_request() -> None:
    body = Question("m", {"seed": 7, "temperature": 0.5}).body(TEXT)
    assert body["messages"] == [{"role": "user", "content": INSTRUCTION + TEXT}]
    assert body["response_format"]["type"] == "json_schema"
    assert body["response_format"]["json_schema"]["schema"]["type"] == "object"
    assert (body["model"], body["seed"], body["temperature"]) == ("m", 7, 0.5)
    assert body["max_tokens"] == 256 + len(TEXT)
    without = Question("m", {"seed": 7, "temperature": 0.5}).body(TEXT, schema=False)
    assert without == {k: v for k, v in body.items() if k != "response_format"}


def test_null_leaves_a_parameter_out() -> None:
    absent = {"temperature": None, "max_tokens": None, "response_format": None}
    assert set(Question("m", absent).body(TEXT)) == {"model", "messages"}


@pytest.mark.parametrize("name", ["model", "messages", "stream", "n"])
def test_what_is_not_a_parameter(name: str) -> None:
    with pytest.raises(InputError, match=f"{name} is not a parameter"):
        Question("m", {name: 2})


def test_the_key_is_the_sha256_of_what_decides_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    question = Question("m", {"seed": 1, "top_p": 0.9})
    parameters = {"max_tokens": 256 + len(TEXT), "seed": 1, "temperature": 0, "top_p": 0.9}
    asked = json.dumps(["m", llm.PROMPT_VERSION, parameters, TEXT])
    key = question.key(TEXT)
    assert key == hashlib.sha256(asked.encode()).hexdigest()
    assert Question("m", {"top_p": 0.9, "seed": 1}).key(TEXT) == key
    assert Question("m", {"top_p": 0.9, "seed": 1, "response_format": None}).key(TEXT) == key
    others = {
        Question("n", question.parameters).key(TEXT),
        Question("m", {"seed": 2, "top_p": 0.9}).key(TEXT),
        Question("m", {"seed": 1}).key(TEXT),
        question.key(TEXT.lower()),
        question.key(TEXT + "\ud800"),
    }
    monkeypatch.setattr(llm, "PROMPT_VERSION", "another")
    others.add(question.key(TEXT))
    assert len(others | {key}) == 7


# The answer


@pytest.mark.parametrize(
    "content",
    [
        {"segments": UNITS},
        UNITS,
        "```json\n" + json.dumps({"segments": UNITS}, indent=2) + "\n```",
        "<think>\nThe user {wants} [units]\n</think>\n\n" + json.dumps(UNITS),
        "\n\n   " + json.dumps({"segments": UNITS, "note": "done"}),
        [f" {unit} " for unit in UNITS],
    ],
)
def test_a_good_answer_in_many_forms(content: Any) -> None:
    assert marked(TEXT, content) == UNITS


def test_no_finish_reason_is_no_objection() -> None:
    assert marked(TEXT, UNITS, finish=None) == UNITS


@pytest.mark.parametrize(
    ("content", "finish", "reason"),
    [
        (UNITS, "length", "cut short"),
        (UNITS, "content_filter", "withheld"),
        ("", "stop", "empty"),
        (" \n\n\t " * 50, "stop", "empty"),
        ('{"segments": ["Metformin", "treats', "stop", "not JSON"),
        ("Here are the units: " + json.dumps(UNITS), "stop", "not JSON"),
        ("[" * 100_000, "stop", "not JSON"),
        ({"units": UNITS}, "stop", "no list of segments"),
        ("5", "stop", "no list of segments"),
        ({"segments": "Metformin"}, "stop", "no list of segments"),
        ([], "stop", "less than 80%"),
        (["Metformin", "cures", "diabetes mellitus of type two"], "stop", "less than 80%"),
        (list(reversed(UNITS)), "stop", "less than 80%"),
        ([unit.upper() for unit in UNITS], "stop", "less than 80%"),
        (UNITS[:2], "stop", "less than 80%"),
    ],
)
def test_a_bad_answer_is_refused(content: Any, finish: str, reason: str) -> None:
    with pytest.raises(AnswerRefusedError, match=reason):
        mark(TEXT, completion(content, finish=finish))


def test_an_answer_without_content() -> None:
    for message in ({"content": None}, {"reasoning": "…"}, {"content": [{"text": "x"}]}):
        with pytest.raises(AnswerRefusedError, match="empty"):
            segments_of({"choices": [{"message": message}]})


def test_what_does_not_occur_is_counted() -> None:
    listed = [UNITS[0], "cures", *UNITS[1:], "", 5, None, "mg"]
    found = mark(TEXT, completion(listed))
    assert [TEXT[a:b] for a, b, _ in found.spans] == UNITS
    assert found.lost == 5


@pytest.mark.parametrize(
    "body",
    [
        None,
        5,
        [],
        {"choices": []},
        {"choices": [{"text": "x"}]},
        {"choices": {"message": {}}},
        {"error": {"message": "no"}},
    ],
)
def test_what_is_no_chat_completion(body: Any) -> None:
    assert not is_answer(body)
    assert is_answer(completion(UNITS))


WORDS = st.lists(st.sampled_from(["cell", "ce", "ll", "a", "心", "-", "5 mg", "\n"]), max_size=12)


@settings(max_examples=100, deadline=None)
@given(WORDS, st.data())
def test_any_division_of_a_text_is_found_whole(words: list[str], data: st.DataObject) -> None:
    text = " ".join(words)
    cuts = sorted({0, len(text), *data.draw(st.sets(st.integers(0, len(text)), max_size=6))})
    pieces = [text[a:b] for a, b in pairwise(cuts)]
    found = mark(text, completion(pieces))
    assert found.lost == sum(not piece.strip() for piece in pieces)
    expected = [piece.strip() for piece in pieces if piece.strip()]
    assert [text[a:b] for a, b, _ in found.spans] == expected


@settings(max_examples=100, deadline=None)
@given(WORDS, WORDS, st.floats(0, 1))
def test_whatever_comes_back_the_marks_are_in_the_text(
    words: list[str], answer: list[str], least: float
) -> None:
    text = " ".join(words)
    covered = [False] * len(text)
    found = mark(text, completion(answer), 0)
    for start, end, _ in found.spans:
        assert text[start:end] in {part.strip() for part in answer}
        assert not any(covered[start:end])
        covered[start:end] = [True] * (end - start)
    assert [span[0] for span in found.spans] == sorted(span[0] for span in found.spans)
    assert len(found.spans) + found.lost == len(answer)
    letters = [i for i, character in enumerate(text) if character.isalnum()]
    share = sum(covered[i] for i in letters) / len(letters) if letters else 1
    assert share == coverage(text, [Span(a, b) for a, b, _ in found.spans])
    if share >= least:
        assert mark(text, completion(answer), least) == found
    else:
        with pytest.raises(AnswerRefusedError):
            mark(text, completion(answer), least)


def test_the_bar_is_where_it_says() -> None:
    assert COVERAGE == 0.8
    assert marked("abcdefgh ij", ["abcdefgh"]) == ["abcdefgh"]
    with pytest.raises(AnswerRefusedError):
        marked("abcdefg hij", ["abcdefg"])
