"""A tokenizer, a folder with a tiny BERT in it, and an onnxruntime that shows its input."""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from hplus.backbones.tokenizer import Tokenizer
from tiny import tiny_tokenizer


@pytest.fixture
def tokenizer() -> Tokenizer:
    return Tokenizer(tiny_tokenizer())


@pytest.fixture
def folder(tmp_path: Path, tiny_folder: Path) -> Path:
    """A folder of weights with the tiny BERT in it."""
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    place = tmp_path / "weights"
    place.mkdir()
    (place / "tiny").symlink_to(tiny_folder)
    return place


@pytest.fixture
def onnxruntime(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """An onnxruntime whose model returns, for each token, its id, segment and the text's length;
    with a model of the name logits, for each pair, how many tokens it has."""
    fake = ModuleType("onnxruntime")
    fake.__spec__ = ModuleSpec("onnxruntime", None)
    seen: list[tuple[int, ...]] = []

    class Session:
        def __init__(self, path: str, *_: Any, **__: Any) -> None:
            if Path(path).read_bytes() == b"broken":
                raise RuntimeError("no protobuf")
            self.logits = Path(path).read_bytes() == b"logits"

        def get_inputs(self) -> list[SimpleNamespace]:
            names = ("input_ids", "attention_mask", "token_type_ids")
            return [SimpleNamespace(name=name) for name in names]

        def run(self, _: None, arrays: dict[str, Any]) -> list[Any]:
            ids = arrays["input_ids"]
            seen.append(ids.shape)
            assert ids.dtype == arrays["attention_mask"].dtype == np.int64
            if self.logits:
                return [arrays["attention_mask"].sum(axis=1, keepdims=True).astype("f4")]
            columns = (ids, arrays["token_type_ids"], np.full_like(ids, ids.shape[1]))
            return [np.stack(columns, axis=-1).astype("f4")]

    fake.InferenceSession = Session  # type: ignore[attr-defined]
    fake.SessionOptions = SimpleNamespace  # type: ignore[attr-defined]
    fake.seen = seen  # type: ignore[attr-defined]
    fake.disable_telemetry_events = lambda: None  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "onnxruntime", fake)
    return fake
