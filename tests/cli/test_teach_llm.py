"""`hplus teach labels --llm`: from pairs to labels, with a server of any temper."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from hplus.teach.label_file import read_labels
from llm_server import Body, Reply, StandIn, completion, good, run_batch, serving, text_of, units_of

Run = Callable[..., tuple[int, str, str]]
QUERY = "What treats type 2 diabetes?"
POSITIVE = "Metformin treats type 2 diabetes at 5 mg/kg."
OTHERS = [f"heart failure after {i} weeks" for i in range(4)]
LLM_PAGE = Path(__file__).parents[2] / "docs" / "cli.md"


@pytest.fixture
def run(run: Run, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.delenv("HPLUS_LLM_KEY", raising=False)
    # A command lets SIGPIPE end the process, and the stand-in is in the same process.
    monkeypatch.setattr("hplus.cli.signal", object())
    return partial(run, "teach", "labels")


@pytest.fixture
def server() -> Iterator[StandIn]:
    with serving() as made:
        yield made


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    path = tmp_path / "pairs.jsonl"
    rows: list[dict[str, Any]] = [{"query": QUERY, "positive": POSITIVE}]
    rows += [{"text": text} for text in OTHERS]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def units(path: Path) -> dict[str, list[str]]:
    return {
        item.text: [item.text[a:b] for a, b in item.units]
        for labels in read_labels(path).values()
        for item in labels
    }


def test_query_and_positive_get_labels(
    run: Run, server: StandIn, pairs: Path, tmp_path: Path
) -> None:
    out = tmp_path / "labels.jsonl"
    code, shown, err = run(pairs, "--llm", server.url, "--llm-model", "m", "--out", out)
    assert code == 0
    assert f"6 texts labelled: {out}\n" in shown
    assert "6 answers from m: 600 tokens asked, 120 answered\n" in err
    assert sorted(server.texts) == sorted([QUERY, POSITIVE, *OTHERS])
    found = units(out)
    assert found[QUERY] == ["treats", "type 2 diabetes"]
    assert found[POSITIVE] == ["Metformin", "treats", "type 2 diabetes", "5 mg/kg"]
    assert found[OTHERS[3]] == ["heart failure", "3 weeks"]


def test_marked_texts_and_texts_without_words_are_not_asked_about(
    run: Run, server: StandIn, tmp_path: Path
) -> None:
    path, out = tmp_path / "notes.jsonl", tmp_path / "labels.jsonl"
    rows = [{"text": "BRCA1 gene", "spans": [[0, 10, "Gene"]]}, {"text": "…"}, {"text": QUERY}]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert run(path, "--llm", server.url, "--llm-model", "m", "--out", out)[0] == 0
    assert server.texts == [QUERY]
    assert units(out) == {"BRCA1 gene": ["BRCA1 gene"], "…": [], QUERY: units(out)[QUERY]}


def test_bad_answers_are_refused_and_counted(
    run: Run, server: StandIn, pairs: Path, tmp_path: Path
) -> None:
    bad = {
        QUERY: Reply(completion("The units are: type 2 diabetes")),
        POSITIVE: Reply(completion(units_of(POSITIVE)[::-1])),
        OTHERS[0]: Reply(completion(units_of(OTHERS[0]), finish="length")),
        OTHERS[1]: Reply({"error": "too long"}, status=413),
        OTHERS[2]: Reply(completion(["heart failure", "since", "after 2 weeks"])),
    }
    server.reply = lambda body: bad.get(text_of(body)) or good(body)
    out = tmp_path / "labels.jsonl"
    command = [pairs, "--llm", server.url, "--llm-model", "m", "--out", out]
    code, shown, err = run(*command, "--json")
    assert code == 0
    assert units(out) == {
        OTHERS[2]: ["heart failure", "2 weeks"],
        OTHERS[3]: ["heart failure", "3 weeks"],
    }
    dropped = json.loads(shown)["dropped"]
    assert {reason: n for reason, n in dropped.items() if "text" in reason} == {
        "texts refused: the answer is not JSON": 1,
        "texts refused: the segments found cover less than 80% of the text": 1,
        "texts refused: the answer was cut short (finish_reason length)": 1,
        "texts without an answer": 1,
    }
    assert dropped["segments that do not occur"] == 1
    assert "warning: 1 texts without an answer: HTTP 413\n" in err
    # Refused answers are answers: only the failed text is asked about again.
    server.bodies.clear()
    server.reply = good
    shown = run(*command)[1]
    assert server.texts == [OTHERS[1]]
    assert "3 texts labelled" in shown
    assert "pairs: 1 texts refused: the answer is not JSON\n" in shown


def test_a_run_that_is_killed_continues(
    run: Run, server: StandIn, pairs: Path, tmp_path: Path
) -> None:
    whole, out = tmp_path / "whole.jsonl", tmp_path / "labels.jsonl"
    assert run(pairs, "--llm", server.url, "--llm-model", "m", "--out", whole)[0] == 0
    asked = len(server.bodies)

    def reply(body: Body) -> Reply:
        return server.hang(body) if len(server.bodies) - asked > 4 else good(body)

    server.reply = reply
    command = [str(pairs), "--llm", server.url, "--llm-model", "m", "--out", str(out)]
    options = ["--llm-concurrency", "1"]
    process = subprocess.Popen(
        [sys.executable, "-m", "hplus", "teach", "labels", *command, *options],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    while len(server.bodies) - asked < 5 and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not out.exists()
    server.bodies.clear()
    server.reply = good
    assert "2 answers from m" in run(*command)[2]
    assert len(server.bodies) == 2
    assert out.read_bytes() == whole.read_bytes()
    server.bodies.clear()
    assert run(*command)[0] == 0
    assert server.bodies == []
    assert out.read_bytes() == whole.read_bytes()
    # Another model, or other parameters, are other questions.
    run(*command, "--llm-parameters", '{"seed": 7}')
    assert [body["seed"] for body in server.bodies] == [7] * 6


def test_a_budget(run: Run, server: StandIn, pairs: Path, tmp_path: Path) -> None:
    out = tmp_path / "labels.jsonl"
    command = [pairs, "--llm", server.url, "--llm-model", "m", "--out", out, "--llm-budget"]
    server.reply = lambda body: Reply(completion(units_of(text_of(body)), usage=(500, 200)))
    code, shown, err = run(*command, "3000", "--llm-concurrency", "2")
    first = len(server.bodies)
    assert code == 0
    assert 0 < first < 6
    assert f"{first} texts labelled" in shown
    left = f"{6 - first} texts without an answer: not asked, the budget is spent\n"
    assert f"warning: {left}" in err
    code, shown, err = run(*command, "1", "--llm-price", "1", "10")
    assert "at the given price" in err
    assert "6 texts labelled" in shown
    assert len(server.bodies) == 6


def test_nothing_labelled_is_a_mistake(
    run: Run, server: StandIn, pairs: Path, tmp_path: Path
) -> None:
    server.reply = lambda _: Reply(completion("I cannot do that."))
    out = tmp_path / "labels.jsonl"
    code, shown, err = run(pairs, "--llm", server.url, "--llm-model", "m", "--out", out)
    assert (code, shown) == (2, "")
    assert "no text could be labelled: 6 texts refused: the answer is not JSON\n" in err
    assert not out.exists()


def test_the_key_comes_from_the_environment(
    run: Run, server: StandIn, pairs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HPLUS_LLM_KEY", "secret\n")
    out = tmp_path / "labels.jsonl"
    run(pairs, "--llm", server.url, "--llm-model", "m", "--out", out, "--sample", "1")
    assert server.headers[0]["authorization"] == "Bearer secret"
    server.reply = lambda _: Reply({"error": {"message": "wrong key"}}, status=401)
    code, _, err = run(pairs, "--llm", server.url, "--llm-model", "n", "--out", out)
    assert code == 2
    assert "answered HTTP 401: wrong key" in err
    assert "secret" not in err


def test_a_connection_that_the_server_closes_does_not_end_the_process(
    run: Run, server: StandIn, pairs: Path, tmp_path: Path
) -> None:
    handlers = []

    def reply(body: Body) -> Reply:
        handlers.append(signal.getsignal(signal.SIGPIPE))
        return good(body)

    server.reply = reply
    before = signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try:
        run(pairs, "--llm", server.url, "--llm-model", "m", "--out", tmp_path / "labels.jsonl")
        assert handlers == [signal.SIG_IGN] * 6
        assert signal.getsignal(signal.SIGPIPE) == signal.SIG_DFL, "as before"
    finally:
        signal.signal(signal.SIGPIPE, before)


def test_an_interrupt_says_what_is_kept(
    run: Run, server: StandIn, pairs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hplus.teach import llm_client

    def interrupted(*_: Any, **options: Any) -> None:
        options["keep"](QUERY, completion(units_of(QUERY)))
        raise KeyboardInterrupt

    monkeypatch.setattr(llm_client, "ask_all", interrupted)
    out = tmp_path / "labels.jsonl"
    code, _, err = run(pairs, "--llm", server.url, "--llm-model", "m", "--out", out)
    assert code == 130
    kept = tmp_path / "labels.answers.sqlite"
    assert f"interrupted: 1 new answers kept in {kept}; run the same command again" in err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--llm", "http://localhost/v1"], "need --llm-model NAME"),
        (["--llm-model", "m"], "--llm-model needs --llm URL or --batch-file FILE"),
        (["--llm-budget", "5"], "--llm-budget needs --llm URL"),
        (["--llm", "localhost", "--llm-model", "m"], "expected a URL like"),
        (["--batch-file", "b", "--llm-model", "m", "--llm-parameters", "5"], "a JSON object"),
        (["--batch-file", "b", "--llm-model", "m", "--llm-parameters", "{"], "is not JSON"),
        (["--batch-file", "b", "--llm-model", "m", "--llm-parameters", '{"n": NaN}'], "not JSON"),
        (["--batch-file", "b", "--llm-model", "m", "--llm-parameters", '{"n": 2}'], "n is not a"),
        (["--llm", "http://h/v1", "--llm-model", "m", "--llm-price", "nan", "1"], "0 or more"),
        (["--llm", "http://h/v1", "--llm-model", "m", "--llm-price", "-1", "1"], "0 or more"),
        (["--batch-file", "pairs.jsonl", "--llm-model", "m"], "pairs.jsonl:1 lacks custom_id"),
    ],
)
def test_a_mistake_is_one_sentence(
    run: Run, pairs: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], message: str
) -> None:
    monkeypatch.chdir(pairs.parent)
    code, out, err = run(pairs.name, "--out", "labels.jsonl", *options)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert message in err
    assert err.count("\n") == 1
    assert not Path("labels.jsonl").exists()
    assert not Path("b").exists()


def test_the_pages_commands_against_the_stand_in(
    run: Run, server: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page shows what is printed; only the address is another, and vLLM is played."""
    monkeypatch.chdir(tmp_path)
    page = LLM_PAGE.read_text()
    section = page[page.index("### A language model as teacher") :]
    block = re.search(r"```text\n(.*?)```", section, re.DOTALL)
    assert block
    ran = []
    for piece in re.split(r"^\$ ", block[1], flags=re.MULTILINE)[1:]:
        command, shown = piece.split("\n", 1)
        words = shlex.split(command.replace("http://localhost:8000/v1", server.url))
        ran.append(words[0])
        if words[:2] == ["vllm", "run-batch"]:
            run_batch(Path(words[words.index("-i") + 1]), Path(words[words.index("-o") + 1]))
            assert shown.strip() == ""
        elif words[:3] == ["hplus", "teach", "labels"]:
            code, out, err = run(*words[3:])
            assert code == 0
            assert (err + out).split() == shown.split()
        else:
            done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
            assert (done.returncode, done.stdout) == (0, shown)
    assert ran.count("hplus") >= 3
    assert "vllm" in ran
