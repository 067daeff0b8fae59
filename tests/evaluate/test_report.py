"""Whole reports of made-up cells: the same bytes twice, pages that stand alone, honest words."""

from __future__ import annotations

import doctest
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from hplus.errors import InputError
from hplus.evaluate import protocol, report
from hplus.evaluate.protocol import Protocol
from hplus.evaluate.report import Groups, file_name, rewrite, write_report
from hplus.evaluate.statistics import paired_difference
from made_up_cells import made_up

TASKS = ("scifact", "cmdd-zh")
STRANGE = 'a<b>&"c|d'
FIRST = {"kb_on_disk": 71.5, "documents_a_second": 20.0, "p50_ms": 123.456, "p95_ms": 150.0}
SECOND = {"kb_on_disk": 72.5, "documents_a_second": 10.0, "p50_ms": 23.456, "p95_ms": 50.0}
TIMES = {
    "broad-deployed": {
        "mini": {"scifact": {"phrase": FIRST, "token": FIRST}, "cmdd-zh": {"phrase": SECOND}}
    }
}


def small(name: str) -> Protocol:
    own = protocol.load(name)
    return replace(own, macros=("all", "english"), budgets=own.budgets[:2])


def groups(*names: str, systems: tuple[str, ...] = ("mini",)) -> Groups:
    return [
        (own, {s: [made_up(own, task, s, queries=9) for task in TASKS] for s in systems})
        for own in map(small, names)
    ]


def files(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two protocols; one of the two systems has a name that needs escaping."""
    folder = tmp_path_factory.mktemp("report")
    found = groups("broad-deployed", "fusion", systems=("mini", STRANGE))
    write_report(folder, "made <up>", found, TIMES, ["scifact"], cells=True)
    return folder


def test_the_same_input_gives_the_same_bytes(written: Path, tmp_path: Path) -> None:
    found = groups("broad-deployed", "fusion", systems=("mini", STRANGE))
    write_report(tmp_path, "made <up>", found, TIMES, ["scifact"], cells=True)
    first, second = files(written), files(tmp_path)
    assert list(first) == list(second)
    for name in first:
        assert first[name] == second[name], name


def test_the_files(written: Path) -> None:
    names = {re.sub(r"a-b-c-d-\w{6}", "STRANGE", name) for name in files(written)}
    plots = {
        f"plots/{stem}-{system}-{kind}.{ending}"
        for stem, kinds in (("broad-deployed", ("gains", "bytes")), ("fusion", ("lines",)))
        for system in ("mini", "STRANGE")
        for kind in kinds
        for ending in ("svg", "png")
    }
    cells = {
        f"cells/{name}_{task}_{system}.json"
        for name in ("broad-deployed", "fusion")
        for task in TASKS
        for system in ("mini", "STRANGE")
    }
    assert names == plots | cells | {
        "report.md", "report.html", "summary.json", "times.json", "times.md"
    }  # fmt: skip


def test_no_cells_unless_asked_for(tmp_path: Path) -> None:
    write_report(tmp_path, "made-up", groups("fusion"), {}, [])
    assert not (tmp_path / "cells").exists()
    with pytest.raises(InputError, match=r"has no cells; run the config again"):
        rewrite(tmp_path)


def test_times_are_in_their_files_alone(written: Path) -> None:
    assert json.loads((written / "times.json").read_text()) == TIMES
    page = (written / "times.md").read_text()
    assert (
        "| mini | phrase | 72.00 | 15.00 | 73.46 | 100.00 | 123.46 / 150.00 | 23.46 / 50.00 |"
        in page
    )
    whole = "missing | missing | missing | missing"  # no mean over what happens to be there
    assert f"| mini | token | {whole} | 123.46 / 150.00 | missing |" in page
    for name, content in files(written).items():
        if name not in ("times.json", "times.md"):
            assert b"123.456" not in content, name


class Page(HTMLParser):
    """Every tag that opens closes, in order; what it links to; its text."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.links: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag != "meta":
            self.open.append(tag)
        self.links += [
            value or ""
            for name, value in attrs
            if name in ("src", "href", "xlink:href", "action", "srcset", "data")
        ]

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_page_stands_alone(written: Path) -> None:
    text = (written / "report.html").read_text(encoding="utf-8")
    page = Page()
    page.feed(text)
    page.close()
    assert page.open == []
    assert page.links
    assert all(link.startswith("#") for link in page.links)
    assert not re.search(r"https?:|//\w|@import|<script", text)
    assert re.findall(r"url\((.)", text).count("#") == text.count("url(")
    assert page.tags.count("svg") == page.tags.count("figure") == 6
    assert page.tags.count("table") == text.count('<div class="scroll"><table>')
    assert "prefers-color-scheme: dark" in text
    assert STRANGE in page.text
    assert "b" not in page.tags
    assert "made <up>: results" in page.text
    names = re.findall(r' id="([^"]+)"', text)
    assert len(names) == len(set(names))


def test_the_markdown_has_no_tags(written: Path) -> None:
    text = (written / "report.md").read_text(encoding="utf-8")
    assert r'a&lt;b>&amp;"c\|d' in text
    assert not re.search(r"<\w", text)
    for picture in re.findall(r"\]\((.+?)\)", text):
        assert (written / picture).is_file()
    rows = [line for line in text.splitlines() if line.startswith("|")]
    widths = [len(re.findall(r"(?<!\\)\|", row)) for row in rows]
    rules = [i for i, row in enumerate(rows) if row.startswith("| ---")]
    for begin, end in zip(rules, [*(r - 1 for r in rules[1:]), len(rows)], strict=True):
        assert len(set(widths[begin - 1 : end])) == 1


def test_the_report_begins_with_what_was_measured(written: Path) -> None:
    text = (written / "report.md").read_text(encoding="utf-8")
    order = [
        "# made &lt;up>: results",
        "## What was measured",
        "| mini | mini fingerp | – | broad-deployed, fusion |",
        "| scifact | test | 1,234 | 9 | scifact data | broad-deployed, fusion |",
        "## broad-deployed",
        "What does each view give",
        f"hash {small('broad-deployed').hash[:12]}",
        "| system | line | scifact | cmdd-zh | all | english | 95 % of all |",
        "### Contrasts",
        "mini: phrase",
        "### System against system",
        "### Candidates",
        "plots/broad-deployed-mini-gains.svg",
        "### In the paper (another model: Qwen3-0.6B)",
        "## fusion",
    ]
    places = [text.index(part) for part in order]
    assert places == sorted(places)


def test_the_summary_for_machines(written: Path) -> None:
    table = json.loads((written / "summary.json").read_text(encoding="utf-8"))
    assert (table["config"], table["seen"]) == ("made <up>", ["scifact"])
    views, fusion = table["protocols"]
    assert protocol.parse(views["specification"], "here").hash == views["hash"]
    own = small("broad-deployed")
    phrase = next(
        row for row in views["lines"] if (row["system"], row["line"]) == ("mini", "phrase")
    )
    means = [made_up(own, task, queries=9).lines["phrase"].values.mean() for task in TASKS]
    assert phrase["tasks"] == pytest.approx(dict(zip(TASKS, means, strict=True)), abs=2e-6)
    assert phrase["macros"]["all"]["mean"] == pytest.approx(sum(means) / 2, abs=2e-6)
    assert phrase["macros"]["all"]["low"] < sum(means) / 2 < phrase["macros"]["all"]["high"]
    assert phrase["cost"]["vectors"] == 7
    first = views["contrasts"][0]
    assert (first["ours"], first["theirs"]) == ("phrase", "global")
    assert first["paper"] == {
        "table": "tab:main_results", "tasks": 16, "points": 6.91, "low": None, "high": None
    }  # fmt: skip
    assert set(first["tasks"]) == set(TASKS)
    assert fusion["cells"][0]["queries"] == 9


def test_what_is_missing_is_null_and_said(tmp_path: Path) -> None:
    own = small("fusion")
    cells = {"mini": [made_up(own, task, queries=9) for task in TASKS]}
    cells["other"] = [made_up(own, "scifact", "other", queries=9)]
    write_report(tmp_path, "made-up", [(own, cells)], {}, [], tasks=["scifact"])
    (found,) = json.loads((tmp_path / "summary.json").read_text())["protocols"]
    row = next(row for row in found["lines"] if row["system"] == "other")
    assert row["tasks"]["cmdd-zh"] is None
    assert row["macros"]["all"] is None
    assert row["macros"]["english"] is not None
    page = (tmp_path / "report.md").read_text()
    assert "other: G+P+L and P: missing, not every task has both." in page
    assert "4 of the 8 contrasts of the protocol could be taken" in page
    assert (tmp_path / "plots/fusion-mini-lines.svg").exists()
    assert not (tmp_path / "plots/fusion-other-lines.svg").exists()


def test_pages_are_rewritten_from_the_cells(written: Path, tmp_path: Path) -> None:
    found = files(written)
    for name, content in found.items():
        if name.startswith("cells/") or name in ("summary.json", "times.json"):
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_bytes(content)
    rewrite(tmp_path)
    assert files(tmp_path) == found


def test_cells_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    write_report(tmp_path, "made-up", groups("fusion"), {}, [], cells=True)
    path = tmp_path / "cells/fusion_scifact_mini.json"
    text = path.read_text()
    path.write_text(text.replace("mini fingerprint", "other"))
    with pytest.raises(InputError, match="they are of two runs; run the config again"):
        rewrite(tmp_path)
    path.write_text(text.replace(small("fusion").hash, "0" * 64))
    with pytest.raises(InputError, match="are two protocols"):
        rewrite(tmp_path)
    path.unlink()
    with pytest.raises(InputError, match=r"fusion_scifact_mini\.json is missing"):
        rewrite(tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "`hplus evaluate run` wrote"), ("{", "`hplus evaluate run` wrote"),
     ("[]", "`hplus evaluate run` wrote"),
     ('{"format": 2}', "summary.json or times.json is"), ('{"format": 9}', "has the format 9")],
)  # fmt: skip
def test_a_folder_that_is_no_report(tmp_path: Path, content: str | None, message: str) -> None:
    (tmp_path / "times.json").write_text("{}")
    if content is not None:
        (tmp_path / "summary.json").write_text(content)
    with pytest.raises(InputError, match=message):
        rewrite(tmp_path)


def test_protocols_are_not_mixed(tmp_path: Path) -> None:
    own, other = small("fusion"), small("broad-deployed")
    mixed = {"mini": [made_up(own, "scifact"), made_up(other, "cmdd-zh")]}
    with pytest.raises(InputError, match="are two protocols"):
        write_report(tmp_path, "made-up", [(own, mixed)], {}, [])
    with pytest.raises(InputError, match=r"named more than once: \['fusion'\]"):
        write_report(tmp_path, "made-up", groups("fusion", "fusion"), {}, [])
    assert files(tmp_path) == {}


def test_names_of_files() -> None:
    assert file_name("hplus-mini") == "hplus-mini"
    assert file_name("a b") != file_name("a-b") != file_name("a/b")
    assert "/" not in file_name("../x")
    assert not file_name("../x").startswith(".")


def test_the_examples() -> None:
    assert doctest.testmod(report).failed == 0


def test_systems_are_compared_line_by_line(written: Path) -> None:
    """Against a paired bootstrap of the two systems' own values."""
    ((_, systems),) = groups("broad-deployed", systems=("mini", STRANGE))
    summary = json.loads((written / "summary.json").read_text())["protocols"][0]
    assert {lead["line"] for lead in summary["against"]} == set(systems["mini"][0].lines)
    for lead in summary["against"]:
        assert (lead["system"], lead["other"]) == ("mini", STRANGE)
        ours, theirs = (
            {cell.task: cell.lines[lead["line"]].values for cell in systems[name]}
            for name in ("mini", STRANGE)
        )
        expected = paired_difference(ours, theirs)
        for name in ("mean", "low", "high"):
            assert lead["all"][name] == pytest.approx(getattr(expected, name), abs=2e-5)
        for task, mean in lead["tasks"].items():
            assert mean == pytest.approx(float((ours[task] - theirs[task]).mean()), abs=1e-5)
    assert "System against system" in (written / "report.md").read_text()


def test_one_system_is_compared_with_nothing(tmp_path: Path) -> None:
    write_report(tmp_path, "made-up", groups("fusion"), {}, [])
    assert "System against system" not in (tmp_path / "report.md").read_text()
