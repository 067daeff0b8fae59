"""A tiny random BERT: the whole path in milliseconds, offline.

Its states are deterministic and depend on context; its rankings mean nothing.
"""

from __future__ import annotations

import json
import string
from pathlib import Path

import numpy as np
import safetensors.numpy
import tokenizers
from tokenizers import models, normalizers, pre_tokenizers, processors

from hplus.types import F32

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
WORDS = (
    "the of in and with for is are type diabetes disease kidney chronic acute heart failure "
    "sodium potassium therapy dose mg kg cell protein gene cancer treatment patient insulin"
)
HAN = "糖尿病患者的治疗低高钾血症型心力衰竭肾功能不全和是在一二三物理化学"


def write_tiny(
    folder: Path, *, dim: int = 32, layers: int = 2, heads: int = 4, limit: int = 64, seed: int = 0
) -> Path:
    """Write `config.json`, `model.safetensors` and `tokenizer.json` of a random BERT."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = tiny_tokenizer()
    vocabulary = tokenizer.get_vocab_size()
    config = {
        "model_type": "bert",
        "architectures": ["BertModel"],
        "hidden_size": dim,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "intermediate_size": 3 * dim,
        "hidden_act": "gelu",
        "max_position_embeddings": limit,
        "type_vocab_size": 2,
        "vocab_size": vocabulary,
        "layer_norm_eps": 1e-12,
        "pad_token_id": 0,
    }
    (folder / "config.json").write_text(json.dumps(config, indent=2))
    weights = _random_weights(vocabulary, dim, layers, limit, seed)
    safetensors.numpy.save_file(weights, folder / "model.safetensors")
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


def tiny_tokenizer() -> tokenizers.Tokenizer:
    """WordPiece over single characters, some words and some Han characters."""
    characters = string.ascii_lowercase + string.digits + string.punctuation
    pieces = [*characters, *(f"##{c}" for c in characters), *WORDS.split(), *dict.fromkeys(HAN)]
    vocabulary = {piece: i for i, piece in enumerate([*SPECIAL, *pieces])}
    tokenizer = tokenizers.Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        special_tokens=[("[CLS]", vocabulary["[CLS]"]), ("[SEP]", vocabulary["[SEP]"])],
    )
    return tokenizer


def _random_weights(
    vocabulary: int, dim: int, layers: int, limit: int, seed: int
) -> dict[str, F32]:
    random = np.random.default_rng(seed)
    weights: dict[str, F32] = {}

    def linear(name: str, inputs: int, outputs: int) -> None:
        weights[f"{name}.weight"] = random.normal(0, inputs**-0.5, (outputs, inputs)).astype("f4")
        weights[f"{name}.bias"] = random.normal(0, 0.1, outputs).astype("f4")

    def norm(name: str) -> None:
        weights[f"{name}.weight"] = random.normal(1, 0.1, dim).astype("f4")
        weights[f"{name}.bias"] = random.normal(0, 0.1, dim).astype("f4")

    tables = {"word": vocabulary, "position": limit, "token_type": 2}
    for name, rows in tables.items():
        table = random.normal(0, 1, (rows, dim)).astype("f4")
        weights[f"embeddings.{name}_embeddings.weight"] = table
    norm("embeddings.LayerNorm")
    for i in range(layers):
        layer = f"encoder.layer.{i}"
        for part in ("query", "key", "value"):
            linear(f"{layer}.attention.self.{part}", dim, dim)
        linear(f"{layer}.attention.output.dense", dim, dim)
        norm(f"{layer}.attention.output.LayerNorm")
        linear(f"{layer}.intermediate.dense", dim, 3 * dim)
        linear(f"{layer}.output.dense", 3 * dim, dim)
        norm(f"{layer}.output.LayerNorm")
    return weights
