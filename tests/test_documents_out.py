"""Documents out of an index: by id, one after another, exported and indexed again, by filter."""

from __future__ import annotations

import gzip
import json
import pickle
import sys
import tempfile
import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brute_force import QuickDisk
from builders import random_encoded, text_of_words
from hplus import (
    Document,
    FilterError,
    HPlus,
    Index,
    InputError,
    MissingDocumentError,
    MissingExtraError,
)
from hplus.sources.read import read
from hplus.storage import export as exporting
from hplus.types import Encoded

ROWS = [
    Document("a", "Metformin treats type 2 diabetes.", {"year": 2021, "title": "Metformin"}),
    Document("b", "Heart failure.", {"year": 2015, "tags": ["x", {"deep": None}]}),
    Document("c", "", {}),
    Document(
        "d", "糖尿病 \u202e and \x1b[31m red", {"Title": "T", "text": "t", "metadata": {"k": 1}}
    ),
]


@pytest.fixture
def index(tmp_path: Path, tiny: HPlus) -> Iterator[Index]:
    with Index.create(tmp_path / "index", tiny, disk=QuickDisk()) as made:
        made.add(ROWS)
        yield made


def of_encodings(path: Path, encoded: Encoded, ids: list[str], text: str = "") -> Index:
    made = Index.create(
        path,
        width=encoded.units.width,
        global_width=encoded.global_.shape[1],
        fingerprint="f",
        format="f32",
        disk=QuickDisk(),
    )
    made.add_encoded(ids, encoded, texts=[text] * len(ids))
    return made


# By id


def test_a_document_by_its_id(index: Index) -> None:
    for row in ROWS:
        assert index[row.id] == row
        assert index.get(row.id) == row
    assert index.get("z") is None
    assert index.get(["c", "z", "a", "c"]) == [ROWS[2], None, ROWS[0], ROWS[2]]
    assert index.get([]) == []


def test_an_id_that_is_not_there(index: Index) -> None:
    with pytest.raises(KeyError) as caught:
        index["z"]
    assert isinstance(caught.value, MissingDocumentError)
    assert str(caught.value) == f"no document 'z' in the index at {index.path}"
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    with pytest.raises(MissingDocumentError, match="no document 'z' in the index"):
        index.rerank("heart", ["a", "z"])
    index.delete("a")
    assert "a" not in index
    with pytest.raises(KeyError):
        index["a"]


@pytest.mark.parametrize("wrong", [5, None, b"a", slice(2), ("a",)])
def test_what_is_no_id(index: Index, wrong: Any) -> None:
    with pytest.raises(InputError, match="expected the id of a document"):
        index[wrong]


@pytest.mark.parametrize("wrong", [5, None, b"a", ["a", 5], {"a": 1}])
def test_what_are_no_ids(index: Index, wrong: Any) -> None:
    with pytest.raises(InputError, match="expected"):
        index.get(wrong)


# One after another


def test_all_documents_in_the_order_they_were_added(
    index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    for page in (1, 2, 3, 100):
        monkeypatch.setattr("hplus.index.PAGE", page)
        assert list(index) == ROWS
    index.delete("b")
    index.update([Document("a", "Other text."), Document("e", "New.")])
    expected = [ROWS[2], ROWS[3], Document("a", "Other text."), Document("e", "New.")]
    assert list(index) == expected
    index.compact()
    assert list(index) == expected


def test_changes_meanwhile_are_not_seen(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hplus.index.PAGE", 1)
    documents = iter(index)
    assert next(documents) == ROWS[0]
    index.delete(["b", "d"])
    index.add([Document("e", "New.")])
    index.compact()
    assert list(documents) == ROWS[1:]
    assert [document.id for document in index] == ["a", "c", "e"]


def test_an_index_is_a_source(index: Index, tiny: HPlus, tmp_path: Path) -> None:
    with Index.create(tmp_path / "other", tiny) as other:
        assert other.add(index).added == 4
        assert list(other) == list(index)
        assert other.add(index).unchanged == 4


def test_memory_does_not_grow_with_the_index(tmp_path: Path) -> None:
    count = 3000
    encoded = random_encoded(np.random.default_rng(0), [1] * count, 4)
    ids = [f"d{i}" for i in range(count)]
    with of_encodings(tmp_path / "index", encoded, ids, "x" * 5000) as index:
        tracemalloc.start()
        assert sum(1 for _ in index) == count
        lines: list[int] = []
        index.export(lambda line: lines.append(len(line)), vectors=True)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert len(lines) == count
    assert peak < 8 * 2**20  # the texts alone have 15 MB


# Exported


@pytest.mark.parametrize("name", ["out.jsonl", "out.jsonl.gz", "OUT.NDJSON", "out.parquet"])
@pytest.mark.parametrize("vectors", [False, True])
def test_what_is_exported_can_be_indexed_again(
    index: Index, tiny: HPlus, tmp_path: Path, name: str, vectors: bool
) -> None:
    assert index.export(tmp_path / name, vectors=vectors) == 4
    assert list(read(tmp_path / name)) == ROWS
    with Index.create(tmp_path / "again", tiny, disk=QuickDisk()) as again:
        again.add(tmp_path / name)
        assert list(again) == ROWS
        assert index.update(tmp_path / name).unchanged == 4
        for query in ("type 2", "heart"):
            assert [(hit.id, hit.score) for hit in again.search(query)] == [
                (hit.id, hit.score) for hit in index.search(query)
            ]


names = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | names,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=6,
)
ids = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=8)
documents = st.builds(
    Document,
    ids,
    st.text(st.characters(exclude_categories=["Cs"])).map(str.strip),
    st.dictionaries(
        names | st.sampled_from(["id", "text", "title", "metadata"]), values, max_size=4
    ),
)


@settings(deadline=None, max_examples=40)
@given(
    st.lists(documents, max_size=6, unique_by=lambda document: document.id),
    st.sampled_from(["out.jsonl", "out.parquet"]),
)
def test_any_documents_come_back(found: list[Document], name: str) -> None:
    encoded = random_encoded(np.random.default_rng(0), [0] * len(found), 4)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        with Index.create(
            path / "index", width=4, global_width=4, fingerprint="f", disk=QuickDisk()
        ) as index:
            index.add_encoded(
                [one.id for one in found],
                encoded,
                texts=[one.text for one in found],
                metadata=[one.metadata for one in found],
            )
            assert list(index) == found
            assert index.export(path / name) == len(found)
        assert list(read(path / name)) == found


@pytest.mark.parametrize("name", ["out.jsonl", "out.parquet"])
def test_vectors_are_those_of_the_encodings(tmp_path: Path, name: str) -> None:
    random = np.random.default_rng(5)
    encoded = random_encoded(random, [3, 0, 5, 2], 6, merged=True)
    with of_encodings(tmp_path / "index", encoded, list("abcd"), text_of_words()) as index:
        more = random_encoded(random, [4], 6)
        index.add_encoded(["e"], more, texts=[text_of_words()])
        index.delete("b")
        index.compact()
        index.export(tmp_path / name, vectors=True)
    if name.endswith("parquet"):
        rows = pq.read_table(tmp_path / name).to_pylist()
    else:
        rows = [json.loads(line) for line in (tmp_path / name).read_text().splitlines()]
    assert [row["id"] for row in rows] == ["a", "c", "d", "e"]
    for row, expected in zip(rows, [encoded[0], encoded[2], encoded[3], more], strict=True):
        found = row["hplus_vectors"]
        assert np.array(found["global"], np.float32).tolist() == expected.global_[0].tolist()
        assert len(found["units"]) == len(expected.units.weights)
        for i, unit in enumerate(found["units"]):
            assert np.float32(unit["weight"]) == expected.units.weights[i]
            vector = np.array(unit["vector"], np.float32)
            assert vector.tolist() == expected.units.vectors[i].tolist()
            spans = [
                (span["start"], span["end"]) if isinstance(span, dict) else tuple(span)
                for span in unit["spans"]
            ]
            assert spans == [tuple(span) for span in expected.units.spans_of(i)]


def test_the_lines_of_a_file(index: Index, tmp_path: Path) -> None:
    index.export(tmp_path / "out.jsonl.gz")
    lines = gzip.decompress((tmp_path / "out.jsonl.gz").read_bytes()).decode().splitlines()
    assert json.loads(lines[1]) == {
        "id": "b",
        "text": "Heart failure.",
        "metadata": {"year": 2015, "tags": ["x", {"deep": None}]},
    }
    told: list[str] = []
    assert index.export(told.append) == 4
    assert told == lines
    assert not any("\x1b" in line or "\u202e" in line for line in lines)


@pytest.mark.parametrize(
    "name", ["out.csv", "out", "out.parquet.gz", "no/out.jsonl", "folder.jsonl"]
)
def test_targets_that_cannot_be_written(index: Index, tmp_path: Path, name: str) -> None:
    (tmp_path / "folder.jsonl").mkdir()
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(InputError, match=r"expected a|create it first"):
        index.export(tmp_path / name)
    assert sorted(tmp_path.rglob("*")) == before


def test_an_export_that_fails_leaves_the_file_as_it_was(
    index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "out.jsonl"
    path.write_text("old")

    def fail(*_: Any) -> Any:
        raise OSError("full")

    monkeypatch.setattr(exporting, "escaped", fail)
    with pytest.raises(OSError, match="full"):
        index.export(path)
    assert path.read_text() == "old"
    assert [file.name for file in tmp_path.iterdir() if file.is_file()] == ["out.jsonl"]


def test_parquet_without_pyarrow(
    index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtraError, match=r"pip install hplus\[parquet\]"):
        index.export(tmp_path / "out.parquet")
    assert not (tmp_path / "out.parquet").exists()


# By a filter


@pytest.mark.parametrize(
    ("where", "gone"),
    [
        ("year >= 2000", "ab"),
        ("year > 2015", "a"),
        ("not year exists", "cd"),
        ('id = "c"', "c"),
        ('tags contains "x" or title = "Metformin"', "ab"),
        ("year = 1900", ""),
        (" or ".join(f"year = {year}" for year in range(2010, 2020)), "b"),
    ],
)
def test_documents_that_pass_a_filter_are_deleted(index: Index, where: str, gone: str) -> None:
    assert index.count(where) == len(gone)
    assert index.delete(where=where) == len(gone)
    assert [document.id for document in index] == [id_ for id_ in "abcd" if id_ not in gone]
    assert index.count() == len(index) == 4 - len(gone)
    assert index.count(where) == 0
    assert index.verify().problems == []


def test_a_deletion_needs_one_of_the_two(index: Index) -> None:
    for options in ({}, {"ids": "a", "where": "year > 0"}, {"ids": None, "where": None}):
        with pytest.raises(InputError, match="give the ids of the documents to delete, or a filt"):
            index.delete(**options)  # type: ignore[arg-type]
    for wrong in ({}, 5, ["year"]):
        with pytest.raises(InputError, match="expected where to be a text"):
            index.delete(where=wrong)  # type: ignore[arg-type]
    with pytest.raises(FilterError):
        index.delete(where="")
    assert len(index) == 4


# Metadata alone


def test_fields_are_set_and_removed(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise AssertionError("something was encoded")

    monkeypatch.setattr(HPlus, "encode_step", fail)
    before = index.generation
    changed = index.update_metadata({"a": {"year": 2022, "new": [1]}, "b": {"tags": None}, "c": {}})
    assert changed == 2
    assert index.generation == before + 1
    assert index["a"] == replace(ROWS[0], metadata={"year": 2022, "title": "Metformin", "new": [1]})
    assert index["b"] == replace(ROWS[1], metadata={"year": 2015})
    assert index["c"] == ROWS[2]
    assert index.count("year = 2022") == 1
    assert index.update_metadata({"a": {"year": 2022, "gone": None}}) == 0
    assert index.generation == before + 1
    assert index.verify().problems == []


def test_nothing_changes_if_one_is_wrong(index: Index) -> None:
    good = {"a": {"year": 1}}
    with pytest.raises(MissingDocumentError, match="no document 'z' in the index; nothing was"):
        index.update_metadata({**good, "z": {"year": 1}})
    with pytest.raises(InputError, match="expected the fields of each document as a dict, got int"):
        index.update_metadata({**good, "b": 5})  # type: ignore[dict-item]
    with pytest.raises(InputError, match=r"metadata\.x is set, expected a JSON value"):
        index.update_metadata({**good, "b": {"x": {1}}})
    with pytest.raises(InputError, match="expected the fields of documents by id, got list"):
        index.update_metadata([("a", {})])  # type: ignore[arg-type]
    assert list(index) == ROWS
