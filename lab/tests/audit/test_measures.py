"""References and measures, worked out by hand and by brute force."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hplus import InputError
from hplus.types import Span
from hplus_lab.audit import Item, Marks
from hplus_lab.audit.items import audit_tokens
from hplus_lab.audit.measures import TextCounts, agreement, boundary_f1, cohens_kappa, count
from hplus_lab.audit.reference import (
    FLAGS,
    Annotator,
    Reference,
    abbreviations,
    outermost,
    reference_of,
)
from marked_texts import item_of, spans_of, split_at, two


def counted(item: Item, predicted: str, annotator: Annotator = "A") -> TextCounts:
    text, units = split_at(predicted)
    assert text == item.text
    return count(reference_of(item, annotator), units)


def test_the_notation_of_these_tests() -> None:
    assert split_at("acute | kidney injury") == ("acute kidney injury", ((0, 5), (6, 19)))
    assert split_at("Hb|A1c | is") == ("HbA1c is", ((0, 2), (2, 5), (6, 8)))
    assert split_at("whole text") == ("whole text", ((0, 10),))


def test_one_item_by_hand() -> None:
    item = item_of("acute kidney injury | after | heart surgery", "acute kidney injury", "heart")
    item = replace(item, marks={"A": Marks(item.marks["A"].units, (Span(0, 19), Span(26, 39)))})
    own = counted(item, "acute | kidney injury | after heart surgery")
    # Boundaries: the reference begins units at "after" and "heart", the system at "kidney" and
    # "after"; one is shared: 2 * 1 / (2 + 2).
    assert own.boundaries == (2, 2, 1)
    assert own.boundaries.f1 == 0.5
    # Units: 3 against 3, none alike; of several tokens: 2 against 2, none alike.
    assert own.units == (3, 3, 0)
    assert own.multi == (2, 2, 0)
    # Terms: "heart surgery" lies whole inside "after heart surgery", the other is split.
    assert (own.terms, own.recalled) == (2, 1)
    assert own.errors == {"over_segmentation", "modifier_detachment"}


def test_spans_by_hand() -> None:
    item = item_of("acute kidney injury | after | heart surgery")
    own = counted(item, "acute kidney injury | after | heart | surgery")
    # 3 reference units, 4 predicted, 2 alike: 4/7. Of several tokens: 2, 1 and 1 alike: 2/3.
    assert own.units == (3, 4, 2)
    assert own.multi == (2, 1, 1)
    assert own.units.f1 == pytest.approx(4 / 7)
    assert own.multi.f1 == pytest.approx(2 / 3)


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
    # "after" is one token, so it is not counted as a term.
    words = counted(item, "acute | kidney | injury | after | heart | surgery")
    assert (words.terms, words.recalled) == (1, 0)
    whole = counted(item, item.text)
    assert (whole.terms, whole.recalled) == (1, 1)


def test_a_boundary_inside_a_token_counts_against_a_system() -> None:
    item = item_of("HbA1c | falls")
    assert counted(item, "HbA1c | falls").boundaries == (1, 1, 1)
    own = counted(item, "Hb|A1c | falls")
    assert own.boundaries == (1, 2, 1)
    assert own.errors == {"abbreviation_fragmentation"}
    # "A1c" and "Hb" touch one token each: neither is a unit of several.
    assert own.multi == (0, 0, 0)


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
    assert own.boundaries == (2, 2, 1)
    assert own.units == (3, 3, 0)
    assert own.multi == (2, 3, 0)
    assert (own.terms, own.recalled) == (1, 0)
    assert own.errors == {"over_segmentation", "modifier_detachment"}


@pytest.mark.parametrize(
    ("reference", "terms", "predicted", "flags"),
    [
        ("give | 5 mg/kg | daily", [], "give | 5 | mg/kg | daily", {0, 2}),
        ("give | 5 mg/kg | daily", [], "give 5 | mg/kg | daily", {0, 2}),
        # The annotator splits it too: no error.
        ("give | 5 | mg/kg | daily", [], "give | 5 | mg/kg | daily", set()),
        ("a | COX-2 inhibitor", ["COX-2 inhibitor"], "a | COX|-2 inhibitor", {0, 1, 3}),
        ("a | COX-2 inhibitor", ["COX-2 inhibitor"], "a | COX-2 | inhibitor", {0, 1}),
        # The unit is split, but the term inside it is whole.
        ("old lung cancer", ["lung cancer"], "old | lung cancer", {0}),
        ("acute lung cancer", ["acute lung cancer"], "acute | lung cancer", {0, 1}),
        # Split after the head: only a bracket is lost.
        ("factor (VIII)", ["factor (VIII)"], "factor (VIII|)", {0}),
        # Too few boundaries split nothing.
        ("acute | lung | cancer", ["lung cancer"], "acute lung cancer", set()),
        # The reference detaches the modifier itself.
        ("lung | cancer", ["lung cancer"], "lung | cancer", set()),
        ("the | mRNA", [], "the | m|RNA", {3}),
        ("PM2.5|暴露", [], "PM2|.5|暴露", {3}),
        ("每日|100 mg|口服", [], "每日|100 | mg|口服", {0, 2}),
    ],
)
def test_error_flags(reference: str, terms: list[str], predicted: str, flags: set[int]) -> None:
    assert counted(item_of(reference, *terms), predicted).errors == {FLAGS[i] for i in flags}


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
    assert perfect.boundaries == (4, 4, 4)
    assert perfect.units == (2, 2, 2)
    # "Severe lung cancer" misses one edge; it meets a span, so it is a wrong unit.
    wide = counted(item, "Severe lung cancer | and | heart failure | occurred")
    assert wide.boundaries == (4, 3, 3)
    assert wide.units == (2, 2, 1)
    assert (wide.terms, wide.recalled) == (2, 2)


def test_outside_partial_gold_nothing_is_right_or_wrong() -> None:
    text = "We saw that lung cancer kills at 5 mg"
    units = spans_of(text, "lung cancer")
    item = Item("1", text, {"A": Marks(units, units)}, partial=True)
    one = counted(item, "We saw that | lung cancer | kills at 5 mg")
    other = counted(item, "We | saw | that | lung cancer | kills | at | 5 | mg")
    assert one == other
    assert one.boundaries == (2, 2, 2)
    assert one.units == (1, 1, 1)
    assert not other.errors


def test_partial_gold_at_the_edges_of_the_text() -> None:
    whole = Item("1", "lung cancer", {"A": Marks((Span(0, 11),), ())}, partial=True)
    assert reference_of(whole).boundaries == frozenset()
    assert reference_of(whole).gaps == 1
    nothing = Item("1", "lung cancer", {"A": Marks((), ())}, partial=True)
    assert reference_of(nothing).gaps == 0
    assert counted(nothing, "lung | cancer")[:3] == ((0, 0, 0),) * 3


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
    text, units = split_at("lung cancer | and | heart failure")
    item = Item("1", text, {"A": Marks(units, units)}, partial=partial)
    reference = reference_of(item, seen=text.index(" failure"))
    seen = ["lung cancer", "and"] if partial else ["lung cancer", "and", "heart"]
    assert [text[a:b] for a, b in reference.units] == seen
    assert [text[a:b] for a, b in reference.terms] == ["lung cancer"]
    own = count(reference, (*units[:2], Span(16, 21)))
    assert own.boundaries == (2, 2, 2)
    # A term of which a part was seen does not count.
    longer = Item("1", "acute heart failure", {"A": Marks((), (Span(0, 19),))}, partial=partial)
    assert reference_of(longer, seen=11).terms == ()
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
    with pytest.raises(
        InputError, match="reference union needs the marks of annotator B, but item '1'"
    ):
        reference_of(item, "union")
    with pytest.raises(InputError, match="has only those of A"):
        reference_of(item, "B")
    with pytest.raises(InputError, match="got 'C'"):
        reference_of(item, "C")  # type: ignore[arg-type]


@st.composite
def partitions(draw: st.DrawFn) -> tuple[str, list[Span], list[Span]]:
    """A text and two partitions of its audit tokens."""
    text = draw(st.text("ab 肺癌-", min_size=1, max_size=14).filter(str.strip))
    tokens = audit_tokens(text)
    found = []
    for _ in range(2):
        marks = draw(st.lists(st.booleans(), min_size=len(tokens), max_size=len(tokens)))
        firsts = [i for i, begins in enumerate(marks) if begins or i == 0]
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
    assert [tally.f1 for tally in perfect[:3]] == [1, 1, 1]
    assert perfect.recalled == perfect.terms
    assert not perfect.errors
    there, back = count(one, theirs), count(other, ours)
    for (marked, predicted, hits), other_way in zip(there[:3], back[:3], strict=True):
        assert other_way == (predicted, marked, hits)
    # The same by brute force.
    begins = [{a for a, _ in units[1:]} for units in (ours, theirs)]
    assert there.boundaries == (len(begins[0]), len(begins[1]), len(begins[0] & begins[1]))
    assert there.units == (len(ours), len(theirs), len(set(ours) & set(theirs)))
    assert there.recalled == sum(
        any(a <= s and e <= b for a, b in theirs) for s, e in ours if (s, e) in one.multi
    )
    assert ("over_segmentation" in there.errors) == any(
        a < begin < b for begin in begins[1] - begins[0] for a, b in one.multi
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
    assert perfect.boundaries == (len(reference.boundaries),) * 3
    assert perfect.units == (len(some),) * 3
