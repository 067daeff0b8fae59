"""The paper's tables agree with themselves, by our own arithmetic."""

from __future__ import annotations

import pytest

from hplus.errors import InputError
from hplus.evaluate.statistics import holm
from hplus_lab import paper
from hplus_lab.macros import TASKS, groups, macro
from hplus_lab.paper import table

SHAPES = {
    "tab:main_results": ("broad-deployed", 16, 16),
    "tab:shared_pool_external": ("shared-pool", 4, 9),
    "tab:candidate_sensitivity": ("pool-sensitivity", 4, 5),
    "tab:mechanism_analysis:a": ("exact-count", 4, 2),
    "tab:mechanism_analysis:b": ("ablation", 4, 5),
    "tab:fusion": ("broad-deployed", 4, 7),
    "tab:budget_transfer:a": ("exact-count", 19, 6),
    "tab:budget_transfer:b": ("exact-count", 19, 6),
    "tab:shared_pool_details": ("shared-pool", 4, 4),
    "tab:external_common4": ("dimensional", 4, 9),
    "tab:external_validated": ("broad-deployed", 16, 19),
    "tab:external_tasks": ("dimensional", 16, 21),
    "tab:dimension_full19": ("dimensional", 19, 3),
    "tab:lowbudget_full19": ("exact-count", 19, 6),
    "tab:lowbudget_en15": ("exact-count", 15, 5),
    "tab:projection_details": ("exact-count", 4, 2),
    "tab:boundary_controls_full": ("exact-count", 4, 8),
    "tab:boundary_quality": ("boundary-audit", 0, 8),
    "tab:shared_pool_full17": ("shared-pool", 17, 17),
}
VIEWS = ("global", "phrase", "hybrid", "lexical")
MAIN = table("tab:main_results")
MACROS = groups(MAIN.tasks, MAIN.extra["seen"])


def rounded(value: float) -> float:
    """To two decimals, as printed."""
    return round(value, 2)


def from_rounded(value: float, digits: int = 2) -> object:
    """A figure printed from exact values, ours from printed ones: half a digit for each."""
    return pytest.approx(value, abs=1.001 * 10**-digits)


def test_every_table_is_there() -> None:
    found = {label: table(label) for label in paper.labels()}
    shapes = {label: (own.protocol, len(own.tasks), len(own.rows)) for label, own in found.items()}
    assert shapes == SHAPES
    for label, own in found.items():
        assert own.label == label
        assert own.metric == ("boundary-f1" if label == "tab:boundary_quality" else "ndcg@10")
        assert set(own.tasks) <= set(TASKS)
        for row in own.rows:
            assert {type(cell) for cell in row.values()} <= {str, int, float, bool}
            if "low" in row:
                middle = row.get("difference", row.get("boundary_f1"))
                assert row["low"] <= middle <= row["high"]


def test_a_table_is_the_reader_s_own() -> None:
    table("tab:fusion").rows[0]["views"] = "changed"
    table("tab:fusion").tasks.append("changed")
    assert table("tab:fusion").rows[0] == {"views": "G", "ndcg@10": 56.67}
    assert table("tab:fusion").tasks == ["NFCorpus", "SciFact", "MedicalQA", "FeedbackQA"]


def test_errors_name_what_is_known() -> None:
    with pytest.raises(InputError, match=r"unknown table 'tab:nothing'; known: tab:main_results, "):
        table("tab:nothing")
    with pytest.raises(InputError, match="unknown table 'suites'"):
        table("suites")
    with pytest.raises(InputError, match="tab:fusion has no column 'task'; it has"):
        table("tab:fusion").by_task("ndcg@10")
    with pytest.raises(InputError, match="tab:main_results has no column 'token'"):
        MAIN.by_task("token")


@pytest.mark.parametrize(
    ("group", "count", "expected"),
    [
        ("all", 16, [34.28, 41.19, 41.52, 30.95]),
        ("sensitivity", 11, [26.10, 33.15, 33.12, 23.47]),
    ],
)
def test_macros_of_the_main_results(group: str, count: int, expected: list[float]) -> None:
    names = MACROS[group]
    assert len(names) == count
    assert [rounded(macro(MAIN.by_task(view), names)) for view in VIEWS] == expected
    printed = next(row for row in MAIN.summary if row["task"] == group)
    assert [printed[view] for view in VIEWS] == expected


def test_english_and_chinese_macros_of_the_main_results() -> None:
    """tab:external_validated's first two rows are the views of tab:main_results."""
    assert (len(MACROS["english"]), len(MACROS["chinese"])) == (13, 3)
    for view, row in zip(("global", "phrase"), table("tab:external_validated").rows, strict=False):
        values = MAIN.by_task(view)
        for group in ("all", "sensitivity", "english", "chinese"):
            assert rounded(macro(values, MACROS[group])) == row[group]
    assert [row["english"] for row in table("tab:external_validated").rows[:2]] == [30.61, 37.56]


def test_macros_of_the_other_systems() -> None:
    tasks = {row["system"]: row for row in table("tab:external_tasks").rows}
    for row in table("tab:external_validated").rows[2:]:
        for group in ("all", "sensitivity", "english", "chinese"):
            assert macro(tasks[row["system"]], MACROS[group]) == from_rounded(row[group])


def test_fusion_is_over_four_of_the_main_tasks() -> None:
    fusion = table("tab:fusion")
    printed = {row["views"]: row["ndcg@10"] for row in fusion.rows}
    for view, name in zip(VIEWS, ("G", "P", "G+P+L", "L"), strict=True):
        assert macro(MAIN.by_task(view), fusion.tasks) == from_rounded(printed[name])


@pytest.mark.parametrize("label", ["tab:shared_pool_external", "tab:external_common4"])
def test_macros_over_four_tasks(label: str) -> None:
    own = table(label)
    for row in own.rows:
        assert macro(row, own.tasks) == from_rounded(row["macro"])


@pytest.mark.parametrize(
    ("label", "digits"), [("tab:shared_pool_details", 1), ("tab:shared_pool_full17", 2)]
)
def test_means_below_the_line(label: str, digits: int) -> None:
    own = table(label)
    for column in [name for name in own.rows[0] if name != "task"]:
        mean = macro(own.by_task(column), own.tasks)
        assert mean == from_rounded(own.summary[0][column], digits)


def test_holm_s_correction_of_the_eight_contrasts() -> None:
    rows = table("tab:boundary_controls_full").rows
    p = [row["p"] for row in rows]
    assert p == [0.1486, 0.1788, 0.0074, 0.0720, 0.0232, 0.0410, 0.0004, 0.0008]
    expected = [0.2972, 0.2972, 0.0444, 0.2160, 0.1160, 0.1640, 0.0032, 0.0056]
    assert holm(p) == pytest.approx(expected)
    assert [row["holm_p"] for row in rows] == expected


def test_the_contrasts_of_boundaries_are_those_of_the_mechanism() -> None:
    contrasts = table("tab:boundary_controls_full").rows
    for row in table("tab:mechanism_analysis:a").rows:
        own = [contrast for contrast in contrasts if contrast["budget"] == row["budget"]]
        for control, contrast in zip(
            ("bigram", "whole_word", "histogram_random", "shuffled"), own, strict=True
        ):
            assert rounded(row["learned"] - row[control]) == contrast["difference"]
        assert (row["learned_minus_random"], row["learned_minus_shuffled"]) == (
            own[2]["difference"],
            own[3]["difference"],
        )
        assert row["random_significant"] == (own[2]["holm_p"] < 0.05)
        assert row["shuffled_significant"] == (own[3]["holm_p"] < 0.05)


def test_the_contrasts_of_budgets_are_differences_of_macros() -> None:
    budgets = table("tab:budget_transfer:a").rows
    for values, contrasts in zip(budgets, table("tab:budget_transfer:b").rows, strict=True):
        assert values["budget"] == contrasts["budget"]
        for other in ("token", "bigram", "random"):
            name = f"phrase_minus_{other}"
            # Three rounded figures: half a digit each.
            assert abs(values["phrase"] - values[other] - contrasts[name]) < 0.0151
            assert contrasts[f"{name}_low"] < contrasts[name] < contrasts[f"{name}_high"]
    longer = {row["unit"]: row for row in table("tab:lowbudget_full19").rows}
    units = {"token": "Token", "bigram": "Fixed bigram", "random": "Random spans"}
    for values in budgets:
        for short, unit in (units | {"phrase": "Phrase"}).items():
            assert values[short] == longer[unit][str(values["budget"])]


def test_the_non_cjk_slice() -> None:
    nineteen = table("tab:lowbudget_full19").tasks
    assert groups(nineteen, seen=())["non-cjk"] == table("tab:lowbudget_en15").tasks


def test_payloads_are_fp16_vectors_in_thousands_of_bytes() -> None:
    assert rounded(288.59 * 128 * 2 / 1000) == 73.88
    printed = table("tab:shared_pool_details").extra["kilobytes"].values()
    systems = table("tab:shared_pool_external").rows[:5]
    for system, kilobytes in zip(systems, printed, strict=True):
        assert round(system["vectors"] * system["width"] * 2 / 1000, 1) == kilobytes


def test_phrase_saves_vectors() -> None:
    token, _, deployed = table("tab:shared_pool_external").rows[:3]
    assert round(100 * (1 - deployed["vectors"] / token["vectors"]), 1) == 13.7
