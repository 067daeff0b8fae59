"""The numpy BERT against transformers' BertModel, and each of its parts against a plain formula."""

import json
import math
import os
import pickle
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

from hplus.backbones.bert_numpy import BertNumpy, attend, gelu, layer_norm
from hplus.backbones.tokenizer import Tokenizer
from hplus.errors import BackboneError, HPlusError
from hplus.types import F32, I32, I64, offsets_of
from tiny import write_tiny

Pack = Callable[[Tokenizer, list[str]], tuple[I32, I64]]
PlainStates = Callable[[Any, I32], F32]

TEXTS = [
    "",
    "a",
    "Type 2 diabetes mellitus is treated with metformin.",
    "café naïve ÅNGSTRÖM 5 mg/kg",
    "糖尿病患者的治疗 and 😀 emoji",
    "[SEP] spelled out, [MASK] as well",
]
WORDS = "chronic kidney disease with heart failure and low sodium, treated for 12 weeks; "


def alone(backbone: Any, ids: I32) -> F32:
    states: F32 = backbone.forward(ids, offsets_of([len(ids)]))
    return states


def distance(a: F32, b: F32) -> float:
    assert a.shape == b.shape
    return float(np.abs(a - b).max())


@pytest.mark.parametrize("text", TEXTS)
def test_minilm_equals_transformers(
    mini_numpy: BertNumpy, mini_torch: Any, pack: Pack, plain_states: PlainStates, text: str
) -> None:
    ids, _ = pack(mini_numpy.tokenizer, [text])
    states = alone(mini_numpy, ids)
    assert states.dtype == np.float32
    assert distance(states, plain_states(mini_torch.model, ids)) < 1e-4


@pytest.mark.parametrize("length", [256, 512])
def test_minilm_equals_transformers_on_long_texts(
    mini_numpy: BertNumpy, mini_torch: Any, pack: Pack, plain_states: PlainStates, length: int
) -> None:
    ids, _ = pack(mini_numpy.tokenizer, [WORDS * 40])
    ids = np.r_[ids[: length - 1], ids[-1:]]
    assert len(ids) == length
    assert distance(alone(mini_numpy, ids), plain_states(mini_torch.model, ids)) < 1e-4


@pytest.mark.parametrize(
    ("dim", "layers", "heads", "limit"), [(8, 1, 1, 16), (48, 3, 6, 40), (64, 1, 16, 128)]
)
def test_tiny_models_of_other_sizes_equal_transformers(
    tmp_path: Path, plain_states: PlainStates, dim: int, layers: int, heads: int, limit: int
) -> None:
    transformers = pytest.importorskip("transformers")
    folder = write_tiny(tmp_path, dim=dim, layers=layers, heads=heads, limit=limit, seed=dim)
    backbone = BertNumpy.from_folder(folder)
    model = transformers.BertModel.from_pretrained(folder, add_pooling_layer=False).eval()
    assert (backbone.dim, backbone.limit) == (dim, limit)
    for length in (1, 2, 7, limit):
        ids = np.random.default_rng(length).integers(0, 90, length).astype(np.int32)
        assert distance(alone(backbone, ids), plain_states(model, ids)) < 1e-4


def test_a_packed_batch_equals_one_text_at_a_time(mini_numpy: BertNumpy, pack: Pack) -> None:
    texts = [*TEXTS, WORDS * 5, "heart"]
    ids, offsets = pack(mini_numpy.tokenizer, texts)
    together = mini_numpy.forward(ids, offsets)
    for first, last in pairwise(offsets):
        assert distance(together[first:last], alone(mini_numpy, ids[first:last])) < 1e-5


def test_sequences_do_not_see_one_another(tiny: BertNumpy) -> None:
    lengths = [5, 9, 3]
    ids = np.random.default_rng(0).integers(5, 90, sum(lengths)).astype(np.int32)
    other = ids.copy()
    other[5:14] = other[5:14][::-1]
    before, after = (tiny.forward(i, offsets_of(lengths)) for i in (ids, other))
    assert np.array_equal(before[:5], after[:5])
    assert np.array_equal(before[14:], after[14:])
    assert distance(before[5:14], after[5:14]) > 0.1


def test_every_token_sees_every_token_of_its_sequence(tiny: BertNumpy) -> None:
    ids = np.arange(10, 20, dtype=np.int32)
    for changed in (0, 9):
        other = ids.copy()
        other[changed] = 40
        difference = np.abs(alone(tiny, ids) - alone(tiny, other)).max(axis=1)
        assert difference.min() > 1e-4


def test_gelu_equals_the_exact_one() -> None:
    x = np.linspace(-12, 12, 96_000, dtype=np.float32).reshape(-1, 3)
    exact = np.array([0.5 * v * math.erfc(-v / math.sqrt(2)) for v in x.ravel().tolist()])
    gelu(y := x.copy())
    # Beside the 1e-6, one rounding of float32: at 5 that is 5e-7.
    np.testing.assert_allclose(y.ravel(), exact, rtol=2**-23, atol=1e-6)


def test_gelu_of_extremes_is_zero_or_the_same() -> None:
    x = np.array([[-1e6, -1e4, -100, -30, -13, 0, 13, 30, 100, 1e4, 1e6]], np.float32)
    gelu(y := x.copy())
    np.testing.assert_allclose(y, np.maximum(x, 0), rtol=2**-23, atol=1e-6)


def test_gelu_takes_rows_in_blocks() -> None:
    x = np.random.default_rng(0).normal(size=(70, 5)).astype(np.float32)
    gelu(together := x.copy())
    for row in range(len(x)):
        gelu(one := x[row : row + 1].copy())
        assert np.array_equal(one[0], together[row])


def test_layer_norm_equals_the_plain_formula() -> None:
    random = np.random.default_rng(0)
    x = (5 + 3 * random.normal(size=(9, 33))).astype(np.float32)
    x[4] = 2.5  # no variance: only epsilon divides
    gain, bias = random.normal(size=(2, 33)).astype(np.float32)
    exact = x.astype(np.float64)
    exact = (exact - exact.mean(1, keepdims=True)) / np.sqrt(exact.var(1, keepdims=True) + 1e-5)
    found = layer_norm(x.copy(), gain, bias, np.float32(1e-5))
    np.testing.assert_allclose(found, exact * gain + bias, atol=1e-5)


@pytest.mark.parametrize("heads", [1, 3, 4])
def test_attend_equals_a_loop_over_sequences_heads_and_queries(heads: int) -> None:
    width, lengths = 5, [1, 7, 300, 2]
    dim, offsets = heads * width, offsets_of(lengths)
    qkv = np.random.default_rng(heads).normal(size=(sum(lengths), 3 * dim)).astype(np.float32)
    expected = np.empty((len(qkv), dim))
    for first, last in pairwise(offsets):
        for head in range(heads):
            columns = np.arange(head * width, (head + 1) * width)
            query, key, value = (
                qkv[first:last, columns + part * dim].astype(np.float64) for part in range(3)
            )
            for row in range(last - first):
                weights = np.exp(key @ query[row])
                expected[first + row, columns] = weights @ value / weights.sum()
    np.testing.assert_allclose(attend(qkv, offsets, heads), expected, atol=1e-5)


def test_attend_survives_huge_scores() -> None:
    qkv = np.array([[200, 200, 1], [200, -200, 2], [-200, 0, 3]], np.float32)
    np.testing.assert_allclose(attend(qkv, offsets_of([3]), 1), [[1], [1], [2]])


def copy_of(folder: Path, into: Path, **changes: Any) -> Path:
    into.mkdir(exist_ok=True)
    for file in folder.iterdir():
        (into / file.name).write_bytes(file.read_bytes())
    config = json.loads((into / "config.json").read_text())
    (into / "config.json").write_text(json.dumps({**config, **changes}))
    return into


def test_weights_named_with_bert_before_them_load(
    tiny: BertNumpy, tiny_folder: Path, tmp_path: Path
) -> None:
    folder = copy_of(tiny_folder, tmp_path)
    weights = safetensors.numpy.load_file(tiny_folder / "model.safetensors")
    prefixed = {f"bert.{name}": array for name, array in weights.items()}
    safetensors.numpy.save_file(prefixed, folder / "model.safetensors")
    ids = np.arange(2, 30, dtype=np.int32)
    assert np.array_equal(alone(BertNumpy.from_folder(folder), ids), alone(tiny, ids))


def test_half_precision_weights_are_read_as_float32(
    tiny: BertNumpy, tiny_folder: Path, tmp_path: Path
) -> None:
    folder = copy_of(tiny_folder, tmp_path)
    weights = safetensors.numpy.load_file(tiny_folder / "model.safetensors")
    halves = {name: array.astype(np.float16) for name, array in weights.items()}
    safetensors.numpy.save_file(halves, folder / "model.safetensors")
    ids = np.arange(2, 30, dtype=np.int32)
    states = alone(BertNumpy.from_folder(folder), ids)
    assert states.dtype == np.float32
    assert 0 < distance(states, alone(tiny, ids)) < 0.05


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("model_type", "roberta"),
        ("hidden_act", "relu"),
        ("hidden_act", "gelu_new"),
        ("position_embedding_type", "relative_key"),
    ],
)
def test_other_architectures_are_refused(
    tiny_folder: Path, tmp_path: Path, key: str, value: str
) -> None:
    folder = copy_of(tiny_folder, tmp_path, **{key: value})
    with pytest.raises(BackboneError, match=f"{key} is '{value}'"):
        BertNumpy.from_folder(folder)


@pytest.mark.parametrize(
    "name",
    [
        "embeddings.word_embeddings.weight",
        "embeddings.LayerNorm.bias",
        "encoder.layer.1.attention.self.key.bias",
        "encoder.layer.1.output.dense.weight",
    ],
)
def test_a_missing_tensor_is_named(tiny_folder: Path, tmp_path: Path, name: str) -> None:
    folder = copy_of(tiny_folder, tmp_path)
    weights = safetensors.numpy.load_file(tiny_folder / "model.safetensors")
    del weights[name]
    safetensors.numpy.save_file(weights, folder / "model.safetensors")
    with pytest.raises(BackboneError, match=name) as caught:
        BertNumpy.from_folder(folder)
    assert str(folder) in str(caught.value)


def test_a_config_with_more_layers_than_the_weights_names_the_first_missing_tensor(
    tiny_folder: Path, tmp_path: Path
) -> None:
    folder = copy_of(tiny_folder, tmp_path, num_hidden_layers=3)
    with pytest.raises(BackboneError, match=r"encoder\.layer\.2\."):
        BertNumpy.from_folder(folder)


class Malicious:
    """Unpickling it creates a directory."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.mkdir, (str(self.marker),)


def damaged(how: str, sound: bytes, marker: Path) -> bytes:
    if how == "pickle":
        return pickle.dumps(Malicious(marker))
    return {
        "empty": b"",
        "truncated": sound[: len(sound) // 2],
        "header only": sound[:100],
        "garbage": np.random.default_rng(0).bytes(5_000),
        "huge header": (2**62).to_bytes(8, "little") + sound[8:],
    }[how]


@pytest.mark.parametrize(
    "how", ["empty", "truncated", "header only", "garbage", "huge header", "pickle"]
)
def test_damaged_weights_are_refused_and_the_file_is_named(
    tiny_folder: Path, tmp_path: Path, how: str
) -> None:
    folder = copy_of(tiny_folder, tmp_path / "copy")
    path, marker = folder / "model.safetensors", tmp_path / "unpickled"
    path.write_bytes(damaged(how, path.read_bytes(), marker))
    with pytest.raises(BackboneError, match=r"copy/model\.safetensors is not a sound"):
        BertNumpy.from_folder(folder)
    assert not marker.exists()


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "tokenizer.json"])
def test_a_missing_file_is_named(tiny_folder: Path, tmp_path: Path, name: str) -> None:
    folder = copy_of(tiny_folder, tmp_path)
    (folder / name).unlink()
    with pytest.raises(HPlusError, match=name) as caught:
        BertNumpy.from_folder(folder)
    assert str(folder) in str(caught.value)


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json"])
@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe\x00"])
def test_a_damaged_text_file_is_named(
    tiny_folder: Path, tmp_path: Path, name: str, content: bytes
) -> None:
    folder = copy_of(tiny_folder, tmp_path)
    (folder / name).write_bytes(content)
    with pytest.raises(BackboneError, match=name):
        BertNumpy.from_folder(folder)


def test_a_config_without_sizes_is_refused(tiny_folder: Path, tmp_path: Path) -> None:
    folder = copy_of(tiny_folder, tmp_path)
    (folder / "config.json").write_text('{"model_type": "bert"}')
    with pytest.raises(BackboneError, match="hidden_size"):
        BertNumpy.from_folder(folder)


def test_the_reference_records_the_hashes_of_all_three_files(tiny: BertNumpy) -> None:
    assert tiny.reference["kind"] == "bert"
    assert sorted(tiny.reference["files"]) == [
        "config.json",
        "model.safetensors",
        "tokenizer.json",
    ]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hidden_size": 16}, "expected"),
        ({"num_attention_heads": 0}, "0 heads"),
        ({"num_attention_heads": 5}, "5 heads"),
        ({"max_position_embeddings": 999}, "position_embeddings"),
        ({"num_hidden_layers": 1}, "more layers than the 1"),
    ],
)
def test_weights_of_another_config_are_refused(
    tiny_folder: Path, tmp_path: Path, change: dict[str, int], message: str
) -> None:
    with pytest.raises(BackboneError, match=message):
        BertNumpy.from_folder(copy_of(tiny_folder, tmp_path, **change))


def test_weights_that_are_not_finite_are_refused(tiny_folder: Path, tmp_path: Path) -> None:
    folder = copy_of(tiny_folder, tmp_path)
    weights = safetensors.numpy.load_file(folder / "model.safetensors")
    weights["embeddings.LayerNorm.bias"][0] = np.nan
    safetensors.numpy.save_file(weights, folder / "model.safetensors")
    with pytest.raises(BackboneError, match=r"LayerNorm\.bias is not finite"):
        BertNumpy.from_folder(folder)


def test_a_tokenizer_larger_than_the_word_table_is_refused(
    tiny_folder: Path, tmp_path: Path
) -> None:
    folder = copy_of(tiny_folder, tmp_path)
    weights = safetensors.numpy.load_file(folder / "model.safetensors")
    name = "embeddings.word_embeddings.weight"
    weights[name] = np.ascontiguousarray(weights[name][:20])
    safetensors.numpy.save_file(weights, folder / "model.safetensors")
    with pytest.raises(BackboneError, match="the tokenizer has"):
        BertNumpy.from_folder(folder)
