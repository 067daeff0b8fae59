"""Patterns: every example, the settling of a partition by a naive one, and texts of any kind."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hplus.types import Tokens, offsets_of
from hplus.units.pattern_table import PATTERNS, Pattern
from hplus.units.patterns import EXPRESSIONS, Spelled, override, settle, spelled
from hplus.units.words import STOP_WORDS, is_content, words

SIGNS = "aEx1203 .,;:/-+*()[]<>=%µβ²⁺'_PnomgHRc"


def tokens_of(*texts: str) -> Tokens:
    """Words as tokens."""
    spans = [words(text, han="characters") for text in texts]
    flat = np.array([span for own in spans for span in own], np.int32).reshape(-1, 2)
    return Tokens(texts, np.zeros(len(flat), np.int32), flat, offsets_of([len(o) for o in spans]))


def divided(text: str) -> list[str]:
    """The units of a text whose words all stand alone before the patterns settle them."""
    tokens = tokens_of(text)
    begins = override(np.ones(len(tokens.ids), np.bool_), tokens)
    bounds = [*np.flatnonzero(begins).tolist(), len(begins)]
    return [text[tokens.spans[a, 0] : tokens.spans[b - 1, 1]] for a, b in pairwise(bounds)]


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda pattern: pattern.name)
def test_every_pattern_finds_its_example(pattern: Pattern) -> None:
    before, found, _ = pattern.example.replace("⟧", "⟦").split("⟦")
    text = pattern.example.replace("⟦", "").replace("⟧", "")
    start = len(before)
    expected = Spelled(start, start + len(found), pattern.begins, pattern.ends)
    assert expected in spelled(text)


def test_names_are_distinct() -> None:
    assert len({pattern.name for pattern in PATTERNS}) == len(PATTERNS)


@pytest.mark.parametrize(
    "text",
    [
        "We followed the patients for many years and saw that most of them did well.",
        "Type 2 diabetes is a chronic disease of the elderly (and of some children).",
        "The increased risk was due to smoking, diet, and little exercise.",
        "Patients with or without heart failure were treated alike, and/or observed.",
        "In vitamin D-deficient mice, double-blind and placebo-controlled studies exist.",
        "See group A. the next sentence begins in small letters. It is 5 years old.",
        "他患有2型糖尿病，没有骨折。",
    ],
)
def test_what_ordinary_text_keeps(text: str) -> None:
    """Nothing in it but, at most, a number with its unit of measure."""
    assert {text[own.start : own.end] for own in spelled(text)} <= {"5 years"}


@pytest.mark.parametrize(
    ("text", "units"),
    [
        ("warfarin 5 mg p.o. once daily", ["warfarin", "5 mg", "p.o.", "once daily"]),
        ("r/o PE vs. ACS", ["r/o", "PE", "vs.", "ACS"]),
        ("HR 0.72 (0.58 to 0.89)", ["HR 0.72", "(", "0.58 to 0.89", ")"]),
        ("no shortness of breath", ["no shortness of breath"]),
        ("IL-6-mediated", ["IL", "-", "6", "-", "mediated"]),
        ("10 to 20 mg/kg/day", ["10 to 20 mg/kg/day"]),
        ("p.Glu23Valfs*17)", ["p.Glu23Valfs*17", ")"]),
        ("with or without insulin", ["with", "or", "without", "insulin"]),
        ("The increased risk", ["The", "increased", "risk"]),
        ("the markedly increased risk", ["the", "markedly", "increased", "risk"]),
        ("Na+,K+-ATPase", ["Na+,K+-ATPase"]),
        ("t(34) = 2.11", ["t(34) = 2.11"]),
    ],
)
def test_whole_lines(text: str, units: list[str]) -> None:
    assert divided(text) == units


@st.composite
def partitions(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, list[Spelled]]:
    """Pieces with gaps between them, a partition, and matches that do not overlap."""
    edges = sorted(draw(st.sets(st.integers(0, 40), min_size=2, max_size=16)))
    spans = np.array([(a, b) for a, b in pairwise(edges) if draw(st.booleans())], np.int32)
    spans = spans.reshape(-1, 2)
    begins = np.array([i == 0 or draw(st.booleans()) for i in range(len(spans))], np.bool_)
    cuts = sorted(draw(st.sets(st.integers(0, 42), max_size=8)))
    found = [
        Spelled(a, b, draw(st.booleans()), draw(st.booleans()))
        for a, b in zip(cuts[::2], cuts[1::2], strict=False)
    ]
    return begins, spans, found


@given(partitions())
def test_settle_against_the_rule_read_aloud(
    drawn: tuple[np.ndarray, np.ndarray, list[Spelled]],
) -> None:
    begins, spans, found = drawn
    expected = begins.tolist()
    touched = [
        [row for row, (a, b) in enumerate(spans.tolist()) if a < own.end and own.start < b]
        for own in found
    ]
    for own, rows in zip(found, touched, strict=True):
        if rows and own.begins:
            expected[rows[0]] = True
        if rows and own.ends and rows[-1] + 1 < len(expected):
            expected[rows[-1] + 1] = True
    for rows in touched:
        for row in rows[1:]:
            expected[row] = False
    assert settle(begins, spans, found).tolist() == expected


@settings(max_examples=300)
@given(st.text(alphabet=SIGNS, max_size=60))
def test_matches_lie_in_the_text_and_patterns_do_not_overlap(text: str) -> None:
    found = spelled(text)
    assert all(0 <= own.start < own.end <= len(text) for own in found)
    assert all(not text[place].isspace() for own in found for place in (own.start, own.end - 1))
    assert all(a.end <= b.start for a, b in pairwise(own for own in found))


@given(st.lists(st.text(alphabet=SIGNS, max_size=30), max_size=4))
def test_a_text_is_settled_the_same_alone_and_in_a_batch(texts: list[str]) -> None:
    tokens = tokens_of(*texts)
    together = override(np.ones(len(tokens.ids), np.bool_), tokens)
    alone = [tokens_of(text) for text in texts]
    parts = [override(np.ones(len(own.ids), np.bool_), own) for own in alone]
    assert together.tolist() == [place for part in parts for place in part.tolist()]
    assert all(part[0] for part in parts if len(part))


def test_expressions_have_function_words_between_content_words() -> None:
    expressions = EXPRESSIONS.read_text("utf-8").splitlines()
    assert expressions == sorted(set(expressions))
    for expression in expressions:
        first, *between, last = expression.split()
        assert is_content(first)
        assert is_content(last)
        assert STOP_WORDS & set(between), expression
