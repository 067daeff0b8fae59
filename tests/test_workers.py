"""Bulk indexing in several processes: the same bytes as in one, whatever happens to them."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from brute_force import QuickDisk
from hplus import Budget, HPlus, HPlusError, Index, InputError, texts, workers
from hplus.storage import writer
from hplus.types import Encoded
from tiny import write_tiny

ROWS = [
    {"id": f"d{i}", "text": f"type {i} diabetes of patient {i * 7919}", "year": i}
    for i in range(11)
]


@pytest.fixture(autouse=True)
def _small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Six steps, and a segment for every two of them."""
    monkeypatch.setattr(texts, "STEP_TEXTS", 2)
    monkeypatch.setattr(writer, "CONFIRM_BYTES", 2_000)
    monkeypatch.setattr(writer, "CONFIRM_SECONDS", float("inf"))


def made(path: Path, model: HPlus) -> Index:
    return Index.create(path, model, disk=QuickDisk())


def files(index: Index) -> dict[str, bytes]:
    """Every segment, and every row of the catalogue."""
    found = {file.name: file.read_bytes() for file in (index.path / "segments").iterdir()}
    dump = index.engine.snapshot.connection.iterdump()
    return found | {"catalogue": "\n".join(dump).encode()}


class Counter:
    """A progress bar that only counts."""

    def __init__(self) -> None:
        self.done = 0.0

    def advance(self, done: float) -> None:
        self.done += done


def no_pool(*_: object, **__: object) -> None:
    raise AssertionError("a process pool was started")


def test_two_processes_write_the_bytes_that_one_writes(tmp_path: Path, tiny: HPlus) -> None:
    changes: list[list[dict[str, Any]]] = [
        ROWS,
        # Unchanged, other metadata, another text, new.
        [
            *ROWS[:3],
            ROWS[3] | {"year": 1901},
            ROWS[4] | {"text": "another text"},
            {"id": "new", "text": "version 4", "year": 8},
            *({"id": f"later {i}", "text": f"more of it {i}"} for i in range(4)),
        ],
    ]
    with made(tmp_path / "one", tiny) as one, made(tmp_path / "two", tiny) as two:
        for change in changes:
            reports = [one.update(change), two.update(change, workers=2)]
            assert reports[0] == reports[1]
            assert files(one) == files(two)
        assert one.search("type 3 diabetes", k=20).hits == two.search("type 3 diabetes", k=20).hits
        found = {hit.id: (hit.text, hit.metadata) for hit in two.search("version", k=20)}
        assert found["new"] == ("version 4", {"year": 8})
        assert found["d3"] == (ROWS[3]["text"], {"year": 1901})
        assert found["d4"] == ("another text", {"year": 4})
        assert len(found) == len(two) == 16


def test_a_step_is_encoded_with_one_blas_thread(
    tiny: HPlus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two threads round differently from one; a worker may have fewer than the process alone."""
    seen = []
    views = HPlus._views

    def watched(*arguments: Any) -> Encoded:
        seen.append(blas_threads())
        return views(*arguments)

    monkeypatch.setattr(HPlus, "_views", watched)
    with threadpool_limits(2, "blas"):
        tiny.encode_step(["type 2 diabetes"], Budget(), None)
        assert (seen, blas_threads()) == ([[1]], [2])


def blas_threads() -> list[int]:
    return [
        library["num_threads"]
        for library in threadpool_info()
        if library["user_api"] == "blas" and "numpy" in library["filepath"]
    ]


def test_workers_that_die_lose_nothing_confirmed(tmp_path: Path, tiny: HPlus) -> None:
    def source() -> Iterator[dict[str, Any]]:
        for i, row in enumerate(ROWS):
            if i == 9:
                # All of them: one that is left may do the rest before anybody notices.
                for victim in multiprocessing.active_children():
                    assert victim.pid is not None
                    os.kill(victim.pid, signal.SIGKILL)
            yield row

    with made(tmp_path / "index", tiny) as index:
        with pytest.raises(
            HPlusError, match=r"a worker process ended unexpectedly .* fewer worker"
        ):
            index.add(source(), workers=2)
        kept = len(index)
        assert 0 < kept < len(ROWS)
        assert index.verify().problems == []
        assert {hit.id for hit in index.search("type", k=20)} == {f"d{i}" for i in range(kept)}
        report = index.add(ROWS)
        assert (report.added, report.unchanged) == (len(ROWS) - kept, kept)


@pytest.mark.parametrize("error", [InputError, RuntimeError])
def test_everything_before_a_failing_source_is_kept(
    tmp_path: Path, tiny: HPlus, error: type[Exception]
) -> None:
    def source() -> Iterator[dict[str, Any]]:
        yield from ROWS[:7]
        raise error("the source failed")

    with made(tmp_path / "index", tiny) as index:
        with pytest.raises(error, match="the source failed"):
            index.add(source(), workers=2)
        assert len(index) == 7


def test_an_id_twice_is_refused_after_what_precedes_it(tmp_path: Path, tiny: HPlus) -> None:
    with made(tmp_path / "index", tiny) as index:
        with pytest.raises(InputError, match="the id 'd5' repeats"):
            index.add([*ROWS[:6], ROWS[5] | {"text": "another one"}], workers=2)
        assert len(index) == 6


@pytest.mark.parametrize("count", [1, 2])
def test_progress_reaches_the_total(
    tmp_path: Path, tiny: HPlus, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    bars: list[tuple[int | None, Counter]] = []

    class Shown:
        def __init__(self, _: str, total: Any, *, wanted: bool) -> None:
            assert wanted
            bars.append((total(), Counter()))

        def __enter__(self) -> Counter:
            return bars[-1][1]

        def __exit__(self, *_: object) -> None:
            pass

    monkeypatch.setattr("hplus.any_index.show_progress", Shown)
    file = tmp_path / "corpus.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    again = [*ROWS[1:], ROWS[0] | {"text": "other"}, {"id": "new", "text": "text"}]
    with made(tmp_path / "index", tiny) as index:
        index.update(file, workers=count, progress=True)
        index.update(again, workers=count, progress=True)
    assert [(total, round(counter.done, 6)) for total, counter in bars] == [(11, 11), (12, 12)]


def test_the_parent_counts_while_a_worker_is_busy(
    tiny: HPlus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step is not waited for as a whole: its texts are counted as they are finished."""
    monkeypatch.setattr(workers, "POLL_SECONDS", 0.01)
    told: list[float] = []
    long = "type 2 diabetes " * 20_000  # several stretches: seconds rather than milliseconds
    steps = [[long], [long], ["heart failure"]]
    budget = tiny.recipe.document_budget
    found = list(workers.encode_steps(tiny, steps, budget, None, workers=2, advance=told.append))
    assert [len(encoded) for encoded in found] == [1, 1, 1]
    assert sum(told) == pytest.approx(3)
    assert any(0 < done < 0.9 for done in told)


def test_no_process_is_started_for_one_step(
    tmp_path: Path, tiny: HPlus, monkeypatch: pytest.MonkeyPatch
) -> None:
    with made(tmp_path / "index", tiny) as index:
        index.add(ROWS)
        monkeypatch.setattr(workers, "ProcessPoolExecutor", no_pool)
        changed = [*ROWS[:4], ROWS[4] | {"year": 1900}, ROWS[5] | {"text": "other"}, *ROWS[6:]]
        report = index.update(changed, workers=4)
        assert (report.updated, report.metadata_changed, report.unchanged) == (1, 1, 9)


@pytest.mark.parametrize("wrong", [0, -1, 1.5, "2", None])
def test_a_number_of_workers_is_expected(tmp_path: Path, tiny: HPlus, wrong: Any) -> None:
    with (
        made(tmp_path / "index", tiny) as index,
        pytest.raises(InputError, match="expected workers to be a whole number of 1"),
    ):
        index.add(ROWS, workers=wrong)


def test_a_model_that_changed_on_disk_is_not_mixed_in(tmp_path: Path) -> None:
    """The folder holds another encoder by the time the workers load it."""
    folder = write_tiny(tmp_path / "encoder")
    model = HPlus(folder).fit_idf(["some text"])
    shutil.rmtree(folder)
    write_tiny(folder, seed=7)
    with made(tmp_path / "index", model) as index:
        with pytest.raises(HPlusError, match="encoder has changed since it was loaded"):
            index.add(ROWS, workers=2)
        assert len(index) == 0


ENDLESS = """
import itertools, sys
from hplus import HPlus, Index, texts
from hplus.storage import writer

if __name__ == "__main__":
    texts.STEP_TEXTS, writer.CONFIRM_BYTES = 2, 1
    rows = ({"id": str(i), "text": f"type {i} diabetes"} for i in itertools.count())

    def told():
        for i, row in enumerate(rows):
            if i == 20:
                print("started", flush=True)
            yield row

    Index.create(sys.argv[2], HPlus(sys.argv[1])).add(told(), workers=2)
"""


# The same; its first worker says that it is started while it still imports the script.
STARTING = (
    ENDLESS.replace("i == 20", "False")
    + """
if __name__ == "__mp_main__":
    import time

    print("started", flush=True)
    time.sleep(1)
"""
)


@pytest.fixture
def endless(
    request: pytest.FixtureRequest, tmp_path: Path, tiny_folder: Path
) -> Iterator[subprocess.Popen[str]]:
    """A program that indexes with two workers and never ends, twenty documents into its work."""
    (tmp_path / "endless.py").write_text(getattr(request, "param", ENDLESS))
    process = subprocess.Popen(
        [sys.executable, tmp_path / "endless.py", tiny_folder, tmp_path / "index"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    # Two workers may write at once, before either ends its line.
    assert process.stdout.readline().startswith("started")
    yield process
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


@pytest.mark.skipif(not hasattr(os, "killpg"), reason="needs process groups")
def test_ctrl_c_ends_all_of_them_with_one_traceback(
    endless: subprocess.Popen[str], tmp_path: Path
) -> None:
    os.killpg(endless.pid, signal.SIGINT)  # as a terminal does: to the workers, too
    _, err = endless.communicate(timeout=60)
    assert err.count("Traceback") == 1
    assert err.endswith("KeyboardInterrupt\n")
    with Index.open(tmp_path / "index") as index:
        assert len(index) >= 8
        assert index.verify().problems == []


@pytest.mark.skipif(not hasattr(os, "killpg"), reason="needs process groups")
@pytest.mark.parametrize("endless", [STARTING], indirect=True)
def test_ctrl_c_while_workers_start_is_one_traceback(endless: subprocess.Popen[str]) -> None:
    os.killpg(endless.pid, signal.SIGINT)
    _, err = endless.communicate(timeout=60)
    assert err.count("Traceback") == 1
    assert err.endswith("KeyboardInterrupt\n")


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
def test_workers_hold_ctrl_c_back_from_their_start(tmp_path: Path, tiny: HPlus) -> None:
    """One that is still loading its modules would print a traceback of its own."""
    held: list[int] = []

    def source() -> Iterator[dict[str, Any]]:
        for i, row in enumerate(ROWS):
            if i == 4:  # two steps are under way, which started the processes
                for child in multiprocessing.active_children():
                    status = Path(f"/proc/{child.pid}/status").read_text()
                    blocked = status.partition("SigBlk:")[2].split()[0]
                    held.append(int(blocked, 16) >> (signal.SIGINT - 1) & 1)
            yield row

    with made(tmp_path / "index", tiny) as index:
        index.add(source(), workers=2)
    assert held == [1, 1]
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
def test_workers_end_with_a_killed_parent(endless: subprocess.Popen[str]) -> None:
    group = endless.pid
    assert len(alive(group)) >= 3
    endless.kill()
    until = time.monotonic() + 60
    while alive(group) and time.monotonic() < until:
        time.sleep(0.1)
    assert alive(group) == []


def alive(group: int) -> list[int]:
    """Processes of a group that are not zombies."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            state, _, own = (entry / "stat").read_text().rpartition(")")[2].split()[:3]
        except (OSError, ValueError):
            continue
        if int(own) == group and state != "Z":
            found.append(int(entry.name))
    return found
