"""The same documents give the same bytes, by whomever they are encoded and whoever is killed."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from hplus import HPlus, InputError, files, texts
from hplus.bulk import encode as encode_module
from hplus.bulk.documents import Documents
from hplus.bulk.encode import encode, encode_shards
from hplus.bulk.folder import read_manifest
from hplus.bulk.job import Job, job_of
from hplus.sources.document import Document
from hplus.storage import writer
from hplus.storage.segment import FORMATS
from hplus.workers import WorkerEndedError
from shards import ROWS, index_bytes, new_index, shard_bytes, write_rows


@pytest.fixture
def expected(tmp_path: Path, tiny: HPlus, corpus: Path, job: Job) -> dict[str, bytes]:
    """By one process, one shard after another."""
    encode_shards(tiny, job, corpus, tmp_path / "expected")
    return shard_bytes(tmp_path / "expected")


def test_one_process_each_shard_alone_and_workers_write_the_same_bytes(
    tmp_path: Path, tiny: HPlus, corpus: Path, job: Job, expected: dict[str, bytes]
) -> None:
    assert sorted(expected) == [job.file(shard) for shard in range(1, 6)]
    for shard in (4, 1, 5, 3, 2):
        encode_shards(tiny, job, corpus, tmp_path / "alone", only=[shard])
    assert shard_bytes(tmp_path / "alone") == expected
    done = encode_shards(tiny, job, corpus, tmp_path / "workers", workers=2)
    assert shard_bytes(tmp_path / "workers") == expected
    assert (done.missing, done.done) == ((), (1, 2, 3, 4, 5))


def test_indexes_of_all_are_equal(tmp_path: Path, tiny: HPlus, corpus: Path, job: Job) -> None:
    encode_shards(tiny, job, corpus, tmp_path / "one")
    for shard in (5, 4, 3, 2, 1):
        encode_shards(tiny, job, corpus, tmp_path / "alone", only=[shard])
    with (
        new_index(tmp_path / "one.hplus", tiny) as one,
        new_index(tmp_path / "alone.hplus", tiny) as alone,
    ):
        one.add_shards(tmp_path / "one")
        alone.add_shards(tmp_path / "alone")
        assert index_bytes(one) == index_bytes(alone)
        assert [document.id for document in one] == [row["_id"] for row in ROWS]


def test_what_is_there_is_not_encoded_again(
    tmp_path: Path, tiny: HPlus, corpus: Path, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "folder"
    encode_shards(tiny, job, corpus, folder, only=[2, 4])
    assert read_manifest(folder).missing == (1, 3, 5)
    before = {file.name: file.stat().st_mtime_ns for file in folder.iterdir()}
    asked = []
    monkeypatch.setattr(
        Documents, "of", lambda self, shard, of=Documents.of: asked.append(shard) or of(self, shard)
    )
    encode_shards(tiny, job, corpus, folder)
    assert asked == [1, 3, 5]
    assert {name: (folder / name).stat().st_mtime_ns for name in before} == before
    encode_shards(tiny, job, corpus, folder)
    assert asked == [1, 3, 5]


def test_workers_that_are_killed_change_nothing(
    tmp_path: Path,
    tiny: HPlus,
    corpus: Path,
    job: Job,
    expected: dict[str, bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    killed = []

    def of(self: Documents, shard: int, of: Any = Documents.of) -> list[Document]:
        if shard in (4, 5) and shard not in killed:  # the workers are at those before
            killed.append(shard)
            victim = multiprocessing.active_children()[0].pid
            assert victim is not None
            os.kill(victim, signal.SIGKILL)
        return of(self, shard)

    monkeypatch.setattr(Documents, "of", of)
    told: list[str] = []
    encode_shards(tiny, job, corpus, tmp_path / "folder", workers=2, report=told.append)
    assert shard_bytes(tmp_path / "folder") == expected
    assert killed == [4, 5]
    assert 1 <= len(told) <= 2
    assert all("a worker process ended unexpectedly" in message for message in told)


def test_documents_that_end_every_worker_are_not_tried_forever(
    tmp_path: Path, tiny: HPlus, corpus: Path, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = []

    def encode(*_: Any) -> None:
        tries.append(1)
        raise WorkerEndedError("a worker process ended unexpectedly")

    monkeypatch.setattr(encode_module, "encode", encode)
    with pytest.raises(WorkerEndedError):
        encode_shards(tiny, job, corpus, tmp_path / "folder")
    assert len(tries) == encode_module.TRIES


KILLED = """
import sys, time
from pathlib import Path
from hplus import HPlus, files
from hplus.bulk.encode import encode_shards
from hplus.bulk.job import job_of

def slow(path, sync=files.sync):  # the third draft is complete, and not renamed yet
    if "00003-of" in path.name:
        print("writing", flush=True)
        time.sleep(60)
    sync(path)

files.sync = slow
source, folder, model = sys.argv[1:]
model = HPlus(model)
encode_shards(model, job_of(model, source, shards=5), source, folder)
"""


def test_a_killed_run_leaves_no_half_file_and_the_next_does_the_rest(
    tmp_path: Path, tiny_folder: Path, corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()  # the other process has steps of the usual size
    folder, model = tmp_path / "folder", HPlus(tiny_folder)
    job = job_of(model, corpus, shards=5)
    program = subprocess.Popen(
        [sys.executable, "-c", KILLED, corpus, folder, tiny_folder], stdout=subprocess.PIPE
    )
    assert program.stdout is not None
    with program.stdout:
        assert program.stdout.readline() == b"writing\n"
        program.kill()
        program.wait()
    assert read_manifest(folder).done == (1, 2)
    (draft,) = folder.glob(".*")  # hidden, and of no shard
    assert draft.name.startswith(".00003-of-00005.safetensors.")
    before = {file.name: file.stat().st_mtime_ns for file in folder.glob("[!.]*")}
    encode_shards(model, job, corpus, folder)
    assert {name: (folder / name).stat().st_mtime_ns for name in before} == before
    encode_shards(model, job, corpus, tmp_path / "uninterrupted")
    assert shard_bytes(folder) == shard_bytes(tmp_path / "uninterrupted")


def test_many_machines_may_encode_the_same_shard(
    tmp_path: Path, tiny: HPlus, corpus: Path, job: Job, expected: dict[str, bytes]
) -> None:
    """Each writes a draft of its own name; the last to finish replaces the same bytes."""
    folder = tmp_path / "folder"
    folder.mkdir()

    def machine(_: int) -> None:
        for shard in range(1, 6):
            encode(tiny, job, Documents(corpus, job), folder, [shard])

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(machine, range(4)))
    assert shard_bytes(folder) == expected


def test_a_draft_that_another_machine_removed_is_no_error(
    tmp_path: Path, tiny: HPlus, corpus: Path, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "folder"
    encode_shards(tiny, job, corpus, folder, only=[1])
    monkeypatch.setattr(files, "sync", lambda path: path.unlink())
    encode(tiny, job, Documents(corpus, job), folder, [1])
    assert [file.name for file in folder.iterdir()] == [job.file(1)]
    with pytest.raises(FileNotFoundError):
        encode(tiny, job, Documents(corpus, job), folder, [2])


def test_documents_are_divided_into_passages(tmp_path: Path, tiny: HPlus, corpus: Path) -> None:
    """An index of them is the one that is made from the texts, if its steps are the same."""
    job = job_of(tiny, corpus, shards=1, passages=20)
    folder = tmp_path / "folder"
    encode_shards(tiny, job, corpus, folder)
    with (
        new_index(tmp_path / "shards.hplus", tiny, passages=20) as shards,
        new_index(tmp_path / "texts.hplus", tiny, passages=20) as direct,
    ):
        report = shards.add_shards(folder)
        assert report.added == len(ROWS)
        direct.add(corpus)
        assert shards.stats().passages == direct.stats().passages > len(ROWS)
        assert list(shards) == list(direct)
        for query in ("type 3 diabetes", "patient 7919"):
            found, wanted = shards.search(query, k=5), direct.search(query, k=5)
            assert [hit.passage for hit in found] == [hit.passage for hit in wanted]
            assert [hit.score for hit in found] == pytest.approx([hit.score for hit in wanted])


@pytest.mark.parametrize("format", FORMATS)
def test_an_index_of_shards_is_the_index_of_the_texts(
    tmp_path: Path,
    tiny: HPlus,
    corpus: Path,
    format: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """To the byte, where both encode the documents in the same steps."""
    monkeypatch.setattr(texts, "STEP_TEXTS", 256)
    monkeypatch.setattr(writer, "CONFIRM_BYTES", 10**9)
    encode_shards(tiny, job_of(tiny, corpus, shards=1, format=format), corpus, tmp_path / "folder")
    with (
        new_index(tmp_path / "shards.hplus", tiny, format=format) as shards,
        new_index(tmp_path / "texts.hplus", tiny, format=format) as direct,
    ):
        reports = [shards.add_shards(tmp_path / "folder"), direct.add(corpus)]
        assert reports[0] == reports[1]
        assert index_bytes(shards) == index_bytes(direct)


def test_a_folder_of_another_job_is_refused(
    tmp_path: Path, tiny: HPlus, corpus: Path, job: Job
) -> None:
    folder = tmp_path / "folder"
    encode_shards(tiny, job, corpus, folder, only=[2])
    for change, words in (
        ({"shards": 6}, r"00002-of-00005.safetensors is of another job: shards: 5, not 6"),
        ({"shards": 5, "budget": 3}, r"another job: budget: .*, not .*3 units"),
        ({"shards": 5, "width": 16}, r"another job: width 32, not 16; choose a new folder"),
    ):
        with pytest.raises(InputError, match=words):
            encode_shards(tiny, job_of(tiny, corpus, **change), corpus, folder)  # type: ignore[arg-type]
    write_rows(corpus, [*ROWS[:-1], ROWS[-1] | {"text": "changed"}])
    with pytest.raises(InputError, match="another job: a source of the SHA-256"):
        encode_shards(tiny, job_of(tiny, corpus, shards=5), corpus, folder)
    assert [file.name for file in folder.iterdir()] == [job.file(2)]
    with pytest.raises(InputError, match=r"expected shards of 1 to 5, got \[6\]"):
        encode_shards(tiny, job, corpus, folder, only=[6])


def test_progress_counts_every_document_once(
    tmp_path: Path, tiny: HPlus, corpus: Path, job: Job
) -> None:
    for number, one in enumerate((job, job_of(tiny, corpus, shards=2, passages=20))):
        done: list[float] = []
        folder = tmp_path / str(number)
        folder.mkdir()
        shards = range(1, one.shards + 1)
        encode(tiny, one, Documents(corpus, one), folder, shards, advance=done.append)
        assert sum(done) == pytest.approx(len(ROWS))


def test_memory_does_not_hold_more_than_a_shard_and_what_is_read_ahead(
    tmp_path: Path, tiny: HPlus, corpus: Path, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without workers, no shard is read before the one before it is written."""
    folder = tmp_path / "folder"
    written: list[int] = []

    def of(self: Documents, shard: int, of: Callable[..., Any] = Documents.of) -> list[Document]:
        with contextlib.suppress(InputError):
            written.append(len(read_manifest(folder).done))
        return of(self, shard)  # type: ignore[no-any-return]

    monkeypatch.setattr(Documents, "of", of)
    encode_shards(tiny, job, corpus, folder)
    assert written == [1, 2, 3, 4]
