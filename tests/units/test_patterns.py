"""Patterns: every example, the settling of a partition by a naive one, and texts of any kind."""

import re
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hplus.evaluate.data import demo_folder, read_beir
from hplus.types import Tokens, offsets_of
from hplus.units import patterns
from hplus.units.pattern_table import PATTERNS, Pattern
from hplus.units.patterns import Spelled, needed, override, settle, spelled
from hplus.units.words import words

LINES = Path(__file__).parents[2] / "experiments" / "segmentation"
WHOLE_TABLE = patterns._compiled(PATTERNS)
ALONE = [re.compile(rf"(?<!\w)(?:{own.regex})", re.VERBOSE) for own in PATTERNS]
SIGNS = "aEx1203 .,;:/-+*()[]<>=%µβ²⁺'_PnomgHRc"


def whole_example(pattern: Pattern) -> str:
    return pattern.example.replace("⟦", "").replace("⟧", "")


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
    text = whole_example(pattern)
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


@settings(max_examples=300, deadline=None)  # the first may compile the table
@given(st.text(alphabet=SIGNS, max_size=60))
def test_matches_lie_in_the_text_and_patterns_do_not_overlap(text: str) -> None:
    found = spelled(text)
    assert all(0 <= own.start < own.end <= len(text) for own in found)
    assert all(not text[place].isspace() for own in found for place in (own.start, own.end - 1))
    assert all(a.end <= b.start for a, b in pairwise(own for own in found))


@settings(deadline=None)  # the first may compile the table
@given(st.lists(st.text(alphabet=SIGNS, max_size=30), max_size=4))
def test_a_text_is_settled_the_same_alone_and_in_a_batch(texts: list[str]) -> None:
    tokens = tokens_of(*texts)
    together = override(np.ones(len(tokens.ids), np.bool_), tokens)
    alone = [tokens_of(text) for text in texts]
    parts = [override(np.ones(len(own.ids), np.bool_), own) for own in alone]
    assert together.tolist() == [place for part in parts for place in part.tolist()]
    assert all(part[0] for part in parts if len(part))


def assert_needs_are_there(text: str) -> None:
    """A pattern whose needs a text lacks would not have matched: leaving it out changes nothing."""
    matching = {own for own, alone in zip(PATTERNS, ALONE, strict=True) if alone.search(text)}
    assert matching <= set(needed(text))


@pytest.mark.parametrize("file", ["dev.txt", "report.txt", "report-2.txt"])
def test_needs_are_there_in_marked_lines(file: str) -> None:
    for line in (LINES / file).read_text("utf-8").splitlines():
        assert_needs_are_there(re.sub("[⟦⟧│]", "", line))


@pytest.mark.parametrize("language", ["en", "zh"])
def test_needs_are_there_in_the_demo(language: str) -> None:
    demo = read_beir(demo_folder(language), "test")
    for text in (*demo.queries, *demo.documents):
        assert_needs_are_there(text)


@pytest.mark.parametrize("number", range(len(PATTERNS)), ids=lambda number: PATTERNS[number].name)
@settings(max_examples=5, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_needs_are_there_in_texts_made_from_a_pattern(number: int, data: st.DataObject) -> None:
    assert PATTERNS[number] in needed(data.draw(st.from_regex(ALONE[number])))


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.text(alphabet=SIGNS, max_size=6),
            st.sampled_from([whole_example(own) for own in PATTERNS]),
            st.sampled_from(" ".join(whole_example(own) for own in PATTERNS).split()),
        ),
        max_size=6,
    ),
    st.sampled_from(["", " ", "/", "-"]),
)
def test_needs_are_there_in_any_text(parts: list[str], between: str) -> None:
    assert_needs_are_there(between.join(parts))


def test_the_patterns_a_text_needs_find_what_the_whole_table_finds() -> None:
    for pattern in PATTERNS:
        text = whole_example(pattern)
        expected = [(own.lastgroup, own.span()) for own in WHOLE_TABLE.finditer(text)]
        some = patterns._compiled(needed(text))
        assert [(own.lastgroup, own.span()) for own in some.finditer(text)] == expected
        assert expected


def test_the_table_is_compiled_as_texts_need_it(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[int] = []

    def counting(these: tuple[Pattern, ...]) -> re.Pattern[str]:
        compiled.append(len(these))
        return WHOLE_TABLE

    monkeypatch.setattr(patterns, "_compiled", counting)
    table = patterns._Table()
    for text in ("heart failure", "warfarin 5 mg", "heart failure", "no fever", "P < 0.05"):
        table.of(text)
    assert compiled == [0, len(needed("warfarin 5 mg")), len(PATTERNS)]
