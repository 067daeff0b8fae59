"""Training pairs: seeded samples, true negatives, distance from evaluation sets, named mistakes."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from hplus.errors import InputError
from hplus.evaluate.bm25 import BM25
from hplus.teach.duplicates import collect
from hplus.train import pairs as training_pairs
from hplus.train.pairs import Pairs, read_pairs

pytest.importorskip("bm25s")

WORDS = ["heart", "liver", "lung", "fever", "cough", "insulin", "kidney", "cancer", "protein"]
Rows = list[tuple[str, str]]


def random_rows(count: int, seed: int = 0) -> Rows:
    """Queries that occur more than once, with positives that several queries share."""
    random = np.random.default_rng(seed)

    def text(numbers: int, length: int) -> str:
        return f"{' '.join(random.choice(WORDS, length))} {random.integers(numbers)}"

    queries = [text(100, 2) for _ in range(max(1, count // 2))]
    passages = [text(100, 6) for _ in range(max(2, count // 2))]
    return [(str(random.choice(queries)), str(random.choice(passages))) for _ in range(count)]


def write(path: Path, rows: Rows) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps({"query": q, "positive": p}, ensure_ascii=False) + "\n" for q, p in rows]
    data = "".join(lines).encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def texts_of(pairs: Pairs) -> Rows:
    return [
        (query, pairs.documents[document])
        for query, document in zip(pairs.queries, pairs.groups[:, 0], strict=True)
    ]


def assert_same(actual: Pairs, expected: Pairs) -> None:
    assert actual.queries == expected.queries
    assert actual.documents == expected.documents
    np.testing.assert_array_equal(actual.groups, expected.groups)
    assert actual.report == expected.report


def test_all_pairs_are_read_in_order_when_there_is_room(tmp_path: Path) -> None:
    rows = random_rows(30)
    pairs = read_pairs([write(tmp_path / "a.jsonl", rows)], sample=30)
    assert texts_of(pairs) == rows
    assert sorted(pairs.documents) == sorted({passage for _, passage in rows})
    assert len(pairs.groups) == 30
    assert pairs.groups.dtype == np.int64
    assert pairs.report == {"a": {"rows": 30, "sampled": 30, "kept": 30}}
    zipped = read_pairs([write(tmp_path / "a.jsonl.gz", rows)], sample=99)
    assert_same(zipped, pairs)


def test_samples_follow_the_seed(tmp_path: Path) -> None:
    rows = [(f"question {i}", f"answer {i}") for i in range(60)]
    files = [write(tmp_path / "a.jsonl", rows), write(tmp_path / "b.jsonl", rows[:5])]
    first = read_pairs(files, sample=20)
    assert_same(read_pairs(files, sample=20), first)
    assert first.report == {
        "a": {"rows": 60, "sampled": 20, "kept": 20},
        "b": {"rows": 5, "sampled": 5, "kept": 5},
    }
    taken = texts_of(first)
    assert len(set(taken[:20])) == 20
    assert set(taken[:20]) < set(rows)
    assert taken[20:] == rows[:5]
    assert [rows.index(pair) for pair in taken[:20]] == sorted(map(rows.index, taken[:20]))
    other = read_pairs(files, sample=20, seed=14)
    assert texts_of(other) != taken


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    ("count", "hard", "others"), [(40, 7, 3), (40, 0, 9), (12, 3, 0), (6, 7, 2)]
)
def test_negatives_are_distinct_and_never_an_answer(
    tmp_path: Path, seed: int, count: int, hard: int, others: int
) -> None:
    rows = random_rows(count, seed)
    pairs = read_pairs([write(tmp_path / "a.jsonl", rows)], sample=count, hard=hard, others=others)
    answers = {query: {p for q, p in rows if q == query} for query, _ in rows}
    assert texts_of(pairs) == rows
    most = max(map(len, answers.values()))
    size = 1 + min(hard + others, len(pairs.documents) - most)
    assert pairs.groups.shape == (count, size)
    for query, members in zip(pairs.queries, pairs.groups.tolist(), strict=True):
        assert len(set(members)) == size
        assert not {pairs.documents[member] for member in members[1:]} & answers[query]


def test_negatives_are_among_the_best_of_bm25(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training_pairs, "NEGATIVES_FROM", 6)
    rows = random_rows(60)
    pairs = read_pairs([write(tmp_path / "a.jsonl", rows)], sample=60, hard=4, others=0)
    corpus = BM25(pairs.documents)
    chosen = set()
    for query, members in zip(pairs.queries, pairs.groups.tolist(), strict=True):
        answers = {pairs.documents.index(p) for q, p in rows if q == query}
        order = np.argsort(-corpus.scores(query), kind="stable").tolist()
        best = [document for document in order if document not in answers][:6]
        assert set(members[1:]) <= set(best)
        chosen |= {best.index(member) for member in members[1:]}
    assert chosen == set(range(6))


def test_a_small_corpus_is_filled_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training_pairs, "NEGATIVES_FROM", 1)
    rows = [(f"question {i}", f"answer {i}") for i in range(5)]
    pairs = read_pairs([write(tmp_path / "a.jsonl", rows)], sample=5, hard=4, others=0)
    assert [sorted(members) for members in pairs.groups.tolist()] == [list(range(5))] * 5


@pytest.mark.parametrize(
    ("rows", "shape"),
    [
        ([("a", "x"), ("b", "y")], (2, 2)),
        ([("a", "x"), ("b", "x")], (2, 1)),  # one document: nothing to distinguish it from
        ([("a", "x"), ("a", "y")], (2, 1)),  # every document is relevant
        ([("a", "x"), ("a", "x")], (2, 1)),
        ([("a", "x"), ("a", "y"), ("b", "z")], (3, 2)),
        ([("of", "the"), ("", "-")], (2, 2)),  # nothing that BM25 matches
    ],
)
def test_tiny_corpora(tmp_path: Path, rows: Rows, shape: tuple[int, int]) -> None:
    pairs = read_pairs([write(tmp_path / "a.jsonl", rows)], sample=10)
    assert texts_of(pairs) == rows
    assert pairs.groups.shape == shape


def test_one_pair_is_too_few(tmp_path: Path) -> None:
    one = write(tmp_path / "a.jsonl", [("a", "x")])
    with pytest.raises(InputError, match="got 1 from 1 files"):
        read_pairs([one], sample=10)
    none = write(tmp_path / "b.jsonl", [])
    with pytest.raises(InputError, match="got 0 from 1 files"):
        read_pairs([none], sample=10)


def test_near_duplicates_of_evaluation_texts_go(tmp_path: Path) -> None:
    rows = [
        ("heart failure in adults", "Beta blockers lower mortality in chronic heart failure."),
        ("what is insulin", "It is a hormone of the pancreas that lowers glucose in blood."),
        ("fever in children", "Paracetamol is given by weight, and never with an empty stomach."),
        ("kidney stones", "Drink enough water on hot days."),
    ]
    held_out = [
        "What is insulin?",  # a query
        "Here: paracetamol is given by weight and never with an empty stomach!",  # around a passage
        "heart failure",  # too short to be a copy of more words
    ]
    path = write(tmp_path / "medical.jsonl.gz", rows)
    pairs = read_pairs([path], sample=4, apart_from=collect(held_out))
    assert texts_of(pairs) == [rows[0], rows[3]]
    assert pairs.documents == [rows[0][1], rows[3][1]]
    assert pairs.report == {"medical": {"rows": 4, "sampled": 4, "kept": 2}}
    with pytest.raises(InputError, match="expected two pairs or more, got 0"):
        read_pairs([path], sample=4, apart_from=collect(q for q, _ in rows))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "is not JSON"),
        ("[]", "lacks query and positive"),
        ('{"query": "x"}', "lacks positive"),
        ('{"query": 5, "positive": "x"}', "lacks query"),
        ('{"query": "x", "positive": null}', "lacks positive"),
    ],
)
def test_a_bad_row_is_named_by_file_and_line(tmp_path: Path, line: str, message: str) -> None:
    good = write(tmp_path / "good.jsonl", [("a", "x"), ("b", "y")])
    path = tmp_path / "bad.jsonl"
    path.write_text(f'{{"query": "x", "positive": "y"}}\n\n{line}\n')
    with pytest.raises(InputError, match=f"{path}:3 {message}"):
        read_pairs([good, path], sample=10)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nowhere\.jsonl is missing"):
        read_pairs([tmp_path / "nowhere.jsonl"], sample=10)


def test_files_of_one_name_are_both_reported(tmp_path: Path) -> None:
    files = [
        write(tmp_path / "one" / "pairs.jsonl", random_rows(6)),
        write(tmp_path / "two" / "pairs.jsonl", random_rows(4, seed=1)),
    ]
    pairs = read_pairs(files, sample=10)
    assert len(pairs.queries) == 10
    assert [counts["rows"] for counts in pairs.report.values()] == [6, 4]
