"""`hplus convert`: a copy that proves itself."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from hplus import HPlus
from hplus.cli import app
from hplus.convert import convert, prove
from hplus.errors import CheckpointError, InputError
from tiny import write_tiny

pytest.importorskip("torch")
TEXTS = [
    "type 2 diabetes with chronic kidney disease",
    "acute heart failure",
    "the dose of insulin",
]


def run(*arguments: object) -> str:
    result = CliRunner().invoke(app, [str(a) for a in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def judged_set(folder: Path) -> Path:
    (folder / "qrels").mkdir(parents=True)
    rows = [{"_id": str(i), "text": text} for i, text in enumerate(TEXTS)]
    for name in ("corpus", "queries"):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    lines = ["query-id\tcorpus-id\tscore", *(f"{i}\t{i}\t1" for i in range(len(TEXTS)))]
    (folder / "qrels" / "dev.tsv").write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_tiny(tmp_path / "source")


def test_the_figures_of_a_copy(source: Path, tmp_path: Path) -> None:
    data = judged_set(tmp_path / "set")
    figures = json.loads(run("convert", source, tmp_path / "out", "--set", data, "--json"))
    copy = HPlus(tmp_path / "out")
    assert copy.recipe.name == "out"
    assert figures["fingerprint"] == copy.fingerprint
    assert 0.98 < figures["lowest"] <= figures["hundredth"] <= figures["mean"] < 1
    weights = tmp_path / "out" / "encoder" / "model.int8.safetensors"
    assert figures["size"] == weights.stat().st_size
    assert figures["ndcg10"]["global"]["copy"] == 1.0
    for row in figures["ndcg10"].values():
        assert row["difference"] == pytest.approx(row["copy"] - row["original"])


def test_float32_is_the_same_encoder(source: Path, tmp_path: Path) -> None:
    out = run("convert", source, tmp_path / "out", "--float32")
    assert "cosine with torch 1.0000 on average, 1.0000 at the lowest hundredth" in out
    assert "onnxruntime float32" in out


def test_a_rotation_is_fitted_on_the_texts_given(source: Path, tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS * 20))
    run("convert", source, tmp_path / "out", "--rotate", tmp_path / "texts.txt")
    turned = HPlus(tmp_path / "out").states(TEXTS).states
    plain = HPlus(source).states(TEXTS).states
    np.testing.assert_allclose(turned @ turned.T, plain @ plain.T, atol=2.5)
    kept = [np.square(states - states.mean(axis=0))[:, :8].sum() for states in (turned, plain)]
    assert kept[0] > 1.5 * kept[1]


def test_a_mean_is_rotated_with_the_states(source: Path, tmp_path: Path) -> None:
    model = HPlus(source)
    mean = np.linspace(-0.1, 0.1, model.dim, dtype=np.float32)
    model.checkpoint = replace(model.checkpoint, mean=mean)
    rotation = convert(model, tmp_path / "out", rotate=TEXTS * 20)
    assert rotation is not None
    np.testing.assert_allclose(HPlus(tmp_path / "out").checkpoint.mean, mean @ rotation, atol=1e-6)


def test_the_proof_sees_a_wrong_copy(source: Path, tmp_path: Path) -> None:
    original = HPlus(source, device="cpu")
    other = HPlus(write_tiny(tmp_path / "other", seed=1))
    assert prove(original, HPlus(source), TEXTS, None).lowest > 0.9999
    assert prove(original, other, TEXTS, None).mean < 0.5


def test_what_cannot_be_converted_is_said(source: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="expected texts to find the rotation from, got none"):
        convert(HPlus(source), tmp_path / "out", rotate=[])
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    with pytest.raises(CheckpointError, match="not empty"):
        convert(HPlus(source), tmp_path / "full")
