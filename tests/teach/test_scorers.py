"""Teachers: token MaxSim, dense, BM25 and cross-encoders against the plain formulas."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hplus import HPlus
from hplus.backbones import onnx_file
from hplus.backbones.encode import encode_states
from hplus.errors import InputError
from hplus.evaluate.bm25 import BM25
from hplus.teach.scorers import SCORERS, Teacher, spread, teach_scores
from tiny import tiny_tokenizer, write_tiny

QUERIES = ["type 2 diabetes", "heart failure therapy"]
DOCUMENTS = ["insulin therapy for diabetes", "acute heart failure", "kidney disease", ""]
GROUPS = [np.array([0, 2, 3]), np.array([1, 0, 2])]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_tiny(tmp_path_factory.mktemp("teacher") / "encoder"))


def norm(x: np.ndarray) -> np.ndarray:
    return x / np.maximum(np.linalg.norm(x, axis=-1, keepdims=True), 1e-12)


@pytest.mark.parametrize("source", ["a bare encoder", "mini"])
def test_tokens_are_late_interaction(encoder: str, tmp_path: Path, source: str) -> None:
    """Weighted by the importance head where the model has one."""
    source = encoder if source == "a bare encoder" else source
    model = HPlus(source)
    found = SCORERS["tokens"](source, QUERIES, DOCUMENTS, GROUPS, tmp_path)
    for query, group, scores in zip(QUERIES, GROUPS, found, strict=True):
        asked = model.states(query, side="query")
        weights = asked.importance if source == "mini" else np.ones(len(asked.tokens.ids))
        assert (np.ptp(weights) > 0.1) == (source == "mini")
        for document, score in zip(group, scores, strict=True):
            states = model.states(DOCUMENTS[document]).states
            best = (norm(asked.states) @ norm(states).T).max(axis=1) if len(states) else 0.0
            expected = (weights * best).sum() / weights.sum()
            assert score == pytest.approx(expected, abs=2e-3)  # stored in half precision


def test_global_vectors_are_the_models_own(encoder: str, tmp_path: Path) -> None:
    model = HPlus(encoder)
    for _ in range(2):  # encoded, then read from the cache
        found = SCORERS["global"](encoder, QUERIES, DOCUMENTS, GROUPS, tmp_path)
        for query, group, scores in zip(QUERIES, GROUPS, found, strict=True):
            expected = model.score(query, [DOCUMENTS[d] for d in group]).global_
            np.testing.assert_allclose(scores, expected, atol=1e-5)


def test_kept_vectors_never_answer_for_others(encoder: str, tmp_path: Path) -> None:
    """Another model and other texts have their own."""
    other = str(write_tiny(tmp_path / "other", seed=5))
    cases = [
        (encoder, QUERIES, DOCUMENTS),
        (other, QUERIES, DOCUMENTS),
        (encoder, QUERIES[::-1], DOCUMENTS),
        (encoder, QUERIES, [*DOCUMENTS[1:], DOCUMENTS[0]]),
    ]
    alone = [SCORERS["global"](*case, GROUPS, tmp_path / str(i)) for i, case in enumerate(cases)]
    shared = [SCORERS["global"](*case, GROUPS, tmp_path / "shared") for case in cases]
    for one, two in zip(alone, shared, strict=True):
        np.testing.assert_array_equal(one, two)


def test_a_text_that_is_query_and_document_is_kept_twice(encoder: str, tmp_path: Path) -> None:
    """Prompts differ by side: what was kept of a query must not answer for a document."""
    prompts = {"query_prompt": "type: ", "document_prompt": "disease: "}
    model = HPlus(encoder, **prompts)
    model.save(tmp_path / "model")
    texts = QUERIES + DOCUMENTS[:3]
    every = np.arange(len(texts))
    for _ in range(2):  # encoded, then read from the cache
        found = SCORERS["global"](
            str(tmp_path / "model"), texts, texts, [every] * len(texts), tmp_path / "cache"
        )
        for query, scores in zip(texts, found, strict=True):
            np.testing.assert_allclose(scores, model.score(query, texts).global_, atol=1e-5)
    assert max(np.diag(found)) < 0.999  # read alike, a text would be its own copy


def test_one_encoding_serves_both_views(
    encoder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    SCORERS["tokens"](encoder, QUERIES, DOCUMENTS, GROUPS, tmp_path)
    read: list[int] = []

    def counted(backbone: Any, tokens: Any, *rest: Any, **options: Any) -> Any:
        read.append(len(tokens))
        return encode_states(backbone, tokens, *rest, **options)

    for module in ("hplus.teach.scorers", "hplus.states_file"):
        monkeypatch.setattr(f"{module}.encode_states", counted)
    SCORERS["global"](encoder, QUERIES, DOCUMENTS, GROUPS, tmp_path)
    assert read == []


def test_bm25_is_bm25(tmp_path: Path) -> None:
    found = SCORERS["bm25"]("", QUERIES, DOCUMENTS, GROUPS, tmp_path)
    for query, group, scores in zip(QUERIES, GROUPS, found, strict=True):
        np.testing.assert_allclose(scores, BM25(DOCUMENTS).scores(query)[group], rtol=1e-6)


def test_an_ensemble_adds_standardised_scores(encoder: str, tmp_path: Path) -> None:
    teachers = [Teacher.parse("0.25*bm25"), Teacher.parse(f"tokens:{encoder}")]
    found = teach_scores(teachers, QUERIES, DOCUMENTS, GROUPS, tmp_path, sharpness=2.0)
    parts = [SCORERS[t.kind](t.source, QUERIES, DOCUMENTS, GROUPS, tmp_path) for t in teachers]
    assert spread(found) == pytest.approx(2.0)
    plain = [
        0.25 * a / spread(parts[0]) + b / spread(parts[1]) for a, b in zip(*parts, strict=True)
    ]
    for own, expected in zip(found, plain, strict=True):
        np.testing.assert_allclose(own, (expected - expected.mean()) * 2 / spread(plain))


def test_a_cross_encoder_reads_pairs(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    tokenizer = tiny_tokenizer()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=tokenizer.get_vocab_size(), hidden_size=16, num_hidden_layers=1,
        num_attention_heads=2, intermediate_size=16, num_labels=1,
    )  # fmt: skip
    model = transformers.BertForSequenceClassification(config).eval()
    model.save_pretrained(tmp_path)
    found = SCORERS["cross"](str(tmp_path), QUERIES, DOCUMENTS, GROUPS, tmp_path)
    pair = tokenizer.encode(QUERIES[1], DOCUMENTS[0])
    with torch.no_grad():
        logit = model(torch.tensor([pair.ids]), token_type_ids=torch.tensor([pair.type_ids])).logits
    assert found[1][1] == pytest.approx(float(logit), abs=1e-5)
    long = SCORERS["cross"](str(tmp_path), [600 * "heart "], DOCUMENTS, GROUPS[:1], tmp_path)
    assert len(long[0]) == len(GROUPS[0])  # a query longer than the window is cut, too
    assert np.isfinite(long[0]).all()


def test_a_cross_encoder_in_onnxruntime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It gets ids and segments as whole numbers, and a row of logits is a pair's."""
    kept = onnx_file._value

    def whole(name: str, shape: tuple[int | str, ...]) -> bytes:  # int64 instead of float32
        number = kept(name, shape)
        return number if name == "logits" else number.replace(b"\x08\x01\x12", b"\x08\x07\x12", 1)

    monkeypatch.setattr(onnx_file, "_value", whole)
    graph = onnx_file.Graph()
    graph.node("Cast", ["input_ids"], ["ids"], to=1)
    graph.node("Cast", ["token_type_ids"], ["types"], to=1)
    graph.node("Transpose", ["types"], ["turned"])
    graph.node("MatMul", ["ids", "turned"], ["logits"])
    shape = ("n", "m")
    inputs = {"input_ids": shape, "token_type_ids": shape}
    (tmp_path / "model.onnx").write_bytes(graph.serialise(inputs, {"logits": ("n", "n")}))
    tokenizer = tiny_tokenizer()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    found = SCORERS["cross"](str(tmp_path), QUERIES, DOCUMENTS, GROUPS, tmp_path)
    tokenizer.enable_padding()
    for query, group, scores in zip(QUERIES, GROUPS, found, strict=True):
        pairs = tokenizer.encode_batch([(query, DOCUMENTS[d]) for d in group])
        ids, types = (np.array([getattr(p, name) for p in pairs]) for name in ("ids", "type_ids"))
        assert scores.tolist() == (ids @ types[-1]).tolist()


@pytest.mark.parametrize("spelled", ["", "bm25:x", "tokens", "web:x", "0*bm25", "1.2.3*bm25"])
def test_a_teacher_that_is_none(spelled: str) -> None:
    with pytest.raises(InputError, match="expected bm25, tokens:MODEL"):
        Teacher.parse(spelled)
