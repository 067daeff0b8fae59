"""From a folder of shards to an index: complete, of its model, undamaged, or one clear sentence."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from builders import assert_same
from hplus import Budget, BudgetError, HPlus, InputError, ModelMismatchError
from hplus.bulk.encode import encode_shards
from hplus.bulk.folder import read_encodings, read_manifest, read_shards
from hplus.bulk.job import Job, job_of
from hplus.types import concatenate
from shards import ROWS, index_bytes, new_index, write_rows


@pytest.fixture
def folder(tmp_path: Path, tiny: HPlus, corpus: Path, job: Job) -> Path:
    encode_shards(tiny, job, corpus, tmp_path / "folder")
    return tmp_path / "folder"


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.write_bytes(content)


def test_all_shards_are_read_in_the_order_of_the_corpus(folder: Path, tiny: HPlus) -> None:
    shards = list(read_shards(folder, fingerprint=tiny.fingerprint))
    assert [len(shard) for shard in shards] == [4, 5, 4, 5, 5]
    assert [d.id for shard in shards for d in shard.documents] == [row["_id"] for row in ROWS]
    assert all(len(shard.encoded) == len(shard) for shard in shards)


def test_documents_for_an_engine_come_in_steps_of_any_size(
    folder: Path, job: Job, tiny: HPlus, corpus: Path, tmp_path: Path
) -> None:
    steps = list(read_encodings(folder, 3, fingerprint=tiny.fingerprint))
    assert [len(documents) for documents, _ in steps] == [3, 1, 3, 2, 3, 1, 3, 2, 3, 2]
    assert [d.id for documents, _ in steps for d in documents] == [row["_id"] for row in ROWS]
    whole = concatenate([shard.encoded for shard in read_shards(folder)])
    assert_same(concatenate([encoded for _, encoded in steps]), whole)
    with pytest.raises(ModelMismatchError, match="expected other"):
        read_encodings(folder, 3, fingerprint="other")
    (folder / job.file(1)).unlink()
    with pytest.raises(InputError, match="lacks shard 1 of 5"):
        read_encodings(folder, 3)
    divided = job_of(tiny, corpus, shards=1, passages=20)
    encode_shards(tiny, divided, corpus, tmp_path / "divided")
    with pytest.raises(InputError, match="divided has passages of documents, expected whole"):
        read_encodings(tmp_path / "divided", 3)


def test_a_missing_shard(folder: Path, job: Job, tiny: HPlus, tmp_path: Path) -> None:
    (folder / job.file(3)).unlink()
    with new_index(tmp_path / "index", tiny) as index:
        with pytest.raises(InputError, match=r"folder lacks shard 3 of 5; run hplus bulk again"):
            index.add_shards(folder)
        (folder / job.file(5)).unlink()
        with pytest.raises(InputError, match=r"folder lacks shard 3 of 5 and 1 more; run hplus"):
            index.add_shards(folder)
        assert (len(index), index.generation) == (0, 0)
    assert read_manifest(folder).missing == (3, 5)


def test_a_shard_of_another_model(
    folder: Path, job: Job, tiny_folder: Path, corpus: Path, tiny: HPlus, tmp_path: Path
) -> None:
    other = HPlus(tiny_folder)
    encode_shards(other, job_of(other, corpus, shards=5), corpus, tmp_path / "other", only=[3])
    shutil.copy(tmp_path / "other" / job.file(3), folder)
    with (
        new_index(tmp_path / "index", tiny) as index,
        pytest.raises(
            InputError,
            match=f"00003-of-00005.safetensors is of another job than the other shards: model "
            f"{other.fingerprint[:12]}, not {tiny.fingerprint[:12]}; delete it and run hplus bulk",
        ),
    ):
        index.add_shards(folder)


def test_a_folder_of_another_model(
    folder: Path, tiny_folder: Path, tmp_path: Path, tiny: HPlus
) -> None:
    other = HPlus(tiny_folder)
    with (
        new_index(tmp_path / "index", other) as index,
        pytest.raises(
            ModelMismatchError,
            match=f"folder was encoded by model {tiny.fingerprint[:12]} .*, expected "
            f"{other.fingerprint[:12]}; give the model",
        ),
    ):
        index.add_shards(folder)


def test_a_flipped_bit_and_what_was_indexed_before_it(
    folder: Path, job: Job, tiny: HPlus, corpus: Path, tmp_path: Path
) -> None:
    with new_index(tmp_path / "whole", tiny) as whole, new_index(tmp_path / "index", tiny) as index:
        whole.add_shards(folder)
        flip(folder / job.file(3))
        with pytest.raises(
            InputError,
            match=r"00003-of-00005.safetensors is damaged: its content does not have its checksum; "
            r"delete it and run hplus bulk again",
        ):
            index.add_shards(folder)
        assert len(index) == 9
        assert index.verify().problems == []
        (folder / job.file(3)).unlink()
        encode_shards(tiny, job, corpus, folder)
        report = index.add_shards(folder)
        assert (report.added, report.unchanged) == (14, 9)
        assert list(index) == list(whole)
        query = "type 3 diabetes"
        assert index.search(query, k=9).hits == whole.search(query, k=9).hits


def test_again_costs_nothing_and_changes_are_followed(
    folder: Path, tiny: HPlus, corpus: Path, tmp_path: Path
) -> None:
    with new_index(tmp_path / "index", tiny) as index:
        index.add_shards(folder)
        before = index_bytes(index)
        report = index.add_shards(folder)
        assert (report.added, report.unchanged) == (0, 23)
        assert index_bytes(index) == before
        rows = [
            *ROWS[:5],
            ROWS[5] | {"text": "another text"},
            ROWS[6] | {"year": 1901},
            *ROWS[7:],
            {"_id": "new", "text": "heart failure"},
        ]
        write_rows(corpus, rows)
        encode_shards(tiny, job_of(tiny, corpus, shards=2), corpus, tmp_path / "second")
        report = index.add_shards(tmp_path / "second")
        counts = (report.added, report.updated, report.metadata_changed, report.unchanged)
        assert counts == (1, 1, 1, 21)
        assert (index["d5"].text, index["d6"].metadata) == ("another text", {"year": 1901})
        assert index.search("heart failure", k=1)[0].id == "new"


def test_an_index_may_keep_less_than_the_shards_and_never_more(
    tiny: HPlus, corpus: Path, tmp_path: Path
) -> None:
    job = job_of(tiny, corpus, shards=2, budget=Budget(4, policy="drop"), width=16, format="f32")
    encode_shards(tiny, job, corpus, tmp_path / "folder")
    small = {"budget": Budget(2, policy="drop"), "width": 8, "format": "f32"}
    with (
        new_index(tmp_path / "small", tiny, **small) as index,
        new_index(tmp_path / "direct", tiny, **small) as direct,
    ):
        index.add_shards(tmp_path / "folder")
        direct.add(corpus)
        found, wanted = (i.search("type 3 diabetes", k=23) for i in (index, direct))
        assert [hit.id for hit in found] == [hit.id for hit in wanted]
        assert [hit.score for hit in found] == pytest.approx(
            [hit.score for hit in wanted], abs=1e-5
        )
    for number, (options, error, sentence) in enumerate(
        [
            ({"budget": Budget(5)}, BudgetError, "encoded at drop to 4 .* keeps drop to 5 units"),
            ({"budget": Budget()}, BudgetError, "encoded at drop to 4 units, .* keeps all units"),
            ({"budget": Budget(2, policy="merge")}, BudgetError, "at drop .* keeps merge to 2"),
            ({"budget": Budget(4), "width": 32}, BudgetError, "vectors of width 16, the index 32"),
            (
                {"budget": Budget(4), "width": 16, "passages": 9},
                InputError,
                "folder has passages of none, the index expects 9 tokens",
            ),
        ]
    ):
        with (
            new_index(tmp_path / str(number), tiny, **options) as index,
            pytest.raises(error, match=sentence),
        ):
            index.add_shards(tmp_path / "folder")


def test_what_is_no_folder_of_shards(tmp_path: Path, folder: Path, job: Job) -> None:
    with pytest.raises(InputError, match="nowhere is not a folder of shards; hplus bulk SOURCE"):
        read_manifest(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="empty has no shards; hplus bulk SOURCE"):
        read_manifest(tmp_path / "empty")
    (folder / job.file(2)).rename(folder / "00007-of-00009.safetensors")
    with pytest.raises(InputError, match=r"is shard 2 of 5, which is called 00002-of-00005"):
        read_manifest(folder)
    (folder / "00007-of-00009.safetensors").write_bytes(b"garbage")
    with pytest.raises(InputError, match=r"00007-of-00009.safetensors is damaged"):
        read_manifest(folder)
