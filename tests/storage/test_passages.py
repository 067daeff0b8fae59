"""An index with passages on disk: its version, its settings, and rows that cannot be right."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from hplus import Budget, HPlus, Index, IndexDamagedError, InputError
from hplus.storage import segment_file
from hplus.storage.snapshot import CATALOGUE

TEXT = "Chronic kidney disease of the patient. Insulin therapy is here. Heart failure! " * 4
ROWS = [("a", TEXT), ("b", "Heart failure."), ("c", TEXT + "Sodium.")]


def version(path: Path) -> int:
    with closing(sqlite3.connect(path / CATALOGUE)) as connection:
        return int(connection.execute("PRAGMA user_version").fetchone()[0])


def change(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path / CATALOGUE)) as connection:
        connection.execute(statement)
        connection.commit()


@pytest.fixture
def path(tiny: HPlus, tmp_path: Path) -> Path:
    made = tmp_path / "p.hplus"
    with Index.create(made, tiny, passages=16) as index:
        index.add(ROWS)
    return made


def test_only_an_index_with_passages_has_the_new_version(
    tiny: HPlus, path: Path, tmp_path: Path
) -> None:
    assert version(path) == 2
    with Index.create(tmp_path / "plain.hplus", tiny) as plain:
        plain.add(ROWS)
        assert plain.settings.passages is None
        assert plain.stats().passages == plain.stats().documents == 3
        assert all(hit.passage is None for hit in plain.search("heart failure"))
    assert version(plain.path) == 1
    with closing(sqlite3.connect(plain.path / CATALOGUE)) as connection:
        names = {name for (name,) in connection.execute("SELECT name FROM settings")}
    assert "passages" not in names  # as an older hplus reads it


def test_the_setting_is_kept_through_everything(tiny: HPlus, path: Path) -> None:
    with Index.open(path, model=tiny) as index:
        index.compact(budget=Budget(2, policy="merge"))
        index.update([("a", TEXT + "More.")])
        assert index.settings.passages == 16
        assert index.stats().passages > 5
        assert index.verify().problems == []


@pytest.mark.parametrize("passages", [0, -1, 1.5, True, "8"])
def test_impossible_limits(tiny: HPlus, tmp_path: Path, passages: object) -> None:
    with pytest.raises(InputError, match="expected passages to be a whole number of 1"):
        Index.create(tmp_path / "x", tiny, passages=passages)  # type: ignore[arg-type]


def test_without_a_model_nothing_can_be_divided(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="give a model"):
        Index.create(tmp_path / "x", width=4, global_width=4, fingerprint="f", passages=8)


def test_encodings_made_elsewhere_are_one_passage_each(tiny: HPlus, path: Path) -> None:
    with Index.open(path, model=tiny) as index:
        encoded = tiny.encode_document(["gene of cancer", "a cell"])
        index.add_encoded(["x", "y"], encoded, texts=["gene of cancer", "a cell"])
        index.add_encoded(["z"], encoded[0])
        assert index.verify().problems == []
        (hit,) = index.search("gene of cancer", k=1, where='id = "x"')
        assert hit.passage == (0, 14)
        assert len(index) == 6


@pytest.mark.parametrize(
    "statement",
    [
        "PRAGMA user_version = 1",
        "DELETE FROM settings WHERE name = 'passages'",
        "UPDATE settings SET value = 'null' WHERE name = 'passages'",
        "UPDATE settings SET value = '0' WHERE name = 'passages'",
    ],
)
def test_version_and_setting_belong_together(path: Path, statement: str) -> None:
    change(path, statement)
    with pytest.raises(IndexDamagedError, match="damaged settings"):
        Index.open(path)


def test_a_version_1_index_with_passages_is_refused(tiny: HPlus, tmp_path: Path) -> None:
    with Index.create(tmp_path / "plain.hplus", tiny) as plain:
        plain.add(ROWS)
    change(plain.path, "INSERT INTO settings VALUES ('passages', '16')")
    with pytest.raises(IndexDamagedError, match="damaged settings"):
        Index.open(plain.path)
    change(plain.path, "PRAGMA user_version = 2")  # its segments have no passages
    with pytest.raises(IndexDamagedError, match="expected passage_starts as"):
        Index.open(plain.path)


@pytest.mark.parametrize("assignment", ["place = 1", "place = 2", "place = place + 1"])
def test_a_place_where_no_document_begins(tiny: HPlus, path: Path, assignment: str) -> None:
    change(path, f"UPDATE documents SET {assignment} WHERE id = 'a'")
    with Index.open(path, model=tiny) as index:
        assert index.verify().problems
        with pytest.raises(IndexDamagedError, match="where none begins"):
            index.search("heart", where='id = "a"')
        index.rerank("heart failure", ["a"])  # nothing is read out of bounds
    change(path, "UPDATE documents SET deleted = 1 WHERE id = 'a'")
    with pytest.raises(IndexDamagedError, match="where none begins"):
        Index.open(path)


def test_a_text_that_is_shorter_than_its_passages(tiny: HPlus, path: Path) -> None:
    change(path, "UPDATE documents SET text = 'short' WHERE id = 'c'")
    with Index.open(path, model=tiny) as index:
        found = " ".join(index.verify().problems)
    assert "a passage of 'c' is beyond the end of its text" in found


def test_passages_of_a_document_stay_together(
    tiny: HPlus, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hplus.storage.compact.SEGMENT_BYTES", 1)
    monkeypatch.setattr("hplus.storage.segment.CHUNK", 2)
    monkeypatch.setattr("hplus.storage.merge.BLOCK", 2)
    with Index.open(path, model=tiny) as index:
        index.delete("b")
        with monkeypatch.context() as patch:  # as an interruption between the two would leave it
            patch.setattr("hplus.storage.compact._put_all_together", lambda *_: None)
            index.compact(budget=3)
        before = [(hit.id, hit.passage, hit.score) for hit in index.search("insulin therapy")]
        parts = index.engine.snapshot.parts
        numbers = [set(part.segment.numbers.tolist()) for part in parts]
        assert len(parts) > 1
        assert sum(map(len, numbers)) == len(set().union(*numbers)) == 2
        index.compact()
        assert len(index.engine.snapshot.parts) == 1
        after = [(hit.id, hit.passage, hit.score) for hit in index.search("insulin therapy")]
        assert after == before
        assert index.verify().problems == []


def test_passage_arrays_are_ignored_where_documents_are_whole(
    tiny: HPlus, path: Path, tmp_path: Path
) -> None:
    del path
    with Index.create(tmp_path / "plain.hplus", tiny) as plain:
        plain.add(ROWS)
        (part,) = plain.engine.snapshot.parts
    assert part.segment.passages(np.arange(3)) is None
    assert segment_file._UNSIGNED == ("U8", "U16", "U32")
