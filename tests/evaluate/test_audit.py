"""The boundary audit: every measure worked out by hand, its files, and the command as typed."""

from __future__ import annotations

import gzip
import json
import math
import re
import shlex
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hplus import CheckpointError, HPlus, InputError
from hplus.cli import audit as command
from hplus.cli import main
from hplus.evaluate import results
from hplus.evaluate.audit import (
    SEEDS,
    audit,
    constructions,
    gain_correlation,
    units_of,
)
from hplus.evaluate.audit_file import (
    Item,
    Marks,
    audit_tokens,
    read_audit,
    read_corpus,
    read_gains,
    read_items,
)
from hplus.evaluate.audit_measures import (
    FLAGS,
    Annotator,
    ItemCounts,
    Reference,
    abbreviations,
    agreement,
    boundary_f1,
    cohens_kappa,
    count,
    f1,
    outermost,
    reference_of,
)
from hplus.evaluate.audit_report import COLUMNS, FLAG_COLUMNS, markdown, summarise, table
from hplus.evaluate.lab import Line
from hplus.evaluate.results import Cell
from hplus.states_file import cut, stored_states
from hplus.types import Span
from hplus.units.terms import Terms

FIXTURE = Path(__file__).parent / "audit.jsonl"
PAGE = Path(__file__).parents[2] / "docs" / "audit-format.md"


def spans_of(text: str, *parts: str) -> tuple[Span, ...]:
    """Where the parts stand, each after the one before."""
    spans, cursor = [], 0
    for part in parts:
        start = text.index(part, cursor)
        cursor = start + len(part)
        spans.append(Span(start, cursor))
    return tuple(spans)


def cut_at(marked: str) -> tuple[str, tuple[Span, ...]]:
    """ "acute | kidney injury" -> the text and its units; "Hb|A1c" cuts inside a word."""
    pieces = re.split(r"( ?)\|( ?)", marked)
    parts = pieces[::3]
    text = "".join(p if i % 3 == 0 else " " if p else "" for i, p in enumerate(pieces[:-1]))
    text = re.sub(r" +", " ", text + pieces[-1]) if len(pieces) > 1 else marked
    return text, spans_of(text, *parts)


def item_of(marked: str, *terms: str, partial: bool = False) -> Item:
    text, units = cut_at(marked)
    own = tuple(span for term in terms for span in spans_of(text, term))
    return Item("1", text, {"A": Marks(units, own)}, partial=partial)


def counted(item: Item, predicted: str, annotator: Annotator = "A") -> ItemCounts:
    text, units = cut_at(predicted)
    assert text == item.text
    return count(reference_of(item, annotator), units)


def flags_of(counts: ItemCounts) -> set[str]:
    return {name for name in FLAGS if getattr(counts, name)}


def test_the_notation_of_these_tests() -> None:
    assert cut_at("acute | kidney injury") == ("acute kidney injury", ((0, 5), (6, 19)))
    assert cut_at("Hb|A1c | is") == ("HbA1c is", ((0, 2), (2, 5), (6, 8)))
    assert cut_at("whole text") == ("whole text", ((0, 10),))


def test_one_item_by_hand() -> None:
    item = item_of("acute kidney injury | after | heart surgery", "acute kidney injury", "heart")
    item = replace(item, marks={"A": Marks(item.marks["A"].units, (Span(0, 19), Span(26, 39)))})
    own = counted(item, "acute | kidney injury | after heart surgery")
    # Boundaries: the reference begins units at "after" and "heart", the system at "kidney" and
    # "after"; one is shared: 2 * 1 / (2 + 2).
    assert own[:3] == (2, 2, 1)
    assert f1(*own[:3]) == 0.5
    # Units: 3 against 3, none alike; of several tokens: 2 against 2, none alike.
    assert own[3:9] == (3, 3, 0, 2, 2, 0)
    # Terms: "heart surgery" lies whole inside "after heart surgery", the other is cut.
    assert own[9:11] == (2, 1)
    assert flags_of(own) == {"over_segmentation", "modifier_detachment"}


def test_spans_by_hand() -> None:
    item = item_of("acute kidney injury | after | heart surgery")
    own = counted(item, "acute kidney injury | after | heart | surgery")
    # 3 reference units, 4 predicted, 2 alike: 4/7. Of several tokens: 2, 1 and 1 alike: 2/3.
    assert own[3:9] == (3, 4, 2, 2, 1, 1)
    assert f1(*own[3:6]) == pytest.approx(4 / 7)
    assert f1(*own[6:9]) == pytest.approx(2 / 3)


def test_what_no_unit_covers_stands_alone() -> None:
    text = "Is aspirin safe?"
    listed = Marks(spans_of(text, "Is", "aspirin", "safe", "?"), ())
    for units in ((), spans_of(text, "aspirin"), listed.units):
        reference = reference_of(Item("1", text, {"A": Marks(units, ())}))
        assert reference == reference_of(Item("1", text, {"A": listed}))
    assert reference.boundaries == {3, 11, 15}
    assert reference.gaps == 3


def test_single_words_recall_no_term_and_one_unit_recalls_all() -> None:
    item = item_of("acute kidney injury | after | heart surgery", "acute kidney injury", "after")
    # "after" is one token, so it is no term of several.
    assert counted(item, "acute | kidney | injury | after | heart | surgery")[9:11] == (1, 0)
    assert counted(item, item.text)[9:11] == (1, 1)


def test_a_cut_inside_a_token_counts_against_a_system() -> None:
    item = item_of("HbA1c | falls")
    assert counted(item, "HbA1c | falls")[:3] == (1, 1, 1)
    own = counted(item, "Hb|A1c | falls")
    assert own[:3] == (1, 2, 1)
    assert flags_of(own) == {"abbreviation_fragmentation"}
    # "A1c" and "Hb" touch one token each: neither is a unit of several.
    assert own[6:9] == (0, 0, 0)


def test_an_item_of_one_token_has_no_boundary_f1() -> None:
    one, two = item_of("aspirin"), item_of("heart failure")
    references = [reference_of(one), reference_of(two)]
    counts = [counted(one, "aspi|rin"), counted(two, "heart failure")]
    values = boundary_f1(references, counts)
    assert math.isnan(values[0])
    assert values[1] == 1.0  # neither has a boundary


def test_chinese_by_hand() -> None:
    item = item_of("急性肾损伤|的|治疗", "急性肾损伤")
    assert reference_of(item).gaps == 7
    own = counted(item, "急性|肾损伤|的治疗")
    # Begins: 的, 治 against 肾, 的.
    assert own[:3] == (2, 2, 1)
    assert own[3:9] == (3, 3, 0, 2, 3, 0)
    assert own[9:11] == (1, 0)
    assert flags_of(own) == {"over_segmentation", "modifier_detachment"}


@pytest.mark.parametrize(
    ("reference", "terms", "predicted", "flags"),
    [
        ("give | 5 mg/kg | daily", [], "give | 5 | mg/kg | daily", {0, 2}),
        ("give | 5 mg/kg | daily", [], "give 5 | mg/kg | daily", {0, 2}),
        # The annotator cut it too: no error.
        ("give | 5 | mg/kg | daily", [], "give | 5 | mg/kg | daily", set()),
        ("a | COX-2 inhibitor", ["COX-2 inhibitor"], "a | COX|-2 inhibitor", {0, 1, 3}),
        ("a | COX-2 inhibitor", ["COX-2 inhibitor"], "a | COX-2 | inhibitor", {0, 1}),
        # The unit is cut, but the term inside it is whole.
        ("old lung cancer", ["lung cancer"], "old | lung cancer", {0}),
        ("acute lung cancer", ["acute lung cancer"], "acute | lung cancer", {0, 1}),
        # Cut after the head: only a bracket is lost.
        ("factor (VIII)", ["factor (VIII)"], "factor (VIII|)", {0}),
        # Too few boundaries are no cut at all.
        ("acute | lung | cancer", ["lung cancer"], "acute lung cancer", set()),
        # The reference detaches the modifier itself.
        ("lung | cancer", ["lung cancer"], "lung | cancer", set()),
        ("the | mRNA", [], "the | m|RNA", {3}),
        ("PM2.5|暴露", [], "PM2|.5|暴露", {3}),
        ("每日|100 mg|口服", [], "每日|100 | mg|口服", {0, 2}),
    ],
)
def test_error_flags(reference: str, terms: list[str], predicted: str, flags: set[int]) -> None:
    assert flags_of(counted(item_of(reference, *terms), predicted)) == {FLAGS[i] for i in flags}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("AIDS aids IL-17A TNF-α HLA-DR", ["AIDS", "IL-17A", "TNF-α", "HLA-DR"]),
        ("The 5 Patients in March 2020", []),
        ("5HT and CT检查, 10 M", ["5HT", "CT"]),
        ("anti-EGFR PM2.5. PM10.", ["EGFR", "PM2.5", "PM10"]),
        ("DNA-based", ["DNA"]),
    ],
)
def test_abbreviations(text: str, found: list[str]) -> None:
    assert [text[a:b] for a, b in abbreviations(text)] == found


PARTIAL = "Severe lung cancer and heart failure occurred"


def partial_item(*spans: str) -> Item:
    units = spans_of(PARTIAL, *spans)
    return Item("1", PARTIAL, {"A": Marks(units, units)}, partial=True)


def test_partial_gold_by_hand() -> None:
    item = partial_item("lung cancer", "heart failure")
    reference = reference_of(item)
    # Lung and the token after cancer, heart and the token after failure.
    places = [PARTIAL.index(word) for word in ("lung", "and", "heart", "occurred")]
    assert sorted(reference.boundaries) == places
    # These four gaps, and the two inside the spans.
    assert reference.gaps == 6
    perfect = counted(item, "Severe | lung cancer | and | heart failure | occurred")
    assert perfect[:6] == (4, 4, 4, 2, 2, 2)
    # "Severe lung cancer" misses one edge; it meets a span, so it is a wrong unit.
    wide = counted(item, "Severe lung cancer | and | heart failure | occurred")
    assert wide[:6] == (4, 3, 3, 2, 2, 1)
    assert wide[9:11] == (2, 2)


def test_outside_partial_gold_nothing_is_right_or_wrong() -> None:
    text = "We saw that lung cancer kills at 5 mg"
    units = spans_of(text, "lung cancer")
    item = Item("1", text, {"A": Marks(units, units)}, partial=True)
    one = counted(item, "We saw that | lung cancer | kills at 5 mg")
    other = counted(item, "We | saw | that | lung cancer | kills | at | 5 | mg")
    assert one == other
    assert one[:6] == (2, 2, 2, 1, 1, 1)
    assert not flags_of(other)


def test_partial_gold_at_the_edges_of_the_text() -> None:
    whole = Item("1", "lung cancer", {"A": Marks((Span(0, 11),), ())}, partial=True)
    assert reference_of(whole).boundaries == frozenset()
    assert reference_of(whole).gaps == 1
    nothing = Item("1", "lung cancer", {"A": Marks((), ())}, partial=True)
    assert reference_of(nothing).gaps == 0
    assert counted(nothing, "lung | cancer")[:6] == (0, 0, 0, 0, 0, 0)


def test_adjacent_spans_share_their_boundary() -> None:
    item = partial_item("Severe", "lung cancer")
    assert sorted(reference_of(item).boundaries) == [7, 19]


def test_of_nested_gold_the_outermost_is_the_unit_and_all_are_terms() -> None:
    item = partial_item("Severe lung cancer")
    inner = spans_of(PARTIAL, "lung cancer", "heart failure")
    spans = tuple(sorted({*item.marks["A"].units, *inner}))
    reference = reference_of(replace(item, marks={"A": Marks(spans, spans)}))
    assert [PARTIAL[a:b] for a, b in reference.units] == ["Severe lung cancer", "heart failure"]
    assert len(reference.terms) == 3
    assert 7 not in reference.boundaries


def test_outermost_keeps_the_longer_of_two_that_cross() -> None:
    assert outermost([Span(0, 4), Span(3, 9)]) == [(3, 9)]
    assert outermost([Span(3, 6), Span(0, 3), Span(5, 8)]) == [(0, 3), (3, 6)]


def test_of_crossing_units_the_longest_counts_in_exhaustive_gold() -> None:
    text = "acute kidney injury today"
    crossing = Marks((Span(0, 12), Span(6, 19)), ())
    reference = reference_of(Item("1", text, {"A": crossing}))
    assert reference.units == ((0, 5), (6, 19), (20, 25))


def test_spans_inside_a_token_are_widened() -> None:
    text = "hyperproliferation of cells"
    spans = (Span(5, 18),)
    reference = reference_of(Item("1", text, {"A": Marks(spans, spans)}, partial=True))
    assert reference.units == ((0, 18),)


@pytest.mark.parametrize("partial", [False, True])
def test_beyond_the_window_nothing_counts(partial: bool) -> None:
    text, units = cut_at("lung cancer | and | heart failure")
    item = Item("1", text, {"A": Marks(units, units)}, partial=partial)
    reference = reference_of(item, seen=text.index(" failure"))
    seen = ["lung cancer", "and"] if partial else ["lung cancer", "and", "heart"]
    assert [text[a:b] for a, b in reference.units] == seen
    assert [text[a:b] for a, b in reference.terms] == ["lung cancer"]
    own = count(reference, (*units[:2], Span(16, 21)))
    assert own.boundaries == own.predicted == own.hits == 2
    # A token of which a part was seen was not seen.
    assert reference_of(item, seen=text.index("t fail")).tokens == reference.tokens[:-1]
    assert reference_of(item, seen=0).gaps == 0


def test_kappa_by_hand() -> None:
    # Of five gaps A marks 2 and B marks 2, one of them both: they agree on 1 + 2 of 5.
    # By chance they would on (2 * 2 + 3 * 3) / 25: (15 - 13) / (25 - 13).
    assert cohens_kappa({2, 3}, {1, 2}, 5) == pytest.approx(1 / 6)
    assert cohens_kappa({1, 2}, {1, 2}, 5) == 1.0
    # Opposites: observed 0, expected 1/2.
    assert cohens_kappa({1, 2}, {3, 4}, 4) == -1.0


def test_kappa_is_undefined_where_chance_explains_all() -> None:
    assert cohens_kappa(set(), set(), 5) is None
    assert cohens_kappa({1, 2}, {1, 2}, 2) is None
    assert cohens_kappa(set(), set(), 0) is None
    assert cohens_kappa({1, 2}, set(), 2) == 0.0


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=30))
def test_kappa_equals_the_table_of_counts(gaps: list[tuple[bool, bool]]) -> None:
    """By the textbook: a 2 x 2 table of shares, its diagonal and its margins."""
    shares = np.zeros((2, 2))
    for a, b in gaps:
        shares[int(a), int(b)] += 1 / len(gaps)
    observed = shares[0, 0] + shares[1, 1]
    expected = float(shares.sum(axis=1) @ shares.sum(axis=0))
    a, b = ({i for i, gap in enumerate(gaps) if gap[side]} for side in (0, 1))
    found = cohens_kappa(a, b, len(gaps))
    if found is None:
        assert expected == pytest.approx(1)
    else:
        assert found == pytest.approx((observed - expected) / (1 - expected))
        assert found == cohens_kappa(b, a, len(gaps))


def two(a: str, b: str, number: int = 1) -> Item:
    text, units = cut_at(a)
    same, other = cut_at(b)
    assert text == same
    return Item(str(number), text, {"A": Marks(units, ()), "B": Marks(other, ())})


def test_agreement_by_hand() -> None:
    first = two("acute kidney | injury | today", "acute | kidney injury | today")
    # Gaps 3; A marks {2, 3}, B {1, 3}: observed 1/3, expected (4 + 1) / 9; boundary F1 1/2.
    second = two("Is | it", "Is | it", 2)  # one gap, both mark it: kappa undefined, F1 1
    third = two("aspirin", "aspirin", 3)  # no gap at all: neither
    alone = item_of("not | paired")
    found = agreement([first, second, third, alone])
    assert found is not None
    assert found.items == 3
    assert found.kappa == pytest.approx((1 / 3 - 5 / 9) / (4 / 9))
    assert found.undefined == 2
    assert found.boundary_f1 == pytest.approx((0.5 + 1) / 2)
    # Units: 3 and 3 with "today" alike, 2 and 2 alike, 1 and 1 alike: 2 * 4 / 12.
    assert found.exact_f1 == pytest.approx(8 / 12)
    assert found.boundaries == (pytest.approx(1), pytest.approx(1))
    assert agreement([alone]) is None


def test_agreement_where_nothing_is_defined() -> None:
    found = agreement([two("aspirin", "aspirin")])
    assert found is not None
    assert math.isnan(found.kappa)
    assert math.isnan(found.boundary_f1)


def test_the_union_has_what_either_marked() -> None:
    item = two("acute kidney | injury", "acute | kidney injury")
    terms = {"A": (Span(0, 12),), "B": (Span(6, 19), Span(0, 12))}
    marks = {name: Marks(own.units, terms[name]) for name, own in item.marks.items()}
    reference = reference_of(replace(item, marks=marks), "union")
    assert reference.boundaries == {6, 13}
    assert reference.units == ((0, 5), (6, 12), (13, 19))
    assert reference.terms == ((0, 12), (6, 19))
    assert reference_of(item, "B").boundaries == {6}


def test_a_reference_that_is_not_there() -> None:
    item = item_of("one | two")
    with pytest.raises(InputError, match="reference union asked, but item '1' has no marks of"):
        reference_of(item, "union")
    with pytest.raises(InputError, match="annotator B; it has those of A"):
        reference_of(item, "B")
    with pytest.raises(InputError, match="not 'C'"):
        reference_of(item, "C")  # type: ignore[arg-type]


@st.composite
def partitions(draw: st.DrawFn) -> tuple[str, list[Span], list[Span]]:
    """A text and two partitions of its audit tokens."""
    text = draw(st.text("ab 肺癌-", min_size=1, max_size=14).filter(str.strip))
    tokens = audit_tokens(text)
    found = []
    for _ in range(2):
        cuts = draw(st.lists(st.booleans(), min_size=len(tokens), max_size=len(tokens)))
        firsts = [i for i, begins in enumerate(cuts) if begins or i == 0]
        rows = pairwise([*firsts, len(tokens)])
        found.append([Span(tokens[a].start, tokens[b - 1].end) for a, b in rows])
    return text, found[0], found[1]


def exhaustive(text: str, units: list[Span]) -> Reference:
    return reference_of(Item("1", text, {"A": Marks(tuple(units), tuple(units))}))


@settings(deadline=None, max_examples=150)
@given(partitions())
def test_perfect_units_and_symmetry(case: tuple[str, list[Span], list[Span]]) -> None:
    text, ours, theirs = case
    one, other = exhaustive(text, ours), exhaustive(text, theirs)
    assert list(one.units) == ours
    perfect = count(one, ours)
    assert f1(*perfect[:3]) == f1(*perfect[3:6]) == f1(*perfect[6:9]) == 1
    assert perfect.whole == perfect.terms
    assert not flags_of(perfect)
    there, back = count(one, theirs), count(other, ours)
    for first in (0, 3, 6):
        a, b, hits = there[first : first + 3]
        assert back[first : first + 3] == (b, a, hits)
    # The same by brute force.
    begins = [{a for a, _ in units[1:]} for units in (ours, theirs)]
    assert there[:3] == (len(begins[0]), len(begins[1]), len(begins[0] & begins[1]))
    assert there[5] == len(set(ours) & set(theirs))
    assert there.whole == sum(
        any(a <= s and e <= b for a, b in theirs) for s, e in ours if (s, e) in one.multi
    )
    assert there.over_segmentation == any(
        a < cut < b for cut in begins[1] - begins[0] for a, b in one.multi
    )


@settings(deadline=None, max_examples=100)
@given(partitions(), st.data())
def test_partial_gold_of_every_unit_is_exhaustive_gold(
    case: tuple[str, list[Span], list[Span]], data: st.DataObject
) -> None:
    text, ours, theirs = case
    whole = exhaustive(text, ours)
    marks = Marks(tuple(ours), tuple(ours))
    partial = reference_of(Item("1", text, {"A": marks}, partial=True))
    assert count(partial, theirs) == count(whole, theirs)
    assert partial.gaps == whole.gaps
    some = tuple(unit for unit in ours if data.draw(st.booleans()))
    reference = reference_of(Item("1", text, {"A": Marks(some, some)}, partial=True))
    assert reference.boundaries <= whole.boundaries
    perfect = count(reference, ours)
    assert perfect[:3] == (len(reference.boundaries),) * 3
    assert perfect[3:6] == (len(some),) * 3


def test_the_fixture() -> None:
    items = read_items(FIXTURE)
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
        ({"annotator": "C"}, 'annotator \'C\' is unknown; "A" or "B" is expected'),
        ({"query_id": 7}, '"query_id" is 7; a string is expected'),
        ({"units": None}, '"units" must be a list'),
        ({"terms": {}}, '"terms" must be a list'),
        ({"units": [[0, 11, "x"]]}, 'unit [0, 11, "x"] is wrong'),
        ({"units": [[5, 5]]}, "start < end within 11 characters"),
        ({"units": [[0, True]]}, "unit [0, true] is wrong"),
        ({"units": [[0, 3]]}, "the tokens it touches are [0, 4] 'lung'"),
        ({"units": [[0, 5]]}, "'lung ' begins or ends inside a token or at a blank"),
        ({"terms": [[5, 12]]}, "term [5, 12] is no part of the 11 characters"),
        ({"units": [[-4, 4]]}, "unit [-4, 4] is no part"),
        ({"units": [[5, 11], [0, 4]]}, "unit [0, 4] follows [5, 11]"),
        ({"units": [[0, 11], [5, 11]]}, "units come in reading order without overlap"),
        ({"id": "0"}, "item '0' of annotator A stands in line 1 already"),
        ({"id": "0", "annotator": "B"}, "item '0' has another text here than in line 1"),
        ({"id": "0", "annotator": "B", "text": "one"}, "unit [0, 11] is no part"),
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
    with pytest.raises(InputError, match=r"audit\.jsonl:2: item '1' has another query_id"):
        read_items(file)


def write_corpus(folder: Path, rows: list[dict[str, Any]]) -> Path:
    folder.mkdir(exist_ok=True)
    data = "\n".join(json.dumps(row) for row in rows).encode()
    (folder / "test.jsonl.gz").write_bytes(gzip.compress(data))
    return folder


def test_corpora_of_marked_spans(tmp_path: Path) -> None:
    text = "The lung cancer kills it"
    spans = [[0, 15, "Disease"], [4, 15, "Disease"], [4, 8, "Organ"]]
    (item,) = read_items(write_corpus(tmp_path / "terms", [{"text": text, "spans": spans}]))
    assert item.partial
    assert item.marks["A"].units == ((4, 8), (4, 15))
    spans = [[0, 15, "NP"], [22, 24, "NP-PRP"]]
    folder = write_corpus(tmp_path / "np", [{"text": text, "spans": spans}])
    (item,) = read_items(folder)
    assert not item.partial
    assert [text[a:b] for a, b in reference_of(item).units] == ["The", "lung cancer", "kills", "it"]
    assert read_items(folder / "test.jsonl.gz") == [item]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[1]", "a JSON object is expected"),
        ("{}", "a JSON object is expected"),
        ("{", "is not JSON"),
        ('{"q": "much"}', "the gain of 'q' is \"much\"; a number is expected"),
        ('{"q": NaN}', "the gain of 'q' is NaN"),
        ('{"q": true}', "the gain of 'q' is true"),
    ],
)
def test_gains_are_checked(tmp_path: Path, content: str, message: str) -> None:
    file = tmp_path / "gains.json"
    file.write_text(content)
    with pytest.raises(InputError, match=re.escape(message)):
        read_gains(file)


def test_gains_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read: No such file"):
        read_gains(tmp_path / "gains.json")


def test_gains_of_a_cell_are_phrase_less_token(tmp_path: Path) -> None:
    path = tmp_path / "cell.json"
    lines = {"phrase": Line("phrase", np.array([0.5, 0.25])), "token": Line("token", np.zeros(2))}
    cell = Cell("broad-deployed", "", "s", "f", "", "t", "test", 9, ("q1", "q2"), "d", "k", lines)
    results.write(path, cell)
    assert read_gains(path) == {"q1": 0.5, "q2": 0.25}
    results.write(path, replace(cell, protocol="other", lines={"phrase": lines["phrase"]}))
    with pytest.raises(InputError, match="a cell of other without a line 'token'"):
        read_gains(path)


def queries(*names: str) -> list[Item]:
    marks = {"A": Marks((), ())}
    return [Item(name, f"text of {name}", marks, query_id=name) for name in names]


def test_spearman_by_hand() -> None:
    items = queries("a", "b", "c", "d")
    # Ranks 1 2 3 4 against 2 1 4 3: four differences of 1; 1 - 6 * 4 / (4 * 15).
    gains = {"a": 0.2, "b": 0.1, "c": 9.0, "text of d": 0.3}
    values = np.array([0.1, 0.2, 0.5, 0.9])
    found = gain_correlation(items, values, gains)
    assert (found.items, found.rho) == (4, pytest.approx(0.6))
    assert 0 < found.p < 1
    falling = {name: -value for name, value in zip("abcd", values, strict=True)}
    assert gain_correlation(items, values, falling).rho == pytest.approx(-1)


def test_which_items_have_a_gain() -> None:
    items = queries("a", "b", "c", "d", "e")
    values = np.array([0.1, 0.2, np.nan, 0.4, 0.5])
    found = gain_correlation(items, values, {"a": 1, "b": 2, "c": 3, "d": 4})
    assert (found.items, found.rho) == (3, pytest.approx(1))
    # The id goes before the text.
    both = {"a": 1.0, "b": 2.0, "d": 4.0, "text of a": 99.0}
    assert gain_correlation(items, values, both).rho == pytest.approx(1)
    for gains in ({"a": 1.0, "b": 2.0}, {"a": 1.0, "b": 1.0, "d": 1.0}):
        assert math.isnan(gain_correlation(items, values, gains).rho)
    with pytest.raises(InputError, match="none of the 1 gains is of a query of this audit"):
        gain_correlation(items, values, {"z": 1.0})


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("states")


@pytest.fixture(scope="module")
def items() -> list[Item]:
    return read_items(FIXTURE)


def test_constructions(mini: HPlus, items: list[Item], cache: Path) -> None:
    stored = stored_states(mini, [item.text for item in items], cache)
    assert mini.checkpoint.crf is not None
    begins = cut(mini.checkpoint.crf, stored)
    made = constructions(stored.tokens, begins)
    assert list(made) == [
        "crf", "whole words", "content-word runs", "whitespace words", "random", "bigrams",
        "trigrams", "equal chunks"
    ]  # fmt: skip
    assert [len(runs) for runs in made.values()] == [1, 1, 1, 1, len(SEEDS), 1, 1, 1]
    units = {name: units_of(stored.tokens, runs[0]) for name, runs in made.items()}
    counts = [len(own) for own in units["crf"]]
    assert [len(own) for own in units["equal chunks"]] == counts
    text = items[1].text
    assert [text[a:b] for a, b in units["bigrams"][1]] == [
        "acute kidney", "injury after", "heart surgery"
    ]  # fmt: skip
    assert units["whole words"][1] == audit_tokens(text)


def test_rows(mini: HPlus, items: list[Item], cache: Path) -> None:
    teacher = {item.text: item.marks["A"].units for item in items}
    terms = Terms(["acute kidney injury", "Non-small-cell lung cancer"])
    found = audit(mini, items, cache, terms=terms, teacher=teacher)
    assert list(found.rows)[:3] == ["crf", "crf+trie", "teacher"]
    assert found.items == 10
    assert found.unseen == 0
    taught = found.rows["teacher"]
    assert taught.boundary_f1.tolist() == [1.0] * 10
    assert (taught.exact_f1, taught.multi_f1) == (1, 1)
    # A marks 儿童哮喘 as a term, but cuts it into two units: one of the 15 is not whole.
    assert taught.term_recall == pytest.approx(14 / 15)
    assert (taught.flagged, set(taught.flags.values())) == (0, {0})
    stored = stored_states(mini, [item.text for item in items], cache)
    made = constructions(stored.tokens, cut(mini.checkpoint.crf, stored), terms=terms)  # type: ignore[arg-type]
    references = [reference_of(item) for item in items]
    for name, runs in made.items():
        row = found.rows[name]
        counts = [
            [count(r, u) for r, u in zip(references, units_of(stored.tokens, run), strict=True)]
            for run in runs
        ]
        values = np.mean([boundary_f1(references, own) for own in counts], axis=0)
        assert row.boundary_f1 == pytest.approx(values)
        totals = [np.sum(np.array(own, np.int64), axis=0).tolist() for own in counts]
        assert row.exact_f1 == pytest.approx(np.mean([f1(*total[3:6]) for total in totals]))
        assert row.multi_f1 == pytest.approx(np.mean([f1(*total[6:9]) for total in totals]))
        assert row.term_recall == pytest.approx(np.mean([t[10] / t[9] for t in totals]))
        assert list(row.flags.values()) == pytest.approx(np.mean([t[11:] for t in totals], axis=0))
    trie = found.rows["crf+trie"]
    assert trie.term_recall >= found.rows["crf"].term_recall
    assert found.agreement == agreement(items)
    assert found.correlation is None


def test_whole_words_recall_no_english_term(mini: HPlus, items: list[Item], cache: Path) -> None:
    english = [item for item in items if item.text.isascii()]
    row = audit(mini, english, cache).rows["whole words"]
    assert (row.multi_f1, row.term_recall) == (0, 0)


def test_the_window_ends_what_counts(mini: HPlus, cache: Path) -> None:
    text = "lung cancer " * 300
    units = tuple(Span(start, start + 11) for start in range(0, 3600, 12))
    item = Item("1", text, {"A": Marks(units, units)})
    found = audit(mini, [item], cache)
    assert found.tokens == 600
    assert 0 < 600 - found.unseen <= mini.recipe.window
    bigrams = found.rows["bigrams"]
    assert bigrams.boundary_f1.tolist() == [1.0]
    assert (bigrams.exact_f1, bigrams.term_recall) == (1, 1)


def test_what_cannot_be_audited(mini: HPlus, tiny: HPlus, items: list[Item], cache: Path) -> None:
    with pytest.raises(CheckpointError, match="has no trained CRF"):
        audit(tiny, items, cache)
    with pytest.raises(InputError, match="none of the 1 items has a gap"):
        audit(mini, [item_of("aspirin")], cache)
    with pytest.raises(InputError, match="no labels for 10 of 10 texts, the first 'Does metformin"):
        audit(mini, items, cache, teacher={})


def test_the_summary(mini: HPlus, items: list[Item], cache: Path) -> None:
    gains = {item.text: float(i % 4) for i, item in enumerate(items)}
    found = audit(mini, items, cache, reference="union", gains=gains)
    about = {"set": "a", "split": None, "gold": "exhaustive", "reference": "union"}
    summary = summarise(found, **about, model="m", fingerprint="f" * 64)
    assert summary == summarise(found, **about, model="m", fingerprint="f" * 64)
    assert json.loads(json.dumps(summary, allow_nan=False)) == summary
    assert list(summary["absent"]) == ["crf+trie", "teacher"]
    assert summary["gains"]["items"] == 10
    crf = summary["rows"]["crf"]
    assert "crf_ahead" not in crf
    for name, row in summary["rows"].items():
        assert row["low"] <= row["boundary_f1"] <= row["high"]
        assert row["boundary_f1"] == pytest.approx(found.rows[name].boundary_f1.mean(), abs=1e-4)
        if name != "crf":
            ahead = row["crf_ahead"]
            assert ahead["mean"] == pytest.approx(crf["boundary_f1"] - row["boundary_f1"], abs=2e-4)
            assert ahead["p"] <= ahead["holm"] <= 1
    page = markdown([summary])
    assert page.count("| crf |") == 2
    assert "No row teacher: it needs a file of labels (--teacher)." in page
    assert "Cohen's kappa 0.527 (undefined for 1)" in page
    assert "Holm's family: the CRF against the 7 other constructions." in page
    assert all(len(line) == len(COLUMNS) for line in table(summary))


def test_what_is_undefined_is_none(mini: HPlus, cache: Path) -> None:
    found = audit(mini, [item_of("Is | aspirin | safe")], cache)
    row = summarise(found)["rows"]["crf"]
    assert row["multi_f1"] is None
    assert row["term_recall"] is None
    assert table(summarise(found))[0][4:6] == ["undefined", "undefined"]


Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """`run("audit.jsonl")` -> exit code, standard output, standard error."""

    def call(*arguments: str | Path) -> tuple[int, str, str]:
        typed = ["hplus", "evaluate", "audit", *map(str, arguments)]
        monkeypatch.setattr(sys, "argv", typed)
        code = 0
        try:
            main()
        except SystemExit as stop:
            code = int(stop.code or 0)
        out, err = capsys.readouterr()
        return code, out, err

    return call


def test_json_and_limit(run: Run, cache: Path) -> None:
    code, out, err = run(FIXTURE, "--cache", cache, "--json", "--limit", "4")
    assert (code, err) == (0, "")
    summary = json.loads(out)
    assert (summary["set"], summary["items"], summary["reference"]) == ("audit", 4, "A")
    assert summary["agreement"]["items"] == 4


def test_a_table_for_people(run: Run, cache: Path, tmp_path: Path) -> None:
    terms, gains = tmp_path / "terms.txt", tmp_path / "gains.json"
    terms.write_text("acute kidney injury\n")
    gains.write_text(json.dumps({f"q{i}": i for i in range(1, 10)}))
    options = ["--terms", terms, "--gains", gains, "--reference", "union"]
    code, out, err = run(FIXTURE, "--cache", cache, *options)
    assert (code, err) == (0, "")
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert lines[0] == "audit"
    assert lines[1] == " ".join(COLUMNS)
    assert " ".join(FLAG_COLUMNS) in lines
    summary = json.loads(run(FIXTURE, "--cache", cache, *options, "--json")[1])
    shown = [" ".join(" ".join(line).split()) for line in table(summary)]
    assert lines[2 : 2 + len(shown)] == shown
    assert shown[1].startswith("crf+trie ")
    assert "over 8 queries: Spearman's rho" in out


def test_out_writes_the_same_bytes_twice(run: Run, cache: Path, tmp_path: Path) -> None:
    spans = [[0, 11, "Disease"]]
    corpus = write_corpus(tmp_path / "ill", [{"text": "lung cancer kills", "spans": spans}])
    for name in ("one", "two"):
        code, _, _ = run(FIXTURE, corpus, "--cache", cache, "--out", tmp_path / "to" / name)
        assert code == 0
    for suffix in (".json", ".md"):
        one, two = (tmp_path / "to" / f"{name}{suffix}" for name in ("one", "two"))
        assert one.read_bytes() == two.read_bytes()
    summaries = json.loads((tmp_path / "to" / "one.json").read_text())
    assert [(s["set"], s["split"], s["gold"]) for s in summaries] == [
        ("audit", None, "exhaustive"),
        ("ill", "test", "partial"),
    ]
    assert (tmp_path / "to" / "one.md").read_text() == markdown(summaries)


def test_a_teacher_from_a_file(run: Run, cache: Path, tmp_path: Path) -> None:
    rows = [
        {"source": "x", "text": item.text, "units": [[*u, "gold"] for u in item.marks["B"].units]}
        for item in read_items(FIXTURE)
    ]
    labels = tmp_path / "labels.jsonl"
    labels.write_text("\n".join(map(json.dumps, rows)))
    options = ["--teacher", labels, "--reference", "B", "--json"]
    summary = json.loads(run(FIXTURE, "--cache", cache, *options)[1])
    assert summary["rows"]["teacher"]["boundary_f1"] == 1.0
    assert list(summary["absent"]) == ["crf+trie"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere.jsonl"], "nowhere.jsonl is missing"),
        (["ill", "--split", "dev"], "ill has neither dev.jsonl.gz nor dev.jsonl"),
        (["ill", "--reference", "B"], "ill: reference B asked, but item '1' has no marks"),
        (["ill", "--gains", "gains.json"], "ill: none of the 1 gains is of a query"),
        (["ill", "--terms", "nowhere"], "nowhere: cannot read the terms"),
        (["ill", "--teacher", "labels.jsonl"], "ill: the teacher has no labels for 1 of 1 texts"),
        (["ill", "--model", "nowhere"], "neither a folder nor a built-in"),
    ],
)
def test_a_mistake_is_one_sentence_and_exit_code_2(
    run: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    write_corpus(Path("ill"), [{"text": "lung cancer kills", "spans": [[0, 11, "Disease"]]}])
    Path("gains.json").write_text('{"q": 1}')
    Path("labels.jsonl").write_text('{"source": "x", "text": "other", "units": []}')
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert message in err
    assert err.count("\n") == 1


def test_the_example_of_the_help_runs(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out, _ = run("--help")
    assert code == 0
    assert "Example: hplus evaluate audit" in out
    monkeypatch.chdir(tmp_path)
    shutil.copy(FIXTURE, "audit.jsonl")
    code, out, err = run(
        *shlex.split(command.EXAMPLE.removeprefix("Example: hplus evaluate audit"))
    )
    assert (code, err) == (0, "")
    assert json.loads(out)["reference"] == "union"
