"""Encoders through transformers: against numpy, against plain passes, and adapters by hand."""

import os
import pickle
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from hplus.backbones import files  # noqa: E402
from hplus.backbones.bert import Bert  # noqa: E402
from hplus.backbones.load import load_backbone, reference_of_folder  # noqa: E402
from hplus.backbones.tokenizer import Tokenizer  # noqa: E402
from hplus.backbones.transformers_ import TransformersBackbone  # noqa: E402
from hplus.errors import BackboneError  # noqa: E402
from hplus.types import F32, I32, I64, offsets_of  # noqa: E402
from tiny import tiny_tokenizer, write_tiny  # noqa: E402

Pack = Callable[[Tokenizer, list[str]], tuple[I32, I64]]
PlainStates = Callable[[Any, I32], F32]

TEXTS = ["a", "type 2 diabetes", "heart failure with low sodium and high potassium, 5 mg/kg", ""]
QUERY = "encoder.layer.0.attention.self.query.weight"
UP = "encoder.layer.1.intermediate.dense.weight"
SMALL = {
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "initializer_range": 0.2,
}


def distance(a: F32, b: F32) -> float:
    assert a.shape == b.shape
    return float(np.abs(a - b).max())


def save_random(folder: Path, model_type: str, **options: Any) -> Path:
    """A random encoder of this architecture, with the tiny tokenizer beside it."""
    tokenizer = tiny_tokenizer()
    config = transformers.AutoConfig.for_model(
        model_type, vocab_size=tokenizer.get_vocab_size(), **{**SMALL, **options}
    )
    torch.manual_seed(0)
    transformers.AutoModel.from_config(config).save_pretrained(folder)
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


def save_modernbert(folder: Path) -> Path:
    ids = {"bos_token_id": 2, "eos_token_id": 3, "cls_token_id": 2, "sep_token_id": 3}
    return save_random(
        folder, "modernbert", local_attention=8, pad_token_id=0, max_position_embeddings=128, **ids
    )


def save_roberta(folder: Path) -> Path:
    return save_random(folder, "roberta", max_position_embeddings=40, pad_token_id=0)


@pytest.fixture(scope="module")
def tiny_torch(tiny_folder: Path) -> Any:
    return load_backbone(reference_of_folder(tiny_folder), device="cpu")


def test_tiny_bert_equals_onnxruntime(tiny: Bert, tiny_torch: Any, pack: Pack) -> None:
    assert isinstance(tiny_torch, TransformersBackbone)
    assert (tiny_torch.dim, tiny_torch.limit) == (tiny.dim, tiny.limit) == (32, 64)
    assert tiny_torch.reference == tiny.reference
    ids, offsets = pack(tiny.tokenizer, TEXTS)
    states = tiny_torch.forward(ids, offsets)
    assert states.dtype == np.float32
    assert distance(states, tiny.forward(ids, offsets)) < 1e-4


def test_minilm_equals_onnxruntime(minilm: Bert, mini_torch: Any, pack: Pack) -> None:
    assert mini_torch.reference == minilm.reference
    assert (mini_torch.dim, mini_torch.limit) == (384, 512)
    ids, offsets = pack(minilm.tokenizer, TEXTS)
    states = mini_torch.forward(ids, offsets)
    assert distance(states, minilm.forward(ids, offsets)) < 1e-4


@pytest.mark.parametrize("save", [save_roberta, save_modernbert])
def test_other_architectures_load_and_equal_plain_passes(
    tmp_path: Path, pack: Pack, plain_states: PlainStates, save: Callable[[Path], Path]
) -> None:
    backbone = load_backbone(reference_of_folder(save(tmp_path)))
    assert isinstance(backbone, TransformersBackbone)
    assert backbone.dim == 32
    assert backbone.reference["kind"] == "transformers"
    assert "model.safetensors" in backbone.reference["files"]
    plain = transformers.AutoModel.from_pretrained(tmp_path).eval()
    ids, offsets = pack(backbone.tokenizer, TEXTS)
    together = backbone.forward(ids, offsets)
    for first, last in pairwise(offsets):
        assert distance(together[first:last], plain_states(plain, ids[first:last])) < 1e-4


@pytest.mark.parametrize("save", [write_tiny, save_roberta, save_modernbert])
def test_batch_companions_change_nothing(
    tmp_path: Path, pack: Pack, save: Callable[[Path], Path]
) -> None:
    backbone = load_backbone(reference_of_folder(save(tmp_path)), device="cpu")
    ids, offsets = pack(backbone.tokenizer, TEXTS)
    together = backbone.forward(ids, offsets)
    for first, last in pairwise(offsets):
        alone = backbone.forward(ids[first:last], offsets_of([last - first]))
        assert distance(together[first:last], alone) < 1e-5


@pytest.mark.parametrize(
    ("model_type", "padding", "limit"),
    [
        ("bert", 1, 40),
        ("roberta", 0, 39),
        ("roberta", 1, 38),
        ("xlm-roberta", 1, 38),
        ("camembert", 1, 38),
        ("mpnet", 1, 38),
    ],
)
def test_the_limit_is_what_the_positions_allow(
    tmp_path: Path, model_type: str, padding: int, limit: int
) -> None:
    save_random(tmp_path, model_type, max_position_embeddings=40, pad_token_id=padding)
    backbone = load_backbone(reference_of_folder(tmp_path), device="cpu")
    assert backbone.limit == limit
    ids = np.full(limit + 1, 7, np.int32)
    assert backbone.forward(ids[:limit], offsets_of([limit])).shape == (limit, 32)
    with pytest.raises((IndexError, RuntimeError)):
        backbone.forward(ids, offsets_of([limit + 1]))


def lora(target: str, shape: tuple[int, int], *, rank: int = 2, seed: int = 0) -> dict[str, F32]:
    random = np.random.default_rng(seed)
    return {
        f"{target}.lora_A": random.normal(0, 0.3, (rank, shape[1])).astype(np.float32),
        f"{target}.lora_B": random.normal(0, 0.3, (shape[0], rank)).astype(np.float32),
    }


ADAPTER = lora(QUERY, (32, 32)) | lora(UP, (96, 32), rank=3, seed=1)


def merged_by_hand(folder: Path, into: Path) -> Path:
    write_tiny(into)
    weights = safetensors.numpy.load_file(folder / "model.safetensors")
    for target in (QUERY, UP):
        a, b = ADAPTER[f"{target}.lora_A"], ADAPTER[f"{target}.lora_B"]
        for row in range(b.shape[0]):
            weights[target][row] += sum(b[row, k] * a[k] for k in range(b.shape[1]))
    safetensors.numpy.save_file(weights, into / "model.safetensors")
    return into


@pytest.mark.parametrize("device", [None, "cpu"])
def test_an_adapter_equals_weights_merged_by_hand(
    tiny: Bert, tiny_folder: Path, tmp_path: Path, pack: Pack, device: str | None
) -> None:
    by_hand = Bert.from_folder(merged_by_hand(tiny_folder, tmp_path))
    adapted = load_backbone(reference_of_folder(tiny_folder), device=device, adapter=ADAPTER)
    ids, offsets = pack(tiny.tokenizer, TEXTS)
    states = adapted.forward(ids, offsets)
    assert distance(states, by_hand.forward(ids, offsets)) < 1e-5
    assert distance(states, tiny.forward(ids, offsets)) > 0.1


@pytest.mark.parametrize("device", [None, "cpu"])
def test_an_adapter_fits_weights_named_with_bert_before_them(
    tiny_folder: Path, tmp_path: Path, pack: Pack, device: str | None
) -> None:
    weights = safetensors.numpy.load_file(write_tiny(tmp_path) / "model.safetensors")
    prefixed = {f"bert.{name}": array for name, array in weights.items()}
    safetensors.numpy.save_file(prefixed, tmp_path / "model.safetensors")
    bare, prefix = (
        load_backbone(reference_of_folder(folder), device=device, adapter=ADAPTER)
        for folder in (tiny_folder, tmp_path)
    )
    ids, offsets = pack(bare.tokenizer, TEXTS)
    assert distance(prefix.forward(ids, offsets), bare.forward(ids, offsets)) < 1e-6


def test_merging_leaves_the_given_weights_and_all_others_alone() -> None:
    weights = {QUERY: np.ones((32, 32), np.float32), UP: np.ones((96, 32), np.float32)}
    adapter = lora(QUERY, (32, 32))
    merged = files.merge_adapter(weights, adapter)
    product = adapter[f"{QUERY}.lora_B"] @ adapter[f"{QUERY}.lora_A"]
    np.testing.assert_allclose(merged[QUERY], 1 + product, rtol=1e-6)
    assert merged[QUERY].dtype == np.float32
    assert merged[UP] is weights[UP]
    assert (weights[QUERY] == 1).all()


def only(side: str) -> dict[str, F32]:
    return {name: array for name, array in ADAPTER.items() if name.endswith(side)}


@pytest.mark.parametrize(
    "adapter",
    [
        lora("encoder.layer.7.attention.self.query.weight", (32, 32)),
        lora(QUERY, (32, 31)),
        lora(QUERY, (31, 32)),
        {**lora(QUERY, (32, 32)), f"{QUERY}.lora_B": np.ones((32, 5), np.float32)},
        {**lora(QUERY, (32, 32)), f"{QUERY}.lora_A": np.ones(32, np.float32)},
        only("lora_A"),
        only("lora_B"),
        {QUERY: np.ones((32, 32), np.float32)},
    ],
    ids=["target", "columns", "rows", "ranks", "flat", "A alone", "B alone", "no LoRA"],
)
@pytest.mark.parametrize("device", [None, "cpu"])
def test_an_adapter_that_does_not_fit_is_refused(
    tiny_folder: Path, adapter: dict[str, F32], device: str | None
) -> None:
    target = next(iter(adapter)).split(".weight")[0]
    with pytest.raises(BackboneError, match=target):
        load_backbone(reference_of_folder(tiny_folder), device=device, adapter=adapter)


class Malicious:
    """Unpickling it creates a directory."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.mkdir, (str(self.marker),)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.safetensors"])
@pytest.mark.parametrize("device", [None, "cpu"])
@pytest.mark.parametrize("sound", [True, False])
def test_pickled_weights_never_load(
    tmp_path: Path, name: str, device: str | None, sound: bool
) -> None:
    folder, marker = write_tiny(tmp_path / "copy"), tmp_path / "unpickled"
    weights = safetensors.numpy.load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    if sound:
        tensors = {name: torch.from_numpy(array) for name, array in weights.items()}
        torch.save(tensors, folder / name)
    else:
        (folder / name).write_bytes(pickle.dumps(Malicious(marker)))
    with pytest.raises(BackboneError, match=str(folder)):
        load_backbone(reference_of_folder(folder), device=device)
    assert not marker.exists()


def test_damaged_weights_are_refused(tmp_path: Path) -> None:
    path = write_tiny(tmp_path) / "model.safetensors"
    path.write_bytes(path.read_bytes()[:5_000])
    with pytest.raises(BackboneError, match="does not load as a transformers encoder"):
        load_backbone(reference_of_folder(tmp_path), device="cpu")


def test_a_folder_without_tokenizer_files_is_refused(tmp_path: Path) -> None:
    (write_tiny(tmp_path) / "tokenizer.json").unlink()
    with pytest.raises(BackboneError, match=r"tokenizer\.json is missing"):
        load_backbone(reference_of_folder(tmp_path), device="cpu")


def test_a_folder_with_a_vocabulary_instead_of_a_tokenizer_file_serves(tmp_path: Path) -> None:
    backbone = Bert.from_folder(write_tiny(tmp_path))
    vocabulary = tiny_tokenizer().get_vocab()
    (tmp_path / "vocab.txt").write_text("\n".join(sorted(vocabulary, key=vocabulary.__getitem__)))
    (tmp_path / "tokenizer.json").unlink()
    other = load_backbone(reference_of_folder(tmp_path), device="cpu")
    for text in TEXTS:
        ids = backbone.tokenizer.tokens([text]).ids
        assert np.array_equal(other.tokenizer.tokens([text]).ids, ids)
    assert (other.tokenizer.prefix, other.tokenizer.suffix) == ([2], [3])


def test_inner_layers_agree_with_onnxruntime(tiny_torch: TransformersBackbone, tiny: Bert) -> None:
    ids, offsets = np.arange(5, 25, dtype=np.int32), offsets_of([8, 12])
    ours, theirs = (backbone.layers(ids, offsets, [2, 1]) for backbone in (tiny, tiny_torch))
    for one, other in zip(ours, theirs, strict=True):
        assert distance(one, other) < 1e-4
    assert distance(ours[0], tiny.forward(ids, offsets)) == 0
    assert distance(ours[0], ours[1]) > 0.1
