"""What the bench and its parts are compared with: the model, on states as they are stored."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import hplus.model
from hplus.backbones.encode import encode_states


@pytest.fixture
def rounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The model sees its states as they are stored, so that float16 changes few orders."""

    def encode(*arguments: Any, **options: Any) -> Any:
        states = encode_states(*arguments, **options)
        return replace(
            states,
            states=states.states.astype(np.float16).astype(np.float32),
            inner=states.inner.astype(np.float16).astype(np.float32),
        )

    monkeypatch.setattr(hplus.model, "encode_states", encode)
