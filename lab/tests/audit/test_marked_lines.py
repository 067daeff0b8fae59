"""Marked lines: what a mark means, what is refused, and the command."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from hplus.errors import InputError
from hplus.types import Span
from hplus_lab.audit.marked_lines import is_right, parse, read_lines
from hplus_lab.cli import main

LINES = Path(__file__).parents[3] / "experiments" / "segmentation"


def test_marks_are_taken_out_of_the_text() -> None:
    line = parse("lower │ (│⟦P < 0.01⟧│) in men")
    assert line.text == "lower (P < 0.01) in men"
    assert line.whole == (Span(7, 15),)
    assert line.begins == (6, 7, 15)


@pytest.mark.parametrize(
    ("units", "right"),
    [
        ([(0, 7), (8, 13), (14, 19)], True),
        ([(0, 13), (14, 19)], False),  # nothing begins at the dose
        ([(0, 7), (8, 10), (11, 13), (14, 19)], False),  # the dose is divided
        ([(0, 7), (8, 19)], True),  # what follows is left open
    ],
)
def test_right_is_every_mark(units: list[tuple[int, int]], right: bool) -> None:
    line = parse("aspirin │ ⟦81 mg⟧ daily")
    assert is_right(line, [Span(*unit) for unit in units]) is right


@pytest.mark.parametrize("row", ["⟦a ⟦b⟧⟧", "a⟧", "⟦⟧ a", "⟦a │ b⟧", "⟦a", "a b"])
def test_a_wrong_mark_is_refused_with_its_line(row: str, tmp_path: Path) -> None:
    file = tmp_path / "lines.txt"
    file.write_text(f"## family\n\na │ b\n{row}\n")
    with pytest.raises(InputError, match=r"lines\.txt:4: "):
        read_lines(file)


def test_a_file_without_lines_is_refused(tmp_path: Path) -> None:
    (tmp_path / "lines.txt").write_text("## family\n")
    with pytest.raises(InputError, match="has no lines"):
        read_lines(tmp_path / "lines.txt")


def test_the_lines_to_develop_on_and_to_report_on_share_families_and_no_text() -> None:
    dev, report = (read_lines(LINES / f"{part}.txt") for part in ("dev", "report"))
    assert [*dict.fromkeys(line.family for line in dev)] == [
        *dict.fromkeys(line.family for line in report)
    ]
    assert not {line.text for line in dev} & {line.text for line in report}


def test_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "lines.txt"
    file.write_text("## one\n⟦heart failure⟧ │ is common\n## two\n⟦common is⟧ heart\n")
    for option in ("--json", "--wrong"):
        monkeypatch.setattr(sys, "argv", ["hplus-lab", "units", str(file), option])
        with pytest.raises(SystemExit) as stop:
            main()
        assert not stop.value.code
    rows, table = capsys.readouterr().out.split("family  ", 1)
    assert [json.loads(row) for row in rows.splitlines()] == [
        {"family": "one", "right": 1, "lines": 1},
        {"family": "two", "right": 0, "lines": 1},
    ]
    assert "two: common │ is │ heart" in table
