"""Texts, ids and names that would command a terminal: nothing that a command prints does."""

from __future__ import annotations

import ast
import json
import os
import pty
import re
import select
import sqlite3
import subprocess
import sys
import unicodedata
from collections.abc import Callable
from pathlib import Path

import pytest
import typer

from hplus import HPlus, Index
from hplus.cli import app
from hplus.cli.common import console, print_json
from hplus.terminal import visible

Run = Callable[..., tuple[int, str, str]]
ROOT = Path(__file__).parents[2]
# An odd colour, a bell, a title, C1, a link, bidi, invisible ones, rich's markup and emoji codes.
COLOUR = "\x1b[8;99m"
BAD = f"{COLOUR}k\x07\x9b2J\x1b]8;;evil\x1b\\\u202e\u200b\U000e0041\x7f\u2066[red]:pill:"
TEXT = f"Type 2 diabetes {BAD} of the\r kidney\x0b \x85 in \u2028 heart failure \x00"
# Letters and emoji need these.
NEEDED = "\n\u00ad\u200c\u200d"
RICH = re.compile(r"\x1b\[[0-9;]*m")


def hidden(text: str) -> list[str]:
    """The characters nobody should find in what was printed."""
    kinds = ("Cc", "Cf", "Zl", "Zp", "Cs")
    return [c for c in text if unicodedata.category(c) in kinds and c not in NEEDED]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder whose files have hostile names and contents."""
    folder = tmp_path_factory.mktemp("hostile")
    name = BAD.replace("/", "")
    rows = [
        {"_id": "a\u202eb\u200b", "title": BAD, "text": TEXT, BAD: BAD},
        {"_id": "plain", "text": "Type 1 diabetes"},
        {"_id": "c", "text": None, BAD: 1},
        {"_id": f"d{BAD}", "text": "an id that is refused"},
    ]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / f"{name}.jsonl").write_text(lines)
    (folder / f"{name}.txt").write_text(TEXT.replace("\r", " ") + "\n")
    (folder / f"{name}.terms").write_text("of\x1b the\ndiabetes\n")
    (folder / f"{name}.queries.jsonl").write_text(json.dumps({"_id": "q", "text": TEXT}) + "\n")
    with Index.create(folder / f"{name}.hplus", HPlus()) as index:
        index.add([{"id": "a\u202eb\u200b", "title": BAD, "text": TEXT, BAD: BAD}])
        index.add([{"id": "plain", "text": "Type 1 diabetes"}])
    # What another program may have written.
    with sqlite3.connect(folder / f"{name}.hplus" / "catalogue.sqlite") as catalogue:
        catalogue.execute("UPDATE documents SET id = ? WHERE id = 'plain'", (f"p{BAD}",))
    catalogue.close()
    judged = folder / f"{name}.set"
    (judged / "qrels").mkdir(parents=True)
    (judged / "corpus.jsonl").write_text(
        "".join(json.dumps({"_id": f"d{i}", "text": f"{TEXT} {i}"}) + "\n" for i in range(3))
    )
    (judged / "queries.jsonl").write_text(json.dumps({"_id": "q\u202e", "text": TEXT}) + "\n")
    (judged / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq\u202e\td0\t1\n")
    (folder / f"{name}.trec").write_text("other Q0 d0 1 1.0 x\n")
    return folder


# What is typed, with {} for the hostile name; every command is here, and so is every kind of error.
TYPED: dict[str, list[list[str]]] = {
    "segment": [[TEXT], [TEXT, "--json"], ["x", "--terms", "{}.no"], ["x", "--model", "{}"]],
    "score": [
        [TEXT, TEXT],
        [TEXT, TEXT, "--explain"],
        [TEXT, TEXT, "--explain", "--budget", "2", "--policy", "drop"],
        [TEXT, TEXT, "--explain", "--json"],
    ],
    "index": [
        ["{}.jsonl", "{}.new"],
        ["{}.jsonl", "{}.new2", "--on-error", "skip"],
        ["{}.no", "{}.new"],
        ["{}.jsonl", "{}.txt"],
        ["{}.set", "{}.new3", "--json"],
        ["{}.terms", "{}.new4"],
    ],
    "search": [
        ["{}.hplus", TEXT],
        ["{}.hplus", TEXT, "--explain"],
        ["{}.hplus", TEXT, "--json", "--explain"],
        ["{}.hplus", "x", "--where", TEXT],
        ["{}.hplus", "x", "--where", f"`{BAD}` = 1"],
        ["{}.hplus", "x", "--alpha", BAD],
        ["{}.hplus", "x", "--model", "{}"],
        ["{}.hplus", "--queries", "{}.queries.jsonl", "--trec", "{}.out"],
        ["{}.no", "x"],
        ["{}.txt", "x"],
        ["{}.hplus", "x", "-k", BAD],
        ["{}.hplus", "x", "y", BAD],
        ["{}.hplus", f"--{BAD}"],
    ],
    "more-like": [
        ["{}.hplus", f"p{BAD}"],
        ["{}.hplus", f"p{BAD}", "--json"],
        ["{}.hplus", BAD],
    ],
    "get": [["{}.hplus", f"p{BAD}"], ["{}.hplus", "a\u202eb\u200b", "--json"], ["{}.hplus", BAD]],
    "export": [["{}.hplus", "-"], ["{}.hplus", "{}.exported.jsonl"], ["{}.no", "-"]],
    "delete": [["{}.hplus", BAD], ["{}.hplus", "--where", BAD], ["{}.no", BAD]],
    "compact": [["{}.hplus"], ["{}.no"]],
    "verify": [["{}.hplus"], ["{}.hplus", "--json"], ["{}.no"]],
    "stats": [["{}.hplus"], ["{}.hplus", "--json"], ["{}.no"]],
    "bulk": [
        ["{}.jsonl", "{}.shards"],
        ["{}.set", "{}.shards2", "--shards", "2"],
        ["{}.no", "{}.shards"],
        ["{}.set", "{}.txt"],
        ["{}.set", "{}.shards3", "--shard", BAD],
    ],
    "push": [["{}.no", BAD], ["{}.hplus", BAD], ["{}.hplus", f"qdrant://{BAD}/x"]],
    "pull": [[BAD, "{}.pulled"], ["{}.no", "{}.pulled"]],
    "diff": [["{}.hplus", BAD], ["{}.no", "qdrant://"]],
    "encode": [["{}.txt", "{}.npz"], ["{}.txt", "{}.odd"], ["{}.no", "{}.npz"]],
    "convert": [["{}", "{}.out"], ["{}.set", "{}.out"], ["{}.set", "{}.out", "--json"]],
    "info": [["--terms", "{}.terms"], ["--terms", "{}.no"], ["--model", "{}"]],
    "serve": [["{}.no"], ["{}.hplus", "--host", BAD]],
    "mcp": [["{}.no"]],
    "demo": [["--model", "{}"]],
    "terms check": [["{}.terms", "{}.txt"], ["{}.terms", "{}.txt", "--json"], ["{}.no", "{}.txt"]],
    "teach labels": [
        ["{}.txt", "--out", "{}.labels", "--chunker", "none", "--report"],
        ["{}.txt", "--out", "{}.labels", "--chunker", "none", "--json"],
        ["{}.no", "--out", "{}.labels"],
    ],
    "teach negatives": [
        ["{}.no", "--out", "{}.groups"],
        ["{}.txt", "--out", "{}.g", "--from", BAD],
    ],
    "teach scores": [["{}.no", "--out", "{}.scores", "--teacher", BAD]],
    "train stage1": [["{}.no", "--out", "{}.model"], ["{}.txt", "--out", "{}.model"]],
    "train stage2": [["{}.no", "--out", "{}.model"], ["{}.txt", "--out", "{}.model"]],
    "train heads": [["{}.no", "--dev", "{}.no", "--out", "{}.heads"]],
    "evaluate beir": [["{}.set"], ["{}.set", "--json"], ["{}.no"], ["{}.set", "--split", BAD]],
    "evaluate trec": [["{}.trec", "{}.set"], ["{}.trec", "{}.set", "--json"], ["{}.no", "{}.set"]],
    "evaluate budget": [["{}.no"]],
    BAD: [[]],
}


def test_every_command_is_typed_here() -> None:
    def names(group: object, before: str = "") -> list[str]:
        found: list[str] = []
        for name, command in group.commands.items():  # type: ignore[attr-defined]
            inner = hasattr(command, "commands")
            found += names(command, f"{before}{name} ") if inner else [f"{before}{name}"]
        return found

    assert set(names(typer.main.get_command(app))) == set(TYPED) - {BAD}


@pytest.mark.parametrize("colour", [False, True], ids=["plain", "colour"])
@pytest.mark.parametrize(
    "typed",
    [[*name.split(" "), *rest] for name, cases in TYPED.items() for rest in cases],
    ids=lambda typed: " ".join(typed).encode("unicode_escape").decode()[:60],
)
def test_nothing_printed_commands_a_terminal(
    run: Run, place: Path, monkeypatch: pytest.MonkeyPatch, typed: list[str], colour: bool
) -> None:
    monkeypatch.chdir(place)
    monkeypatch.delenv("COLUMNS", raising=False)
    if colour:
        monkeypatch.setenv("FORCE_COLOR", "1")
    name = BAD.replace("/", "")
    code, out, err = run(*(argument.replace("{}", name) for argument in typed))
    assert code in (0, 1, 2)
    assert out + err
    for printed in (out, err):
        assert COLOUR not in printed
        assert hidden(RICH.sub("", printed) if colour else printed) == []


def test_json_gives_back_what_was_read(run: Run, place: Path) -> None:
    _, out, _ = run("segment", TEXT, "--json")
    assert json.loads(out)["text"] == TEXT
    _, out, _ = run("search", place / f"{BAD}.hplus", "diabetes", "--json")
    hits = json.loads(out)["hits"]
    assert {hit["id"] for hit in hits} == {"a\u202eb\u200b", f"p{BAD}"}
    assert {f"{BAD} {TEXT}", "Type 1 diabetes"} == {hit["text"] for hit in hits}
    _, out, _ = run("export", place / f"{BAD}.hplus", "-")
    assert {json.loads(line)["text"] for line in out.splitlines()} == {hit["text"] for hit in hits}
    assert "糖" in run("segment", "糖尿病", "--json")[1]


def test_markup_and_emoji_codes_mean_themselves(run: Run) -> None:
    _, out, _ = run("score", "kidney", "the [red]kidney[/red] :pill:", "--explain")
    assert out.count("[red]kidney[/red] :pill:") == 2
    assert "[red]" in run("segment", "[red]", "--model", "no[red]")[2]


def test_results_and_errors_in_python_are_safe(place: Path) -> None:
    with Index.open(place / f"{BAD}.hplus") as index:
        found = index.search("diabetes", explain=True)
        assert hidden(str(found)) == []
        assert hidden(found._repr_html_()) == []
        with pytest.raises(ValueError, match="no document") as caught:
            index.rerank("x", [BAD])
        assert hidden(str(caught.value)) == []


def test_marks_stay_where_they_are(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    _, out, _ = run("score", "kidney", "\x07\x07\x08\r\x0b kidney", "--explain")
    marked = re.findall(r"\x1b\[1;36mkidney\x1b\[0m", out.split("document  ")[1])
    assert len(marked) == 1


def test_a_prompt_and_a_bar_on_a_terminal(place: Path) -> None:
    """The real thing: a pseudo-terminal, the prompt, colours, and a mistake."""
    leader, follower = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "hplus", "search", f"{BAD}.hplus"],
        cwd=place,
        stdin=follower,
        stdout=follower,
        stderr=follower,
        env={**os.environ, "TERM": "xterm-256color"},
        close_fds=True,
    )
    os.close(follower)
    shown = _until(leader, "query> ")
    os.write(leader, b"kidney\n")
    shown += _until(leader, "query> ")
    os.write(leader, b"\x04")
    process.wait(timeout=60)
    os.close(leader)
    assert "\x1b[1m" in shown
    assert COLOUR not in shown
    for bad in ("\x07", "\x9b2J", "\x1b]8", "\u202e", "\u200b"):
        assert bad not in shown


def _until(terminal: int, end: str) -> str:
    """What a terminal shows up to these characters."""
    printed = b""
    while end.encode() not in printed:
        ready, _, _ = select.select([terminal], [], [], 120)
        assert ready, printed
        printed += os.read(terminal, 1 << 16)
    return printed.decode()


def test_json_is_printed_in_one_place() -> None:
    """`print(json.dumps(…))` would lose what the stream makes visible; `print_json` escapes it."""
    for path in (*ROOT.glob("src/hplus/cli/*.py"), *ROOT.glob("lab/src/hplus_lab/cli/*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "print":
                called = [getattr(a.func, "attr", "") for a in node.args if isinstance(a, ast.Call)]
                assert "dumps" not in called, f"{path.name}:{node.lineno}: use print_json"


def test_print_json_and_tables(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"a": "\x9b\u202e\U000e0041糖"})
    line = capsys.readouterr().out
    assert hidden(line) == []
    assert json.loads(line) == {"a": "\x9b\u202e\U000e0041糖"}
    console().print(BAD, style="bold")
    assert capsys.readouterr().out == visible(BAD).replace("␇", "") + "\n"
