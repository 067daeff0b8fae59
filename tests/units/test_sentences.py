"""Where a text may be cut: pieces are the text, and no longer than asked."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hplus.units.sentences import sentence_ends, stretches

TEXT = st.text(st.sampled_from("ab A.!?。\n\r\t\"')é\u0301👩\u200d🔬"), max_size=80)


@settings(deadline=None)
@given(TEXT, st.integers(1, 30))
@example("", 1)
@example("a" * 50, 7)
def test_stretches_are_the_text_in_order_and_of_bounded_size(text: str, size: int) -> None:
    pieces = list(stretches(text, size))
    assert "".join(piece for _, piece in pieces) == text
    assert [start for start, _ in pieces] == [
        sum(len(piece) for _, piece in pieces[:i]) for i in range(len(pieces))
    ]
    assert all(0 < len(piece) <= size for _, piece in pieces) or pieces == [(0, text)]


@pytest.mark.parametrize(
    ("text", "cut"),
    [
        ("One. Two is\n\nSo. Four five", "One. Two is\n\n"),
        ("One is here. Two is there, three", "One is here. "),
        ("one two three four five six", "one two three "),
        ("one,two,three,four,five,six", "one,two,three,four"),
        ("第一句话在这里。第二句话也在这里的", "第一句话在这里。"),
        ("0123456789abcdefe\u0301\u0301\u0301hij", "0123456789abcdef"),
    ],
)
def test_the_best_place_of_the_second_half(text: str, cut: str) -> None:
    size = 9 if cut.startswith("第") else 18
    assert next(iter(stretches(text, size)))[1] == cut


@settings(deadline=None)
@given(TEXT)
def test_sentences_end_after_a_mark_or_a_blank_line(text: str) -> None:
    ends = sentence_ends(text)
    assert all(a < b for a, b in pairwise([0, *ends, len(text)])) or text == ""
    for end in ends:
        before = text[:end].rstrip()
        mark = before.rstrip("\"')")[-1:] in tuple(".!?。")
        assert mark or re.search(r"\n[^\S\n]*\n\s*\Z", text[:end])


@pytest.mark.parametrize("text", ["See e.g. this one.", "It costs 3.5 now", "no end", "", "..."])
def test_not_every_full_stop_ends_a_sentence(text: str) -> None:
    assert sentence_ends(text) == []
