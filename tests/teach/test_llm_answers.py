"""Answers survive what a run may not, and damage is noticed."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from hplus import StorageError
from hplus.teach.llm_answers import open_answers

KEPT_THEN_KILLED = """
import os, signal, sys
from pathlib import Path
from hplus.teach.llm_answers import open_answers
with open_answers(Path(sys.argv[1])) as answers:
    for i in range(5):
        answers.keep(str(i), "m", "text", {"n": i})
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_answers_come_back_as_they_were(tmp_path: Path) -> None:
    path = tmp_path / "new" / "answers.sqlite"
    answer = {"choices": [{"message": {"content": "心 \ud800 \x00"}}], "usage": None}
    with open_answers(path) as answers:
        answers.keep("a", "m", "a text \ud800", answer)
        answers.keep("a", "m", "a text \ud800", {"another": 1})
        assert answers.get("b") is None
        assert "b" not in answers
    with open_answers(path) as answers:
        assert len(answers) == 1
        assert "a" in answers
        assert answers.get("a") == answer, "the first answer stays"


def test_a_killed_process_loses_no_answer(tmp_path: Path) -> None:
    path = tmp_path / "answers.sqlite"
    done = subprocess.run([sys.executable, "-c", KEPT_THEN_KILLED, path])
    assert done.returncode == -signal.SIGKILL
    with open_answers(path) as answers:
        assert [answers.get(str(i)) for i in range(6)] == [*({"n": i} for i in range(5)), None]


def test_two_runs_may_share_a_file(tmp_path: Path) -> None:
    path = tmp_path / "answers.sqlite"
    with open_answers(path) as one, open_answers(path) as two:
        one.keep("a", "m", "text", {"n": 1})
        two.keep("b", "m", "text", {"n": 2})
        assert (two.get("a"), one.get("b")) == ({"n": 1}, {"n": 2})


def test_a_changed_answer_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "answers.sqlite"
    with open_answers(path) as answers:
        answers.keep("a", "m", "text", {"n": 1})
        answers.connection.execute("""UPDATE answers SET answer = '{"n": 2}'""")
        with pytest.raises(StorageError, match=r"answers\.sqlite is damaged"):
            answers.get("a")


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "labels.jsonl"
    path.write_text('{"text": "no database"}\n' * 100)
    with pytest.raises(StorageError, match=r"labels\.jsonl cannot be used"), open_answers(path):
        pass
    assert path.read_text().startswith('{"text"')


def test_a_full_disk_is_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "answers.sqlite"
    with open_answers(path) as answers:
        answers.keep("a", "m", "text", {"n": 1})

    def keep_too_much() -> None:
        with open_answers(path) as answers:
            answers.connection.execute("PRAGMA max_page_count = 1")
            answers.keep("b", "m", "x" * 100_000, {"n": 2})

    with pytest.raises(StorageError, match="cannot be used: database or disk is full"):
        keep_too_much()
    with open_answers(path) as answers:
        assert answers.get("a") == {"n": 1}
        assert "b" not in answers


def test_others_can_read_along(tmp_path: Path) -> None:
    path = tmp_path / "answers.sqlite"
    with open_answers(path) as answers:
        answers.keep("a", "m", "a text", {"n": 1})
        reader = sqlite3.connect(path)
        rows = reader.execute("SELECT model, text, answer FROM answers").fetchall()
        reader.close()
    assert rows == [("m", "a text", '{"n": 1}')]
