"""Qwen3 made bidirectional: every token sees every token, padding is seen by none."""

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from hplus.backbones.encode import Reading, encode_states  # noqa: E402
from hplus.backbones.load import load_backbone, reference_of_folder  # noqa: E402
from hplus.backbones.qwen3 import Qwen3Bidirectional  # noqa: E402
from hplus.errors import BackboneError  # noqa: E402
from hplus.types import F32, I32, offsets_of  # noqa: E402
from tiny import tiny_tokenizer  # noqa: E402

PlainStates = Callable[[Any, I32], F32]


def save_qwen3(folder: Path, tokenizer: tokenizers.Tokenizer, **options: Any) -> Path:
    config = transformers.Qwen3Config(
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        max_position_embeddings=128,
        initializer_range=0.3,
        **options,
    )
    torch.manual_seed(0)
    transformers.Qwen3Model(config).save_pretrained(folder)
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_qwen3(tmp_path_factory.mktemp("qwen3"), tiny_tokenizer())


@pytest.fixture(scope="module")
def backbone(folder: Path) -> Any:
    return load_backbone(reference_of_folder(folder))


def alone(backbone: Any, ids: I32) -> F32:
    states: F32 = backbone.forward(ids, offsets_of([len(ids)]))
    return states


def distance(a: F32, b: F32) -> float:
    assert a.shape == b.shape
    return float(np.abs(a - b).max())


def with_other_last(ids: I32) -> I32:
    other = ids.copy()
    other[-1] += 1
    return other


IDS = np.arange(10, 30, dtype=np.int32)


def test_a_qwen3_folder_is_served_as_such(backbone: Any) -> None:
    assert isinstance(backbone, Qwen3Bidirectional)
    assert (backbone.dim, backbone.limit) == (32, 128)
    assert backbone.reference["kind"] == "qwen3"
    assert sorted(backbone.reference["files"]) == [
        "config.json",
        "model.safetensors",
        "tokenizer.json",
    ]
    assert alone(backbone, IDS).dtype == np.float32


def test_the_last_token_changes_the_first_state(backbone: Any) -> None:
    before, after = alone(backbone, IDS), alone(backbone, with_other_last(IDS))
    assert np.abs(before - after).max(axis=1).min() > 1e-3


def test_in_the_plain_model_it_does_not(folder: Path, plain_states: PlainStates) -> None:
    plain = transformers.Qwen3Model.from_pretrained(folder).eval()
    before, after = plain_states(plain, IDS), plain_states(plain, with_other_last(IDS))
    assert distance(before[:-1], after[:-1]) < 1e-6
    assert distance(before[-1:], after[-1:]) > 1e-3


def test_nothing_but_the_causal_mask_is_taken_away(
    backbone: Any, folder: Path, plain_states: PlainStates
) -> None:
    """One token alone has no future: both models must agree on it."""
    plain = transformers.Qwen3Model.from_pretrained(folder).eval()
    for token in (7, 50):
        ids = np.array([token], np.int32)
        assert distance(alone(backbone, ids), plain_states(plain, ids)) < 1e-5


def test_the_order_of_tokens_still_matters(backbone: Any) -> None:
    assert distance(alone(backbone, IDS), alone(backbone, IDS[::-1].copy())[::-1]) > 1e-2


def test_sliding_layers_see_everything_too(tmp_path: Path, plain_states: PlainStates) -> None:
    save_qwen3(
        tmp_path,
        tiny_tokenizer(),
        use_sliding_window=True,
        sliding_window=4,
        layer_types=["sliding_attention", "full_attention"],
    )
    sliding: Any = load_backbone(reference_of_folder(tmp_path))
    first_layer = sliding.model
    first_layer.layers = first_layer.layers[:1]
    before, after = alone(sliding, IDS), alone(sliding, with_other_last(IDS))
    assert np.abs(before - after).max(axis=1).min() > 1e-4
    windowed = plain_states(first_layer, IDS), plain_states(first_layer, with_other_last(IDS))
    assert distance(windowed[0][:-1], windowed[1][:-1]) < 1e-6


@pytest.mark.parametrize("side", ["left", "right", "both"])
@pytest.mark.parametrize("filler", [0, 77])
def test_padding_changes_nothing(backbone: Any, side: str, filler: int) -> None:
    rows = [IDS, IDS[3:8], IDS[:1]]
    width = 26
    ids = np.full((3, width), filler, np.int64)
    mask = np.zeros((3, width), np.bool_)
    for row, tokens in enumerate(rows):
        space = width - len(tokens)
        start = {"left": space, "right": 0, "both": space // 2}[side]
        ids[row, start : start + len(tokens)] = tokens
        mask[row, start : start + len(tokens)] = True
    with torch.inference_mode():
        states = backbone.states(torch.from_numpy(ids), torch.from_numpy(mask)).numpy()
    assert np.isfinite(states).all()
    for row, tokens in enumerate(rows):
        assert distance(states[row][mask[row]], alone(backbone, tokens)) < 1e-5


def test_batch_companions_change_nothing(backbone: Any) -> None:
    lengths = [3, 20, 1, 11]
    ids = np.random.default_rng(0).integers(5, 90, sum(lengths)).astype(np.int32)
    offsets = offsets_of(lengths)
    together = backbone.forward(ids, offsets)
    for first, last in pairwise(offsets):
        assert distance(together[first:last], alone(backbone, ids[first:last])) < 1e-5


def test_states_carry_gradients_for_training(backbone: Any) -> None:
    ids = torch.from_numpy(IDS.astype(np.int64))[None]
    states = backbone.states(ids, torch.ones(ids.shape, dtype=torch.bool))
    (gradient,) = torch.autograd.grad(states[0, 0].sum(), backbone.model.embed_tokens.weight)
    assert gradient[IDS[-1]].abs().max() > 0


def test_byte_level_texts_run_the_whole_path(
    tmp_path: Path, byte_level: tokenizers.Tokenizer
) -> None:
    bytewise = load_backbone(reference_of_folder(save_qwen3(tmp_path, byte_level)))
    texts = ["a 😀 type", "", "糖尿病"]
    tokens = bytewise.tokenizer.tokens(texts)
    pieces = [texts[0][start:end] for start, end in tokens.spans[:6].tolist()]
    assert pieces == ["a", *("😀" * 4), "typ"]
    found = encode_states(bytewise, tokens, Reading(128))
    assert found.windows.tolist() == [1, 0, 1]
    first = found.states[: tokens.offsets[1]]
    assert distance(first, alone(bytewise, tokens.ids[: tokens.offsets[1]])) < 1e-5
    # Without special tokens the mean is the plain mean of the tokens.
    np.testing.assert_allclose(found.pooled[0], first.mean(axis=0), atol=1e-5)


def test_an_adapter_is_merged(backbone: Any, folder: Path) -> None:
    target = "layers.0.self_attn.q_proj.weight"
    random = np.random.default_rng(0)
    a, b = random.normal(0, 0.5, (2, 2, 32)).astype(np.float32)
    adapter = {f"{target}.lora_A": a, f"{target}.lora_B": b.T.copy()}
    adapted = load_backbone(reference_of_folder(folder), adapter=adapter)
    by_hand: Any = load_backbone(reference_of_folder(folder))
    with torch.no_grad():
        by_hand.model.layers[0].self_attn.q_proj.weight += torch.from_numpy(b.T @ a)
    assert distance(alone(adapted, IDS), alone(by_hand, IDS)) < 1e-5
    assert distance(alone(adapted, IDS), alone(backbone, IDS)) > 1e-3


def test_an_adapter_for_another_model_is_refused(folder: Path) -> None:
    adapter = {f"encoder.w.lora_{side}": np.ones((2, 2), np.float32) for side in "AB"}
    with pytest.raises(BackboneError, match=r"encoder\.w"):
        load_backbone(reference_of_folder(folder), adapter=adapter)
