"""`hplus evaluate beir` as typed: JSON for machines, a table for people, one-sentence errors."""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from hplus import Budget, HPlus, states_file
from hplus.cli import evaluate
from hplus.evaluate import bench as beir
from hplus.evaluate.data import data_hash, demo_folder, read_beir

Run = Callable[..., tuple[int, str, str]]
VIEWS = ["global", "token", "phrase", "lexical", "hybrid"]


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("states")


@pytest.fixture
def on_demo(run: Run, tiny_folder: Path, cache: Path) -> Run:
    """`on_demo("--json")` evaluates the tiny model on the demo corpus."""

    def call(*options: str) -> tuple[int, str, str]:
        usual = ["--model", str(tiny_folder), "--cache", str(cache)]
        return run("evaluate", "beir", str(demo_folder("en")), *usual, *options)

    return call


def test_json(on_demo: Run, tiny_folder: Path, cache: Path) -> None:
    code, out, err = on_demo("--json")
    assert (code, err) == (0, "")
    row = json.loads(out)
    model = HPlus(tiny_folder, long="cut")
    data = read_beir(demo_folder("en"))
    views = row.pop("views")
    assert row == {
        "set": "demo-en",
        "split": "test",
        "documents": len(data.documents),
        "queries": len(data.queries),
        "pool": 1000,
        "data_hash": data_hash(data),
        "model": model.recipe.name,
        "fingerprint": model.fingerprint,
        "budget": "all units",
        "width": 32,
    }
    assert list(views) == VIEWS
    result = beir.evaluate(model, data, cache)
    for view, figures in views.items():
        vectors = ["vectors"] if view in ("global", "token", "phrase") else []
        assert list(figures) == ["ndcg10", "low", "high", *vectors]
        assert figures["ndcg10"] == pytest.approx(float(np.mean(result.ndcg10[view])))
        assert 0 <= figures["low"] <= figures["ndcg10"] <= figures["high"] <= 1
        if vectors:
            assert figures["vectors"] == result.vectors[view]


def test_a_table_for_people(on_demo: Run) -> None:
    code, out, _ = on_demo()
    title, *rows, queries = out.splitlines()
    assert code == 0
    assert " ".join(title.split()) == "demo-en test nDCG@10 95 % interval vectors per document"
    assert [row.split()[0] for row in rows] == VIEWS
    views = json.loads(on_demo("--json")[1])["views"]
    for row in rows:
        name, value, low, to, high, *vectors = row.split()
        figures = views[name]
        assert [value, low, to, high] == [
            f"{100 * figures['ndcg10']:.1f}",
            f"{100 * figures['low']:.1f}",
            "to",
            f"{100 * figures['high']:.1f}",
        ]
        assert vectors == ([f"{figures['vectors']:.1f}"] if "vectors" in figures else [])
    assert queries == "40 queries"


def test_budget_policy_and_width(on_demo: Run, tiny_folder: Path) -> None:
    whole = json.loads(on_demo("--json")[1])
    units = HPlus(tiny_folder, long="cut").segment(read_beir(demo_folder("en")).documents)
    counts = [len(own) for own in units]
    assert whole["views"]["phrase"]["vectors"] == pytest.approx(np.mean(counts))
    for policy in ("drop", "merge"):
        options = ["--budget", "4", "--policy", policy, "--width", "8", "--json"]
        small = json.loads(on_demo(*options)[1])
        assert small["budget"] == f"{policy} to 4 units"
        assert small["width"] == 8
        assert small["views"]["phrase"]["vectors"] == pytest.approx(np.mean(np.minimum(counts, 4)))
        assert small["views"]["global"] == whole["views"]["global"]
        assert small["views"]["token"]["vectors"] == whole["views"]["token"]["vectors"]


def test_a_count_alone_keeps_the_policy_of_the_checkpoint(
    run: Run, tiny_folder: Path, tmp_path: Path, cache: Path
) -> None:
    """As wherever a count is given: a count alone, under the recipe's policy."""
    model = HPlus(tiny_folder, document_budget=Budget(8, share=0.9, policy="merge"))
    model.save(tmp_path / "saved")
    arguments = ["evaluate", "beir", str(demo_folder("en")), "--model", str(tmp_path / "saved")]
    row = json.loads(run(*arguments, "--cache", str(cache), "--json")[1])
    assert row["budget"] == "merge to 8 units or 90% of importance"
    row = json.loads(run(*arguments, "--cache", str(cache), "--budget", "4", "--json")[1])
    assert row["budget"] == "merge to 4 units"
    encoded = model.encode_document(read_beir(demo_folder("en")).documents[:5], budget=4)
    assert np.diff(encoded.units.offsets).tolist() == [4] * 5


def test_the_cache_is_used(on_demo: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    first = on_demo("--json")

    def never(*_: object, **__: object) -> None:
        raise AssertionError("encoded again")

    monkeypatch.setattr(states_file, "encode_states", never)
    assert on_demo("--json") == first


def write_set(folder: Path, *, corpus: str, queries: str, qrels: str) -> Path:
    (folder / "qrels").mkdir(parents=True)
    (folder / "corpus.jsonl").write_text(corpus)
    (folder / "queries.jsonl").write_text(queries)
    (folder / "qrels" / "test.tsv").write_text(qrels)
    return folder


CORPUS = '{"_id": "d", "text": "heart failure"}\n'
QUERIES = '{"_id": "q", "text": "heart"}\n'
HEADER = "query-id\tcorpus-id\tscore\n"


def test_another_split(run: Run, tmp_path: Path, tiny_folder: Path) -> None:
    folder = write_set(tmp_path / "set", corpus=CORPUS, queries=QUERIES, qrels=HEADER)
    (folder / "qrels" / "dev.tsv").write_text(HEADER + "q\td\t1\n")
    options = ["--model", str(tiny_folder), "--json"]
    code, out, _ = run("evaluate", "beir", str(folder), "--split", "dev", *options)
    row = json.loads(out)
    assert (code, row["split"], row["queries"]) == (0, "dev", 1)
    assert row["views"]["hybrid"] == {"ndcg10": 1.0, "low": 1.0, "high": 1.0}


@pytest.mark.parametrize(
    ("folder", "options", "message"),
    [
        ("nowhere", [], "nowhere is not a folder; expected a BEIR folder"),
        ("set/corpus.jsonl", [], "is not a folder"),
        ("set", ["--split", "dev"], "qrels/dev.tsv is missing"),
        ("set", ["--model", "nowhere"], "neither a folder nor a built-in"),
        ("set", ["--width", "999"], "expected a phrase width of at most 32, got 999"),
        ("set", ["--policy", "drop"], "--budget"),
        ("bare", [], "corpus.jsonl is missing"),
        ("unjudged", [], "unjudged: the set has 0 judged queries"),
        ("no-documents", [], "no-documents: the set has"),
    ],
)
def test_a_mistake_is_one_sentence_and_exit_code_2(
    run: Run,
    tmp_path: Path,
    tiny_folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    folder: str,
    options: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    judged = HEADER + "q\td\t1\n"
    write_set(Path("set"), corpus=CORPUS, queries=QUERIES, qrels=judged)
    write_set(Path("unjudged"), corpus=CORPUS, queries=QUERIES, qrels=HEADER)
    write_set(Path("no-documents"), corpus="", queries=QUERIES, qrels=judged)
    write_set(Path("bare"), corpus=CORPUS, queries=QUERIES, qrels=judged)
    (Path("bare") / "corpus.jsonl").unlink()
    code, out, err = run("evaluate", "beir", folder, "--model", str(tiny_folder), *options)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert message in err
    assert err.count("\n") == 1


def test_the_example_of_the_help_runs(
    run: Run, tmp_path: Path, tiny_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out, _ = run("evaluate", "beir", "--help")
    assert code == 0
    assert "Example: hplus evaluate beir" in out
    monkeypatch.chdir(tmp_path)
    shutil.copytree(demo_folder("en"), "scifact")
    command = shlex.split(evaluate.EXAMPLE.removeprefix("Example: hplus "))
    code, out, err = run(*command, "--model", str(tiny_folder))
    assert (code, err) == (0, "")
    assert json.loads(out)["set"] == "scifact"
    assert len(list(Path("states").glob("*/done.json"))) == 2


def test_what_cannot_be_written_is_reported_before_measuring(run: Run, tmp_path: Path) -> None:
    """The folder is checked first; a missing set would be the next error."""
    (tmp_path / "file").write_text("")
    out = str(tmp_path / "file" / "budgets" / "x")
    code, _, err = run("evaluate", "budget", str(tmp_path / "nothing"), "--out", out)
    assert code == 2
    assert "Not a directory" in err
    assert "nothing" not in err
    assert err.count("\n") == 1


def test_a_budget_curve_is_written_as_json_and_markdown(
    run: Run, tmp_path: Path, tiny_folder: Path
) -> None:
    usual = ["--model", str(tiny_folder), "--limit", "3", "--out", str(tmp_path / "curve")]
    code, shown, _ = run("evaluate", "budget", str(demo_folder("en")), *usual, "--json")
    assert code == 0
    assert sorted(path.name for path in tmp_path.glob("curve*")) == ["curve.json", "curve.md"]
    table = json.loads((tmp_path / "curve.json").read_text())
    assert table == json.loads(shown)
    assert table["recommended"] in table["settings"]
    assert (tmp_path / "curve.md").read_text().startswith("# demo-en test: quality against bytes")
