"""What benchmarks/spans.py adds to the tallies: which terms count as several words."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / "benchmarks" / "spans.py"


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("癌", 1),
        ("肺癌", 2),
        ("B超", 2),
        ("cancer", 1),
        ("non-small-cell", 1),
        ("lung cancer", 2),
        ("lung\ncancer", 2),
        ("naïve", 1),
        ("인슐린 저항성", 2),
    ],
)
def test_words_of_a_term(text: str, count: int) -> None:
    spec = importlib.util.spec_from_file_location("spans_benchmark", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.word_count(text) == count
