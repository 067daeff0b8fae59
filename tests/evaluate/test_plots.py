"""Plots of made-up cells: the same bytes twice, words where they belong, no missing means."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from xml.etree import ElementTree

import matplotlib
import pytest

from hplus.errors import MissingExtraError
from hplus.evaluate import plots, protocol
from hplus.evaluate.cost import Cost
from hplus.evaluate.page import Picture, inline
from hplus.evaluate.plots import draw, efficient
from hplus.evaluate.statistics import Interval
from hplus.evaluate.tables import Row, Summary, summarise
from made_up_cells import made_up

# A word of every plot's own, beside the names of lines and axes.
KINDS = {
    "broad-deployed": ("gains", ["scifact", "nDCG@10 of phrase minus global (points of 100)"]),
    "budgets": ("curve", ["model, merge", "tokens, all", "B, units kept of a document at most"]),
    "exact-count": ("curve", ["histogram", "Budget on documents only", "ngrams-2"]),
    "pool-sensitivity": ("curve", ["recall of the pool", "K, candidates of the global gate"]),
    "dimensional": ("curve", ["phrase, frozen gate", "Columns of a vector", "full (6272)"]),
    "fusion": ("lines", ["G+P+L", "nDCG@10, mean over tasks (points of 100)"]),
}


@pytest.fixture(scope="module")
def summaries() -> dict[str, Summary]:
    found = {}
    for name in KINDS:
        own = protocol.load(name)
        # Two budgets are enough of a curve.
        own = replace(own, budgets=own.budgets[:2], macros=("all",))
        cells = [made_up(own, task, queries=9) for task in ("scifact", "cmdd-zh")]
        found[name] = summarise(own, cells)
    return found


def words(picture: Picture) -> list[str]:
    root = ElementTree.fromstring(picture.svg)
    texts = root.iter("{http://www.w3.org/2000/svg}text")
    return [" ".join("".join(text.itertext()).split()) for text in texts]


@pytest.mark.parametrize("name", KINDS)
def test_each_kind_has_its_plot(name: str, summaries: dict[str, Summary]) -> None:
    pictures = {p.name: p for p in draw(summaries[name], "x", "mini")}
    ending, expected = KINDS[name]
    picture = pictures[f"x-{ending}"]
    found = words(picture)
    for word in expected:
        assert word in found
    assert picture.png.startswith(b"\x89PNG")
    assert picture.caption.endswith(".")
    has_bytes = name in ("broad-deployed", "budgets", "dimensional")
    assert ("x-bytes" in pictures) == has_bytes
    if has_bytes:
        assert "KB (1,000 bytes) of vectors a document" in words(pictures["x-bytes"])


@pytest.fixture
def own_settings() -> Iterator[None]:
    with matplotlib.rc_context({"font.size": 30, "lines.linewidth": 9, "svg.hashsalt": "mine"}):
        yield


@pytest.mark.usefixtures("own_settings")
def test_the_same_bytes_whatever_the_user_has_set(summaries: dict[str, Summary]) -> None:
    summary = summaries["broad-deployed"]
    first = draw(summary, "x", "mini")
    assert matplotlib.rcParams["font.size"] == 30
    assert matplotlib.rcParams["svg.hashsalt"] == "mine"
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        assert draw(summary, "x", "mini") == first
    assert "dc:date" not in first[0].svg


def test_what_is_missing_is_not_drawn(summaries: dict[str, Summary]) -> None:
    for name, summary in summaries.items():
        rows = [replace(row, macros={"all": None}, cost=None) for row in summary.rows]
        empty = replace(summary, rows=tuple(rows), contrasts=())
        assert draw(empty, "x", "mini") == [], name


def test_one_missing_point_leaves_the_others(summaries: dict[str, Summary]) -> None:
    summary = summaries["fusion"]
    first, *others = summary.rows
    rows = (replace(first, macros={"all": None}), *others)
    (picture,) = draw(replace(summary, rows=rows), "x", "mini")
    assert first.line not in words(picture)
    assert others[0].line in words(picture)


def test_one_system_a_plot(summaries: dict[str, Summary]) -> None:
    own = summaries["fusion"].protocol
    cells = [made_up(own, "scifact", system, queries=9) for system in ("one", "two")]
    one, two = (draw(summarise(own, cells), "x", system) for system in ("one", "two"))
    assert one != two
    assert one == draw(summarise(own, cells[:1]), "x", "one")


def test_names_are_no_mathematics(summaries: dict[str, Summary]) -> None:
    summary = summaries["fusion"]
    rows = [replace(row, line=f"${row.line}$ <&") for row in summary.rows]
    (picture,) = draw(replace(summary, rows=tuple(rows)), "x", "mini")
    assert "$G$ <&" in words(picture)


def point(line: str, size: float, mean: float) -> Row:
    cost = Cost(1.0, size, 1.0, 1.0)
    return Row("mini", line, {}, {"all": Interval(mean, mean, mean)}, cost, {})


def test_efficient_lines_worked_out() -> None:
    rows = [
        point("large and best", 400, 0.9),
        point("small", 100, 0.5),
        point("as small, worse", 100, 0.4),
        point("larger, no better", 200, 0.5),
        point("larger and better", 300, 0.6),
    ]
    assert [row.line for row in efficient(rows)] == ["small", "larger and better", "large and best"]
    assert efficient([]) == []


def test_an_inlined_picture_has_no_addresses_and_its_own_names(
    summaries: dict[str, Summary],
) -> None:
    (picture,) = draw(summaries["fusion"], "x", "mini")
    found = inline(picture)
    assert found.startswith("<svg")
    assert "http" not in found
    assert "metadata" not in found
    root = ElementTree.fromstring(found.replace("xlink:href", "href"))
    names = {node.attrib["id"] for node in root.iter() if "id" in node.attrib}
    assert names
    assert all(name.startswith("x-lines-") for name in names)
    used = {node.attrib["href"][1:] for node in root.iter() if "href" in node.attrib}
    clips = {node.attrib["clip-path"][5:-1] for node in root.iter() if "clip-path" in node.attrib}
    assert used
    assert clips
    assert used | clips <= names


def test_without_matplotlib_the_extra_is_named(
    summaries: dict[str, Summary], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'hplus\[lab\]'"):
        plots.draw(summaries["fusion"], "x", "mini")
