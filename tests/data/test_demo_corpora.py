"""The two bundled demo corpora: well formed, consistent, and as their README files state."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from importlib.resources import files

import pytest


def count_words(text: str) -> int:
    """Number of words separated by white space."""
    return len(text.split())


@dataclass(frozen=True)
class Spec:
    """What one demo corpus must look like."""

    name: str
    passages: tuple[int, int]
    queries: int
    length: Callable[[str], int]
    length_bounds: tuple[int, int]
    passage_id: str
    query_id: str


SPECS = [
    Spec(
        name="demo-en",
        passages=(148, 156),
        queries=40,
        length=count_words,
        length_bounds=(35, 80),
        passage_id=r"(med|chem|phys|comp)-\d{3}",
        query_id=r"q-\d{2}",
    ),
    Spec(
        name="demo-zh",
        passages=(40, 40),
        queries=10,
        length=len,
        length_bounds=(60, 140),
        passage_id=r"zh-\d{3}",
        query_id=r"zq-\d{2}",
    ),
]


@dataclass(frozen=True)
class Demo:
    """One demo corpus as read from the package."""

    spec: Spec
    corpus: list[dict[str, str]]
    queries: list[dict[str, str]]
    qrels: list[tuple[str, str, int]]
    readme: str


def read_text(name: str, *parts: str) -> str:
    """Text of one file of the corpus `name`."""
    return files("hplus").joinpath("data", name, *parts).read_text(encoding="utf-8")


def read_jsonl(name: str, filename: str) -> list[dict[str, str]]:
    """All records of a JSON Lines file; no line may be blank."""
    return [json.loads(line) for line in read_text(name, filename).rstrip("\n").split("\n")]


@pytest.fixture(scope="module", params=SPECS, ids=lambda spec: spec.name)
def demo(request: pytest.FixtureRequest) -> Demo:
    """Each demo corpus in turn."""
    spec: Spec = request.param
    header, *lines = read_text(spec.name, "qrels", "test.tsv").rstrip("\n").split("\n")
    assert header == "query-id\tcorpus-id\tscore"
    qrels = []
    for line in lines:
        query_id, passage_id, grade = line.split("\t")
        qrels.append((query_id, passage_id, int(grade)))
    return Demo(
        spec=spec,
        corpus=read_jsonl(spec.name, "corpus.jsonl"),
        queries=read_jsonl(spec.name, "queries.jsonl"),
        qrels=qrels,
        readme=read_text(spec.name, "README.md"),
    )


def test_fields(demo: Demo) -> None:
    for passage in demo.corpus:
        assert set(passage) == {"_id", "title", "text"}
        assert all(isinstance(value, str) for value in passage.values())
        assert all(value == value.strip() for value in passage.values())
    for query in demo.queries:
        assert set(query) == {"_id", "text"}
        assert query["text"].strip() == query["text"] != ""


def test_not_escaped(demo: Demo) -> None:
    for filename in ("corpus.jsonl", "queries.jsonl"):
        assert "\\u" not in read_text(demo.spec.name, filename)


def test_counts(demo: Demo) -> None:
    low, high = demo.spec.passages
    assert low <= len(demo.corpus) <= high
    assert len(demo.queries) == demo.spec.queries


def test_counts_match_readme(demo: Demo) -> None:
    stated = {
        noun: int(number)
        for number, noun in re.findall(r": (\d+) (passages|queries|judgements)\b", demo.readme)
    }
    assert stated == {
        "passages": len(demo.corpus),
        "queries": len(demo.queries),
        "judgements": len(demo.qrels),
    }
    assert "Apache-2.0" in demo.readme


def test_ids(demo: Demo) -> None:
    passage_ids = [passage["_id"] for passage in demo.corpus]
    query_ids = [query["_id"] for query in demo.queries]
    assert len(set(passage_ids)) == len(passage_ids)
    assert len(set(query_ids)) == len(query_ids)
    assert all(re.fullmatch(demo.spec.passage_id, identifier) for identifier in passage_ids)
    assert all(re.fullmatch(demo.spec.query_id, identifier) for identifier in query_ids)


def test_texts_differ(demo: Demo) -> None:
    passages = {passage["text"].casefold() for passage in demo.corpus}
    queries = {query["text"].casefold() for query in demo.queries}
    assert len(passages) == len(demo.corpus)
    assert len(queries) == len(demo.queries)


def test_passage_lengths(demo: Demo) -> None:
    low, high = demo.spec.length_bounds
    lengths = {passage["_id"]: demo.spec.length(passage["text"]) for passage in demo.corpus}
    assert {key: n for key, n in lengths.items() if not low <= n <= high} == {}


def test_judgements(demo: Demo) -> None:
    passage_ids = {passage["_id"] for passage in demo.corpus}
    query_ids = {query["_id"] for query in demo.queries}
    pairs = [(query_id, passage_id) for query_id, passage_id, _ in demo.qrels]
    assert len(set(pairs)) == len(pairs)
    assert {query_id for query_id, _ in pairs} == query_ids
    assert {passage_id for _, passage_id in pairs} <= passage_ids
    assert {grade for _, _, grade in demo.qrels} <= {1, 2}


def test_every_query_has_answers(demo: Demo) -> None:
    grades: defaultdict[str, list[int]] = defaultdict(list)
    for query_id, _, grade in demo.qrels:
        grades[query_id].append(grade)
    for query in demo.queries:
        assert 1 <= grades[query["_id"]].count(2) <= 2, query["_id"]
        assert 1 <= grades[query["_id"]].count(1) <= 6, query["_id"]
