"""What the pages show is what the program prints: every console and Python block is run.

`python tests/test_docs.py` writes the present output into the pages.
"""

from __future__ import annotations

import io
import os
import pkgutil
import re
import shlex
import subprocess
import sys
from contextlib import chdir, redirect_stdout
from pathlib import Path
from unittest import mock

import pytest

from hplus.cli import main
from hplus_lab.cli import app as laboratory

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
CONSOLE = re.compile(r"```console\n(.*?)```", re.DOTALL)
PYTHON = re.compile(r"```python\n(.*?)```", re.DOTALL)
# Set-up is CI itself, and the demo has its own test.
NOT_RUN = ("make ", "pip ", "git ")
NUMBER = re.compile(r"-?\d+\.\d+(?:e-?\d+)?")
# Another processor rounds the last bit of a float otherwise; where it moves a state over the edge
# between two 8-bit codes, it grows. Noise of 1e-6 in the embeddings moved scores by up to 0.005.
ROUNDING = {"abs": 1e-2, "rel": 2e-2}


def commands(block: str) -> list[tuple[str, str]]:
    """A console block as pairs of command and shown output."""
    pieces = re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]
    return [(piece.split("\n", 1)[0], piece.split("\n", 1)[1]) for piece in pieces]


def printed(command: str, folder: Path) -> str:
    """What the command prints, run as a person would in `folder`."""
    words = list(shlex.shlex(command, posix=True, punctuation_chars=True))
    in_a_shell = words[0] != "hplus" or any(set(word) <= set("|&;<>()") for word in words)
    out = _by_bash(command, folder) if in_a_shell else _by_main(shlex.split(command), folder)
    return "\n".join(line.rstrip() for line in out.splitlines())


def _by_main(words: list[str], folder: Path) -> str:
    """In this process: a new one spends most of its time on what is loaded here already."""
    out = io.TextIOWrapper(io.BytesIO(), "utf-8")
    with (
        chdir(folder),
        redirect_stdout(out),
        mock.patch.dict(os.environ, COLUMNS="100"),
        mock.patch.object(sys, "argv", words),
    ):
        with pytest.raises(SystemExit) as stop:
            main()
        out.flush()
    assert not stop.value.code, words
    return out.buffer.getvalue().decode()


def _by_bash(command: str, folder: Path) -> str:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env={**os.environ, "PATH": path, "COLUMNS": "100"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def assert_alike(shown: str, found: str) -> None:
    """The same words, and numbers within what another processor's rounding may change."""
    shown, found = shown.strip(), found.strip()
    assert NUMBER.sub("#", shown) == NUMBER.sub("#", found)
    for a, b in zip(NUMBER.findall(shown), NUMBER.findall(found), strict=True):
        assert float(a) == pytest.approx(float(b), **ROUNDING)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_console_blocks_show_what_is_printed(page: Path, tmp_path: Path) -> None:
    for block in CONSOLE.findall(page.read_text()):
        for command, shown in commands(block):
            if not command.startswith(NOT_RUN):
                assert_alike(shown, printed(command, tmp_path))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python_blocks_run(page: Path, tmp_path: Path) -> None:
    """One after another in a process of their own, each with nothing of the others' names."""
    blocks = PYTHON.findall(page.read_text())
    program = "import sys\nfor block in sys.argv[1:]: exec(block, {'__name__': '__main__'})"
    if blocks:
        done = subprocess.run(
            [sys.executable, "-c", program, *blocks], cwd=tmp_path, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_shell_and_the_python_of_a_page_share_no_index(page: Path) -> None:
    """Who tries both in one folder meets no index that exists already."""
    text = page.read_text()
    made = [re.findall(r'Index\.create\("([^"]+)"', block) for block in PYTHON.findall(text)]
    by_python = [name for names in made for name in names]
    by_shell = set(re.findall(r"^\$ hplus index \S+ (\S+)", text, re.MULTILINE))
    assert len(set(by_python)) == len(by_python)
    assert not by_shell & set(by_python)


def test_no_page_speaks_of_a_folder_that_a_clone_lacks() -> None:
    for page in PAGES:
        assert not re.findall(r"\.\./\w+|/work|/home|/root|shared/", page.read_text()), page.name


def test_links_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_the_paper_map_names_what_is_there() -> None:
    for line in (ROOT / "docs" / "paper-map.md").read_text().splitlines():
        cells = line.strip("|").split("|")
        if len(cells) != 4:
            continue
        for name in re.findall(r"`([\w.]+\.[\w.]+)`", cells[2]):
            full = name if name.startswith("hplus_lab.") else f"hplus.{name}"
            assert pkgutil.resolve_name(full), name
        for name in re.findall(r"(test_\w+\.py)", cells[3]):
            assert [*ROOT.glob(f"tests/**/{name}"), *ROOT.glob(f"lab/tests/**/{name}")], name


def test_the_commands_of_the_laboratory_are_documented() -> None:
    page = (ROOT / "docs" / "cli.md").read_text()
    for command in laboratory.registered_commands:
        assert f"hplus-lab {command.name}" in page, command.name


def refresh() -> None:
    """Write the present output of every console block into the pages."""
    import tempfile

    for page in PAGES:
        with tempfile.TemporaryDirectory() as folder:

            def rerun(match: re.Match[str], folder: str = folder) -> str:
                lines = []
                for command, shown in commands(match[1]):
                    run = not command.startswith(NOT_RUN)
                    output = printed(command, Path(folder)) if run else shown.strip("\n")
                    lines += [f"$ {command}", *([output] if output else [])]
                return "```console\n" + "\n".join(lines) + "\n```"

            page.write_text(CONSOLE.sub(rerun, page.read_text()))


if __name__ == "__main__":
    refresh()
