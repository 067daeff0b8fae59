"""Explanations for people: sorted, folded, whole words, and numbers that add up as printed."""

from __future__ import annotations

import math
import re
from functools import reduce
from operator import add

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hplus import Explanation, HPlus, Span
from hplus.search.explained import NAMED, readable, rounded
from hplus.types import DroppedUnit, UnitMatch, WordMatch

numbers = st.floats(-3, 3, allow_nan=False)


@given(st.lists(numbers, max_size=12))
def test_rounded_parts_add_up_and_none_is_off_by_a_thousandth(parts: list[float]) -> None:
    total = round(1000 * math.fsum(parts)) if parts else 0
    found = rounded(parts, total)
    assert sum(found) == total
    assert all(abs(own - 1000 * part) < 1 + 1e-6 for own, part in zip(found, parts, strict=True))


@given(st.lists(numbers, min_size=1, max_size=6), st.integers(-9000, 9000))
def test_rounded_parts_add_up_to_any_total(parts: list[float], total: int) -> None:
    found = rounded(parts, total)
    assert sum(found) == total
    spread = [own - 1000 * part for own, part in zip(found, parts, strict=True)]
    assert max(spread) - min(spread) < 2 + 1e-6


def match(text: str, contribution: float, *spans: tuple[int, int], weight: float = 1) -> UnitMatch:
    found = [Span(*span) for span in spans]
    return UnitMatch([Span(0, 1)], text, weight, found, "", contribution, contribution)


def explanation(
    phrase: list[UnitMatch], words: list[WordMatch], *, alpha: float = 1.0, dropped: int = 0
) -> Explanation:
    raw = reduce(add, (m.contribution for m in phrase), 0.0)
    lexical = reduce(add, (w.contribution for w in words), 0.0)
    shares = {"global": 0.1234, "phrase": alpha * raw / 7, "lexical": 0.2 * lexical / 3}
    lost = [DroppedUnit([], f"u{i}", 1.0) for i in range(dropped)]
    fused = reduce(add, shares.values())
    return Explanation(phrase, [], shares, lost, raw, lexical, fused, words)


@given(
    st.lists(st.tuples(st.sampled_from(["of", "heart", "?"]), numbers, st.floats(0.01, 5))),
    st.lists(st.tuples(st.booleans(), st.floats(0, 9)), max_size=12),
    st.sampled_from([0.0, 0.5, 1.0]),
)
def test_what_is_printed_adds_up(
    units: list[tuple[str, float, float]], words: list[tuple[bool, float]], alpha: float
) -> None:
    found = readable(
        explanation(
            [match(text, own, weight=weight) for text, own, weight in units],
            [WordMatch(f"w{i}", whole, own) for i, (whole, own) in enumerate(words)],
            alpha=alpha,
        ),
        "",
    )
    assert sum(found.shares.values()) == found.fused
    total, *shares = (round(1000 * float(n)) for n in re.findall(r"-?\d+\.\d+", found.sum))
    assert (total, shares) == (found.fused, list(found.shares.values()))
    if units:
        gave = [line.thousandths for line in found.lines]
        assert sum(gave) + found.light[1] == found.shares["phrase"]
        assert len(gave) + len(found.light[0]) == len(units)
    if words:
        printed = [round(1000 * float(n)) for n in re.findall(r"-?\d+\.\d+", found.exact)]
        assert sum(printed) == found.shares["lexical"]
        own = [thousandths for _, thousandths in found.words]
        assert own == sorted(own, reverse=True)


def test_units_are_sorted_and_function_words_folded() -> None:
    units = [
        match("in", 0.5, weight=2),
        match("ECG changes", 2.0, weight=3),
        match(",", 0.1, weight=2),
        match("hypokalaemia", 4.0, weight=4),
        match("barely", 0.01, weight=0.01),
    ]
    found = readable(explanation(units, []), "")
    assert [line.text for line in found.lines] == ["hypokalaemia", "ECG changes"]
    assert found.light[0] == ["in", ",", "barely"]
    only = readable(explanation([match("what", 1.0), match("is", 0.5)], []), "")
    assert [line.text for line in only.lines] == ["what", "is"]
    assert only.light == ([], 0)
    unknown = readable(explanation([match("", 1.0), match("", 0.5)], []), "")
    assert len(unknown.lines) == 2  # of an encoded query the words are not known


def test_a_merged_unit_is_cited_by_its_words_each_once() -> None:
    text = "Hypokalaemia, and then hypokalaemia in\n adults ,"
    spans = [(0, 12), (12, 13), (14, 17), (23, 35), (36, 46), (47, 48)]
    (line,) = readable(explanation([match("x", 1.0, *spans)], []), text).lines
    assert line.found == "Hypokalaemia … in adults"
    (line,) = readable(explanation([match("x", 1.0, (12, 13))], []), text).lines
    assert line.found == ","
    (line,) = readable(explanation([match("x", 1.0)], []), text).lines
    assert line.found == ""


def test_exact_words_beyond_the_first_are_counted() -> None:
    words = [WordMatch(f"w{i}", i != 1, float(20 - i)) for i in range(NAMED + 3)]
    found = readable(explanation([], words, dropped=NAMED + 2), "")
    assert found.exact.startswith("w0 ")
    assert ", part of w1 " in found.exact
    assert re.search(r", 3 more \d\.\d{3}$", found.exact)
    assert found.left_out == "u0, u1, u2, u3, u4, u5, u6, u7 and 2 more"
    assert readable(explanation([], []), "").exact == ""


@pytest.mark.parametrize("alphas", [None, {"phrase": 1.0}, {"lexical": 2.0}, {"global": 1.0}])
def test_of_a_real_model(mini: HPlus, alphas: dict[str, float] | None) -> None:
    query = "ECG changes in hypokalaemia, and in hyponatraemia"
    documents = [
        "Hypokalaemia flattens the T wave.",
        "In anaemia the ECG changes little.",
        "",
    ]
    scores = mini.score(query, documents, explain=True, alphas=alphas)
    assert scores.explanations is not None
    for why, text in zip(scores.explanations, documents, strict=True):
        found = readable(why, text)
        assert sum(found.shares.values()) == found.fused == round(1000 * why.fused)
        named = {word for word, _ in found.words}
        assert not any("##" in word for word in named)
        assert {word.removeprefix("part of ").lower() for word in named} <= set(
            re.findall(r"\w+|,", query.lower())
        )
    if alphas is None:
        first, second, _ = (dict(readable(why, "").words) for why in scores.explanations)
        assert "hypokalaemia" in first
        assert {"ECG", "changes", "in"} < set(second)
        assert any(word.startswith("part of ") for word in second)
