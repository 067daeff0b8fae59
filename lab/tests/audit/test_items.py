"""Audit files and corpora of marked spans: what is read, and what is refused with its place."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest

from hplus import InputError
from hplus.types import Span
from hplus_lab.audit import read_items
from hplus_lab.audit.items import read_audit, read_corpus, strip_determiner
from hplus_lab.audit.measures import agreement
from hplus_lab.audit.reference import reference_of
from marked_texts import AUDIT, write_corpus

PAGE = Path(__file__).parents[3] / "docs" / "audit-format.md"


def test_the_fixture() -> None:
    items = read_items(AUDIT)
    assert len(items) == 10
    assert all(list(item.marks) == ["A", "B"] and not item.partial for item in items)
    assert sum(not item.text.isascii() for item in items) == 4
    first = items[0]
    assert (first.id, first.query_id) == ("en-1", "q1")
    assert [first.text[a:b] for a, b in first.marks["A"].terms] == ["type 2 diabetes"]
    found = agreement(items)
    assert found is not None
    assert (found.items, found.undefined) == (10, 1)  # "Is | aspirin | safe | ?" by both
    assert found.boundaries == (pytest.approx(4.2), pytest.approx(2.8))


def test_the_example_of_the_page_is_read(tmp_path: Path) -> None:
    (example,) = re.findall(r"```json\n(.*?)```", PAGE.read_text(), re.DOTALL)
    file = tmp_path / "audit.jsonl.gz"
    file.write_bytes(gzip.compress(example.encode()))
    q1, z1 = read_items(file)
    assert [q1.text[a:b] for a, b in reference_of(q1, "B").units] == [
        "Does", "metformin", "lower HbA1c", "in", "type 2 diabetes", "?"
    ]  # fmt: skip
    assert [z1.text[a:b] for a, b in reference_of(z1, "union").units] == [
        "急性",
        "肾损伤",
        "的",
        "治疗",
    ]
    assert z1.query_id is None


ROW: dict[str, Any] = {
    "id": "1", "text": "lung cancer", "annotator": "A", "units": [[0, 11]], "terms": []
}  # fmt: skip


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"id": None}, "lacks id"),
        ({"id": ""}, '"id" is empty'),
        ({"text": 3}, "lacks text"),
        ({"text": " \n"}, '"text" is blank'),
        ({"annotator": "C"}, 'expected annotator "A" or "B", got \'C\''),
        ({"query_id": 7}, 'expected a string as "query_id", got 7'),
        ({"units": None}, '"units" must be a list'),
        ({"terms": {}}, '"terms" must be a list'),
        ({"units": [[0, 11, "x"]]}, 'got unit [0, 11, "x"]'),
        ({"units": [[5, 5]]}, "start < end within 11 characters"),
        ({"units": [[0, True]]}, "got unit [0, true]"),
        ({"units": [[0, 3]]}, "the tokens it touches are [0, 4] 'lung'"),
        ({"units": [[0, 5]]}, "'lung ' begins or ends inside a token or at white space"),
        ({"terms": [[5, 12]]}, "term [5, 12] is outside the 11 characters"),
        ({"units": [[-4, 4]]}, "unit [-4, 4] is outside"),
        ({"units": [[5, 11], [0, 4]]}, "unit [0, 4] follows [5, 11]"),
        ({"units": [[0, 11], [5, 11]]}, "units must be in reading order and must not overlap"),
        ({"id": "0"}, "item '0' of annotator A is already in line 1"),
        ({"id": "0", "annotator": "B"}, "item '0' has a different text in line 1"),
        ({"id": "0", "annotator": "B", "text": "one"}, "unit [0, 11] is outside"),
    ],
)
def test_a_mistake_is_named_by_file_and_line(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    file = tmp_path / "audit.jsonl"
    good = {**ROW, "id": "0", "text": "lung tumour"}
    file.write_text(f"{json.dumps(good)}\n\n{json.dumps(ROW | change)}\n")
    with pytest.raises(InputError, match=re.escape(message)) as raised:
        read_items(file)
    assert str(raised.value).startswith(f"{file}:3")


def test_other_mistakes_in_files(tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    file.write_text("")
    with pytest.raises(InputError, match="has no items"):
        read_items(file)
    with pytest.raises(InputError, match="has no items"):
        read_audit(file)
    with pytest.raises(InputError, match="has no items"):
        read_corpus(file)
    file.write_text("{")
    with pytest.raises(InputError, match=r"audit\.jsonl:1 is not JSON"):
        read_items(file)
    with pytest.raises(InputError, match="is missing"):
        read_items(tmp_path / "nowhere.jsonl")
    with pytest.raises(InputError, match=r"neither dev\.jsonl\.gz nor dev\.jsonl"):
        read_items(tmp_path, "dev")
    rows = [ROW | {"query_id": "q"}, ROW | {"annotator": "B"}]
    file.write_text("\n".join(map(json.dumps, rows)))
    with pytest.raises(InputError, match=r"audit\.jsonl:2: item '1' has a different query_id"):
        read_items(file)


def test_corpora_of_marked_spans(tmp_path: Path) -> None:
    text = "The lung cancer kills it"
    spans = [[0, 15, "Disease"], [4, 15, "Disease"], [4, 8, "Organ"]]
    (item,) = read_items(write_corpus(tmp_path / "terms", [{"text": text, "spans": spans}]))
    assert item.partial
    assert item.marks["A"].units == ((4, 8), (4, 15))
    spans = [[0, 15, "NP-NN"], [22, 24, "NP-PRP"]]
    folder = write_corpus(tmp_path / "np", [{"text": text, "spans": spans}])
    (item,) = read_items(folder)
    assert not item.partial
    assert item.marks["A"].units == ((4, 15),)
    assert [text[a:b] for a, b in reference_of(item).units] == ["The", "lung cancer", "kills", "it"]
    assert read_items(folder / "test.jsonl.gz") == [item]


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("the heart", "heart"),
        ("The heart", "heart"),
        ("all the patients", "patients"),
        ("their\n own  hearts", "own  hearts"),
        ("such a trial", "trial"),
        ("A trial", "trial"),
        ("the", "the"),
        ("the ", "the "),
        ("all these", "these"),
        ("heart of the matter", "heart of the matter"),
        ("theory of mind", "theory of mind"),
        ("a-wave amplitude", "a-wave amplitude"),
        ("NO synthase", "NO synthase"),
        ("ALL blasts", "ALL blasts"),
        ("肺癌 患者", "肺癌 患者"),
    ],
)
def test_strip_determiner(text: str, left: str) -> None:
    start, end = strip_determiner(text, Span(0, len(text)))
    assert text[start:end] == left


@pytest.mark.parametrize(
    ("before", "left"),
    [
        ("", "beta"),
        ("Done. ", "beta"),
        ("Aim: ", "beta"),
        ("plasma ", "A beta"),
        ("the ", "A beta"),
    ],
)
def test_a_capital_a_is_an_article_only_where_a_sentence_begins(before: str, left: str) -> None:
    text = f"{before}A beta is high"
    start, end = strip_determiner(text, Span(len(before), len(before) + 6))
    assert text[start:end] == left


def test_stripping_stays_inside_the_span() -> None:
    assert strip_determiner("see the heart", Span(4, 7)) == (4, 7)
    assert strip_determiner("see the heart", Span(4, 8)) == (4, 8)
    assert strip_determiner("see the heart", Span(4, 13)) == (8, 13)
