"""Teachers: token MaxSim, dense, BM25 and cross-encoders against the plain formulas."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hplus import HPlus
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


def test_tokens_are_late_interaction(encoder: str, tmp_path: Path) -> None:
    model = HPlus(encoder)
    found = SCORERS["tokens"](encoder, QUERIES, DOCUMENTS, GROUPS, tmp_path)
    for query, group, scores in zip(QUERIES, GROUPS, found, strict=True):
        own = norm(model.states(query, side="query").states)
        for document, score in zip(group, scores, strict=True):
            states = model.states(DOCUMENTS[document]).states
            expected = (own @ norm(states).T).max(axis=1).mean() if len(states) else 0.0
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
    alone = [
        SCORERS["global"](*case, GROUPS, tmp_path / str(i)) for i, case in enumerate(cases)
    ]
    shared = [SCORERS["global"](*case, GROUPS, tmp_path / "shared") for case in cases]
    for one, two in zip(alone, shared, strict=True):
        np.testing.assert_array_equal(one, two)


def test_one_encoding_of_the_documents_serves_both_views(
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
    assert read == [len(QUERIES)]


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


@pytest.mark.parametrize("spelled", ["", "bm25:x", "tokens", "web:x", "0*bm25", "1.2.3*bm25"])
def test_a_teacher_that_is_none(spelled: str) -> None:
    with pytest.raises(InputError, match="expected bm25, tokens:MODEL"):
        Teacher.parse(spelled)
