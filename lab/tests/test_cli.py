"""The commands of `hplus-lab`: every example of the help runs, and a mistake is one sentence."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hplus.evaluate.data import demo_folder
from hplus_lab import cli
from hplus_lab.cli import measure, run
from hplus_lab.protocols import load
from made_up_cells import cell

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """`hplus-lab ARGUMENTS` in this process: exit code, standard output, standard error."""

    def call(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["hplus-lab", *arguments])
        capfd.readouterr()
        try:
            cli.main()
            code = 0
        except SystemExit as end:
            code = int(end.code or 0)
        out, err = capfd.readouterr()
        return code, out, err

    return call


@pytest.fixture
def place(tmp_path: Path, tiny_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with what the examples name; the sets hold few documents."""
    shutil.copytree(demo_folder("en"), tmp_path / "scifact")
    (tmp_path / "terms.txt").write_text("type 2 diabetes\nblood pressure\n")
    (tmp_path / "table.toml").write_text(
        'name = "demo"\ndata = "."\nprotocols = ["full-corpus"]\nsets = ["scifact:test"]\n'
        f'limit = 3\n[[systems]]\nname = "tiny"\nmodel = "{tiny_folder}"\n'
    )
    monkeypatch.chdir(tmp_path)
    return tmp_path


NAMES = {str(own.name) for own in cli.app.registered_commands}


def words(example: str) -> list[str]:
    return shlex.split(example.removeprefix("Example: hplus-lab "))


def test_the_examples_of_the_help_run(place: Path, command: Run, tiny_folder: Path) -> None:
    quick = ["--model", str(tiny_folder), "--limit", "3"]
    for example, more in (
        (run.PROTOCOL_EXAMPLE, []),
        (measure.EXAMPLE, quick),
        (run.RUN_EXAMPLE, []),
        (run.REPORT_EXAMPLE, []),
        (run.PLOT_EXAMPLE, []),
    ):
        code, out, err = command(*words(example), *more)
        assert (code, err) == (0, ""), example
        assert out
    assert {path.name for path in (place / "results").iterdir()} == {
        *("summary.json", "times.json", "report.md", "times.md", "plots")
    }
    drawn = "full-corpus-tiny-lines.svg"
    assert (place / "plots" / drawn).read_bytes() == (place / "results/plots" / drawn).read_bytes()


@pytest.mark.parametrize("name", sorted(NAMES))
def test_help_ends_with_its_example(name: str) -> None:
    shown = CliRunner().invoke(cli.app, [name, "--help"], env={"COLUMNS": "200"}).output
    assert shown.strip().splitlines()[-1].strip().startswith(f"Example: hplus-lab {name}")


def test_protocols_are_listed_and_printed(command: Run) -> None:
    _, out, _ = command("protocol")
    assert len(out.splitlines()) == 20
    _, out, _ = command("protocol", "ablations-16")
    assert "budgets = [16]" in out  # inherited ones whole
    assert 'groupings = ["model", "tokens"]' in out


def test_another_measure_is_shown_by_its_name(capfd: pytest.CaptureFixture[str]) -> None:
    protocol = load("own-dense-recall")
    found = cell(protocol, "scifact", {"global": [0.25, 0.5], "phrase": [0.5, 1.0]})
    measure._show(found, replace(protocol, contrasts=()), json_=False)
    shown = capfd.readouterr().out
    assert "Recall@100 of the highest grade" in shown
    assert "75.0" in shown
    measure._show(found, replace(protocol, contrasts=()), json_=True)
    lines = json.loads(capfd.readouterr().out)["lines"]
    assert lines["global"]["recall-top100"] == 0.375


def test_a_protocol_s_times_are_apart(place: Path, command: Run, tiny_folder: Path) -> None:
    given = ("measure", "scifact", "full-corpus", "--model", str(tiny_folder), "--limit", "3")
    given = (*given, "--cache", "states", "--json")
    code, out, _ = command(*given, "--times", "times.json")
    assert code == 0
    assert "_ms" not in out
    times = json.loads((place / "times.json").read_text())
    assert times.keys() == json.loads(out)["lines"].keys()
    assert all(own["p95_ms"] > 0 for own in times.values())
    assert command(*given)[1] == out


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ("measure scifact full-corpus --times no/t.json", "no is not a folder"),
        ("measure scifact full-corpus --terms terms.txt", "does not use --terms"),
        ("measure scifact budgets --dev scifact:test", "does not use --dev"),
        ("measure scifact budgets --baselines .", "does not use --baselines"),
        ("measure scifact fusion --terms terms.txt --dev x", "expected DIR:SPLIT, got x"),
        ("measure scifact nothing", "unknown protocol 'nothing'"),
        ("measure nowhere full-corpus", "nowhere"),
        ("measure scifact full-corpus --model mini --device nonsense", "nonsense"),
        ("protocol gone.toml", "gone.toml is not a file"),
        ("run gone.toml", "gone.toml cannot be read"),
        ("run table.toml --data nowhere", "no folder of sets"),
        ("report nowhere", "does not hold the results"),
        ("plot nowhere", "does not hold the results"),
        ("plot gone.json", "is not the JSON file of `hplus evaluate budget --out`"),
    ],
)
@pytest.mark.usefixtures("place")
def test_a_mistake_is_one_sentence_and_exit_code_2(
    command: Run, arguments: str, complaint: str
) -> None:
    code, out, err = command(*arguments.split())
    assert (code, out) == (2, "")
    assert complaint in err
    assert err.count("\n") == 1
