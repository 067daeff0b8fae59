"""Explanations as HTML: the same figures, escaped, with nothing to fetch and nothing to run."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

from hplus import HPlus, Index
from hplus.search.explained import readable
from hplus.search.page import explanation, page

QUERY = "type 2 diabetes <script>alert(1)</script>"
TEXT = 'Metformin & "insulin" treat <em>type 2 diabetes</em>.'
TAGS = {"html", "head", "meta", "title", "style", "body", "h1", "section", "p", "strong", "small"}
TAGS |= {"mark", "blockquote", "table", "tr", "td", "div"}


class Page(HTMLParser):
    """Tags with their attributes, and the words between them."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.words = ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.words += data


def test_a_page_says_what_the_terminal_says(mini: HPlus) -> None:
    scores = mini.score(QUERY, [TEXT, ""], explain=True)
    assert scores.explanations is not None
    for why, text in zip(scores.explanations, (TEXT, ""), strict=True):
        found = readable(why, text)
        shown = Page(page(QUERY, [explanation(QUERY, text, why, "1 <i>")]))
        assert set(shown.tags) <= TAGS
        assert {name for name, _ in shown.attributes} <= {"style", "charset"}
        assert not re.search(r"https?:|url\(", str(shown.attributes))
        for part in (found.sum, found.exact, QUERY, text, "1 <i>"):
            assert part in shown.words
        for line in found.lines:
            assert found.shown(line.thousandths) in shown.words
            assert line.text in shown.words
            assert line.found in shown.words


def test_results_become_a_page_and_a_table_with_the_reasons(mini: HPlus, tmp_path: Path) -> None:
    with Index.create(tmp_path / "index", mini) as index:
        index.add([("<a>", TEXT), ("b", "Heart failure.")])
        results = index.search(QUERY, explain=True)
        whole, table = Page(results.as_html()), Page(results._repr_html_())
        assert whole.tags[0] == "html"
        for found, part in ((whole, "section"), (table, "details")):
            assert not {"script", "em", "a"} & set(found.tags)
            assert found.tags.count(part) == 2
            assert "<a>" in found.words
        assert results.summary() in whole.words
        plain = index.search(QUERY)
        assert Page(plain.as_html()).tags.count("section") == 0
        assert "details" not in Page(plain._repr_html_()).tags
        like = index.more_like("b", explain=True)
        assert "Heart failure." in Page(like.as_html()).words
