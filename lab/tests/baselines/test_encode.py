"""Vectors against transformers itself, on tiny random models."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given, settings
from hypothesis import strategies as st

from baseline_rows import (
    DENSE,
    MULTI,
    TEXTS,
    dense,
    multi,
    sequences,
    unit,
)
from hplus.backbones.tokenizer import Tokenizer
from hplus.errors import BackboneError, InputError
from hplus_lab.baselines import (
    LateInteraction,
    available,
    encode,
    encoders,
    inputs,
    named,
    scores,
)
from tiny import tiny_tokenizer


def plain_states(tiny_folder: Path, ids: list[int], attended: list[int]) -> Any:
    """One sequence through BERT as transformers runs it, without any padding."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    model = transformers.BertModel.from_pretrained(tiny_folder).eval()
    with torch.inference_mode():
        output = model(input_ids=torch.tensor([ids]), attention_mask=torch.tensor([attended]))
    return output.last_hidden_state[0].numpy()


@pytest.mark.parametrize("pooling", ["mean", "cls", "last"])
def test_dense_vectors_are_transformers_own(
    folder: Path, tiny_folder: Path, tokenizer: Tokenizer, pooling: Any
) -> None:
    row = replace(DENSE, pooling=pooling, query_prompt="the ", max_tokens=20, width=16)
    found = inputs.of_texts(row, tokenizer, TEXTS, "query")
    at = {"mean": slice(None), "cls": slice(0, 1), "last": slice(-1, None)}[pooling]
    expected = [
        plain_states(tiny_folder, ids, [1] * len(ids))[at].mean(axis=0)[:16]
        for ids in sequences(found)
    ]
    vectors = dense(row, TEXTS, "query", folder=folder)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(vectors, unit(np.array(expected)), atol=1e-5)
    np.testing.assert_allclose(
        scores(replace(row, document_prompt="the "), TEXTS, TEXTS, folder=folder),
        vectors @ vectors.T,
        atol=1e-6,
    )


def test_multi_vectors_with_expansion_are_transformers_own(
    folder: Path, tiny_folder: Path, tokenizer: Tokenizer
) -> None:
    """[MASK]s are not seen by the rest, and count."""
    row = replace(MULTI, late=LateInteraction(query_tokens=16, expand=True))
    found = inputs.of_texts(row, tokenizer, TEXTS, "query")
    states = [
        plain_states(tiny_folder, found.ids[a:b].tolist(), found.attended[a:b].tolist())
        for a, b in pairwise(found.offsets.tolist())
    ]
    vectors, offsets = multi(row, TEXTS, "query", folder=folder)
    assert vectors.dtype == np.float16
    np.testing.assert_array_equal(offsets, found.offsets)
    np.testing.assert_allclose(vectors, unit(np.concatenate(states)), atol=2e-3)


def test_a_projection_beside_the_model(tiny_folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    place = tmp_path / "tiny"
    place.mkdir()
    for file in tiny_folder.iterdir():
        (place / file.name).symlink_to(file)
    row = replace(
        DENSE,
        width=8,
        normalise=False,
        weights=replace(DENSE.weights, projections=("1_Dense.safetensors",)),
    )
    matrix = np.random.default_rng(0).normal(size=(8, 32)).astype(np.float32)
    assert "1_Dense" not in str(available(row, folder=tmp_path).place)
    assert not available(row, folder=tmp_path)
    safetensors.numpy.save_file({"linear.weight": matrix}, place / "1_Dense.safetensors")
    plain = dense(replace(DENSE, normalise=False), TEXTS, "query", folder=tmp_path)
    found = dense(row, TEXTS, "query", folder=tmp_path, cache=tmp_path / "cache")
    np.testing.assert_allclose(found, plain @ matrix.T, rtol=1e-4, atol=1e-5)
    safetensors.numpy.save_file({"linear.weight": 2 * matrix}, place / "1_Dense.safetensors")
    again = dense(row, TEXTS, "query", folder=tmp_path, cache=tmp_path / "cache")
    np.testing.assert_allclose(again, 2 * found, rtol=1e-4, atol=1e-5)
    both = {"a": matrix, "b": matrix}
    safetensors.numpy.save_file(both, place / "1_Dense.safetensors")
    with pytest.raises(BackboneError, match="one matrix and at most one bias"):
        encode(row, TEXTS, "query", folder=tmp_path)


def test_a_causal_model_never_sees_padding(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    tokenizer = tiny_tokenizer()
    config = transformers.Qwen3Config(
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        initializer_range=0.3,
    )
    torch.manual_seed(0)
    transformers.Qwen3Model(config).save_pretrained(tmp_path / "tiny")
    tokenizer.save(str(tmp_path / "tiny" / "tokenizer.json"))
    row = replace(DENSE, pooling="last")
    together = dense(row, TEXTS, "document", folder=tmp_path)
    alone = [dense(row, [text], "document", folder=tmp_path)[0] for text in TEXTS]
    np.testing.assert_allclose(together, alone, atol=1e-5)
    # The first token sees nothing but itself: as CLS vector it is the same for every text.
    first = dense(replace(row, pooling="cls"), TEXTS, "document", folder=tmp_path)
    np.testing.assert_allclose(first, np.tile(first[:1], (len(TEXTS), 1)), atol=1e-5)


@settings(deadline=None)
@given(st.lists(st.integers(1, 12), max_size=20))
def test_batches_are_full_and_no_larger(lengths: list[int]) -> None:
    lengths.sort(reverse=True)
    batches = encoders._batches(list(range(len(lengths))), lengths, 12)
    assert [text for batch in batches for text in batch] == list(range(len(lengths)))
    for batch in batches:
        longest = lengths[batch[0]]
        assert len(batch) * longest <= 12
        assert batch is batches[-1] or (len(batch) + 1) * longest > 12


def test_what_has_no_vectors_is_refused(folder: Path) -> None:
    with pytest.raises(InputError, match="bm25 is a sparse baseline and has no vectors"):
        encode(named("bm25"), TEXTS, "query")
    with pytest.raises(InputError, match='expected side "query" or "document", got'):
        encode(DENSE, TEXTS, "passage", folder=folder)  # type: ignore[arg-type]
    assert dense(DENSE, [], "query", folder=folder).shape == (0, 32)
