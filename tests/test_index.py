"""`Index`: smaller budgets and widths, documents in and out, and the model it was made with."""

from __future__ import annotations

import errno
import gc
import json
import sqlite3
import subprocess
import sys
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brute_force import ALPHAS, Corpus, QuickDisk, assert_found, corpora, index_of, row_errors
from builders import assert_same, random_encoded, with_units
from faulty import FaultyDisk, living
from hplus import Budget, BudgetError, HPlus, InputError, Terms, texts, workers
from hplus.errors import ModelMismatchError, StorageError
from hplus.index import Index
from hplus.search.searcher import Results
from hplus.storage.segment import FORMATS, Format, read
from hplus.types import Encoded, concatenate
from hplus.units.vectors import normalise

some = settings(deadline=None, max_examples=25)
TEXTS = {
    "a": "Metformin lowers HbA1c in type 2 diabetes with chronic kidney disease.",
    "b": "5 mg/kg of sodium, twice daily; the patient has heart failure.",
    "c": "糖尿病患者的治疗 and type 1 diabetes",
    "d": "Insulin therapy for acute heart failure and diabetes",
    "e": "",
    "f": "Insulin therapy for acute heart failure and diabetes",
}
ROWS = [{"id": id_, "text": text, "year": 2019 + i} for i, (id_, text) in enumerate(TEXTS.items())]
QUERY = "insulin therapy in type 2 diabetes"


def stored(index: Index) -> Encoded:
    """What the only segment holds."""
    (part,) = index.engine.snapshot.parts
    return read(part.segment, np.arange(len(part.segment)))


def even(*lengths: int) -> Encoded:
    """Documents whose units all weigh one."""
    encoded = random_encoded(np.random.default_rng(0), lengths)
    weights = np.ones(sum(lengths), np.float32)
    sums = np.array(lengths, np.float32)
    coverage = replace(encoded.coverage, importance=sums, kept=sums)
    return replace(with_units(encoded, weights=weights), coverage=coverage)


def numbers(index: Index) -> dict[str, int]:
    """The number that each document keeps for life."""
    rows = living(index.engine.snapshot)
    return {row.id: row.number for row in rows}


def assert_close(left: Results, right: Results, leeway: float) -> None:
    """The same documents; in the same order wherever scores differ by more than rounding."""
    assert len(left) == len(right)
    scores = {hit.id: hit.score for hit in right}
    assert {hit.id for hit in left} == set(scores)
    for hit in left:
        assert hit.score == pytest.approx(scores[hit.id], abs=leeway, rel=1e-6)
    for one, other in zip(left, right, strict=True):
        assert one.score == pytest.approx(other.score, abs=leeway, rel=1e-6)


# Budgets and widths


@some
@given(st.data(), corpora(formats=["f32"]))
def test_any_smaller_budget_and_width_equals_an_index_made_so(
    data: st.DataObject, corpus: Corpus
) -> None:
    """Under drop: at search, by compaction, and at creation."""
    budget = data.draw(st.integers(1, 8))
    width = data.draw(st.integers(1, corpus.documents.units.width))
    global_width = data.draw(st.integers(1, corpus.documents.global_.shape[1]))
    with (
        index_of(corpus) as whole,
        index_of(corpus, budget=budget, width=width) as made,
        index_of(corpus, budget=budget, width=width, global_width=global_width) as thin,
    ):
        asked = whole.search(corpus.query, k=20, budget=budget, width=width, explain=True)
        fresh = made.search(corpus.query, k=20, explain=True)
        assert_found(asked, corpus, ALPHAS, k=20, budget=budget, width=width)
        assert_close(asked, fresh, 1e-5)
        lost = {hit.id: hit.explanation.dropped for hit in asked}
        assert lost == {hit.id: hit.explanation.dropped for hit in fresh}
        whole.compact(budget=budget, width=width)
        assert whole.settings == made.settings
        assert_close(whole.search(corpus.query, k=20), fresh, 1e-5)
        whole.compact(global_width=global_width)
        assert whole.settings == thin.settings
        thin.compact()
        assert_same(stored(whole), stored(thin), rtol=1e-5)


@some
@given(st.data(), corpora(merged=False), st.sampled_from(["merge", "ward"]))
def test_a_smaller_budget_of_merged_units(data: st.DataObject, corpus: Corpus, policy: Any) -> None:
    """A search takes the weightiest groups; compacting merges them further."""
    large, small = data.draw(st.integers(2, 6)), data.draw(st.integers(1, 4))
    small = min(large, small)
    corpus = replace(corpus, copies=list(range(len(corpus))))  # see the test of ties below
    merged = corpus.documents.at(budget=Budget(large, policy=policy))
    with index_of(corpus, budget=Budget(large, policy=policy)) as index:
        asked = index.search(corpus.query, k=20, budget=small)
        assert_found(asked, replace(corpus, documents=merged), ALPHAS, k=20, budget=small)
        index.compact()
        before = stored(index)
        index.compact(budget=small)
        assert index.settings.budget == Budget(small, policy=policy)
        after = stored(index)
    whole = with_units(before, vectors=normalise(before.units.vectors))
    expected = whole.at(budget=Budget(small, policy=policy))
    groups = expected.units
    off = row_errors(groups.vectors, corpus.format, groups.width, corpus.mean)
    exact = with_units(expected, vectors=after.units.vectors)
    assert_same(after, replace(exact, global_=after.global_), rtol=1e-6)  # all but the vectors
    assert (np.linalg.norm(after.units.vectors - groups.vectors, axis=1) <= off + 1e-3).all()
    np.testing.assert_array_equal(after.global_, before.global_)


def test_equal_documents_tie_whatever_was_merged_beside_them(tmp_path: Path) -> None:
    """A document that fits its budget is stored the same alone and beside one that does not."""
    random = np.random.default_rng(0)
    one, long, query = (random_encoded(random, [n], 24) for n in (3, 9, 4))
    options: dict[str, Any] = {"width": 24, "global_width": 24, "fingerprint": "x"}
    with Index.create(
        tmp_path / "index", budget=Budget(4, policy="merge"), format="f32", **options
    ) as index:
        index.add_encoded(["b", "long"], concatenate([one, long]))
        index.add_encoded(["a"], one)
        found = {hit.id: hit.score for hit in index.search(query, view="phrase")}
        assert found["a"] == found["b"]


@pytest.mark.parametrize("format", FORMATS)
def test_compacting_loses_nothing_but_what_was_deleted(format: Format) -> None:
    corpus = Corpus(
        query=random_encoded(np.random.default_rng(0), [4]),
        documents=random_encoded(np.random.default_rng(1), [3, 0, 5, 1, 4, 2]),
        ids=list("abcdef"),
        copies=list(range(6)),
        cuts=[1, 3, 4],
        format=format,
    )
    with index_of(corpus) as index:
        index.delete(["b", "d"])
        before, known = index.search(corpus.query, explain=True), numbers(index)
        parts = [read(p.segment, np.flatnonzero(p.alive)) for p in index.engine.snapshot.parts]
        index.compact()
        assert index.search(corpus.query, explain=True).hits == before.hits  # bit for bit
        assert numbers(index) == known
        assert len(index.engine.snapshot.parts) == 1
        assert_same(stored(index)[1], parts[1])
        files = list((index.path / "segments").iterdir())
        assert len(files) == 1
        index.compact()  # nothing to do: nothing is written
        assert list((index.path / "segments").iterdir()) == files
        index.add_encoded(["b"], corpus.documents[1])
        assert numbers(index)["b"] > max(known.values())


def test_more_than_is_stored_cannot_be_asked_of_compact(tmp_path: Path) -> None:
    options: dict[str, Any] = {"width": 8, "global_width": 6, "fingerprint": "x"}
    with Index.create(tmp_path / "count", budget=4, **options) as index:
        for smaller, says in (
            ({"budget": 5}, "drop to 5 units requested, but .* keeps drop to 4 units"),
            ({"budget": Budget()}, "all units requested"),
            ({"budget": Budget(share=0.5)}, "50% of importance requested"),
            ({"width": 9}, "width 9 requested, but .* keeps 8"),
            ({"global_width": 7}, "global_width 7 requested, but .* keeps 6"),
            ({"budget": 0}, "expected budget to be a whole number of 1 or more, got 0"),
            ({"width": 0}, "expected width to be a whole number of 1 or more, got 0"),
        ):
            with pytest.raises(InputError, match=says):
                index.compact(**smaller)  # type: ignore[arg-type]
        assert index.settings.budget == Budget(4)
    with Index.create(tmp_path / "share", budget=Budget(share=0.5), **options) as index:
        for budget in (Budget(), Budget(8), Budget(share=0.6)):
            with pytest.raises(BudgetError, match="keeps drop to 50% of importance"):
                index.compact(budget=budget)
        index.compact(budget=3)
        assert index.settings.budget == Budget(3, share=0.5)


@pytest.mark.parametrize("policy", ["drop", "merge"])
def test_a_share_of_importance_is_taken_once(tmp_path: Path, policy: Any) -> None:
    budget = Budget(share=0.5, policy=policy)
    options: dict[str, Any] = {"width": 8, "global_width": 8, "fingerprint": "x"}
    with Index.create(tmp_path / "index", budget=budget, format="f32", **options) as index:
        index.add_encoded(["a", "b"], even(12, 20).at(budget=budget))
        assert np.diff(stored(index).units.offsets).tolist() == [6, 10]
        index.compact(width=4)
        assert np.diff(stored(index).units.offsets).tolist() == [6, 10]


@pytest.mark.parametrize("policy", ["drop", "merge"])
def test_a_smaller_share_is_what_is_left_after_compacting_to_it(
    tmp_path: Path, policy: Any
) -> None:
    budget, smaller = Budget(share=0.5, policy=policy), Budget(share=0.25, policy=policy)
    options: dict[str, Any] = {"width": 8, "global_width": 8, "fingerprint": "x"}
    with Index.create(tmp_path / "index", budget=budget, format="f32", **options) as index:
        index.add_encoded(["a", "b"], even(12, 20))
        index.compact(budget=smaller)
        left = np.diff(stored(index).units.offsets)
        if policy == "drop":  # what an encoding at that share would have kept
            expected = even(12, 20).at(budget=smaller)
            assert left.tolist() == np.diff(expected.units.offsets).tolist() == [3, 5]
        assert (left < [6, 10]).all()


def test_a_share_is_taken_of_each_document_whatever_stands_beside_it(tmp_path: Path) -> None:
    whole, cut = even(12), even(20).at(budget=15)
    options: dict[str, Any] = {"width": 8, "global_width": 8, "fingerprint": "x"}
    with Index.create(tmp_path / "index", budget=Budget(share=0.5), **options) as index:
        index.add_encoded(["alone"], whole)
        index.add_encoded(["beside", "cut"], concatenate([whole, cut]))
        index.compact()
        assert np.diff(stored(index).units.offsets).tolist()[:2] == [6, 6]


# Making and opening


def test_create_in_a_folder_that_is_not_empty(tmp_path: Path) -> None:
    options: dict[str, Any] = {"width": 8, "global_width": 8, "fingerprint": "x"}
    (tmp_path / "file").write_text("mine")
    with pytest.raises(InputError, match="is not empty; open the index there, or choose a new"):
        Index.create(tmp_path, **options)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    (tmp_path / "empty").mkdir()
    Index.create(tmp_path / "empty", **options).close()
    with pytest.raises(InputError, match="is not empty"):
        Index.create(tmp_path / "empty", **options)
    Index.create(tmp_path / "new" / "deep", **options).close()


def test_opening_something_that_is_not_an_index(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing"):
        with pytest.raises(InputError, match="is not an index; make one with `hplus index"):
            Index.open(path)


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({}, InputError, "without a model give width, global_width and fingerprint"),
        ({"width": 8, "global_width": 8}, InputError, "fingerprint"),
        (
            {"width": 0, "global_width": 8, "fingerprint": "x"},
            InputError,
            "expected width to be a whole number of 1",
        ),
        ({"width": 8, "global_width": 8, "fingerprint": "x", "format": "f8"}, InputError, "f8"),
        ({"width": 8, "global_width": 8, "fingerprint": "x", "budget": 0}, BudgetError, "got 0"),
        ({"width": 8, "global_width": 8, "fingerprint": "x", "fusion": {}}, InputError, "no view"),
    ],
)
def test_settings_that_cannot_be(
    tmp_path: Path, options: dict[str, Any], error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        Index.create(tmp_path / "index", **options)
    assert not (tmp_path / "index").exists()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"width": 0}, "expected width to be a whole number of 1 or more, got 0"),
        ({"width": 33}, "width 33 requested, but the model gives 32"),
        ({"global_width": 0}, "expected global_width to be a whole number of 1 or more, got 0"),
        ({"global_width": 21}, "global_width 21 requested, but the model gives 20"),
        ({"fusion": {}}, "no view"),
    ],
)
def test_settings_that_the_model_cannot_serve(
    tmp_path: Path, tiny_folder: Path, options: dict[str, Any], says: str
) -> None:
    model = HPlus(tiny_folder, global_width=20)
    with pytest.raises(InputError, match=says):
        Index.create(tmp_path / "index", model, **options)


def test_settings_come_from_the_model(tmp_path: Path, tiny_folder: Path) -> None:
    model = HPlus(
        tiny_folder,
        phrase_width=24,
        global_width=20,
        document_budget=Budget(9, share=0.9, policy="merge"),
        fusion={"phrase": 2.0},
    )
    with Index.create(tmp_path / "given", model) as index:
        found = index.settings
        assert (found.width, found.global_width, found.format) == (24, 20, "int8")
        assert found.budget == Budget(9, share=0.9, policy="merge")
        assert found.fusion == {"phrase": 2.0}
        assert found.fingerprint == model.fingerprint
    with Index.create(tmp_path / "asked", model, budget=4, width=8, global_width=6) as index:
        assert index.settings.budget == Budget(4, policy="merge")
        assert (index.settings.width, index.settings.global_width) == (8, 6)
        index.add(ROWS)
        assert {hit.id for hit in index.search(QUERY)} == set(TEXTS)
    with Index.open(tmp_path / "asked", model=model) as index:
        assert index.settings.budget == Budget(4, policy="merge")


def test_an_encoding_that_does_not_fit(tmp_path: Path) -> None:
    encoded = random_encoded(np.random.default_rng(0), [2, 1])
    with Index.create(tmp_path / "index", width=8, global_width=9, fingerprint="x") as index:
        with pytest.raises(InputError, match="global vectors have width 8, the index needs 9"):
            index.add_encoded(["a", "b"], encoded)
        with pytest.raises(InputError, match="1 ids, but encoded has 2 entries"):
            index.add_encoded(["a"], encoded)
        with pytest.raises(InputError, match="2 ids, but texts has 1 entries"):
            index.add_encoded(["a", "b"], encoded, texts=["one"])
        with pytest.raises(InputError, match="2 ids, but metadata has 3 entries"):
            index.add_encoded(["a", "b"], encoded, metadata=[{}] * 3)
    with (
        Index.create(tmp_path / "wide", width=9, global_width=8, fingerprint="x") as index,
        pytest.raises(InputError, match="width 9 requested, but the encoding keeps 8"),
    ):
        index.add_encoded(["a", "b"], encoded)
    with Index.create(tmp_path / "right", width=8, global_width=8, fingerprint="x") as index:
        with pytest.raises(InputError, match="'a' exists already"):
            index.add_encoded(["a", "a"], encoded)
        index.add_encoded(["a", "b"], encoded)
        with pytest.raises(InputError, match="'b' exists already"):
            index.add_encoded(["c", "b"], encoded)
        assert (len(index), "a" in index, "c" in index) == (2, True, False)
        assert index.add_encoded([], encoded[:0]).added == 0


def test_the_report_says_what_was_kept(tmp_path: Path) -> None:
    encoded = random_encoded(np.random.default_rng(0), [5, 4])
    options: dict[str, Any] = {"width": 8, "global_width": 8, "fingerprint": "x", "budget": 2}
    with Index.create(tmp_path / "index", **options) as index:
        report = index.add_encoded(["a", "b"], encoded)
        assert report.kept == pytest.approx(index.stats().kept)


# Documents from a model


@pytest.fixture
def index(tmp_path: Path, tiny: HPlus) -> Iterator[Index]:
    """An empty f32 index of the tiny model."""
    with Index.create(tmp_path / "index", tiny, format="f32", disk=QuickDisk()) as made:
        yield made


@pytest.fixture
def encoded_texts(tiny: HPlus, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every text that the model encodes from now on."""
    found: list[str] = []
    encode_step = tiny.encode_step

    def counting(step: list[str], *options: Any, **more: Any) -> Encoded:
        found.extend(step)
        return encode_step(step, *options, **more)

    monkeypatch.setattr(tiny, "encode_step", counting)
    return found


def test_documents_of_a_model_score_as_the_model_scores_them(index: Index, tiny: HPlus) -> None:
    report = index.add(ROWS)
    assert (report.added, report.updated, report.unchanged) == (6, 0, 0)
    texts = list(TEXTS.values())
    expected = tiny.score(QUERY, texts, explain=True)
    ids = sorted(TEXTS, key=lambda id_: (-expected.fused[list(TEXTS).index(id_)], id_))
    results = index.search(QUERY, explain=True)
    assert results.query == QUERY
    assert [hit.id for hit in results] == ids  # d before f: they are equal
    for hit in results:
        i = list(TEXTS).index(hit.id)
        assert hit.text == texts[i]
        assert hit.metadata == {"year": 2019 + i}
        # Lexical weights are float16.
        assert hit.score == pytest.approx(expected.fused[i], abs=1e-3)
        assert hit.views["phrase"] == pytest.approx(expected.phrase[i], abs=1e-5)
        wanted = expected.explanations[i]
        assert [m.document_text for m in hit.explanation.phrase] == [
            m.document_text for m in wanted.phrase
        ]
        assert [m.text for m in hit.explanation.phrase] == [m.text for m in wanted.phrase]
        assert [m.token for m in hit.explanation.lexical] == [m.token for m in wanted.lexical]
    coverage = tiny.encode_document(texts).coverage
    assert report.tokens == coverage.tokens.sum()
    assert report.importance == pytest.approx(coverage.importance.sum())


def test_a_query_is_read_as_a_query(tmp_path: Path, tiny_folder: Path) -> None:
    """With the prompt of its side, and under the query's own budget."""
    model = HPlus(tiny_folder, query_prompt="insulin: ", document_budget=Budget(1))
    with Index.create(tmp_path / "index", model) as index:
        index.add(ROWS)
        found = list(index.search(QUERY))
        assert found == list(index.search(model.encode_query(QUERY)))
        assert found != list(index.search(model.encode_document([QUERY])))
        assert found == list(index.rerank(QUERY, list(TEXTS)))


def test_a_file_an_iterable_and_a_stream_are_the_same(
    index: Index, tiny: HPlus, tmp_path: Path
) -> None:
    file = tmp_path / "corpus.jsonl"
    file.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in ROWS), "utf-8")
    index.add(ROWS)
    expected = index.search(QUERY, k=9).hits
    for i, source in enumerate((file, str(file), iter(ROWS), (dict(row) for row in ROWS))):
        with Index.create(tmp_path / str(i), tiny, format="f32", disk=QuickDisk()) as other:
            assert other.add(source).added == 6
            assert other.search(QUERY, k=9).hits == expected


def test_what_is_there_unchanged_is_not_encoded_again(
    index: Index, encoded_texts: list[str]
) -> None:
    index.add(ROWS[:4])
    assert len(encoded_texts) == 4
    generation, before = index.generation, index.search(QUERY).hits
    encoded_texts.clear()
    for change in (index.add, index.update):
        report = change(ROWS[:4])
        assert (report.added, report.updated, report.unchanged) == (0, 0, 4)
        assert report.tokens == 0
    assert encoded_texts == []
    assert index.generation == generation
    assert index.search(QUERY).hits == before
    encoded_texts.clear()
    report = index.add(ROWS)
    assert (report.added, report.unchanged) == (2, 4)
    assert encoded_texts == [row["text"] for row in ROWS[4:]]


def test_other_metadata_cost_no_encoding(index: Index, encoded_texts: list[str]) -> None:
    index.add(ROWS)
    known = numbers(index)
    encoded_texts.clear()
    changed = [ROWS[0] | {"year": 1900, "tags": ["x"]}, ROWS[1]]
    with pytest.raises(InputError, match="'a' with other metadata; use update"):
        index.add(changed)
    report = index.update(changed)
    assert (report.metadata_changed, report.updated, report.unchanged) == (1, 0, 1)
    assert encoded_texts == []
    assert numbers(index) == known
    assert [hit.id for hit in index.search(QUERY, where="year < 2000")] == ["a"]
    (hit,) = index.search(QUERY, where='tags = "x"')
    assert hit.metadata == {"year": 1900, "tags": ["x"]}
    index.update([{"id": "a", "text": TEXTS["a"]}])
    assert list(index.search(QUERY, where="year < 2000")) == []


def test_another_text_under_a_known_id(index: Index, encoded_texts: list[str]) -> None:
    index.add(ROWS)
    encoded_texts.clear()
    new = {"id": "b", "text": "type 2 diabetes and insulin therapy", "year": 2020}
    with pytest.raises(InputError, match="another document 'b'; use update"):
        index.add([new])
    assert encoded_texts == []
    report = index.update([ROWS[0], new, {"id": "new", "text": "cancer"}])
    assert (report.added, report.updated, report.unchanged) == (1, 1, 1)
    assert encoded_texts == [new["text"], "cancer"]
    assert len(index) == 7
    found = {hit.id: hit.text for hit in index.search(QUERY, k=20)}
    assert found["b"] == new["text"]
    assert len(found) == 7
    index.compact()
    assert {hit.id: hit.text for hit in index.search(QUERY, k=20)} == found


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_an_id_twice_in_one_source(
    index: Index, monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    """Wherever the steps of the stream end; whether or not the index has the document already."""
    monkeypatch.setattr(texts, "STEP_TEXTS", steps)
    twice = [ROWS[0], ROWS[1], ROWS[0] | {"text": "heart failure"}, ROWS[2], ROWS[0]]
    for change in (index.add, index.update):
        with pytest.raises(InputError, match=r"documents\[2\]: the id 'a' repeats"):
            change(twice)
        assert {hit.id for hit in index.search(QUERY)} == {"a", "b"}
    told: list[str] = []
    report = index.update(twice, on_error="skip", report=told.append)
    assert (report.added, report.updated, report.unchanged, report.skipped) == (1, 0, 2, 2)
    assert [message.partition(":")[0] for message in told] == ["documents[2]", "documents[4]"]
    found = {hit.id: hit.text for hit in index.search(QUERY)}
    assert found == {id_: TEXTS[id_] for id_ in ("a", "b", "c")}


def test_an_id_may_come_again_in_the_next_call(index: Index) -> None:
    for year in (1, 2):
        assert index.update([ROWS[0] | {"year": year}]).skipped == 0
    assert index.search(QUERY)[0].metadata["year"] == 2


def test_rows_without_ids_are_known_by_their_text(index: Index, encoded_texts: list[str]) -> None:
    index.update(["heart failure", "type 2 diabetes"])
    encoded_texts.clear()
    report = index.update(["insulin", "heart failure", "type 2 diabetes", "heart failure"])
    assert (report.added, report.updated, report.unchanged) == (2, 0, 2)
    assert encoded_texts == ["insulin", "heart failure"]
    assert sorted(hit.text for hit in index.search(QUERY, k=9)).count("heart failure") == 2


def test_sync_deletes_what_the_source_does_not_have(index: Index) -> None:
    index.add(ROWS)
    asked: list[int] = []

    def answer(count: int) -> bool:
        asked.append(count)
        return False

    report = index.update(ROWS[2:], sync=answer)
    assert (asked, report.absent, report.deleted, len(index)) == ([2], 2, 0, 6)
    # Rows that could not be read may be those of documents.
    report = index.update([*ROWS[2:], 5], sync=True, on_error="skip", report=lambda _: None)
    assert (report.absent, report.deleted, len(index)) == (2, 0, 6)
    with pytest.raises(InputError):
        index.update([*ROWS[2:], 5], sync=True)
    assert len(index) == 6
    report = index.update([*ROWS[2:], {"id": "new", "text": "x"}], sync=True)
    assert (report.added, report.absent, report.deleted) == (1, 2, 2)
    assert {hit.id for hit in index.search(QUERY, k=9)} == {"c", "d", "e", "f", "new"}
    assert index.update([*ROWS[2:], {"id": "new", "text": "x"}], sync=answer).absent == 0
    assert asked == [2]
    assert index.verify().problems == []


def test_a_failed_deletion_changes_nothing(tmp_path: Path, tiny: HPlus) -> None:
    disk = FaultyDisk(error=lambda _: OSError(errno.ENOSPC, "full"))
    with Index.create(tmp_path / "index", tiny, disk=disk) as made:
        made.add(ROWS)

        def agreed(_: int) -> bool:
            disk.stop = 0
            disk.arm()
            return True

        with pytest.raises(StorageError):
            made.update(ROWS[1:], sync=agreed)
    with Index.open(tmp_path / "index") as opened:
        assert len(opened) == 6


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError, OSError])
def test_an_interrupted_add_resumes(
    index: Index,
    encoded_texts: list[str],
    monkeypatch: pytest.MonkeyPatch,
    error: type[BaseException],
) -> None:
    monkeypatch.setattr(texts, "STEP_TEXTS", 2)

    def until(stop: int) -> Iterator[dict[str, Any]]:
        yield from ROWS[:stop]
        raise error

    with pytest.raises(error):
        index.add(until(5))
    first = len(index)
    assert first >= 4  # all whole steps
    assert sorted(encoded_texts) == sorted(row["text"] for row in ROWS[:first])
    encoded_texts.clear()
    report = index.add(ROWS)
    assert (report.added, report.unchanged) == (6 - first, first)
    assert sorted(encoded_texts) == sorted(row["text"] for row in ROWS[first:])
    assert {hit.id for hit in index.search(QUERY)} == set(TEXTS)


def test_an_encoder_that_fails_loses_only_its_own_step(
    index: Index, tiny: HPlus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(texts, "STEP_TEXTS", 2)
    encode_step = tiny.encode_step

    def failing(texts: list[str], *options: Any) -> Encoded:
        if "糖" in "".join(texts):
            raise MemoryError
        return encode_step(texts, *options)

    with monkeypatch.context() as patch:
        patch.setattr(tiny, "encode_step", failing)
        with pytest.raises(MemoryError):
            index.add(ROWS)
    assert {hit.id for hit in index.search(QUERY)} == {"a", "b"}
    assert index.add(ROWS).added == 4


def test_workers_serve_add_and_update(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    encode_steps = workers.encode_steps

    def noted(*arguments: Any, workers: int, **options: Any) -> Any:
        asked.append(workers)
        return encode_steps(*arguments, workers=1, **options)

    monkeypatch.setattr(workers, "encode_steps", noted)
    index.add(ROWS[:2], workers=2)
    index.update(ROWS, workers=3)
    index.update([ROWS[0] | {"text": "other"}])
    assert asked == [2, 3, 1]


def test_bad_rows(index: Index, tmp_path: Path) -> None:
    file = tmp_path / "corpus.jsonl"
    lines = [json.dumps(ROWS[0]), "{", json.dumps({"id": "x"}), json.dumps(ROWS[1])]
    file.write_text("\n".join(lines))
    with pytest.raises(InputError, match=r"corpus\.jsonl:2: not JSON"):
        index.add(file)
    assert "a" in index  # what precedes the bad line is kept
    told: list[str] = []
    report = index.add(file, on_error="skip", report=told.append)
    assert (report.added, report.unchanged) == (1, 1)
    assert [message.partition(": ")[0] for message in told] == [f"{file}:2", f"{file}:3"]
    assert 'no "text"' in told[1]
    report = index.add([5, ROWS[2], {"id": 1.5, "text": "x"}], on_error="skip", report=told.append)
    assert report.added == 1
    assert [message.partition(":")[0] for message in told[2:]] == ["documents[0]", "documents[2]"]


def test_deleting(index: Index) -> None:
    index.add(ROWS)
    assert index.delete("a") == 1
    assert index.delete("a") == 0
    assert index.delete(["b", "b", "nobody"]) == 1
    assert (len(index), "a" in index, "c" in index) == (4, False, True)
    for where in (None, "year > 0"):
        assert {hit.id for hit in index.search(QUERY, where=where)} == set("cdef")
    index.add(ROWS)
    assert {hit.id for hit in index.search(QUERY)} == set(TEXTS)


def test_a_reader_sees_its_generation_until_it_refreshes(index: Index, tiny: HPlus) -> None:
    index.add(ROWS[:3])
    with Index.open(index.path, model=tiny) as reader:
        before = reader.search(QUERY, explain=True)
        generation = reader.generation
        index.add(ROWS[3:])
        index.delete("a")
        index.compact(budget=1, width=8)
        assert (len(reader), "a" in reader, "d" in reader) == (3, True, False)
        assert reader.search(QUERY, explain=True) == before
        assert reader.generation == generation < index.generation
        reader.refresh()
        assert reader.search(QUERY, explain=True) == index.search(QUERY, explain=True)
        assert reader.settings == index.settings


def test_searches_let_go_of_their_generation(index: Index) -> None:
    """Else what a compaction replaces stays mapped, and on the disk, until a collection."""
    index.add(ROWS)
    gc.collect()
    gc.disable()
    try:
        before = weakref.ref(index.engine)
        index.search(QUERY, explain=True)
        index.search([QUERY, "heart failure"], view="phrase")
        index.more_like("a")
        index.delete("b")
        assert before() is None
    finally:
        gc.enable()


def test_a_generation_lives_as_long_as_somebody_reads_it(index: Index) -> None:
    index.add(ROWS)
    snapshot = index.engine.snapshot
    connection = snapshot.connection
    index.delete("a")
    assert index.engine.snapshot is not snapshot
    assert sorted(snapshot.ids(np.arange(6))) == sorted(TEXTS)
    del snapshot
    with pytest.raises(sqlite3.ProgrammingError):
        connection.execute("SELECT 1")


def test_threads_search_while_another_one_changes_the_index(index: Index, tiny: HPlus) -> None:
    index.add(ROWS)
    query = tiny.encode_query(QUERY)

    def search(_: int) -> set[str]:
        results = index.search(query)
        return {hit.id for hit in results} - {"new"}

    with ThreadPoolExecutor(4) as threads:
        found = threads.map(search, range(40))
        for _ in range(3):
            index.add([{"id": "new", "text": "new"}])
            index.compact()
            index.delete("new")
        assert all(ids == set(TEXTS) for ids in found)


# The model


def test_another_model_is_refused_with_what_to_do(
    index: Index, tiny: HPlus, tiny_folder: Path
) -> None:
    index.add(ROWS)
    other = HPlus(tiny_folder, units="words")
    says = (
        rf"index was made with model {tiny.fingerprint[:12]} \({tiny_folder.name}\), this is "
        rf"{other.fingerprint[:12]}; give the model it was made with, or index its documents again"
    )
    with pytest.raises(ModelMismatchError, match=says):
        Index.open(index.path, model=other)
    # The bare encoder lacks the idf that was fitted afterwards.
    with pytest.raises(ModelMismatchError, match=f"made with model {tiny.fingerprint[:12]}"):
        Index.open(index.path, model=tiny_folder)


def test_an_index_knows_its_model_by_name_wherever_both_are_moved(
    tmp_path: Path, tiny: HPlus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No absolute path is recorded: the model is found beside the index, or where the user says."""
    home = tmp_path / "home"
    tiny.save(home / "mine")
    with Index.create(home / "index", HPlus(home / "mine")) as made:
        made.add(ROWS)
        before = made.search(QUERY)
        assert made.settings.model == "mine"
    assert str(tmp_path).encode() not in (home / "index" / "catalogue.sqlite").read_bytes()
    elsewhere = tmp_path / "elsewhere"
    home.rename(elsewhere)
    with Index.open(elsewhere / "index") as opened:
        assert opened.search(QUERY) == before
    (elsewhere / "mine").rename(tmp_path / "other")
    with Index.open(elsewhere / "index") as opened:
        says = "made with the model 'mine', which is not here .* as model= or --model"
        with pytest.raises(ModelMismatchError, match=says):
            opened.search(QUERY)
    with Index.open(elsewhere / "index", model=tmp_path / "other") as opened:
        assert opened.search(QUERY) == before
    (tmp_path / "work").mkdir()
    (tmp_path / "other").rename(tmp_path / "work" / "mine")
    monkeypatch.chdir(tmp_path / "work")
    with Index.open(elsewhere / "index") as opened:
        assert opened.search(QUERY) == before
    (tmp_path / "work" / "mine").rename(elsewhere / "mine")
    HPlus(elsewhere / "mine", units="words").save(tmp_path / "work" / "mine")
    with Index.open(elsewhere / "index") as opened:  # the folder beside the index comes first
        assert opened.search(QUERY) == before


def test_a_saved_model_with_terms_is_loaded_again(tmp_path: Path, tiny: HPlus) -> None:
    tiny.save(tmp_path / "model")
    model = HPlus(tmp_path / "model", terms=Terms(["type 2 diabetes", "heart failure"]))
    with Index.create(tmp_path / "index", model) as made:
        made.add(ROWS)
        expected = made.search("heart failure", explain=True)
    assert expected[0].explanation.phrase[0].text == "heart failure"
    with Index.open(tmp_path / "index") as opened:
        assert opened.search("heart failure", explain=True) == expected
        assert opened.update([ROWS[0]]).unchanged == 1


def test_an_index_of_encodings_has_no_model(tmp_path: Path, tiny: HPlus) -> None:
    encoded = tiny.encode_document(list(TEXTS.values()))
    with Index.create(
        tmp_path / "index", width=32, global_width=32, fingerprint=tiny.fingerprint
    ) as made:
        made.add_encoded(list(TEXTS), encoded, texts=list(TEXTS.values()))
        for ask in (lambda: made.search("x"), lambda: made.add(ROWS), lambda: made.update(ROWS)):
            with pytest.raises(InputError, match="was made from encodings; give the model"):
                ask()
    with Index.open(tmp_path / "index", model=tiny) as opened:  # it is the right one
        assert opened.search("heart failure")[0].id in "bdf"


def test_searching_does_not_import_torch(tmp_path: Path, mini: HPlus) -> None:
    """In a separate process: open, search, explain, add with the built-in model."""
    with Index.create(tmp_path / "index", mini) as made:
        made.add(ROWS[:2])
    program = f"""
import sys
from hplus.index import Index
with Index.open({str(tmp_path / "index")!r}) as index:
    hits = index.search("type 2 diabetes", explain=True)
    index.add([{{"id": "new", "text": "insulin therapy"}}])
    index.rerank("insulin", ["new"])
print(hits[0].id, sorted({{"torch", "transformers", "scipy"}} & set(sys.modules)))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    assert done.stdout.split() == ["a", "[]"]


# Small segments are merged


def grow(index: Index, count: int) -> None:
    encoded = random_encoded(np.random.default_rng(0), [2] * count)
    for i in range(count):
        index.add_encoded([f"d{i:03d}"], encoded[i])


def test_many_small_additions_stay_few_segments(tmp_path: Path) -> None:
    options: dict[str, Any] = {"width": 8, "global_width": 8, "fingerprint": "x"}
    with Index.create(tmp_path / "index", disk=QuickDisk(), **options) as index:
        grow(index, 70)
        assert len(index) == 70
        assert len(index.engine.snapshot.parts) <= 14
        assert list(numbers(index).values()) == list(range(1, 71))
        assert len(list((index.path / "segments").iterdir())) == len(index.engine.snapshot.parts)
