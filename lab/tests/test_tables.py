"""Summaries and tables of made-up cells, worked out by hand; what did not run is missing, never a
number."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from hplus.errors import InputError
from hplus.evaluate.statistics import Difference, paired_difference
from hplus_lab import cell as cells_on_disk
from hplus_lab import paper, protocols
from hplus_lab.cell import Cell
from hplus_lab.cost import Cost
from hplus_lab.kinds import KINDS
from hplus_lab.line import Line
from hplus_lab.markdown import Strong, TextTable
from hplus_lab.paper import Delta
from hplus_lab.protocol import Contrast, Protocol
from hplus_lab.summary import Outcome, Summary, summarise
from hplus_lab.tables import (
    MISSING,
    NONE,
    contrasts_table,
    degenerate,
    facts_table,
    leads_table,
    p_value,
    paper_table,
    results_table,
)
from made_up_cells import POOL, cell, made_up

VIEWS = Protocol(
    "made-up",
    "Which is better?",
    "views",
    contrasts=(Contrast("phrase", "global"), Contrast("global", "phrase")),
    macros=("all", "sensitivity", "chinese"),
)


def line(name: str, value: float, vectors: float = 0.0) -> Line:
    """Three queries of one value, so that its interval is that value."""
    return Line(name, np.full(3, value), Cost(vectors, 100 * vectors, 2.0, 1e6 * vectors))


def two_views(task: str, global_: float, phrase: float, system: str = "mini") -> Cell:
    lines = {"global": line("global", global_), "phrase": line("phrase", phrase, 10 * phrase)}
    return cell(VIEWS, task, lines, system)


def column(table: TextTable, name: str) -> list[str]:
    return [row[table.columns.index(name)] for row in table.rows]


def both() -> list[Cell]:
    return [two_views("scifact", 0.3, 0.7), two_views("cmdd-zh", 0.2, 0.4)]


def test_the_lines_worked_out() -> None:
    found = results_table(summarise(VIEWS, both(), ["scifact"]))
    assert found.columns == [
        *("line", "scifact", "cmdd-zh", "all", "sensitivity", "chinese"),
        *("95 % of all", "vectors", "KB", "query units", "M mult."),
    ]
    # Vectors: the mean of 7 and 4, of 100 bytes each.
    assert found.rows == [
        [
            "global",
            "30.00",
            "20.00",
            "25.00",
            "20.00",
            "20.00",
            "25.00 to 25.00",
            "0.0",
            "0.00",
            "2.0",
            "0.00",
        ],
        [
            *("phrase", "70.00", "40.00", "55.00", "40.00", "40.00", "55.00 to 55.00"),
            *("5.5", "0.55", "2.0", "5.50"),
        ],
    ]
    assert found.left == 1
    text = found.markdown().splitlines()
    assert text[1] == "| --- |" + " ---: |" * 10
    assert text[2].startswith("| global | 30.00 | 20.00 | 25.00 |")


def test_the_contrasts_worked_out() -> None:
    found = contrasts_table(summarise(VIEWS, both()))
    assert found.columns == [
        *("ours", "theirs", "points", "95 % interval"),
        *("p", "p (Holm, family)", "p (Holm, table)"),
    ]
    assert found.rows == [
        ["phrase", "global", "+30.00", "30.00 to 30.00", *["< .001"] * 3],
        ["global", "phrase", "-30.00", "-30.00 to -30.00", *["< .001"] * 3],
    ]
    assert all(isinstance(entry, Strong) for entry in found.rows[0][2:])
    assert "| **+30.00** | **30.00 to 30.00** | **< .001** |" in found.markdown()


def test_what_holm_does_not_leave_is_not_bold() -> None:
    values = {"phrase": [0.1, 0.5, 0.3], "global": [0.5, 0.1, 0.3]}
    found = contrasts_table(summarise(VIEWS, [cell(VIEWS, "scifact", values)]))
    # All three drawn alike is one case of 27, more than 2.5 %.
    assert found.rows[0][2:] == ["+0.00", "-40.00 to 40.00", *["1.000"] * 3]
    assert not any(isinstance(entry, Strong) for row in found.rows for entry in row)


def test_holm_is_over_the_whole_table_too() -> None:
    """Contrasts of two systems and three families: each alone in its family, one of six in the
    table. A p of .02 holds in its family and not in the table."""
    own = replace(
        VIEWS,
        contrasts=tuple(Contrast("phrase", "global", family) for family in ("a", "b", "c")),
    )
    summary = summarise(own, [cell(own, "scifact", {"phrase": [0.2], "global": [0.1]})])
    p_values = [0.02, 0.0001, 0.3, 0.9, 0.005, 0.04]
    outcomes = [
        Outcome(system, contrast, Difference(0.1, 0.05, 0.2, p), p, {})
        for (system, contrast), p in zip(
            product(("mini", "other"), own.contrasts), p_values, strict=True
        )
    ]
    missing = Outcome("third", own.contrasts[0], None, None, {})
    summary = replace(summary, outcomes=(*outcomes, missing))
    corrected = summary.corrected()
    ranked = sorted(p_values)  # Holm by hand: the smallest times six, the next times five, ...
    expected = np.maximum.accumulate([p * (6 - i) for i, p in enumerate(ranked)])
    for outcome in outcomes:
        assert outcome.difference is not None
        by_hand = min(1.0, float(expected[ranked.index(outcome.difference.p)]))
        found = corrected[outcome.system, outcome.contrast]
        assert found == pytest.approx(by_hand)
    assert ("third", own.contrasts[0]) not in corrected
    shown = contrasts_table(summary).rows
    assert [row[-2:] for row in shown[:2]] == [[".020", ".080"], ["< .001", "< .001"]]
    assert not isinstance(shown[0][-1], Strong)
    assert isinstance(shown[1][-1], Strong)


def test_leads_are_corrected_for_all_lines() -> None:
    """Two systems, two lines: p is that of a paired difference, Holm over both lines."""
    rng = np.random.default_rng(7)
    values = {
        (system, view): rng.uniform(0.2, 0.8, 60) + (0.06 if (system, view) == best else 0)
        for best in [("mini", "phrase")]
        for system in ("mini", "other")
        for view in ("phrase", "global")
    }
    cells = [
        cell(
            VIEWS, "scifact", {v: values[system, v].tolist() for v in ("phrase", "global")}, system
        )
        for system in ("mini", "other")
    ]
    summary = summarise(VIEWS, cells)
    by_hand = {
        view: paired_difference(
            {"scifact": values["mini", view]}, {"scifact": values["other", view]}
        )
        for view in ("phrase", "global")
    }
    for lead in summary.leads:
        assert lead.p == pytest.approx(by_hand[lead.line].p, abs=0.02)
    own = {lead.line: lead.p for lead in summary.leads if lead.p is not None}
    low, high = sorted(own, key=lambda line: own[line])
    corrected = summary.corrected_leads()
    assert corrected["other", low] == pytest.approx(min(1, 2 * own[low]))
    assert corrected["other", high] == pytest.approx(min(1, max(2 * own[low], own[high])))
    table = leads_table(summary)
    assert table is not None
    assert column(table, "p (Holm)") == [
        p_value(corrected["other", v]) for v in ("phrase", "global")
    ]
    before = replace(summary, leads=tuple(replace(lead, p=None) for lead in summary.leads))
    old = leads_table(before)
    assert old is not None
    assert column(old, "p (Holm)") == [MISSING, MISSING]


def test_the_intervals_are_those_of_cells() -> None:
    own = protocols.load("broad-deployed")
    cells = [made_up(own, task) for task in ("scifact", "cmdd-zh")]
    summary = summarise(own, cells)
    row = next(row for row in summary.rows if row.line == "phrase")
    found, expected = row.macros["all"], cells_on_disk.macro(cells, "phrase")
    assert found is not None
    assert vars(found) == pytest.approx(vars(expected), abs=1e-5)
    for tested, (contrast, difference, holm) in zip(
        summary.outcomes, cells_on_disk.contrasts(cells, own.planned()), strict=True
    ):
        assert tested.contrast == contrast
        assert tested.difference is not None
        assert vars(tested.difference) == pytest.approx(vars(difference), abs=1e-3)
        assert tested.holm == pytest.approx(holm, abs=1e-2)
        assert list(tested.by_task) == ["scifact", "cmdd-zh"]


def test_a_cell_from_a_file_counts_like_one_just_measured(tmp_path: Path) -> None:
    fresh = made_up(VIEWS, "scifact")
    cells_on_disk.write(tmp_path / "cell.json", fresh)
    read = cells_on_disk.read(tmp_path / "cell.json")
    assert summarise(VIEWS, [fresh]).rows == summarise(VIEWS, [read]).rows


def test_a_task_that_one_system_lacks_is_missing() -> None:
    cells = [*both(), two_views("cmdd-zh", 0.3, 0.5, "other")]
    found = results_table(summarise(VIEWS, cells))
    assert found.columns[:2] == ["system", "line"]
    assert found.left == 2
    other = found.rows[2:]
    assert [row[:7] for row in other] == [
        ["other", "global", MISSING, "30.00", MISSING, MISSING, "30.00"],
        ["other", "phrase", MISSING, "50.00", MISSING, MISSING, "50.00"],
    ]
    assert {entry for row in other for entry in row[7:]} == {MISSING}
    tested = contrasts_table(summarise(VIEWS, cells))
    assert [row[3] for row in tested.rows] == ["+30.00", "-30.00", MISSING, MISSING]
    assert tested.rows[2] == ["other", "phrase", "global", *[MISSING] * 5]


def test_a_task_that_nobody_ran_is_missing() -> None:
    summary = summarise(VIEWS, both(), tasks=["nfcorpus", "scifact"])
    assert summary.tasks == ["nfcorpus", "scifact", "cmdd-zh"]
    found = results_table(summary)
    assert column(found, "nfcorpus") == [MISSING, MISSING]
    assert column(found, "all") == column(found, "95 % of all") == [MISSING, MISSING]
    assert column(found, "chinese") == ["20.00", "40.00"]
    assert {entry for row in contrasts_table(summary).rows for entry in row[2:]} == {MISSING}


def test_a_line_that_one_task_lacks_is_missing() -> None:
    alone = cell(VIEWS, "nfcorpus", {"global": line("global", 0.1)})
    summary = summarise(VIEWS, [*both(), alone])
    found = results_table(summary)
    assert column(found, "nfcorpus") == ["10.00", MISSING]
    assert column(found, "all") == ["20.00", MISSING]
    assert column(found, "vectors") == ["0.0", MISSING]
    assert [tested.difference for tested in summary.outcomes] == [None, None]
    assert list(summary.outcomes[0].by_task) == ["scifact", "cmdd-zh"]


def test_a_contrast_without_its_lines_is_left_out() -> None:
    cells = [cell(VIEWS, "scifact", {"global": line("global", 0.1)})]
    assert summarise(VIEWS, cells).outcomes == ()


def test_families_have_a_column() -> None:
    contrasts = (Contrast("phrase", "global"), Contrast("global", "phrase", "second"))
    own = replace(VIEWS, contrasts=contrasts)
    values = {"phrase": line("phrase", 0.2), "global": line("global", 0.1)}
    found = contrasts_table(summarise(own, [cell(own, "scifact", values)]))
    assert column(found, "family") == ["main", "second"]


def test_protocols_are_not_mixed() -> None:
    other = replace(VIEWS, sample=7)
    strange = cell(other, "nfcorpus", {"phrase": [0.5]})
    with pytest.raises(InputError, match="are two protocols; their numbers are not compared"):
        summarise(VIEWS, [*both(), strange])
    with pytest.raises(InputError, match=r"under the protocol made-up .*not its own"):
        summarise(other, both())


def test_cells_must_fit_each_other() -> None:
    first = two_views("scifact", 0.3, 0.7)
    with pytest.raises(InputError, match="two cells of one task"):
        summarise(VIEWS, [first, first])
    with pytest.raises(InputError, match="no cells"):
        summarise(VIEWS, [])
    with pytest.raises(InputError, match="measured on different data"):
        summarise(VIEWS, [first, replace(first, system="other", data_hash="x")])


def pooled(task: str, recall: float, whole: bool) -> Cell:
    facts = {**POOL, "recall": recall, "degenerate": float(whole)}
    lines = {
        "token 100": replace(line("token 100", 0.1), facts=facts),
        "phrase 100": replace(line("phrase 100", 0.2), facts=facts),
        "union": replace(line("union", 0.2), facts={"candidates": 1500.5}),
        "plain": line("plain", 0.3),
    }
    return cell(VIEWS, task, lines)


def test_pools_worked_out() -> None:
    summary = summarise(VIEWS, [pooled("scifact", 0.5, True), pooled("nfcorpus", 0.7, False)])
    found = facts_table(summary)
    assert found is not None
    assert found.columns == ["lines", "candidates", "recall", "oracle"]
    assert found.rows == [
        ["token 100; phrase 100", "1,000", "60.00", "95.00"],
        ["union", "1,500.50", NONE, NONE],
    ]
    (sentence,) = degenerate(summary)
    assert sentence.startswith("Degenerate pools (mini; token 100, phrase 100): they hold more")
    assert "of scifact; there" in sentence


def test_pools_of_a_missing_task_are_missing() -> None:
    found = facts_table(summarise(VIEWS, [pooled("scifact", 0.5, False)], tasks=["mqp"]))
    assert found is not None
    assert found.rows[0] == ["token 100; phrase 100", MISSING, MISSING, MISSING]
    assert facts_table(summarise(VIEWS, both())) is None
    assert degenerate(summarise(VIEWS, both())) == []


def deployed(task: str, split: str = "test") -> Cell:
    own = protocols.load("broad-deployed")
    return replace(made_up(own, task), split=split)


def test_the_papers_figures_stand_beside_the_same_task() -> None:
    own = protocols.load("broad-deployed")
    found = paper_table(summarise(own, [deployed("scifact"), deployed("cmdd-zh")]))
    assert found is not None
    phrase = [row for row in found.rows if row[1] == "phrase"]
    assert [(row[2], row[4], row[5]) for row in phrase] == [
        ("scifact", "72.52", "tab:main_results")
    ]
    (gain,) = (row for row in found.rows if row[1] == "phrase - global")
    assert (gain[2], gain[4]) == ("2 tasks, there 16", "+6.91")


def test_other_splits_and_tasks_are_not_the_papers() -> None:
    own = protocols.load("broad-deployed")
    for cells in ([deployed("scifact", "dev")], [deployed("mqp")]):
        found = paper_table(summarise(own, cells))
        assert found is not None
        assert column(found, "line") == ["phrase - global", "hybrid - phrase"]
    assert paper_table(summarise(VIEWS, both())) is None


def test_a_mean_stands_beside_the_papers_over_its_tasks_only() -> None:
    own = protocols.load("fusion")
    four = ["nfcorpus", "scifact", "MedicalQA", "feedbackqa"]
    cells = [made_up(own, task) for task in [*four, "mqp"]]
    summary = summarise(own, cells)
    found = paper_table(summary)
    assert found is not None
    row = next(row for row in found.rows if row[1] == "P")
    rounded = [np.round(cell.lines["P"].values, 6).mean() for cell in cells[:4]]
    mean = np.mean(rounded)
    assert row == ["mini", "P", "mean of its 4 tasks", f"{100 * mean:.2f}", "63.17", "tab:fusion"]
    fewer = paper_table(summarise(own, cells[1:]))
    assert fewer is not None
    assert "P" not in column(fewer, "line")
    # medicalqa was drawn anew from the same source: no figure of the paper stands beside it.
    drawn = paper_table(summarise(own, [*cells[:2], made_up(own, "medicalqa"), cells[3]]))
    assert drawn is not None
    assert "P" not in column(drawn, "line")


@pytest.mark.parametrize("name", [n for n in protocols.names() if protocols.load(n).paper])
def test_every_table_that_a_protocol_names_is_read(name: str) -> None:
    """And has at least one of its contrasts, under the names of our lines."""
    own = protocols.load(name)
    sources = KINDS[own.kind].paper(own.paper, False)
    found = [source.difference(c) for source in sources for c in own.planned()]
    assert any(delta is not None for delta in found)
    for source in sources:
        assert source.tasks
        assert source.label in paper.labels()


def differences(*, cjk: bool) -> Summary:
    own = protocols.load("exact-count")
    summary = summarise(VIEWS, both()[: 2 if cjk else 1])
    return replace(summary, protocol=own)


def test_exact_counts_are_compared_with_the_nearest_table() -> None:
    contrast = Contrast("model, joint 64", "chunks, joint 64", "other rules")
    for cjk, label, points in (
        (True, "tab:lowbudget_full19", -3.77),
        (False, "tab:lowbudget_en15", 1.76),
    ):
        found = differences(cjk=cjk).in_paper(contrast)
        assert found is not None
        assert (found[0].label, found[1].points) == (label, points)


def test_a_family_is_compared_with_its_own_table() -> None:
    sides = ("model, joint 128", "ngrams-2, joint 128")
    for family, label, delta in (
        ("boundary placement", "tab:boundary_controls_full", Delta(0.84, 0.11, 1.57)),
        ("phrase - token, bigram", "tab:budget_transfer:b", Delta(1.27, 0.62, 1.94)),
    ):
        found = differences(cjk=True).in_paper(Contrast(*sides, family))
        assert found is not None
        assert (found[0].label, found[1]) == (label, delta)
    assert differences(cjk=True).in_paper(Contrast("model, document 8", "x")) is None


def test_a_printed_difference() -> None:
    assert str(Delta(1.0)) == "+1.00"
    assert not Delta(1.0).open
    assert str(Delta(-0.02, -0.29, 0.26)) == "-0.02 [-0.29, 0.26]"
    assert Delta(-0.02, -0.29, 0.26).open
    assert not Delta(0.5, 0.1, 0.9).open


def test_names_read_as_they_are() -> None:
    table = TextTable(["a|b", "n"], [["<b>&amp; *x* _y_ a_b `c` [l](m)\n|", "1"]])
    assert table.markdown().splitlines()[2] == (
        r"| &lt;b>&amp;amp; \*x\* \_y\_ a_b \`c\` [l]\(m) \| | 1 |"
    )
    assert table.markdown().splitlines()[0] == r"| a\|b | n |"
