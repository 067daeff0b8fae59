"""Encoders that the tests of this room share: the real MiniLM, and tiny random ones."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
from threadpoolctl import threadpool_limits
from tokenizers import decoders, models, pre_tokenizers

from hplus.backbones import mini
from hplus.backbones.bert import Bert
from hplus.backbones.load import load_backbone
from hplus.backbones.tokenizer import Tokenizer
from hplus.types import F32, I32, I64, offsets_of
from tiny import write_tiny

Pack = Callable[[Tokenizer, list[str]], tuple[I32, I64]]


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """The matrices are small: on a busy machine threads would wait for one another for seconds."""
    with threadpool_limits(1):
        yield


@pytest.fixture(scope="session")
def minilm() -> Bert:
    return mini.load()


@pytest.fixture(scope="session")
def mini_torch() -> Any:
    """The same weights through transformers: its `model` is the plain BertModel."""
    pytest.importorskip("torch")
    return load_backbone(mini.REFERENCE, device="cpu")


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="session")
def tiny(tiny_folder: Path) -> Bert:
    return Bert.from_folder(tiny_folder)


@pytest.fixture(scope="session")
def byte_level() -> tokenizers.Tokenizer:
    """Byte-level BPE as Qwen's: spaces belong to the token after them, no special tokens."""
    pieces = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = [("Ġ", "t"), ("t", "y"), ("Ġt", "y"), ("Ġty", "p"), ("Ġ", "ð"), ("i", "t")]
    vocabulary = {piece: i for i, piece in enumerate([*pieces, *(a + b for a, b in merges)])}
    tokenizer = tokenizers.Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


@pytest.fixture(scope="session")
def pack() -> Pack:
    """Texts -> packed ids with special tokens, and offsets, by concatenating lists."""

    def packed(tokenizer: Tokenizer, texts: list[str]) -> tuple[I32, I64]:
        rows = [
            [*tokenizer.prefix, *tokenizer.tokens([text]).ids.tolist(), *tokenizer.suffix]
            for text in texts
        ]
        return np.array([i for row in rows for i in row], np.int32), offsets_of(
            [len(row) for row in rows]
        )

    return packed


@pytest.fixture(scope="session")
def plain_states() -> Callable[[Any, I32], F32]:
    """One sequence through a transformers model, alone and unpadded: the oracle."""
    torch = pytest.importorskip("torch")

    def states(model: Any, ids: I32) -> F32:
        with torch.inference_mode():
            output = model(input_ids=torch.from_numpy(ids.astype(np.int64))[None])
        found: F32 = output.last_hidden_state[0].numpy()
        return found

    return states
