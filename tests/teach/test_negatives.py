"""Hard negatives: spread over the scores, below the positive, never a copy of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hplus import HPlus, Index
from hplus.errors import InputError
from hplus.teach import negatives
from hplus.teach.duplicates import collect
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


def test_answers_that_score_low_are_no_negatives(tmp_path: Path) -> None:
    """Nor are near copies of them: the margin does not keep them out."""
    low = "Metformin treats diabetes and is sold under many names in all of the world"
    rows = [
        Group("a", "drug for diabetes", ("A drug for diabetes.",)),
        Group("a", "drug for diabetes", (low,)),
        Group("a", "metformin", (low + "!",)),
        Group("a", "heart failure", ("Digoxin was given for heart failure.",)),
    ]
    made, _ = find_negatives(rows, count=4, teachers=[Teacher("bm25")], cache=tmp_path, margin=0.0)
    assert made[0].documents == (rows[0].documents[0], rows[3].documents[0])


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


def test_the_same_call_gives_the_same_negatives(tmp_path: Path) -> None:
    """And logits of an earlier teacher, which would not fit them, are gone."""
    scored = [Group(g.source, g.query, g.documents, (1.0,)) for g in PAIRS]

    def made(seed: int) -> list[Group]:
        bm25 = [Teacher("bm25")]
        found, _ = find_negatives(
            scored, count=2, teachers=bm25, cache=tmp_path, margin=0.0, seed=seed
        )
        return found

    assert made(13) == made(13)
    assert any(made(seed) != made(13) for seed in range(8))
    assert all(group.scores is None for group in made(13))


def test_a_few_at_random_are_the_floor_of_the_range(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a source finds only documents that are near."""
    monkeypatch.setattr(negatives, "DEPTH", 3)
    near = [f"heart failure of kind {i} {'heart ' * i}" for i in range(4)]
    far = [f"{word} of another kind" for word in ("cancer", "insulin", "kidney", "cell", "gene")]
    rows = [Group("a", "heart failure", (near[0],))]
    rows += [Group("a", f"other {i}", (text,)) for i, text in enumerate(near[1:] + far)]
    made, _ = find_negatives(rows, count=3, teachers=[Teacher("bm25")], cache=tmp_path)
    assert set(far) & set(made[0].documents)


@pytest.mark.parametrize("also", [[], ["bm25"]])
def test_an_index_gives_passages_and_is_kept_apart(
    mini: HPlus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, also: list[str]
) -> None:
    """Neither at random nor by another source is an evaluation text of the index a negative."""
    monkeypatch.setattr(negatives, "RANDOM", 100)  # every document is drawn
    long = "Gliclazide is a drug for diabetes. " + "The heart is an organ of the patient. " * 6
    apart = "Insulin is another drug for diabetes in every patient with type one."
    rows = [{"_id": "long", "text": long}, {"_id": "apart", "text": apart}]
    with Index.create(tmp_path / "i.hplus", mini, passages=16) as index:
        index.add(rows)
    evaluated = collect([apart + " It is given each day."])
    for against, expected in ((None, {apart}), (evaluated, set())):
        made, _ = find_negatives(
            PAIRS[:2],
            count=20,
            sources=[f"index:{tmp_path / 'i.hplus'}", *also],
            teachers=[Teacher("bm25")],
            cache=tmp_path,
            apart_from=against,
            margin=0.0,
        )
        found = {text for group in made for text in group.documents[1:]}
        assert found & {apart} == expected
        passages = {text for text in found if text in long}
        assert passages
        assert long not in found
