"""Groups of tasks by hand; a macro never passes over a task in silence."""

from __future__ import annotations

import doctest
import math
import os
from collections.abc import Collection
from pathlib import Path

import pytest

from hplus.errors import InputError
from hplus_lab import macros, paper
from hplus_lab.macros import TASKS, groups, macro

FOLDERS = {
    "en": "cisi covidqa-passages cranfield feedbackqa medicalqa medicalqa-dev mediqa-qa mqp "
    "nfcorpus npl-vaswani patientqa scifact demo-en",
    "zh": "cmdd-zh cmrc2018-zh xquad-zh demo-zh",
}


def test_the_languages_of_the_sets() -> None:
    for language, names in FOLDERS.items():
        assert {TASKS[name] for name in names.split()} == {language}
    papers = paper.table("tab:budget_transfer:a").tasks
    assert len(papers) == 19
    assert set(TASKS) == {*papers, *FOLDERS["en"].split(), *FOLDERS["zh"].split()}


@pytest.mark.slow
def test_every_folder_is_known() -> None:
    """The evaluation sets at hand, where HPLUS_EVAL names their folder."""
    if "HPLUS_EVAL" not in os.environ:
        pytest.skip("HPLUS_EVAL names no folder")
    there = {path.name for path in Path(os.environ["HPLUS_EVAL"]).iterdir() if path.is_dir()}
    assert there <= set(TASKS)


def test_groups() -> None:
    assert groups(["xquad-zh", "scifact", "nfcorpus"], seen=["scifact", "mqp"]) == {
        "all": ["xquad-zh", "scifact", "nfcorpus"],
        "sensitivity": ["xquad-zh", "nfcorpus"],
        "english": ["scifact", "nfcorpus"],
        "chinese": ["xquad-zh"],
        "non-cjk": ["scifact", "nfcorpus"],
    }


def test_a_group_without_tasks_is_absent() -> None:
    assert groups(["cmdd-zh"], seen={"cmdd-zh"}) == {"all": ["cmdd-zh"], "chinese": ["cmdd-zh"]}
    assert list(groups(["mqp"], seen=())) == ["all", "sensitivity", "english", "non-cjk"]
    assert groups([], seen=()) == {}


def test_other_languages_come_from_the_caller() -> None:
    names = ["mine-de", "mine-ja", "mqp"]
    with pytest.raises(InputError, match=r"language of \['mine-de', 'mine-ja'\] is not known"):
        groups(names, seen=())
    with pytest.raises(InputError, match=r"give it, for instance languages={'mine-ja': 'en'}"):
        groups(names, seen=(), languages={"mine-de": "de"})
    found = groups(names, seen=["mine-de"], languages={"mine-de": "de", "mine-ja": "ja"})
    assert found == {
        "all": names,
        "sensitivity": ["mine-ja", "mqp"],
        "english": ["mqp"],
        "non-cjk": ["mine-de", "mqp"],
    }


@pytest.mark.parametrize("seen", [["SciFACT"], ["scifact", "ms-marco"], "scifact"])
def test_a_misspelt_task_does_not_pass_for_unseen(seen: Collection[str]) -> None:
    with pytest.raises(InputError, match=r"seen: \[.*\] are not tasks"):
        groups(["scifact", "mqp"], seen)


def test_a_macro_weighs_every_task_the_same() -> None:
    values = {"a": 0.5, "b": 0.25, "c": 0.0, "other": 9.0}
    assert macro(values, ["c", "a", "b"]) == 0.25
    assert macro(values, ["c"]) == 0.0


def test_a_task_that_did_not_run_is_missing_and_not_zero() -> None:
    message = r"over 3 tasks requested, but 2 did not run: \['b', 'd'\]"
    with pytest.raises(InputError, match=message):
        macro({"a": 0.5, "c": 0.25}, ["b", "a", "d"])
    for value in (math.nan, math.inf):
        with pytest.raises(InputError, match=f"task 'b' has the value {value}"):
            macro({"a": 0.5, "b": value}, ["a", "b"])


def test_a_macro_needs_each_task_once() -> None:
    with pytest.raises(InputError, match=r"named more than once: \['a'\]"):
        macro({"a": 0.5, "b": 1.0}, ["a", "b", "a"])
    with pytest.raises(InputError, match=r"named more than once: \['mqp'\]"):
        groups(["mqp", "mqp"], seen=())
    with pytest.raises(InputError, match="at least one task"):
        macro({"a": 0.5}, [])


def test_the_examples() -> None:
    assert doctest.testmod(macros) == doctest.TestResults(failed=0, attempted=2)
