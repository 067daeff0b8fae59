"""`hplus train heads` as typed: from labels and pairs to a checkpoint that loads."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

from builders import TERMS, random_labelled
from hplus import HPlus, checkpoint
from hplus.cli import train
from hplus.errors import InputError
from hplus.evaluate.data import demo_folder, texts_of
from hplus.heads.lexical import LexicalHead
from hplus.teach.label_file import write_labels
from hplus.teach.labels import Labelled
from hplus.train import heads as training
from hplus.train import pairs

Run = Callable[..., tuple[int, str, str]]
TEXTS = ["type 2 diabetes with heart failure", "the insulin therapy of cancer", ""]


def labelled(count: int, seed: int) -> list[tuple[str, Labelled]]:
    """Texts of two sources."""
    items = random_labelled(np.random.default_rng(seed), count)
    return [("notes" if number % 3 else "papers", item) for number, item in enumerate(items)]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The files of the example in the help, in the current folder."""
    monkeypatch.chdir(tmp_path)
    write_labels(tmp_path / "labels.jsonl.gz", labelled(30, 0))
    write_labels(tmp_path / "dev.jsonl.gz", labelled(9, 1))
    rows = [{"query": f"{a} {b}", "positive": f"the {a} and {b}"} for a in TERMS for b in TERMS]
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path


@pytest.fixture
def train_heads(run: Run, here: Path, tiny_folder: Path) -> Run:
    """`train_heads("mine")` trains into the folder `mine`; options override the defaults."""

    def call(out: str, *options: str, with_pairs: bool = True) -> tuple[int, str, str]:
        assert here.is_dir()
        usual = ["--model", str(tiny_folder), "--layer", "1", "--hidden", "4", "--epochs", "2"]
        usual += ["--cache", "states"] + ["--pairs", "pairs.jsonl"] * with_pairs
        files = ["labels.jsonl.gz", "--dev", "dev.jsonl.gz", "--out", out]
        return run("train", "heads", *files, *usual, *options)

    return call


def heads_of(folder: Path) -> bytes:
    return (folder / "heads.safetensors").read_bytes()


def test_the_checkpoint_loads_and_encodes(train_heads: Run, here: Path) -> None:
    code, out, err = train_heads("mine")
    assert (code, err) == (0, "")
    assert "crf: best of 2 epochs is " in out
    assert "importance: best of 2 epochs is " in out
    assert out.endswith("mine\n")
    model = HPlus(here / "mine")
    recipe = model.recipe
    assert (recipe.name, recipe.units, recipe.importance) == ("mine", "crf", "head")
    assert (recipe.layer, recipe.long, recipe.window) == (1, "stitch", 64)
    assert recipe.trained == ("crf", "importance")
    assert model.checkpoint.crf is not None
    assert model.checkpoint.crf.weight.shape == (3, 4)
    encoded = model.encode_document(TEXTS)
    assert np.diff(encoded.units.offsets)[2] == 0
    assert len(encoded.units.weights) > 2
    states = model.states(TEXTS)
    assert model.checkpoint.head is not None
    np.testing.assert_array_equal(states.importance, model.checkpoint.head.importance(states.inner))
    assert len(set(states.importance.tolist())) > 1


def test_the_checkpoint_tells_how_it_was_trained(train_heads: Run, here: Path) -> None:
    train_heads("mine", "--name", "a name", "--seed", "5", "--sample", "20")
    model = HPlus(here / "mine")
    assert model.recipe.name == "a name"
    log = model.checkpoint.notes["training"]
    assert log["labels"] == {"papers": 10, "notes": 20}
    assert log["pairs"] == {"pairs": {"rows": 25, "sampled": 20, "kept": 20}}
    assert log["seed"] == 5
    assert {head: len(curve) for head, curve in log["curves"].items()} == {
        "crf": 2,
        "importance": 2,
    }


def test_sample_and_seed_decide_the_pairs(
    train_heads: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[dict[str, Any]] = []
    read = pairs.read_pairs

    def spy(*arguments: Any, **options: Any) -> Any:
        asked.append(options)
        return read(*arguments, **options)

    monkeypatch.setattr(pairs, "read_pairs", spy)
    train_heads("mine", "--seed", "5", "--sample", "20")
    assert [(options["sample"], options["seed"]) for options in asked] == [(20, 5)]


def test_without_a_figure_of_memory(
    train_heads: Run, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Windows has no `resource`."""
    monkeypatch.setitem(sys.modules, "resource", None)
    code, out, _ = train_heads("mine", with_pairs=False)
    assert (code, "MB" in out) == (0, False)
    assert HPlus(here / "mine").checkpoint.notes["training"]["peak_memory_mb"] is None


def test_the_run_s_own_folder_is_gone_at_the_end(train_heads: Run, here: Path) -> None:
    before = {path.name for path in here.iterdir()}
    train_heads("mine")
    assert {path.name for path in here.iterdir()} == before | {"mine", "states"}


def test_the_same_command_gives_the_same_bytes(train_heads: Run, here: Path) -> None:
    train_heads("one")
    train_heads("two", "--cache", "other")
    train_heads("deep/er/three")
    assert heads_of(here / "one") == heads_of(here / "two") == heads_of(here / "deep/er/three")
    train_heads("four", "--seed", "14")
    assert heads_of(here / "one") != heads_of(here / "four")


def test_without_pairs_only_the_crf_is_trained(train_heads: Run, here: Path) -> None:
    assert train_heads("mine", with_pairs=False)[0] == 0
    recipe = HPlus(here / "mine").recipe
    assert (recipe.units, recipe.importance, recipe.trained) == ("crf", "uniform", ("crf",))


def test_the_idf_of_the_base_is_kept(train_heads: Run, here: Path, tiny: HPlus) -> None:
    tiny.save(here / "base")
    assert train_heads("mine", "--model", str(here / "base"), with_pairs=False)[0] == 0
    model = HPlus(here / "mine")
    assert (model.recipe.importance, model.recipe.units) == ("idf", "crf")
    assert model.checkpoint.idf is not None
    assert tiny.checkpoint.idf is not None
    np.testing.assert_array_equal(model.checkpoint.idf.table, tiny.checkpoint.idf.table)


def test_the_adapter_of_the_base_is_kept(train_heads: Run, here: Path, tiny: HPlus) -> None:
    """The heads are trained on the states that the adapter gives, so they need it."""
    random = np.random.default_rng(0)
    layer = "base_model.model.encoder.layer.0.attention.self.query"
    base = checkpoint.save(
        here / "base",
        checkpoint.Checkpoint(
            tiny.checkpoint.backbone,
            replace(tiny.recipe, importance="uniform"),
            adapter={
                f"{layer}.lora_A.weight": random.normal(0, 0.3, (2, tiny.dim)).astype(np.float32),
                f"{layer}.lora_B.weight": random.normal(0, 0.3, (tiny.dim, 2)).astype(np.float32),
            },
            adapter_scale=2.0,
        ),
    )
    assert np.abs(HPlus(base).states(TEXTS).states - tiny.states(TEXTS).states).max() > 1e-3
    assert train_heads("mine", "--model", str(base))[0] == 0
    np.testing.assert_array_equal(
        HPlus(here / "mine").states(TEXTS).states, HPlus(base).states(TEXTS).states
    )


def test_a_crf_alone_on_a_base_with_an_importance_head_loads(train_heads: Run, here: Path) -> None:
    assert train_heads("base")[0] == 0
    code, _, err = train_heads("mine", "--model", str(here / "base"), with_pairs=False)
    assert (code, err) == (0, "")
    assert HPlus(here / "mine").recipe.units == "crf"


def test_a_head_that_is_kept_reads_the_layer_it_was_trained_on(
    train_heads: Run, here: Path
) -> None:
    assert train_heads("base")[0] == 0
    other = ("--model", str(here / "base"), "--layer", "2")
    code, _, err = train_heads("mine", *other, with_pairs=False)
    assert code == 2
    assert "which would be kept, reads layer 1, not 2; give --layer 1" in err
    assert train_heads("mine", *other)[0] == 0  # a new importance head replaces it


def test_a_lexical_head_of_the_base_is_kept(train_heads: Run, here: Path, tiny: HPlus) -> None:
    """With what else the base was trained for and its notes; or the new model would not load."""
    vocabulary = tiny.checkpoint.backbone.tokenizer.vocabulary
    head = LexicalHead(np.ones(tiny.dim, np.float32), 0.5, np.ones(vocabulary, np.float32))
    recipe = replace(
        tiny.recipe, importance="uniform", lexical="head", trained=("lexical", "encoder"), layer=1
    )
    base = checkpoint.save(
        here / "base",
        checkpoint.Checkpoint(
            tiny.checkpoint.backbone, recipe, lexical=head, notes={"backbone": "tiny"}
        ),
    )
    assert train_heads("mine", "--model", str(base))[0] == 0
    made = HPlus(here / "mine")
    assert made.recipe.trained == ("lexical", "encoder", "crf", "importance")
    assert made.checkpoint.lexical is not None
    assert made.checkpoint.notes["backbone"] == "tiny"
    assert "training" in made.checkpoint.notes


def interrupt(train_heads: Run, monkeypatch: pytest.MonkeyPatch, out: str) -> None:
    """A run that stops when the CRF is trained and the importance head is not."""

    def stop(*_: Any) -> None:
        raise InputError("stopped")

    with monkeypatch.context() as patch:
        patch.setattr(training, "make_groups", stop)
        assert train_heads(out)[0] == 2


def test_an_interrupted_run_goes_on(
    train_heads: Run, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train_heads("whole")
    interrupt(train_heads, monkeypatch, "mine")
    assert not (here / "mine").exists()
    assert (here / ".mine.run" / "crf.safetensors").exists()
    assert train_heads("mine")[0] == 0
    assert heads_of(here / "mine") == heads_of(here / "whole")
    assert not (here / ".mine.run").exists()


@pytest.mark.parametrize(
    "options",
    [
        ["--epochs", "3"],
        ["--seed", "14"],
        pytest.param(
            ["--hidden", "5"],
        ),
    ],
)
def test_other_settings_do_not_go_on_with_an_interrupted_run(
    train_heads: Run, here: Path, monkeypatch: pytest.MonkeyPatch, options: list[str]
) -> None:
    interrupt(train_heads, monkeypatch, "mine")
    code, _, err = train_heads("mine", *options)
    assert code == 2
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert ".mine.run" in err
    assert not (here / "mine").exists()


@pytest.mark.parametrize("change", ["labels", "layer"])
def test_other_data_do_not_go_on_with_an_interrupted_run(
    train_heads: Run, here: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    """Either the run is refused, or it equals a run in a new folder."""
    interrupt(train_heads, monkeypatch, "mine")
    options = ["--layer", "2"] if change == "layer" else []
    if change == "labels":
        write_labels(here / "labels.jsonl.gz", labelled(30, 7))
    code, _, _ = train_heads("mine", *options)
    if code == 0:
        assert train_heads("fresh", *options)[0] == 0
        assert heads_of(here / "mine") == heads_of(here / "fresh")


def test_a_folder_that_is_not_empty_is_refused(train_heads: Run, here: Path) -> None:
    (here / "mine").mkdir()
    (here / "mine" / "thesis.txt").write_text("dear")
    code, out, err = train_heads("mine")
    assert (code, out) == (2, "")
    assert err == "error: mine exists and is not empty; choose another folder\n"
    assert [path.name for path in (here / "mine").iterdir()] == ["thesis.txt"]
    assert not (here / ".mine.run").exists()
    (here / "mine" / "thesis.txt").unlink()
    assert train_heads("mine")[0] == 0


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("{", "is not JSON"),
        ('{"text": "heart"}', "lacks source"),
        ('{"source": "s", "text": "heart", "units": [[0, 9, "term"]]}', "expected units .*, got"),
        ('{"source": "s", "text": "heart"}', "expected units .*, got null"),
    ],
)
@pytest.mark.parametrize("place", ["labels", "dev"])
def test_a_bad_label_is_named_by_file_and_line(
    run: Run, here: Path, tiny_folder: Path, row: str, message: str, place: str
) -> None:
    bad = here / "bad.jsonl"
    bad.write_text(f'{{"source": "s", "text": "heart", "units": [[0, 5, "term"]]}}\n{row}\n')
    files = ["labels.jsonl.gz", "--dev", "bad.jsonl"]
    if place == "labels":
        files = ["bad.jsonl", "--dev", "dev.jsonl.gz"]
    options = ["--out", "mine", "--model", str(tiny_folder), "--layer", "1"]
    code, out, err = run("train", "heads", *files, *options)
    assert (code, out) == (2, "")
    assert err.startswith("error: bad.jsonl:2")
    assert re.search(message, err)
    assert err.count("\n") == 1
    assert not (here / "mine").exists()


def test_a_bad_pair_is_named_by_file_and_line(train_heads: Run, here: Path) -> None:
    with (here / "pairs.jsonl").open("a") as file:
        file.write('{"query": "heart"}\n')
    code, _, err = train_heads("mine")
    assert (code, err) == (2, "error: pairs.jsonl:26 lacks positive\n")


def test_a_passage_without_tokens_does_not_crash(train_heads: Run, here: Path) -> None:
    with (here / "pairs.jsonl").open("a") as file:
        file.write('{"query": "heart", "positive": " "}\n')
    assert train_heads("mine")[0] in (0, 2)


def test_the_layer_must_be_there(train_heads: Run) -> None:
    code, _, err = train_heads("mine", "--layer", "3")
    assert code == 2
    assert "the heads read layer 3, but the backbone has 2" in err


def test_pairs_are_kept_apart_from_a_set(train_heads: Run, here: Path) -> None:
    copied = texts_of(demo_folder("zh"))[0]
    with (here / "pairs.jsonl").open("a") as file:
        file.write(json.dumps({"query": "heart", "positive": copied}) + "\n")
    assert train_heads("mine", "--apart-from", str(demo_folder("zh")))[0] == 0
    log = HPlus(here / "mine").checkpoint.notes["training"]
    assert log["pairs"] == {"pairs": {"rows": 26, "sampled": 26, "kept": 25}}


def test_the_example_of_the_help_runs(run: Run, here: Path, tiny_folder: Path) -> None:
    code, out, _ = run("train", "heads", "--help")
    assert code == 0
    assert "Example: hplus train heads" in out
    shutil.copytree(tiny_folder, here / "tiny")
    command = shlex.split(train.EXAMPLE.removeprefix("Example: hplus "))
    code, out, err = run(*command, "--model", "./tiny", "--layer", "2", "--epochs", "1")
    assert (code, err) == (0, "")
    assert HPlus(here / "mine").recipe.units == "crf"


def test_without_torch_the_extra_is_named(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """`make demo` installs no torch."""
    monkeypatch.setitem(sys.modules, "torch", None)
    code, out, err = run("train", "heads", "x.jsonl", "--dev", "y.jsonl", "--out", "z")
    assert (code, out) == (2, "")
    assert err == "error: training needs torch: pip install 'hplus[torch,bm25]'\n"
