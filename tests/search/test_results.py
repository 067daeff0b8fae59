"""Results as JSON, as a table, as HTML; snippets and their marks by brute force."""

from __future__ import annotations

import json
from dataclasses import replace
from html.parser import HTMLParser

from hypothesis import given
from hypothesis import strategies as st

from hplus import Explanation, Hit, Results, Span
from hplus.search.snippets import Snippet, snippet, strongest
from hplus.types import UnitMatch

TEXT = "Metformin lowers HbA1c in type 2 diabetes.\nIt is <b>cheap</b> & safe."


def match(contribution: float, *spans: tuple[int, int]) -> UnitMatch:
    found = [Span(*span) for span in spans]
    return UnitMatch([Span(0, 1)], "q", 1.0, found, "", contribution, contribution)


def hit(text: str, *matches: UnitMatch, id: str = "a") -> Hit:
    why = Explanation(list(matches), [], {}, [], None, None, 0.0)
    return Hit(id, 0.5, {"global": 0.25, "phrase": 0.75}, text, {"year": 2021}, why)


def results(*hits: Hit, path: str = "exact") -> Results:
    return Results("type 2 <diabetes>", list(hits), {"phrase": path}, len(hits))


class Text(HTMLParser):
    """The words of a page, and which of them are marked."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.marked, self.shades, self.open = "", [], [], False

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.open = tag == "mark"
        if self.open:
            self.shades.append(str(attrs))
        assert tag not in ("b", "script")

    def handle_endtag(self, tag: str) -> None:
        self.open = self.open and tag != "mark"

    def handle_data(self, data: str) -> None:
        self.words += data
        if self.open:
            self.marked.append(data)


def marked(shown: Snippet) -> list[str]:
    return [shown.text[mark.start : mark.end] for mark in shown.marks]


@given(
    st.text(st.sampled_from("ab \n"), min_size=1, max_size=120),
    st.lists(st.tuples(st.integers(0, 119), st.integers(1, 9), st.integers(1, 9)), max_size=4),
    st.integers(5, 40),
)
def test_a_snippet_shows_the_heaviest_match_and_marks_the_strong_ones(
    text: str, drawn: list[tuple[int, int, int]], size: int
) -> None:
    matches = [
        match(float(weight), (start, min(start + length, len(text))))
        for start, length, weight in drawn
        if start < len(text)
    ]
    found = hit(text, *matches)
    shown = snippet(found, size)
    line = text.replace("\n", " ")
    body = shown.text.removeprefix("… ").removesuffix(" …")
    assert body in line
    assert len(body) <= size
    strong = strongest(found)
    heaviest = max((m.contribution for m in matches), default=0)
    assert {id(m) for m in strong} == {id(m) for m in matches if m.contribution >= heaviest / 4}
    pieces = {line[m.document_spans[0].start : m.document_spans[0].end] for m in strong}
    for mark, piece in zip(shown.marks, marked(shown), strict=True):
        assert any(piece in whole for whole in pieces)
        assert 0 <= mark.rank < len(strong)
        assert 0 <= mark.start < mark.end <= len(shown.text)
    ranks = [mark.rank for mark in shown.marks]
    assert ranks == sorted(ranks, reverse=True)  # the heaviest is drawn last, on top
    if strong:
        assert 0 in ranks
        first = strong[0].document_spans[0].start
        assert marked(shown)[-1].startswith(line[first])


def test_a_long_text_is_shown_around_its_match() -> None:
    text = "word " * 200 + "type 2 diabetes " + "word " * 200
    shown = snippet(hit(text, match(1.0, (1000, 1015))))
    assert shown.text.startswith("… word")
    assert shown.text.endswith(" …")
    assert marked(shown) == ["type 2 diabetes"]
    plain = Hit("a", 1.0, {}, text, {})
    assert snippet(plain).text == text[:300] + " …"
    assert snippet(plain).marks == []


def test_a_text_without_blanks_is_shown_around_its_match() -> None:
    text = "心力衰竭是一种综合征，" * 60 + "二型糖尿病" + "肾功能不全者慎用，" * 60
    start = text.index("二型")
    shown = snippet(hit(text, match(1.0, (start, start + 5))))
    assert marked(shown) == ["二型糖尿病"]
    assert len(shown.text) == 300 + len("…  …")


def test_the_last_words_of_a_text_are_shown_whole() -> None:
    text = "Pneumonoultramicroscopic " * 40 + "type 2 diabetes"
    shown = snippet(hit(text, match(1.0, (len(text) - 15, len(text)))))
    assert marked(shown) == ["type 2 diabetes"]
    assert shown.text.startswith("… Pneumono")
    assert shown.text.endswith(" type 2 diabetes")


def test_pieces_of_a_merged_unit_have_one_rank_and_those_out_of_sight_no_mark() -> None:
    text = "aspirin " + "word " * 100 + "platelets, aspirin"
    shown = snippet(hit(text, match(1.0, (0, 7), (len(text) - 7, len(text))), match(0.5, (8, 12))))
    assert [(mark.rank, piece) for mark, piece in zip(shown.marks, marked(shown), strict=True)] == [
        (1, "word"),
        (0, "aspirin"),
    ]


def test_a_mark_that_begins_before_the_snippet_is_cut_to_it() -> None:
    text = "long " * 60 + "x" * 200 + " " + "type 2 diabetes"
    start = text.index("type")
    shown = snippet(hit(text, match(2.0, (start, len(text))), match(1.0, (0, start - 1))), 90)
    assert marked(shown) == ["x" * 74, "type 2 diabetes"]
    assert shown.text == "… " + "x" * 74 + " type 2 diabetes"
    outside = match(1.0, (400, 426))  # where the snippet begins
    assert marked(snippet(hit(text, match(2.0, (start, len(text))), outside), 90)) == [
        "type 2 diabetes"
    ]
    after = match(1.0, (90, 95))  # where it ends
    assert marked(snippet(hit(text, match(2.0, (0, 4)), after), 90)) == ["long"]


def test_the_strongest_match_contributes_most_whatever_it_weighs() -> None:
    light, heavy = match(2.0, (0, 1)), replace(match(1.0, (2, 3)), weight=9.0)
    assert strongest(hit("a b", heavy, light)) == [light, heavy]


def test_a_snippet_is_one_line() -> None:
    assert snippet(hit("one\r\ntwo\nthree\rfour")).text == "one  two three four"


def test_json_has_snippets_and_marks_where_hits_are_explained() -> None:
    found = results(hit(TEXT, match(2.0, (26, 41))), Hit("b", 0.1, {"global": 0.1}, "x", {}))
    row = json.loads(json.dumps(found.as_json()))
    assert (row["query"], row["candidates"]) == ("type 2 <diabetes>", 2)
    assert row["paths"] == {"phrase": "exact"}
    first, second = row["hits"]
    assert first["metadata"] == {"year": 2021}
    assert first["snippet"]["text"] == TEXT.replace("\n", " ")
    mark = first["snippet"]["marks"][0]
    assert first["snippet"]["text"][mark["start"] : mark["end"]] == "type 2 diabetes"
    assert set(second) == {"id", "score", "views", "text", "metadata"}


def test_a_table() -> None:
    lines = str(results(hit(TEXT))).splitlines()
    assert lines[0] == " 1  a  0.500  global 0.250  phrase 0.750"
    assert lines[1] == "    " + TEXT.replace("\n", " ")
    assert lines[2] == "1 candidate; phrase exact"
    assert str(results()) == "0 candidates; phrase exact"


def test_ranks_go_on_from_page_to_page() -> None:
    page = replace(results(hit("x"), hit("y")), from_=10)
    assert [line[:2] for line in str(page).splitlines()[0:4:2]] == ["11", "12"]
    assert "<tr><td>11</td>" in page._repr_html_()
    assert "<tr><td>12</td>" in page._repr_html_()


def test_html_marks_what_matched_and_escapes_the_rest() -> None:
    page = Text()
    page.feed(
        results(
            hit(TEXT, match(1.0, (0, 9)), match(2.0, (26, 41)), match(1.5, (31, 41))),
            hit("", id="<i>"),
            path="<lists>",
        )._repr_html_()
    )
    assert page.marked == ["Metformin", "type 2 diabetes"]
    assert len(set(page.shades)) == 2
    assert page.words.endswith("2 candidates; phrase <lists>")
    assert "It is <b>cheap</b> & safe." in page.words
    assert "type 2 <diabetes>" in page.words
    assert "<i>" in page.words
