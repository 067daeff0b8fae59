"""A hundred lines from ten fields whose terms must stay whole, and pairs of contexts that differ.

Written for this project, before the model was trained; nothing was tuned on them. What fails is
named here, so that a better model is noticed as surely as a worse one.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hplus import HPlus
from hplus.types import Unit

HERE = Path(__file__).parent
# 99 of 100 lines pass. The terms that the default model does not keep whole in the others:
FAILURES = {
    # The verb is drawn into the phrase: "Portland cement hardens".
    "Portland cement hardens through hydration rather than by drying.": ["Portland cement"],
}


def rows(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (HERE / name).read_text("utf-8").splitlines()]


def test_the_paper_s_own_example(mini: HPlus) -> None:
    text = "Metformin lowers HbA1c in type 2 diabetes with chronic kidney disease"
    units = [unit.text for unit in mini.segment(text)[0]]
    assert "type 2 diabetes" in units
    assert "chronic kidney disease" in units


def test_the_terms_of_a_hundred_lines_stay_whole(mini: HPlus) -> None:
    lines = rows("lines.jsonl")
    assert len(lines) == 100
    assert len({line["field"] for line in lines}) == 10
    broken = {}
    for line, units in zip(lines, mini.segment([line["text"] for line in lines]), strict=True):
        spelled = {unit.text for unit in units}
        if missing := [term for term in line["keep"] if term not in spelled]:
            broken[line["text"]] = missing
    assert broken == FAILURES


def is_cut(text: str, surface: str, units: list[Unit]) -> bool:
    start = text.lower().index(surface.lower())
    return any(start < unit.start < start + len(surface) for unit in units)


def test_the_same_words_are_divided_by_their_context(mini: HPlus) -> None:
    """Whole in one sentence, divided in the other: at least ten pairs of forty, and the reverse
    never more often."""
    pairs = rows("contexts.jsonl")
    together = mini.segment([pair["together"] for pair in pairs])
    apart = mini.segment([pair["apart"] for pair in pairs])
    right = wrong = 0
    for pair, one, other in zip(pairs, together, apart, strict=True):
        cut_in_one = is_cut(pair["together"], pair["surface"], one)
        cut_in_other = is_cut(pair["apart"], pair["surface"], other)
        right += cut_in_other and not cut_in_one
        wrong += cut_in_one and not cut_in_other
    assert right >= 10
    assert wrong < right / 5


@pytest.mark.parametrize("name", ["lines.jsonl", "contexts.jsonl"])
def test_the_files_are_sound(name: str) -> None:
    for row in rows(name):
        if "keep" in row:
            assert all(row["text"].count(term) == 1 for term in row["keep"])
        else:
            for side in ("together", "apart"):
                assert row[side].lower().count(row["surface"].lower()) == 1
