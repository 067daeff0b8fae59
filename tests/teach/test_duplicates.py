"""Near duplicates against plain sets of word tuples, and every rule by a hand-made case."""

import random
import re
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hplus.errors import InputError
from hplus.teach.duplicates import collect, near_duplicates

# Parts of one text that repeats itself, up to two words changed: many duplicate one another.
LONG = ["Heart", "failure", "糖", "尿", "is", "a", "disease", "of", "the"] * 3


@st.composite
def parts(draw: st.DrawFn) -> str:
    start = draw(st.integers(0, 8))
    part = LONG[start : start + draw(st.integers(0, 18))]
    for place in draw(st.lists(st.integers(0, 17), max_size=2)):
        part[place : place + 1] = ["other"]
    return " ".join(part)


texts = st.lists(parts(), max_size=3)


def naive_shingles(text: str) -> set[tuple[str, ...]]:
    spaced = re.sub("([\u4e00-\u9fff])", r" \1 ", text.lower())
    found = re.findall(r"\w+", spaced)
    if len(found) < 5:
        return {tuple(found)} - {()}
    return {tuple(found[i : i + 5]) for i in range(len(found) - 4)}


def naive_duplicate(text: str, other: str, threshold: float) -> bool:
    a, b = naive_shingles(text), naive_shingles(other)
    if not a or not b:
        return False
    shared = len(a & b)
    return shared / len(a | b) >= threshold or shared / min(len(a), len(b)) >= 0.8


def numbered(count: int, prefix: str = "word") -> list[str]:
    return [f"{prefix}{i}" for i in range(count)]


def is_duplicate(text: str, other: str, threshold: float = 0.5) -> bool:
    return bool(near_duplicates([text], [other], threshold=threshold)[0])


@given(texts, texts, st.sampled_from([0.1, 0.25, 0.5, 0.75, 1.0]))
def test_as_plain_sets_say(ours: list[str], theirs: list[str], threshold: float) -> None:
    found = near_duplicates(ours, theirs, threshold=threshold)
    assert found.dtype == np.bool_
    assert found.tolist() == [
        any(naive_duplicate(text, other, threshold) for other in theirs) for text in ours
    ]


@given(st.text())
@example("\ud800\0")
def test_a_text_with_a_word_duplicates_itself(text: str) -> None:
    assert is_duplicate(f"{text} word", f"{text} word")


def test_a_collection_is_indexed_once_for_many_calls() -> None:
    theirs = collect(iter(["", "vitamin D", "does vitamin D help in winter"]))
    assert near_duplicates(["vitamin d", "D"], theirs).tolist() == [True, False]
    assert near_duplicates(["Does vitamin D help in winter?"], theirs).tolist() == [True]


def test_an_edited_copy_is_found() -> None:
    original = numbered(200)
    edited = original.copy()
    for place in (20, 70, 120, 170):
        edited[place] = "other"
    # 196 shingles each, 20 of them lost.
    assert is_duplicate(" ".join(edited), " ".join(original))
    # 80 words less at both ends: contained, though Jaccard is 36 of 196.
    assert is_duplicate(" ".join(original[80:120]), " ".join(original))


def test_jaccard_at_the_threshold_counts_and_below_it_does_not() -> None:
    # 30 shingles each, 20 of them common: Jaccard 20 of 40, containment 20 of 30.
    ours = " ".join([*numbered(24), *numbered(10, "ours")])
    theirs = " ".join([*numbered(24), *numbered(10, "theirs")])
    assert is_duplicate(ours, theirs, threshold=0.5)
    assert not is_duplicate(ours, theirs, threshold=0.51)


def test_containment_from_four_fifths_either_way() -> None:
    long = " ".join(numbered(100))
    # 10 shingles, of which 8 and 7 are in the long text.
    four_fifths = " ".join([*numbered(12), "x", "y"])
    less = " ".join([*numbered(11), "x", "y", "z"])
    assert is_duplicate(four_fifths, long)
    assert is_duplicate(long, four_fifths)
    assert not is_duplicate(less, long)
    assert not is_duplicate(long, less)


def test_shared_shingles_must_be_of_one_text() -> None:
    halves = [" ".join(numbered(100)[:50]), " ".join(numbered(100)[50:])]
    apart = " ".join([*numbered(100)[:20], *numbered(100)[50:70]])
    # Each half has 16 of its 36 shingles, together 32.
    assert not near_duplicates([apart], halves).any()


def test_disjoint_texts_are_none() -> None:
    vocabulary = numbered(500)
    draw = random.Random(5)
    ours, theirs = (
        [" ".join(draw.choices(vocabulary, k=200)) for _ in range(50)] for _ in range(2)
    )
    assert not near_duplicates(ours, theirs).any()


@pytest.mark.parametrize(
    ("text", "other", "expected"),
    [
        ("vitamin D", "Vitamin-D.", True),
        ("vitamin D", "Does vitamin D help in winter?", False),
        ("Does vitamin D help in winter?", "vitamin D", False),
        ("vitamin D in winter", "Vitamin D", False),
        ("does vitamin D help colds", "Some ask: does vitamin D help colds or not?", True),
        ("does vitamin D help", "Some ask: does vitamin D help colds or not?", False),
        ("a a a a a a a a", "a a a a a", True),
        ("a a a a", "a a a", False),
        # One shingle of five in common; its eight repetitions do not count.
        ("a a a a a a a a a a a a b c d e", "a a a a a v w x y z", False),
        ("The Heart, failing: why it fails!", "the heart failing — WHY it fails", True),
        ("ＨｂＡ１ｃ rises", "HbA1c rises", True),
        ("糖尿病", "糖尿病。", True),
        ("糖尿病", "2型糖尿病的症状有哪些", False),
        ("糖尿病有哪些症状", "请问，糖尿病有哪些症状？谢谢", True),
        ("糖尿病有哪些症状", "高血压应当怎样治疗", False),
        ("", "", False),
        ("…", "…", False),
    ],
)
def test_pairs(text: str, other: str, expected: bool) -> None:
    assert is_duplicate(text, other) == expected
    assert is_duplicate(other, text) == expected


def test_nothing_against_nothing() -> None:
    assert near_duplicates([], []).shape == (0,)
    assert near_duplicates([], ["a"]).shape == (0,)
    assert near_duplicates(["a", ""], []).tolist() == [False, False]
    assert near_duplicates(["b", "a"], iter(["a", ""])).tolist() == [False, True]


def test_another_hash_seed_changes_no_hash() -> None:
    program = "from hplus.teach.duplicates import shingles; print(shingles('糖尿病 a b c d'))"
    printed = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(printed) == 1


@pytest.mark.parametrize("threshold", [0, -0.5, 1.01, float("nan")])
def test_a_threshold_that_means_nothing_is_refused(threshold: float) -> None:
    with pytest.raises(InputError, match=f"a threshold in .*, got {threshold}"):
        near_duplicates(["a"], ["a"], threshold=threshold)


def test_non_text_is_refused() -> None:
    with pytest.raises(InputError, match="put it in brackets"):
        near_duplicates("text", ["text"])
    with pytest.raises(InputError, match=r"texts\[1\] is int"):
        near_duplicates(["text"], ["text", 3])  # type: ignore[list-item]
