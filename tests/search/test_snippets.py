"""Excerpts: round their marks, at word ends, no longer than asked, marks where the words are."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hplus import Span
from hplus.search.snippets import Snippet, excerpt

WORDS = [f"w{i:03d}" for i in range(300)]
TEXT = " ".join(WORDS)  # word i is at 5 i


def word(i: int) -> Span:
    return Span(5 * i, 5 * i + 4)


def marked(shown: Snippet) -> list[tuple[int, str]]:
    return [(mark.rank, shown.text[mark.start : mark.end]) for mark in shown.marks]


@given(
    st.lists(st.lists(st.integers(0, 299), min_size=1, max_size=4), max_size=8),
    st.integers(60, 400),
)
def test_the_best_marks_are_shown_among_whole_words(chosen: list[list[int]], size: int) -> None:
    shown = excerpt(TEXT, [[word(i) for i in one] for one in chosen], size)
    pieces = [piece.strip() for piece in shown.text.split("…") if piece.strip()]
    assert all(piece in TEXT for piece in pieces)
    assert {token for piece in pieces for token in piece.split()} <= set(WORDS)
    assert sum(map(len, pieces)) <= size
    found = marked(shown)
    assert [rank for rank, _ in found] == sorted((rank for rank, _ in found), reverse=True)
    for rank, text in found:
        assert text in {WORDS[i] for i in chosen[rank]}
    if chosen:
        assert (0, WORDS[chosen[0][0]]) in found
    everywhere = {(rank, WORDS[i]) for rank, one in enumerate(chosen) for i in one}
    visible = {pair for pair in everywhere if pair[1] in shown.text}
    assert set(found) == visible  # whatever can be seen of a match is marked


def test_a_short_text_is_shown_whole_and_on_one_line() -> None:
    shown = excerpt("one\ntwo\tthree", [[Span(4, 7)], [Span(0, 3)]])
    assert shown.text == "one two three"
    assert marked(shown) == [(1, "one"), (0, "two")]
    assert excerpt("", []).text == ""


def test_two_distant_matches_are_both_shown() -> None:
    shown = excerpt(TEXT, [[word(280)], [word(20)]], 300)
    assert marked(shown) == [(1, "w020"), (0, "w280")]
    assert shown.text.split("w020")[0].startswith("… w")
    assert " … " in shown.text
    assert shown.text.split("w280")[1].endswith(" …")
    assert 200 < len(shown.text) <= 300 + len("…  …  …")


def test_without_marks_the_beginning_is_shown_up_to_a_word() -> None:
    shown = excerpt(TEXT, [], 102)
    assert shown.text == " ".join(WORDS[:20]) + " …"
    assert len(excerpt("x" * 500, [], 100).text) == 102


def test_texts_without_blanks_and_long_matches() -> None:
    han = "心力衰竭是一种综合征，" * 60
    assert (0, "二型") in marked(excerpt(han + "二型" + han, [[Span(len(han), len(han) + 2)]]))
    long = excerpt(TEXT, [[Span(100, 1400)]], 200)
    assert len(long.text) <= 200 + len("…  …")
    assert long.marks
