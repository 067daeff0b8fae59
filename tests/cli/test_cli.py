"""The command line: output, JSON, exit codes, mistakes; examples of the help are run."""

from __future__ import annotations

import gzip
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from hplus import Budget, HPlus, Index, __version__
from hplus.cli import (
    alone,
    app,
    budget,
    bulk,
    care,
    demo,
    documents,
    encode,
    evaluate,
    groups,
    index,
    info,
    score,
    search,
    segment,
    stages,
    teach,
    terms,
    train,
)
from hplus.encoded_file import read_encoded
from hplus.evaluate.data import demo_folder, read_beir
from hplus.teach.label_file import write_labels
from hplus.teach.labels import label
from hplus.teach.marked import Marked

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    path = tmp_path / "texts.txt"
    path.write_text("Metformin treats type 2 diabetes.\nHeart failure and type 2 diabetes\n")
    return path


def typed(command: str, texts: str = "", **kwargs: object) -> subprocess.CompletedProcess[str]:
    """The command as typed, in a separate process."""
    arguments = [sys.executable, "-m", "hplus", *shlex.split(command)[1:]]
    return subprocess.run(
        arguments,
        capture_output=True,
        text=True,
        input=texts,
        timeout=120,
        **kwargs,  # type: ignore[call-overload]
    )


def without_progress(err: str) -> str:
    """On a busy machine a command may take ten seconds, and then says how far it is."""
    return re.sub(r"^[\w ]+: [\d,]+ .*in \d+:\d\d.*\n", "", err, flags=re.MULTILINE)


def test_segment_json(run: Run) -> None:
    code, out, _ = run("segment", "Metformin lowers HbA1c in type 2 diabetes", "--json")
    row = json.loads(out)
    assert code == 0
    assert list(row) == ["text", "units"]
    assert [list(unit) for unit in row["units"]] == [["start", "end", "text", "weight"]] * 5
    assert [unit["text"] for unit in row["units"]] == [
        "Metformin",
        "lowers",
        "HbA1c",
        "in",
        "type 2 diabetes",
    ]


def test_segment_for_people(run: Run) -> None:
    assert run("segment", "type 2 diabetes in adults")[1] == "type 2 diabetes │ in │ adults\n"


def test_segment_reads_lines_from_input() -> None:
    done = typed("hplus segment - --json", "type 2 diabetes\n\n心力衰竭\n")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0, done.stderr
    assert [row["text"] for row in rows] == ["type 2 diabetes", "", "心力衰竭"]
    assert rows[1]["units"] == []


def test_segment_colours_by_weight(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    done = typed("hplus segment 'type 2 diabetes of the heart'")
    assert "\x1b[" in done.stdout
    assert "█" in done.stdout


def test_terms_keep_a_unit_whole(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "terms.gz"
    path.write_bytes(gzip.compress(b"treats type 2\n"))
    _, out, _ = run("segment", "Metformin treats type 2", "--terms", str(path), "--json")
    units = [unit["text"] for unit in json.loads(out)["units"]]
    assert units == ["Metformin", "treats type 2"]


def test_score_json(run: Run) -> None:
    code, out, _ = run("score", "type 2 diabetes", "type 2 diabetes", "heart failure", "--json")
    row = json.loads(out)
    names = ["index", "global", "phrase", "phrase_raw", "lexical", "lexical_raw", "fused"]
    assert code == 0
    assert row["query"] == "type 2 diabetes"
    assert [list(document) for document in row["documents"]] == [names] * 2
    assert row["documents"][0]["fused"] > row["documents"][1]["fused"]
    assert row["documents"][0]["phrase"] == pytest.approx(1, abs=1e-5)


def test_score_explained(run: Run) -> None:
    _, out, _ = run("score", "type 2 diabetes", "Metformin in type 2 diabetes", "--explain")
    assert "fused" in out
    assert "type 2 diabetes  " in out
    assert "→ type 2 diabetes" in out
    _, out, _ = run("score", "type 2", "type 2", "--explain", "--json")
    explanation = json.loads(out)["documents"][0]["explanation"]
    assert explanation["phrase"][0]["document_spans"] == [[0, 6]]


def test_score_reads_documents_from_input() -> None:
    done = typed("hplus score 'type 2 diabetes' - --json", "heart failure\ntype 2 diabetes\n")
    assert len(json.loads(done.stdout)["documents"]) == 2


@pytest.mark.parametrize("suffix", ["npz", "safetensors"])
def test_encode(run: Run, texts: Path, tmp_path: Path, suffix: str) -> None:
    target = tmp_path / f"out.{suffix}"
    code, out, _ = run("encode", str(texts), str(target), "--budget", "2", "--width", "64")
    assert code == 0
    assert "2 texts, 4 units, merge to 2 units; no unit dropped, those beyond it averaged" in out
    encoded, fingerprint = read_encoded(target)
    assert encoded.units.vectors.shape == (4, 64)
    assert len(fingerprint) == 64
    np.testing.assert_array_equal(np.diff(encoded.units.offsets), [2, 2])


def test_encode_reads_jsonl(run: Run, tmp_path: Path) -> None:
    source = tmp_path / "texts.jsonl"
    source.write_text('{"title": "A", "text": "heart failure"}\n{"text": "type 2"}\n')
    assert run("encode", str(source), str(tmp_path / "o.npz"), "--as", "query")[0] == 0
    zipped = tmp_path / "texts.jsonl.gz"
    zipped.write_bytes(gzip.compress(b'\xef\xbb\xbf{"text": "one"}\n\n{"text": "two"}\n'))
    assert "2 texts" in run("encode", str(zipped), str(tmp_path / "q.npz"))[1]
    for bad in ('{"body": 1}', '{"text": null}', '{"text": 5}', "[]", "nonsense"):
        source.write_text(f'{{"text": "fine"}}\n{bad}\n')
        code, _, err = run("encode", str(source), str(tmp_path / "p.npz"))
        assert code == 2
        assert "texts.jsonl:2" in err


def test_info(run: Run) -> None:
    code, out, _ = run("info", "--json")
    about = json.loads(out)
    assert code == 0
    assert about["recipe"]["units"] == "crf"
    assert about["recipe"]["trained"] == ["crf", "importance"]
    assert len(about["fingerprint"]) == 64
    assert "crf, importance" in run("info")[1]


def test_terms_check(run: Run, texts: Path, tmp_path: Path) -> None:
    path = tmp_path / "terms.txt"
    path.write_text("treats type 2 diabetes\nheart failure\nrenal failure\n")
    code, out, _ = run("terms", "check", str(path), str(texts), "--json")
    rows = {row["term"]: row for row in map(json.loads, out.splitlines())}
    assert code == 0
    assert {term: row["count"] for term, row in rows.items()} == {
        "treats type 2 diabetes": 1,
        "heart failure": 1,
    }
    assert rows["heart failure"]["changed"] == {}
    assert sum(rows["treats type 2 diabetes"]["changed"].values()) == 1
    shown = run("terms", "check", str(path), str(texts))[1]
    assert shown.startswith(
        "2 of 3 terms occur, 2 times in 2 texts; units change 1 times in 1 texts"
    )


def test_terms_check_finds_nothing(run: Run, texts: Path, tmp_path: Path) -> None:
    path = tmp_path / "terms.txt"
    path.write_text("quark\n")
    assert run("terms", "check", str(path), str(texts))[0] == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["segment", "x", "--model", "nowhere"], "neither a folder nor a built-in"),
        (["segment", "x", "--terms", "nowhere.txt"], "nowhere.txt"),
        (["score", " ", "x"], "the query is empty"),
        (["encode", "nowhere.txt", "out.npz"], "nowhere.txt is missing"),
        (["encode", "nowhere.txt", "out.pkl"], ".npz or .safetensors"),
        (["encode", "nowhere.txt", "no/where/out.npz"], "is not a folder"),
        (["score", "x", "y", "--width", "999"], "width to be a whole number of 1 to 384, got 999"),
        (
            ["score", "x", "y", "--model", "mini", "--device", "nosuch"],
            "device 'nosuch' cannot be used",
        ),
    ],
)
def test_a_mistake_is_one_sentence_and_exit_code_2(
    run: Run, arguments: list[str], message: str
) -> None:
    code, out, err = run(*arguments)
    assert code == 2
    assert out == ""
    assert err.startswith("error: ")
    assert message in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("arguments", [["segment", "--colour"], ["score"], ["nonsense"]])
def test_bad_usage_is_exit_code_2(run: Run, arguments: list[str]) -> None:
    assert run(*arguments)[0] == 2


def test_input_that_is_not_utf8_is_named_by_line() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "hplus", "segment", "-"], capture_output=True, input=b"fine\n\xff\n"
    )
    assert done.returncode == 2
    assert b"standard input:2: not UTF-8" in done.stderr


def test_a_reader_that_has_enough_ends_the_command_quietly(tmp_path: Path) -> None:
    (tmp_path / "lines").write_text("type 2 diabetes of the heart\n" * 5000)
    segment = f"{sys.executable} -m hplus segment - --json"
    command = f"{segment} < lines | head -n 1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True)
    assert done.stderr == ""
    assert len(done.stdout.splitlines()) == 1
    assert done.returncode == 128 + signal.SIGPIPE


def test_an_interrupt_is_quiet() -> None:
    command = [sys.executable, "-m", "hplus", "segment", "-"]
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A test run in the background ignores interrupts, and so would its children.
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
    )
    assert process.stdin is not None
    process.stdin.write("type 2 diabetes\n" * 65)
    process.stdin.flush()
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(4)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "Traceback" not in err


def test_texts_are_shown_as_they_are(run: Run, tmp_path: Path) -> None:
    """Brackets are text, not markup."""
    code, out, _ = run("score", "phosphate", "the [phosphate] ion", "close [/b] tag", "--explain")
    assert code == 0
    assert out.count("the [phosphate] ion") == 2
    assert "close [/b] tag" in out
    (tmp_path / "terms.txt").write_text("[phosphate] ion\n")
    (tmp_path / "texts.txt").write_text("the [phosphate] ion\n")
    _, out, _ = run("terms", "check", str(tmp_path / "terms.txt"), str(tmp_path / "texts.txt"))
    assert "[phosphate] ion" in out


def test_output_that_the_terminal_cannot_show_is_not_an_error() -> None:
    for arguments in (["segment", "心力衰竭 of"], ["segment", "--json", "\udcff alone"]):
        done = subprocess.run(
            [sys.executable, "-m", "hplus", *arguments],
            capture_output=True,
            env={**os.environ, "PYTHONIOENCODING": "ascii"},
        )
        assert done.returncode == 0, done.stderr


def test_closed_input_is_an_error() -> None:
    command = f"{sys.executable} -m hplus segment <&-"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr == "error: standard input is closed\n"


def test_a_policy_needs_a_budget(run: Run) -> None:
    code, _, err = run("score", "type 2", "type 2", "--policy", "drop")
    assert code == 2
    assert "--budget" in err
    _, out, _ = run(
        "score", "type 2", "heart of type 2", "--explain", "--policy", "drop", "--budget", "1"
    )
    assert "dropped   " in out


def test_the_version(run: Run) -> None:
    assert run("--version")[1] == f"hplus {__version__}\n"


EXAMPLES = {
    "segment": segment.EXAMPLE,
    "score": score.EXAMPLE,
    "index": index.EXAMPLE,
    "search": search.EXAMPLE,
    "more-like": search.MORE_LIKE_EXAMPLE,
    "get": documents.GET_EXAMPLE,
    "export": documents.EXPORT_EXAMPLE,
    "delete": documents.DELETE_EXAMPLE,
    "compact": care.COMPACT_EXAMPLE,
    "verify": care.VERIFY_EXAMPLE,
    "stats": care.STATS_EXAMPLE,
    "encode": encode.EXAMPLE,
    "bulk": bulk.EXAMPLE,
    "info": info.EXAMPLE,
    "demo": demo.EXAMPLE,
    "terms check": terms.EXAMPLE,
    "teach labels": teach.EXAMPLE,
    "teach negatives": groups.NEGATIVES_EXAMPLE,
    "teach scores": groups.SCORES_EXAMPLE,
    "train heads": train.EXAMPLE,
    "train stage1": stages.EXAMPLE1,
    "train stage2": stages.EXAMPLE2,
    "evaluate beir": evaluate.EXAMPLE,
    "evaluate trec": evaluate.TREC_EXAMPLE,
    "evaluate budget": budget.EXAMPLE,
}


@pytest.mark.parametrize("command", EXAMPLES)
def test_every_command_is_helpful(run: Run, command: str) -> None:
    code, out, _ = run(*command.split(), "--help")
    assert code == 0
    assert f"Example: hplus {command}" in out
    assert EXAMPLES[command].startswith(f"Example: hplus {command} ".rstrip())


# The demo is run by tests/test_hints.py.
@pytest.mark.parametrize("command", [name for name in EXAMPLES if name != "demo"])
def test_the_examples_of_the_help_run(
    command: str,
    run: Run,
    small: HPlus,
    tiny_folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("texts.txt", "notes.txt"):
        (tmp_path / name).write_text("Metformin treats type 2 diabetes.\n")
    (tmp_path / "terms.txt").write_text("type 2 diabetes\n")
    labelled = label(Marked("Metformin treats type 2 diabetes."))
    for name in ("labels.jsonl.gz", "dev.jsonl.gz"):
        write_labels(tmp_path / name, [("notes", labelled)])
    rows = [{"query": f"diabetes {i}", "positive": f"Insulin of type {i}."} for i in range(9)]
    (tmp_path / "pairs.jsonl").write_text("\n".join(map(json.dumps, rows)))
    group = {**rows[0], "negatives": ["Kidney disease."], "scores": [2.0, 0.0]}
    other = {**rows[1], "negatives": ["Heart failure."], "scores": [2.0, 0.0]}
    with gzip.open(tmp_path / "groups.jsonl.gz", "wt") as file:
        file.write(json.dumps(group) + "\n" + json.dumps(other) + "\n")
    settings = f'student = {{start = "{tiny_folder}", heads = ["importance"]}}\n'
    settings += 'data = {groups = ["groups.jsonl.gz"]}\n'
    settings += "batch = {queries = 2}\nloss = {global = {weight = 1}, lexical = {weight = 1}}\n"
    for name in ("stage1.toml", "stage2.toml"):
        (tmp_path / name).write_text(settings)
    notes = [
        {"_id": "doc-17", "text": "Metformin treats type 2 diabetes."},
        {"_id": "doc-18", "text": "Insulin treats type 1 diabetes."},
    ]
    (tmp_path / "notes.jsonl").write_text("\n".join(map(json.dumps, notes)))
    (tmp_path / "run.trec").write_text("q1 Q0 doc-17 1 0.5 mine\n")
    (tmp_path / "scifact" / "qrels").mkdir(parents=True)
    shutil.copy(tmp_path / "notes.jsonl", tmp_path / "scifact" / "corpus.jsonl")
    (tmp_path / "scifact" / "queries.jsonl").write_text('{"_id": "q1", "text": "type 2 diabetes"}')
    judged = "query-id\tcorpus-id\tscore\nq1\tdoc-17\t1\n"
    (tmp_path / "scifact" / "qrels" / "test.tsv").write_text(judged)
    if "notes.hplus" in EXAMPLES[command]:
        Index.create(tmp_path / "notes.hplus", small).add(tmp_path / "notes.jsonl")
    code, out, err = run(*shlex.split(EXAMPLES[command].removeprefix("Example: hplus ")))
    assert code == 0, err
    assert out
    assert without_progress(err) == ""


def test_commands_are_documented() -> None:
    page = (Path(__file__).parents[2] / "docs" / "cli.md").read_text()
    for command in app.registered_commands:
        assert f"hplus {command.name}" in page
    for group in app.registered_groups:
        assert group.typer_instance is not None
        for command in group.typer_instance.registered_commands:
            assert f"hplus {group.name} {command.name}" in page


def test_a_command_that_is_called_is_the_only_one_built() -> None:
    for command in app.registered_commands:
        assert command.name is not None
        assert alone([command.name, "--help"]).registered_commands == [command]
        assert alone([command.name]).registered_groups == []
    for arguments in ([], ["--help"], ["serach", "x"], ["teach", "labels"]):
        assert alone(arguments) is app


def test_the_chinese_corpus_ranks_too(mini: HPlus) -> None:
    corpus = read_beir(demo_folder("zh"))
    whole = mini.encode_document(corpus.documents, budget=Budget())
    values = {view: value for view, _, value in demo.evaluate(mini, corpus, whole, whole)}
    assert values["phrase, all units"] > values["lexical"] > 0.5


@pytest.mark.parametrize("command", ["", *EXAMPLES])
def test_the_help_speaks_of_values_not_of_types(run: Run, command: str) -> None:
    _, out, _ = run(*command.split(), "--help")
    assert "--help" in out
    for name in ("<bool>", "range>", "<int>", "<float>"):
        assert name not in out


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
@pytest.mark.parametrize(
    ("typed_so_far", "expected"),
    [
        ("hplus mor", ["more-like"]),
        ("hplus terms ", ["check"]),
        ("hplus search notes.hplus --gr", ["--group-by"]),
        ("hplus search notes.hplus --view ", ["hybrid", "global", "phrase", "lexical"]),
    ],
)
def test_the_shell_completes(
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
    shell: str,
    typed_so_far: str,
    expected: list[str],
) -> None:
    asked = {
        "COMP_WORDS": typed_so_far,
        "COMP_CWORD": str(typed_so_far.count(" ")),
        "_TYPER_COMPLETE_ARGS": typed_so_far,
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
        "_HPLUS_COMPLETE": f"complete_{shell}",
    }
    for name, value in asked.items():
        monkeypatch.setenv(name, value)
    # The variable is named after the program, which is not pytest.
    monkeypatch.setattr(sys.modules["__main__"], "__package__", "", raising=False)
    _, out, err = run()
    assert err == ""
    for name in expected:
        assert name in out
    assert "compact" not in out


def test_completion_can_be_installed(tmp_path: Path) -> None:
    for shell in ("bash", "zsh", "fish"):
        done = subprocess.run(
            [sys.executable, "-m", "hplus", "--show-completion", shell],
            env={
                **os.environ,
                "HOME": str(tmp_path),
                "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1",
            },
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        assert "_COMPLETE" in done.stdout
