"""Hard negatives: spread over the scores, below the positive, never a copy of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hplus import HPlus, Index
from hplus.errors import InputError
from hplus.teach.groups import Group
from hplus.teach.negatives import find_negatives, spread_choice
from hplus.teach.scorers import Teacher

scores = st.lists(st.floats(-5, 5), min_size=2, max_size=30)


@given(scores, st.integers(1, 8), st.floats(0, 0.5), st.integers(0, 99))
def test_no_negative_scores_near_the_positive(
    values: list[float], count: int, margin: float, seed: int
) -> None:
    score = np.array(values)
    chosen, above = spread_choice(score, count, margin, np.random.default_rng(seed))
    ceiling = score[0] - margin * (score[0] - score.min())
    free = int((score[1:] < ceiling).sum())
    assert len(set(chosen.tolist())) == len(chosen) == min(count, free)
    assert 0 not in chosen
    assert (score[chosen] < ceiling).all()
    assert above == len(score) - 1 - free


def test_the_choice_covers_the_range() -> None:
    """Of a hundred candidates, nearly all of them low, each part of the range gives one."""
    score = np.r_[1.0, np.linspace(0, 0.2, 90), 0.35, 0.5, 0.65, 0.8]
    chosen, _ = spread_choice(score, 5, 0.1, np.random.default_rng(0))
    parts = (score[chosen] / 0.9 * 5).astype(int)
    assert sorted(parts) == [0, 1, 2, 3, 4]


PAIRS = [
    Group("a", "drug for diabetes", ("Metformin treats type 2 diabetes in adults.",)),
    Group("a", "heart failure", ("Digoxin was given for heart failure.",)),
    Group("a", "drug for diabetes", ("Insulin treats diabetes of type 1.",)),
    Group("a", "diabetes pill", ("Metformin treats type 2 diabetes in adults!",)),
    Group("a", "kidney", ("The kidney is an organ; diabetes harms it.",)),
]


def test_answers_and_near_copies_are_no_negatives(tmp_path: Path) -> None:
    made, dropped = find_negatives(
        PAIRS, count=4, teachers=[Teacher("bm25")], cache=tmp_path, margin=0.0
    )
    assert [group.documents[0] for group in made] == [g.documents[0] for g in PAIRS]
    first = made[0].documents
    assert PAIRS[2].documents[0] not in first  # another answer to the same query
    assert PAIRS[3].documents[0] not in first  # the same text but for a sign
    assert PAIRS[1].documents[0] in first
    assert dropped["near duplicates of the positive"] >= 2


def test_candidates_of_an_index_and_of_vectors(mini: HPlus, tmp_path: Path) -> None:
    notes = ["Gliclazide is a drug for diabetes.", "Roses are red."]
    rows = [{"_id": str(i), "text": text} for i, text in enumerate(notes)]
    Index.create(tmp_path / "i.hplus", mini).add(rows)
    made, _ = find_negatives(
        PAIRS[:2],
        count=3,
        sources=[f"index:{tmp_path / 'i.hplus'}", "global:mini"],
        teachers=[Teacher.parse("tokens:mini")],
        cache=tmp_path / "cache",
        margin=0.0,
    )
    assert set(notes) & set(made[0].documents)
    assert PAIRS[1].documents[0] in made[0].documents
    with pytest.raises(InputError, match="expected bm25, global:MODEL or index:FOLDER"):
        find_negatives(PAIRS, count=1, sources=["web"], teachers=[Teacher("bm25")], cache=tmp_path)
