"""Training data: what is wrong with a row is named by file and line, counted, and never used."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hplus.errors import InputError
from hplus.teach.duplicates import collect
from hplus.teach.groups import Group, read_groups, with_scores, write_groups
from hplus.types import Span

GOOD = {"query": "heart failure", "positive": "Digoxin.", "negatives": ["Insulin.", "Gene."]}
BAD: dict[str, tuple[Any, str]] = {
    "a missing field": ({"query": "q"}, "lacks a positive"),
    "an empty positive": ({"query": "q", "positive": "  "}, "empty positive"),
    "an empty query": ({"query": "", "positive": "p"}, "empty query"),
    "a query that is no text": ({"query": 3, "positive": "p"}, "its query is not text"),
    "negatives that are no list": ({**GOOD, "negatives": "x"}, "negatives are not a list of texts"),
    "an empty negative": ({**GOOD, "negatives": [""]}, "empty negative"),
    "the positive among the negatives": (
        {**GOOD, "negatives": ["Digoxin."]},
        "a document occurs twice in the group",
    ),
    "too few scores": ({**GOOD, "scores": [1.0]}, "scores do not fit (expected 3, got 1)"),
    "a score that is NaN": ({**GOOD, "scores": [1, 2, float("nan")]}, "not a finite number (nan)"),
    "a score that is true": ({**GOOD, "scores": [1, 2, True]}, "not a finite number (True)"),
    "a label beyond the text": (
        {**GOOD, "query_units": [[0, 99]]},
        "units of the query do not fit (expected [start, end] in order within 13, got [0, 99])",
    ),
    "labels out of order": (
        {**GOOD, "positive_units": [[3, 5], [0, 2]]},
        "units of the positive do not fit",
    ),
    "a list": ([1], "not a JSON object"),
}


@pytest.mark.parametrize("what", BAD)
def test_a_bad_row_is_named_and_not_used(what: str, tmp_path: Path) -> None:
    row, reason = BAD[what]
    path = tmp_path / "groups.jsonl"
    rows = [GOOD] * 60
    path.write_text("\n".join(json.dumps(r) for r in [*rows, row, GOOD]))
    groups, bad = read_groups([path])
    assert len(groups) == 61
    assert (bad.rows, bad.count) == (62, 1)
    assert bad.places[0].startswith(f"{path}:61: ")
    assert reason in bad.places[0]


def test_many_bad_rows_are_refused_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "groups.jsonl"
    path.write_text("\n".join([json.dumps(GOOD)] * 9 + ["no json"]))
    with pytest.raises(InputError, match=rf"1 of 10 rows are bad, more than 2%: {path}:10: not J"):
        read_groups([path])
    path.write_text("\n".join([json.dumps(GOOD)] * 99))
    with pytest.raises(InputError, match="lacks scores"):
        read_groups([path], scored=True)
    path.write_text("")
    with pytest.raises(InputError, match="no row can be used"):
        read_groups([path])


def test_of_every_kind_the_first_few_are_named(tmp_path: Path) -> None:
    path = tmp_path / "groups.jsonl"
    rows = [*[GOOD] * 600, *[{"query": "q"}] * 7, {**GOOD, "scores": [1, 2, float("nan")]}]
    path.write_text("\n".join(map(json.dumps, rows)))
    _, bad = read_groups([path])
    assert bad.kinds == {"lacks a positive": 7, "a score is not a finite number": 1}
    assert bad.places == [
        *(f"{path}:{line}: lacks a positive" for line in range(601, 606)),
        f"{path}:608: a score is not a finite number (nan)",
    ]


def test_duplicates_of_evaluation_texts_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "groups.jsonl"
    rows = [GOOD, {**GOOD, "query": "Which drugs lower the risk of heart failure in diabetes"}]
    path.write_text("\n".join(map(json.dumps, rows)))
    against = collect(["which drugs lower the risk of heart failure in diabetes?"])
    groups, bad = read_groups([path], apart_from=against)
    assert [group.query for group in groups] == ["heart failure"]
    assert bad.places == [f"{path}:2: near duplicate of an evaluation text"]


def test_groups_survive_the_disk(tmp_path: Path) -> None:
    group = Group("a", "heart \ud800", ("x", "y"), None, (Span(0, 5),), (Span(0, 1),))
    group = with_scores(group, [1.23456, -2])
    path = tmp_path / "groups.jsonl.gz"
    assert write_groups(path, [group]) == 1
    assert read_groups([path])[0] == [group]
    assert group.scores == (1.2346, -2.0)
