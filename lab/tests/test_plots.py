"""Plots of made-up cells: the same bytes twice, words where they belong, no missing means."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import matplotlib
import pytest

from hplus.errors import InputError
from hplus.evaluate.statistics import Interval
from hplus_lab import protocols
from hplus_lab.cost import Cost
from hplus_lab.plots import draw, efficient, file_name, plot_budgets, plot_results
from hplus_lab.results import Findings, write_results
from hplus_lab.summary import LineFigures, Summary, summarise
from made_up_cells import made_up

# A word of every plot's own, beside the names of lines and axes.
KINDS = {
    "broad-deployed": ("gains", ["scifact", "nDCG@10 of phrase minus global (points of 100)"]),
    "budgets": (
        "curve",
        ["model, merge", "weighted tokens, all", "B, units kept of a document at most"],
    ),
    "exact-count": ("curve", ["histogram", "Budget on documents only", "ngrams-2"]),
    "pool-sensitivity": ("curve", ["recall of the candidates", "K, candidates of the global gate"]),
    "dimensional": ("curve", ["phrase, frozen gate", "Columns of a vector", "384"]),
    "projection": ("curve", ["tokens, projected", "B, units kept of a text at most"]),
    "fusion": ("lines", ["G+P+L", "nDCG@10, mean over tasks (points of 100)"]),
}


@pytest.fixture(scope="module")
def summaries() -> dict[str, Summary]:
    found = {}
    for name in KINDS:
        own = protocols.load(name)
        # Two budgets are enough of a curve.
        own = replace(own, budgets=own.budgets[:2], macros=("all",))
        cells = [made_up(own, task, queries=9) for task in ("scifact", "cmdd-zh")]
        found[name] = summarise(own, cells)
    return found


def words(picture: bytes) -> list[str]:
    root = ElementTree.fromstring(picture)
    texts = root.iter("{http://www.w3.org/2000/svg}text")
    return [" ".join("".join(text.itertext()).split()) for text in texts]


@pytest.mark.parametrize("name", KINDS)
def test_each_kind_has_its_plot(name: str, summaries: dict[str, Summary]) -> None:
    pictures = draw(summaries[name], "mini")
    ending, expected = KINDS[name]
    found = words(pictures[ending])
    for word in expected:
        assert word in found
    has_bytes = name in ("broad-deployed", "budgets", "dimensional")
    assert ("bytes" in pictures) == has_bytes
    if has_bytes:
        assert "KB (1,000 bytes) of vectors a document" in words(pictures["bytes"])


@pytest.fixture
def own_settings() -> Iterator[None]:
    with matplotlib.rc_context({"font.size": 30, "lines.linewidth": 9, "svg.hashsalt": "mine"}):
        yield


@pytest.mark.usefixtures("own_settings")
def test_the_same_bytes_whatever_the_user_has_set(summaries: dict[str, Summary]) -> None:
    summary = summaries["broad-deployed"]
    first = draw(summary, "mini")
    assert matplotlib.rcParams["font.size"] == 30
    assert matplotlib.rcParams["svg.hashsalt"] == "mine"
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        assert draw(summary, "mini") == first
    assert b"dc:date" not in first["gains"]


def test_what_is_missing_is_not_drawn(summaries: dict[str, Summary]) -> None:
    for name, summary in summaries.items():
        rows = [replace(row, macros={"all": None}, cost=None) for row in summary.rows]
        assert draw(replace(summary, rows=tuple(rows), outcomes=()), "mini") == {}, name


def test_one_missing_point_leaves_the_others(summaries: dict[str, Summary]) -> None:
    summary = summaries["fusion"]
    first, *others = summary.rows
    rows = (replace(first, macros={"all": None}), *others)
    found = words(draw(replace(summary, rows=rows), "mini")["lines"])
    assert first.line not in found
    assert others[0].line in found


def test_one_system_a_plot(summaries: dict[str, Summary]) -> None:
    own = summaries["fusion"].protocol
    cells = [made_up(own, "scifact", system, queries=9) for system in ("one", "two")]
    one, two = (draw(summarise(own, cells), system) for system in ("one", "two"))
    assert one != two
    assert one == draw(summarise(own, cells[:1]), "one")


def test_names_are_not_read_as_mathematics(summaries: dict[str, Summary]) -> None:
    summary = summaries["fusion"]
    rows = [replace(row, line=f"${row.line}$ <&") for row in summary.rows]
    assert "$G$ <&" in words(draw(replace(summary, rows=tuple(rows)), "mini")["lines"])


def point(line: str, size: float, mean: float) -> LineFigures:
    cost = Cost(1.0, size, 1.0, 1.0)
    return LineFigures("mini", line, {}, {}, {"all": Interval(mean, mean, mean)}, cost, {})


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


def test_the_plots_of_a_folder(summaries: dict[str, Summary], tmp_path: Path) -> None:
    chosen = [summaries[name] for name in ("broad-deployed", "fusion")]
    write_results(tmp_path, Findings("made-up", chosen, {}))
    found = plot_results(tmp_path, tmp_path / "plots")
    names = ["broad-deployed-mini-gains", "broad-deployed-mini-bytes", "fusion-mini-lines"]
    assert found == [tmp_path / "plots" / f"{name}.svg" for name in names]
    for path in found:
        assert words(path.read_bytes())


def test_the_curve_of_budgets(tmp_path: Path) -> None:
    """Of settings that are efficient; the recommended one is marked."""
    settings = [
        {
            "bytes": size,
            "efficient": size != 999,
            **{
                view: {"mean": mean, "low": mean - 0.1, "high": mean + 0.1}
                for view, mean in (("pooled", 0.3), ("phrase", 0.4), ("hybrid", 0.5))
            },
        }
        for size in (264, 512, 999)
    ]
    path = tmp_path / "scifact.json"
    path.write_text(json.dumps({"settings": settings, "recommended": settings[1]}))
    found = plot_budgets(path, tmp_path / "out")
    assert found == tmp_path / "out" / "scifact.svg"
    shown = words(found.read_bytes())
    for word in ("token pooling", "phrase", "hybrid", "recommended"):
        assert word in shown
    first = found.read_bytes()
    assert plot_budgets(path, tmp_path / "out").read_bytes() == first
    path.write_text(json.dumps({"settings": settings[:1], "recommended": settings[1]}))
    assert plot_budgets(path, tmp_path / "out").read_bytes() != first
    for damage in ("{", '{"settings": []}', "[]"):
        path.write_text(damage)
        with pytest.raises(InputError, match="is not the JSON file of `hplus evaluate budget"):
            plot_budgets(path, tmp_path)


def test_names_of_files() -> None:
    assert file_name("hplus-mini") == "hplus-mini"
    assert file_name("a b") != file_name("a-b") != file_name("a/b")
    assert "/" not in file_name("../x")
    assert not file_name("../x").startswith(".")
