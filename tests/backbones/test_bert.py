"""The BERT in onnxruntime against transformers' BertModel, and in int8 against plain numpy."""

import json
import os
import pickle
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

from hplus.backbones.bert import Bert
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
    minilm: Bert, mini_torch: Any, pack: Pack, plain_states: PlainStates, text: str
) -> None:
    ids, _ = pack(minilm.tokenizer, [text])
    states = alone(minilm, ids)
    assert states.dtype == np.float32
    assert distance(states, plain_states(mini_torch.model, ids)) < 1e-4


@pytest.mark.parametrize("length", [256, 512])
def test_minilm_equals_transformers_on_long_texts(
    minilm: Bert, mini_torch: Any, pack: Pack, plain_states: PlainStates, length: int
) -> None:
    ids, _ = pack(minilm.tokenizer, [WORDS * 40])
    ids = np.r_[ids[: length - 1], ids[-1:]]
    assert len(ids) == length
    assert distance(alone(minilm, ids), plain_states(mini_torch.model, ids)) < 1e-4


@pytest.mark.parametrize(
    ("dim", "layers", "heads", "limit"), [(8, 1, 1, 16), (48, 3, 6, 40), (64, 1, 16, 128)]
)
def test_tiny_models_of_other_sizes_equal_transformers(
    tmp_path: Path, plain_states: PlainStates, dim: int, layers: int, heads: int, limit: int
) -> None:
    transformers = pytest.importorskip("transformers")
    folder = write_tiny(tmp_path, dim=dim, layers=layers, heads=heads, limit=limit, seed=dim)
    backbone = Bert.from_folder(folder)
    model = transformers.BertModel.from_pretrained(folder, add_pooling_layer=False).eval()
    assert (backbone.dim, backbone.limit) == (dim, limit)
    for length in (1, 2, 7, limit):
        ids = np.random.default_rng(length).integers(0, 90, length).astype(np.int32)
        assert distance(alone(backbone, ids), plain_states(model, ids)) < 1e-4


def test_a_packed_batch_equals_one_text_at_a_time(minilm: Bert, pack: Pack) -> None:
    texts = [*TEXTS, WORDS * 5, "heart"]
    ids, offsets = pack(minilm.tokenizer, texts)
    together = minilm.forward(ids, offsets)
    for first, last in pairwise(offsets):
        assert distance(together[first:last], alone(minilm, ids[first:last])) < 1e-5


def test_sequences_do_not_see_one_another(tiny: Bert) -> None:
    lengths = [5, 9, 3]
    ids = np.random.default_rng(0).integers(5, 90, sum(lengths)).astype(np.int32)
    other = ids.copy()
    other[5:14] = other[5:14][::-1]
    before, after = (tiny.forward(i, offsets_of(lengths)) for i in (ids, other))
    assert np.array_equal(before[:5], after[:5])
    assert np.array_equal(before[14:], after[14:])
    assert distance(before[5:14], after[5:14]) > 0.1


def test_every_token_sees_every_token_of_its_sequence(tiny: Bert) -> None:
    ids = np.arange(10, 20, dtype=np.int32)
    for changed in (0, 9):
        other = ids.copy()
        other[changed] = 40
        difference = np.abs(alone(tiny, ids) - alone(tiny, other)).max(axis=1)
        assert difference.min() > 1e-4


def copy_of(folder: Path, into: Path, **changes: Any) -> Path:
    into.mkdir(exist_ok=True)
    for file in folder.iterdir():
        (into / file.name).write_bytes(file.read_bytes())
    config = json.loads((into / "config.json").read_text())
    (into / "config.json").write_text(json.dumps({**config, **changes}))
    return into


def test_weights_named_with_bert_before_them_load(
    tiny: Bert, tiny_folder: Path, tmp_path: Path
) -> None:
    folder = copy_of(tiny_folder, tmp_path)
    weights = safetensors.numpy.load_file(tiny_folder / "model.safetensors")
    prefixed = {f"bert.{name}": array for name, array in weights.items()}
    safetensors.numpy.save_file(prefixed, folder / "model.safetensors")
    ids = np.arange(2, 30, dtype=np.int32)
    assert np.array_equal(alone(Bert.from_folder(folder), ids), alone(tiny, ids))


def test_half_precision_weights_are_read_as_float32(
    tiny: Bert, tiny_folder: Path, tmp_path: Path
) -> None:
    folder = copy_of(tiny_folder, tmp_path)
    weights = safetensors.numpy.load_file(tiny_folder / "model.safetensors")
    halves = {name: array.astype(np.float16) for name, array in weights.items()}
    safetensors.numpy.save_file(halves, folder / "model.safetensors")
    ids = np.arange(2, 30, dtype=np.int32)
    states = alone(Bert.from_folder(folder), ids)
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
        Bert.from_folder(folder)


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
        Bert.from_folder(folder)
    assert str(folder) in str(caught.value)


def test_a_config_with_more_layers_than_the_weights_names_the_first_missing_tensor(
    tiny_folder: Path, tmp_path: Path
) -> None:
    folder = copy_of(tiny_folder, tmp_path, num_hidden_layers=3)
    with pytest.raises(BackboneError, match=r"encoder\.layer\.2\."):
        Bert.from_folder(folder)


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
        Bert.from_folder(folder)
    assert not marker.exists()


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "tokenizer.json"])
def test_a_missing_file_is_named(tiny_folder: Path, tmp_path: Path, name: str) -> None:
    folder = copy_of(tiny_folder, tmp_path)
    (folder / name).unlink()
    with pytest.raises(HPlusError, match=name) as caught:
        Bert.from_folder(folder)
    assert str(folder) in str(caught.value)


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json"])
@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe\x00"])
def test_a_damaged_text_file_is_named(
    tiny_folder: Path, tmp_path: Path, name: str, content: bytes
) -> None:
    folder = copy_of(tiny_folder, tmp_path)
    (folder / name).write_bytes(content)
    with pytest.raises(BackboneError, match=name):
        Bert.from_folder(folder)


def test_a_config_without_sizes_is_refused(tiny_folder: Path, tmp_path: Path) -> None:
    folder = copy_of(tiny_folder, tmp_path)
    (folder / "config.json").write_text('{"model_type": "bert"}')
    with pytest.raises(BackboneError, match="hidden_size"):
        Bert.from_folder(folder)


def test_the_reference_records_the_hashes_of_all_three_files(tiny: Bert) -> None:
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
        Bert.from_folder(copy_of(tiny_folder, tmp_path, **change))


def test_weights_that_are_not_finite_are_refused(tiny_folder: Path, tmp_path: Path) -> None:
    folder = copy_of(tiny_folder, tmp_path)
    weights = safetensors.numpy.load_file(folder / "model.safetensors")
    weights["embeddings.LayerNorm.bias"][0] = np.nan
    safetensors.numpy.save_file(weights, folder / "model.safetensors")
    with pytest.raises(BackboneError, match=r"LayerNorm\.bias is not finite"):
        Bert.from_folder(folder)


def test_a_tokenizer_larger_than_the_word_table_is_refused(
    tiny_folder: Path, tmp_path: Path
) -> None:
    folder = copy_of(tiny_folder, tmp_path)
    weights = safetensors.numpy.load_file(folder / "model.safetensors")
    name = "embeddings.word_embeddings.weight"
    weights[name] = np.ascontiguousarray(weights[name][:20])
    safetensors.numpy.save_file(weights, folder / "model.safetensors")
    with pytest.raises(BackboneError, match="the tokenizer has"):
        Bert.from_folder(folder)
