"""The prompt: commands change how the next query is searched; earlier lines are remembered."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hplus import HPlus, Index
from hplus.cli.prompt import HELP, history

Run = Callable[..., tuple[int, str, str]]
Type = Callable[..., None]

NOTES = [
    {"id": "a", "text": "Metformin treats type 2 diabetes.", "year": 2021},
    {"id": "b", "text": "Insulin treats type 1 diabetes.", "year": 2015},
    {"id": "c", "text": "Heart failure with reduced ejection fraction.", "year": 2023},
]


@pytest.fixture(scope="module")
def index(mini: HPlus, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("prompt") / "notes.hplus"
    with Index.create(path, mini) as made:
        made.add(NOTES)
    return path


@pytest.fixture
def typing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Type:
    """Lines as a person types them."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))

    def type_(*lines: str) -> None:
        terminal = io.StringIO("".join(f"{line}\n" for line in lines))
        monkeypatch.setattr(terminal, "isatty", lambda: True)
        monkeypatch.setattr(sys, "stdin", terminal)

    return type_


def answers(out: str) -> list[list[str]]:
    """The ids of the hits of each answer in JSON."""
    rows = [line.removeprefix("query> ") for line in out.replace("query> ", "\n").splitlines()]
    return [[hit["id"] for hit in json.loads(row)["hits"]] for row in rows if row]


def test_commands_change_the_next_queries(run: Run, index: Path, typing: Type) -> None:
    typing(
        "type 2 diabetes",
        ":k 1",
        "type 2 diabetes",
        ":where year < 2020",
        "type 2 diabetes",
        ":where",
        ":k 5",
        ":view lexical",
        "  heart failure  ",
    )
    code, out, err = run("search", index, "--json")
    assert code == 0
    assert answers(out) == [["a", "b", "c"], ["a"], ["b"], ["c"]]
    assert err.splitlines() == [
        "3 documents; one query per line, :help for commands, Ctrl-D ends",
        "k 1, view hybrid",
        "k 1, view hybrid, where year < 2020",
        "k 1, view hybrid",
        "k 5, view hybrid",
        "k 5, view lexical",
        "",
    ]


def test_explanations_are_switched_on_and_off(run: Run, index: Path, typing: Type) -> None:
    typing("diabetes", ":explain", "diabetes", ":explain", "diabetes")
    _, out, err = run("search", index, "-k", "1")
    first, second, third = out.split("candidates")[:3]
    assert ["fused" in part for part in (first, second, third)] == [False, True, False]
    assert "k 1, view hybrid, explained" in err
    typing(":explain", "diabetes")
    _, out, _ = run("search", index, "--json")
    assert '"explanation"' in out


def test_a_mistake_is_shown_and_changes_nothing(run: Run, index: Path, typing: Type) -> None:
    typing(":k many", ":view dense", ":where year >", ":top 3", ":", "heart failure")
    _, out, err = run("search", index, "--json", "-k", "1")
    assert answers(out) == [["c"]]
    for said in (
        "error: expected a number of hits, such as :k 20, got 'many'",
        "error: expected view to be one of hybrid, global, phrase, lexical, got 'dense'",
        "error: expected a value, but the filter ends here",
        "error: unknown command :top; :help lists all of them",
        "error: unknown command :; :help",
    ):
        assert said in err
    assert err.count("error: ") == 5


def test_help_and_the_end(run: Run, index: Path, typing: Type) -> None:
    typing(":help", ":quit", "never asked")
    code, out, err = run("search", index, "--json")
    assert (code, answers(out)) == (0, [])
    assert HELP in err
    for command in (":k", ":view", ":where", ":explain", ":help", ":quit"):
        assert f"\n{command} " in f"\n{HELP}"


def test_in_a_pipe_every_line_is_a_query(
    run: Run, index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(":k 1\n"))
    code, out, err = run("search", index, "--json")
    assert (code, err) == (0, "")
    assert json.loads(out)["query"] == ":k 1"


@pytest.fixture
def lines() -> Iterator[Callable[[], list[str]]]:
    """What readline remembers now; it has one memory for the whole process."""
    readline = pytest.importorskip("readline")
    readline.clear_history()

    def remembered() -> list[str]:
        count = readline.get_current_history_length()
        return [readline.get_history_item(i + 1) for i in range(count)]

    yield remembered
    readline.clear_history()


def test_the_next_session_remembers(
    lines: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import readline

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with history():
        assert lines() == []
        readline.add_history("type 2 diabetes")
    readline.clear_history()
    with history():
        assert lines() == ["type 2 diabetes"]
    file = tmp_path / "hplus" / "history"
    assert file.stat().st_mode & 0o077 == 0
    readline.clear_history()
    monkeypatch.setenv("XDG_STATE_HOME", str(file))  # no folder: the prompt works all the same
    with history():
        assert lines() == []
