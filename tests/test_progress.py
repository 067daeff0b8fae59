"""Progress: a bar on a terminal, a line in a notebook, lines in a log of what takes long."""

from __future__ import annotations

import io
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hplus import HPlus, Index
from hplus.progress import Pace, duration, show_progress


class Clock:
    """Time that passes when a test says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Terminal(io.StringIO):
    """A text stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_what_takes_less_than_ten_seconds_says_nothing_in_a_log(
    tiny: HPlus, capsys: pytest.CaptureFixture[str]
) -> None:
    tiny.encode_document(["type 2 diabetes"] * 3, progress=True)
    out, err = capsys.readouterr()
    assert (out, err) == ("", "")


def test_a_bar_counts_to_the_end_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    with show_progress("encoding", 3) as bar:
        bar.advance(1)
        bar.advance(2)
    assert "encoding" in screen.getvalue()
    assert "3 of 3 (100%)" in screen.getvalue()


@pytest.mark.parametrize(
    ("total", "shown"), [(4, "1 of 4 (25%) in"), (lambda: 5, "1 of 5 (20%) in"), (None, "1 in")]
)
def test_the_total_is_shown_if_it_is_known(
    monkeypatch: pytest.MonkeyPatch, total: Any, shown: str
) -> None:
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    with show_progress("indexing", total) as bar:
        bar.advance(1)
    assert shown in screen.getvalue()


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_the_bar_is_one_line(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", str(columns))
    clock = Clock()
    with show_progress("indexing", 12_345_678, clock=clock) as bar:
        clock.now += 1000
        bar.advance(1_234_567)
    assert "1,234,567 of 12,345,678" in screen.getvalue()
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen.getvalue())
    lines = [line for part in shown.split("\r") for line in part.splitlines() if line.strip()]
    assert all(line.startswith("ind") for line in lines), lines


def test_no_bar_that_nobody_wants(
    monkeypatch: pytest.MonkeyPatch, tiny: HPlus, tmp_path: Path
) -> None:
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    with Index.create(tmp_path / "index", tiny) as index:
        index.add([{"id": "a", "text": "type 2 diabetes"}])
        index.compact()
        index.verify()
    assert screen.getvalue() == ""
    with Index.open(tmp_path / "index", model=tiny) as index:
        index.verify(progress=True)
    assert "verifying" in screen.getvalue()


def test_nothing_is_counted_before_there_is_a_line() -> None:
    def count() -> NoReturn:
        raise AssertionError("the source was counted")

    with show_progress("indexing", count) as bar:
        bar.advance(1)


@pytest.mark.parametrize("texts", [["a", "b", "a", ""], ["type 2 " * 200, "b"]])
def test_every_text_is_counted_once(tiny: HPlus, texts: list[str]) -> None:
    done = 0.0

    def advance(n: float) -> None:
        nonlocal done
        done += n

    budget = tiny.recipe.document_budget
    tiny.encode_step(texts, budget, None, advance)
    assert done == pytest.approx(len(texts))


def test_a_long_text_is_counted_window_by_window(tiny: HPlus) -> None:
    told: list[float] = []
    tiny.encode_step(["type 2 diabetes " * 2000], tiny.recipe.document_budget, None, told.append)
    parts = [done for done in told if done]
    assert len(parts) > 3
    assert max(parts) < 0.9
    assert sum(parts) == pytest.approx(1)


def test_a_line_every_ten_seconds_in_a_log(capsys: pytest.CaptureFixture[str]) -> None:
    clock, counted = Clock(), []

    def total() -> int:
        counted.append(clock.now)
        return 400

    with show_progress("indexing", total, clock=clock) as shown:
        for _ in range(25):
            clock.now += 1
            shown.advance(4)
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        "indexing: 40 of 400 (10%) in 0:10, 4.0/s, 1:30 left",
        "indexing: 80 of 400 (20%) in 0:20, 4.0/s, 1:20 left",
    ]
    assert counted == [110]  # once, and only for the first line


def test_a_log_of_an_unknown_total(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    with show_progress("indexing", None, clock=clock) as shown:
        clock.now += 3600
        shown.advance(0)
        clock.now += 10
        shown.advance(36100)
    assert capsys.readouterr().err.splitlines() == [
        "indexing: 0 in 1:00:00",
        "indexing: 36,100 in 1:00:10, 10/s",
    ]


def test_no_line_that_nobody_wants(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    with show_progress("indexing", 2, wanted=False, clock=clock) as shown:
        clock.now += 60
        shown.advance(1)
    assert capsys.readouterr() == ("", "")


def test_the_bar_moves_while_nothing_is_finished() -> None:
    """It is drawn several times a second; what it says follows the clock, not `advance`."""
    clock = Clock()
    pace = Pace("indexing", 100, clock)
    clock.now += 10
    pace.add(10)
    assert pace.describe() == "10 of 100 (10%) in 0:10, 1.0/s, 1:30 left"
    clock.now += 1
    assert pace.describe() == "10 of 100 (10%) in 0:11, 0.9/s, 1:39 left"


def test_the_rate_is_that_of_the_last_half_minute() -> None:
    clock = Clock()
    pace = Pace("indexing", 20_000, clock)
    for _ in range(10):  # what the index has already passes quickly
        clock.now += 1
        pace.add(1000)
    for _ in range(60):
        clock.now += 1
        pace.add(5)
    assert pace.describe() == "10,300 of 20,000 (51%) in 1:10, 5.0/s, 32:20 left"


@given(st.lists(st.tuples(st.floats(0, 100), st.integers(0, 50)), max_size=40))
def test_the_rate_never_looks_back_further_than_it_must(steps: list[tuple[float, int]]) -> None:
    """Against a list of everything that happened."""
    clock = Clock()
    pace = Pace("x", 10**9, clock)
    history, done = [(clock.now, 0)], 0
    for seconds, more in steps:
        clock.now += seconds
        pace.add(more)
        done += more
        history.append((clock.now, done))
    since, before = pace._recent[0]
    assert (since, before) in history
    gaps = [b - a for (a, _), (b, _) in pairwise(history) if b > since]
    assert clock.now - since <= 31 + max(gaps, default=0)
    assert pace.describe().startswith(f"{done:,} of 1,000,000,000 ")


class Cell:
    """What a notebook shows under a cell: every state of the one line."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def display(self, data: dict[str, str], *, raw: bool, display_id: bool) -> Cell:
        assert raw
        assert display_id
        self.update(data, raw=raw)
        return self

    def update(self, data: dict[str, str], *, raw: bool) -> None:
        assert raw
        self.texts.append(data["text/plain"])


@pytest.fixture
def cell(monkeypatch: pytest.MonkeyPatch) -> Cell:
    """A notebook, as far as we can tell."""
    cell, shell = Cell(), SimpleNamespace(kernel=object())
    package, module = ModuleType("IPython"), ModuleType("IPython.display")
    package.__dict__["get_ipython"] = lambda: shell
    module.__dict__["display"] = cell.display
    monkeypatch.setitem(sys.modules, "IPython", package)
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    return cell


def test_one_line_of_a_notebook_is_rewritten_every_second(
    cell: Cell, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = Clock()
    with show_progress("indexing", 100, clock=clock) as shown:
        for _ in range(6):
            clock.now += 0.5
            shown.advance(10)
    assert cell.texts == [
        "indexing: 0 of 100 (0%) in 0:00",
        "indexing: 20 of 100 (20%) in 0:01, 20/s, 0:04 left",
        "indexing: 40 of 100 (40%) in 0:02, 20/s, 0:03 left",
        "indexing: 60 of 100 (60%) in 0:03, 20/s, 0:02 left",
        "indexing: 60 in 0:03",
    ]
    assert capsys.readouterr() == ("", "")


def test_an_index_shows_its_progress_in_a_notebook(cell: Cell, tiny: HPlus, tmp_path: Path) -> None:
    with Index.create(tmp_path / "index", tiny) as index:
        index.add(["type 2", "heart failure"], progress=True)
    assert cell.texts[0].startswith("indexing: 0 of 2 (0%)")
    assert cell.texts[-1].startswith("indexing: 2 in ")


def test_ipython_at_a_terminal_is_no_notebook(
    cell: Cell, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.modules["IPython"], "get_ipython", lambda: SimpleNamespace())
    with show_progress("indexing", 1) as shown:
        shown.advance(1)
    assert cell.texts == []
    assert capsys.readouterr() == ("", "")


def test_threads_count_together(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    with show_progress("encoding", 4000, clock=clock) as shown:
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda _: shown.advance(1), range(4000)))
        clock.now += 10
        shown.advance(0)
    assert "4,000 of 4,000 (100%)" in capsys.readouterr().err


def test_rows_that_are_skipped_count(tiny: HPlus, tmp_path: Path, cell: Cell) -> None:
    rows = [{"id": "a", "text": "type 2"}, {"id": "b"}, {"id": "a", "text": "again"}]
    with Index.create(tmp_path / "index", tiny) as index:
        report = index.add(rows, on_error="skip", report=lambda _: None, progress=True)
    assert report.skipped == 2
    assert cell.texts[-1].startswith("indexing: 3 in ")


@given(st.integers(0, 10**7))
def test_durations_read_back(seconds: int) -> None:
    found = re.fullmatch(r"(?:(\d+) days? )?(?:(\d+):)?(\d+):(\d\d)", duration(seconds))
    assert found is not None
    days, hours, minutes, rest = (int(part or 0) for part in found.groups())
    assert ((days * 24 + hours) * 60 + minutes) * 60 + rest == seconds
