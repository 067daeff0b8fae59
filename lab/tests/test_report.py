"""Whole results of made-up cells: the same bytes twice, pages rebuilt from files, honest words."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hplus.errors import InputError
from hplus.evaluate.statistics import paired_difference
from hplus_lab import protocols
from hplus_lab.protocol import Protocol
from hplus_lab.report import write_pages
from hplus_lab.results import Findings, read_results, write_results
from hplus_lab.summary import Summary, summarise
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
    own = protocols.load(name)
    return replace(own, macros=("all", "english"), budgets=own.budgets[:2])


def summary(name: str, systems: Sequence[str] = ("mini",)) -> Summary:
    own = small(name)
    cells = [made_up(own, task, system, queries=9) for system in systems for task in TASKS]
    return summarise(own, cells, ["scifact"])


def write(folder: Path, *summaries: Summary, name: str = "made-up", times: Any = None) -> None:
    write_results(folder, Findings(name, summaries, times or {}, ["scifact"]))
    write_pages(folder)


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def both() -> list[Summary]:
    return [summary(name, ("mini", STRANGE)) for name in ("broad-deployed", "fusion")]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two protocols; one of the two systems has a name that needs escaping."""
    folder = tmp_path_factory.mktemp("report")
    write(folder, *both(), name="made <up>", times=TIMES)
    return folder


def test_the_same_input_gives_the_same_bytes(written: Path, tmp_path: Path) -> None:
    write(tmp_path, *both(), name="made <up>", times=TIMES)
    assert files(written) == files(tmp_path)
    assert list(files(written)) == ["report.md", "summary.json", "times.json", "times.md"]


def test_results_are_read_as_they_were_written(written: Path, tmp_path: Path) -> None:
    found = read_results(written)
    assert (found.name, found.seen, found.times) == ("made <up>", ["scifact"], TIMES)
    for own, expected in zip(found.summaries, both(), strict=True):
        assert own.protocol == expected.protocol
        assert own.cjk
        assert own.sources == expected.sources
        assert [row.at for row in own.rows] == [row.at for row in expected.rows]
        for row, other in zip(own.rows, expected.rows, strict=True):
            assert row.macros["all"] is not None
            assert other.macros["all"] is not None
            assert vars(row.macros["all"]) == pytest.approx(vars(other.macros["all"]), abs=1e-6)
    write_results(tmp_path, found)
    assert files(tmp_path)["summary.json"] == files(written)["summary.json"]


def test_pages_are_rebuilt_from_the_files_for_machines(written: Path, tmp_path: Path) -> None:
    for name in ("summary.json", "times.json"):
        (tmp_path / name).write_bytes((written / name).read_bytes())
    write_pages(tmp_path)
    assert files(tmp_path) == files(written)


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


def test_the_markdown_has_no_tags(written: Path) -> None:
    text = (written / "report.md").read_text(encoding="utf-8")
    assert r'a&lt;b>&amp;"c\|d' in text
    assert not re.search(r"<\w", text)
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
        "### In the paper (another model: Qwen3-0.6B)",
        "## fusion",
    ]
    places = [text.index(part) for part in order]
    assert places == sorted(places)


def test_the_summary_for_machines(written: Path) -> None:
    table = json.loads((written / "summary.json").read_text(encoding="utf-8"))
    assert (table["config"], table["seen"]) == ("made <up>", ["scifact"])
    views, fusion = table["protocols"]
    assert protocols.parse(views["specification"], "here").hash == views["hash"]
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
    assert set(first["tasks"]) == set(TASKS)
    assert fusion["cells"][0]["queries"] == 9


def test_what_is_missing_is_null_and_reported(tmp_path: Path) -> None:
    own = small("fusion")
    cells = [made_up(own, task, queries=9) for task in TASKS]
    cells.append(made_up(own, "scifact", "other", queries=9))
    write(tmp_path, summarise(own, cells, tasks=["scifact"]))
    (found,) = json.loads((tmp_path / "summary.json").read_text())["protocols"]
    row = next(row for row in found["lines"] if row["system"] == "other")
    assert row["tasks"]["cmdd-zh"] is None
    assert row["macros"]["all"] is None
    assert row["macros"]["english"] is not None
    page = (tmp_path / "report.md").read_text()
    assert "other: G+P+L and P: missing, not every task has both." in page
    assert "4 of the 8 contrasts of the protocol could be taken" in page


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "does not hold the results of `hplus-lab run`"),
        ("{", "does not hold the results of `hplus-lab run`"),
        ("[]", "does not hold the results of `hplus-lab run`"),
        ('{"format": 3}', "summary.json or times.json is missing or damaged"),
        ('{"format": 9}', "expected format 3, got 9"),
    ],
)
def test_a_folder_without_results(tmp_path: Path, content: str | None, message: str) -> None:
    (tmp_path / "times.json").write_text("{}")
    if content is not None:
        (tmp_path / "summary.json").write_text(content)
    with pytest.raises(InputError, match=message):
        write_pages(tmp_path)


def test_a_changed_protocol_is_refused(written: Path, tmp_path: Path) -> None:
    for name in ("summary.json", "times.json"):
        text = (written / name).read_text().replace("pools = [1000]", "pools = [999]")
        (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match="broad-deployed was measured under the hash"):
        write_pages(tmp_path)


def test_protocols_are_not_mixed(tmp_path: Path) -> None:
    own, other = small("fusion"), small("broad-deployed")
    with pytest.raises(InputError, match="are two protocols"):
        summarise(own, [made_up(own, "scifact"), made_up(other, "cmdd-zh")])
    with pytest.raises(InputError, match=r"named more than once: \['fusion'\]"):
        write(tmp_path, summary("fusion"), summary("fusion"))
    assert files(tmp_path) == {}


def test_systems_are_compared_line_by_line(written: Path) -> None:
    """Against a paired bootstrap of the two systems' own values."""
    own = small("broad-deployed")
    systems = {
        name: [made_up(own, task, name, queries=9) for task in TASKS] for name in ("mini", STRANGE)
    }
    found = json.loads((written / "summary.json").read_text())["protocols"][0]
    assert {lead["line"] for lead in found["leads"]} == set(systems["mini"][0].lines)
    for lead in found["leads"]:
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
    write(tmp_path, summary("fusion"))
    assert "System against system" not in (tmp_path / "report.md").read_text()
