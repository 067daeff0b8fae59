"""What was encoded is not encoded again."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from baseline_rows import (
    DENSE,
    MULTI,
    TEXTS,
)
from hplus.errors import InputError
from hplus_lab.baselines import (
    Baseline,
    LateInteraction,
    encode,
    inputs,
    stored,
)
from hplus_lab.baselines.encoders import load


class StoppedError(Exception):
    """The encoding is interrupted."""


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Callable[[int | None], list[int]]:
    """Three texts per step; the encoder records its steps and can be made to fail at one."""
    monkeypatch.setattr(stored, "STEP", 3)
    module = importlib.import_module("hplus_lab.baselines.encode")

    def install(fails_at: int | None = None) -> list[int]:
        steps: list[int] = []

        def counted(*arguments: Any, **options: Any) -> Any:
            encoder = load(*arguments, **options)

            def forward(some: inputs.Sequences) -> Any:
                if len(steps) == fails_at:
                    raise StoppedError
                steps.append(len(some))
                return encoder.forward(some)

            return SimpleNamespace(tokenizer=encoder.tokenizer, forward=forward)

        monkeypatch.setattr(module, "load", counted)
        return steps

    return install


@pytest.mark.parametrize("row", [DENSE, MULTI], ids=["dense", "multi-vector"])
@pytest.mark.parametrize("stop", [0, 1, 2])
def test_an_interrupted_encoding_goes_on(
    folder: Path, tmp_path: Path, runs: Callable[..., list[int]], row: Baseline, stop: int
) -> None:
    whole = encode(row, TEXTS, "document", folder=folder)
    runs(stop)
    with pytest.raises(StoppedError):
        encode(row, TEXTS, "document", folder=folder, cache=tmp_path / "cache")
    rest = runs(None)
    for expected in ([3, 3, 1][stop:], []):
        found = encode(row, TEXTS, "document", folder=folder, cache=tmp_path / "cache")
        assert rest == expected
        for mine, theirs in zip(found, whole, strict=True):
            np.testing.assert_allclose(mine, theirs, atol=1e-3)
        rest.clear()


def test_each_way_of_encoding_has_its_own_folder(folder: Path, tmp_path: Path) -> None:
    ways: list[tuple[Baseline, list[str], Any]] = [
        (DENSE, ["ab", "c"], "query"),
        (DENSE, ["ab", "c"], "document"),
        (DENSE, ["a", "bc"], "query"),
        (replace(DENSE, pooling="cls"), ["ab", "c"], "query"),
        (replace(DENSE, query_prompt="the "), ["ab", "c"], "query"),
        (replace(DENSE, width=8), ["ab", "c"], "query"),
        (replace(DENSE, late=LateInteraction(query_tokens=8)), ["ab", "c"], "query"),
    ]
    for number, (row, texts, side) in enumerate(ways, start=1):
        opposite = "document" if side == "query" else "query"
        other = {f"{opposite}_prompt": "in ", f"{opposite}_marker": "disease"}
        for same in (row, replace(row, name="another", licence="MIT", note="one", **other)):
            encode(same, texts, side, folder=folder, cache=tmp_path / "cache")
            assert len(list((tmp_path / "cache").iterdir())) == number


def test_a_damaged_cache_is_one_sentence(folder: Path, tmp_path: Path) -> None:
    encode(DENSE, TEXTS, "query", folder=folder, cache=tmp_path / "cache")
    (place,) = (tmp_path / "cache").iterdir()
    (place / "done.json").write_text("{}")
    with pytest.raises(InputError, match=rf"done\.json is damaged; delete {place}$"):
        encode(DENSE, TEXTS, "query", folder=folder, cache=tmp_path / "cache")
