"""Progress goes to standard error, on a terminal only."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any, NoReturn

import pytest

from hplus import HPlus, Index
from hplus.progress import show_progress


class Terminal(io.StringIO):
    """A text stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_nothing_is_shown_without_a_terminal(
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
    assert "3/3" in screen.getvalue()


@pytest.mark.parametrize(("total", "shown"), [(4, "1/4"), (lambda: 5, "1/5"), (None, "1/?")])
def test_the_total_is_shown_if_it_is_known(
    monkeypatch: pytest.MonkeyPatch, total: Any, shown: str
) -> None:
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    with show_progress("indexing", total) as bar:
        bar.advance(1)
    assert shown in screen.getvalue()


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


def test_nothing_is_counted_without_a_terminal() -> None:
    def count() -> NoReturn:
        raise AssertionError("the source was counted")

    with show_progress("indexing", count) as bar:
        bar.advance(1)


@pytest.mark.parametrize("texts", [["a", "b", "a", ""], ["type 2 " * 200, "b"]])
def test_every_text_is_counted_once(tiny: HPlus, texts: list[str]) -> None:
    done = 0

    def advance(n: int) -> None:
        nonlocal done
        done += n

    budget = tiny.recipe.document_budget
    tiny.encode_step(texts, budget, None, advance)
    assert done == len(texts)
