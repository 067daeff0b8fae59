"""The layers of labels: each rule by a hand-made case, gold by a naive painter, and properties."""

import re
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hplus.errors import InputError
from hplus.teach.labels import LAYERS, LONGEST, Labelled, label, multiword_terms
from hplus.teach.marked import Marked
from hplus.types import Span
from hplus.units.terms import Terms
from hplus.units.words import words

Strings = Sequence[str]
TOO_LONG = "gold spans too long for a unit"
EMPTY = "gold spans without content"
CROSSES = "gold spans inside or across a longer one"


def place(text: str, string: str) -> tuple[int, int]:
    start = text.index(string)
    return start, start + len(string)


def named(labelled: Labelled) -> list[str]:
    """["heart failure/gold", …]"""
    pairs = zip(labelled.units, labelled.layers, strict=True)
    return [f"{labelled.text[start:end]}/{layer}" for (start, end), layer in pairs]


def units(
    text: str,
    gold: Strings = (),
    *,
    terms: Strings = (),
    phrases: Strings = (),
    own: Strings = (),
    minimal: bool = False,
    patterns: bool = False,
    dropped: Counter[str] | None = None,
) -> list[str]:
    """Units of a text whose spans are given as strings: gold, the corpus' own noun phrases, and
    those of a chunker. Each is at the first place of its string."""
    spans = [(*place(text, string), "Disease") for string in gold]
    spans += [(*place(text, string), "NP") for string in own]
    return named(
        label(
            Marked(text, tuple(spans)),
            terms=Terms(terms) if terms else None,
            phrases=[Span(*place(text, string)) for string in phrases],
            length="minimal" if minimal else "noun-phrase",
            patterns=patterns,
            dropped=dropped,
        )
    )


def counted(text: str, gold: Strings, **kwargs: Strings) -> dict[str, int]:
    dropped: Counter[str] = Counter()
    units(text, gold, **kwargs, dropped=dropped)  # type: ignore[arg-type]
    return {what: count for what, count in dropped.items() if count}


# Order of the layers


def test_each_layer_takes_what_the_layers_above_left_free() -> None:
    text = "Acute heart-failure therapy"
    everything = {"terms": ["heart-failure"], "phrases": ["heart-failure therapy"]}
    assert units(text) == ["Acute/word", "heart-failure/rule", "therapy/word"]
    assert units(text, terms=["heart-failure"]) == [
        "Acute/word",
        "heart-failure/term",
        "therapy/word",
    ]
    assert units(text, **everything) == ["Acute/word", "heart-failure therapy/noun phrase"]
    assert units(text, ["Acute heart"], **everything) == [
        "Acute heart/gold",
        "failure therapy/noun phrase",
    ]


@pytest.mark.parametrize(
    ("gold", "terms", "phrases", "expected"),
    [
        # gold over term, over rule, over noun phrase, over word
        (["cell lung"], ["lung cancer"], [], ["cell lung/gold", "cancer/word", "IL-6/rule"]),
        (["6"], [], [], ["cell/word", "lung/word", "cancer/word", "IL/word", "6/gold"]),
        (
            ["lung"],
            [],
            ["cell lung cancer IL-6"],
            ["cell/word", "lung/gold", "cancer IL-6/noun phrase"],
        ),
        (["cell"], [], [], ["cell/gold", "lung/word", "cancer/word", "IL-6/rule"]),
        # term over rule, over a noun phrase it only meets, over word
        ([], ["cancer IL"], [], ["cell/word", "lung/word", "cancer IL/term", "6/word"]),
        (
            [],
            ["lung cancer"],
            ["cell lung"],
            ["cell/word", "lung cancer/term", "IL-6/rule"],
        ),
        ([], ["cell lung"], [], ["cell lung/term", "cancer/word", "IL-6/rule"]),
        # rule over a noun phrase it only meets, over word
        ([], [], ["lung cancer IL"], ["cell/word", "lung cancer/noun phrase", "IL-6/rule"]),
        # noun phrase over word
        ([], [], ["lung cancer"], ["cell/word", "lung cancer/noun phrase", "IL-6/rule"]),
    ],
)
def test_priority(gold: Strings, terms: Strings, phrases: Strings, expected: Strings) -> None:
    assert units("cell lung cancer IL-6", gold, terms=terms, phrases=phrases) == expected


def test_what_a_corpus_leaves_unmarked_is_labelled_as_any_other_text() -> None:
    """No corpus teaches O where another teaches a term."""
    text = "BRCA1 in type 2 diabetes, chronic kidney disease at 5 mg/kg"
    below = {"terms": ["type 2 diabetes"], "phrases": ["chronic kidney disease"]}
    unmarked = units(text, **below)
    assert unmarked == [
        "BRCA1/word",
        "type 2 diabetes/term",
        "chronic kidney disease/noun phrase",
        "5 mg/kg/rule",
    ]
    assert units(text, ["BRCA1"], **below) == ["BRCA1/gold", *unmarked[1:]]


def test_rules_are_units() -> None:
    text = "Give 5 mg/kg, 10-20 mmHg, 37 °C or 95% of COX-2 for 12 weeks; HbA1c and RA."
    assert units(text) == [
        "Give/word",
        "5 mg/kg/rule",
        "10-20 mmHg/rule",
        "37 °C/rule",
        "95%/rule",
        "COX-2/rule",
        "12 weeks/rule",
        "HbA1c/word",
        "RA/word",
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [("aged ≥ 18 years", "18 years"), ("below <5 mg", "5 mg"), ("dose = 5 mg", "5 mg")],
)
def test_a_sign_before_a_number_does_not_take_it_apart(text: str, expected: str) -> None:
    assert any(unit.endswith(f"{expected}/rule") for unit in units(text))


def test_a_rule_does_not_cut_a_term_inside_a_noun_phrase() -> None:
    string = "tumor necrosis factor"
    found = units(f"anti-{string}", terms=[string], phrases=[string])
    assert [unit.split("/")[0] for unit in found] == ["anti", string]


def test_function_words_and_punctuation_are_in_no_unit() -> None:
    assert units("The of, and (in) with; a - !") == []
    assert units("") == []
    assert units("It is the heart, not the kidney.") == ["heart/word", "not/word", "kidney/word"]


# Gold


def test_of_nested_gold_the_outer_one_is_the_unit() -> None:
    text = "non small cell lung cancer stage"
    gold = ["lung cancer", "non small cell lung cancer", "cell"]
    assert units(text, gold) == ["non small cell lung cancer/gold", "stage/word"]
    assert counted(text, gold) == {CROSSES: 2}


def test_the_outer_one_has_up_to_six_words() -> None:
    text = "a1 a2 a3 a4 a5 a6 a7"
    assert LONGEST == 6
    assert units(text, ["a1 a2 a3 a4 a5 a6", "a3 a4"]) == ["a1 a2 a3 a4 a5 a6/gold", "a7/word"]
    assert units(text, [text, "a3 a4"], terms=["a5 a6"], phrases=["a1 a2"]) == [
        "a1 a2/noun phrase",
        "a3 a4/gold",
        "a5 a6/term",
        "a7/word",
    ]
    assert counted(text, [text, "a3 a4"]) == {TOO_LONG: 1}


def test_only_words_count_towards_the_length() -> None:
    """Signs do not count, nor do trimmed determiners; function words inside do."""
    text = "the a1-a2, a3 / a4 - a5-a6"
    assert units(text, [text]) == ["a1-a2, a3 / a4 - a5-a6/gold"]
    text = "a1 of the a2 of the a3"
    assert counted(text, [text]) == {TOO_LONG: 1}


def test_of_overlapping_gold_the_longer_one_then_the_first() -> None:
    text = "acute heart failure"
    assert units(text, ["acute heart", "heart failure"]) == ["acute/word", "heart failure/gold"]
    assert units(text, ["heart failure", "acute heart"]) == ["acute/word", "heart failure/gold"]
    text = "right heart wrong"
    assert units(text, ["heart wrong", "right heart"]) == ["right heart/gold", "wrong/word"]
    assert counted(text, ["heart wrong", "right heart"]) == {CROSSES: 1}
    assert counted(text, ["heart", "heart"]) == {CROSSES: 1}


@pytest.mark.parametrize("string", ["heart fail", "art failure", "art fai", "heart failure"])
def test_gold_that_begins_or_ends_inside_a_word_is_widened(string: str) -> None:
    assert units("a heart failure.", [string]) == ["heart failure/gold"]


@pytest.mark.parametrize(
    ("text", "gold", "expected"),
    [
        ("The heart failure", "The heart failure", "heart failure"),
        ("all of these heart failures", "all of these heart failures", "heart failures"),
        ("(heart failure),", "(heart failure),", "heart failure"),
        ("- the: heart failure -", "- the: heart failure -", "heart failure"),
        ("no heart failure", "no heart failure", "no heart failure"),
        ("cancer of the lung", "cancer of the lung", "cancer of the lung"),
        ("a rise of 95%", "rise of 95%", "rise of 95%"),
        # a span that ends inside a bracket is shortened to end before it
        ("confidence interval [CI] was", "confidence interval [CI", "confidence interval"),
        ("gene (p53, p63) of", "gene (p53, p63", "gene"),
        ("gene {a [b (c", "gene {a [b (c", "gene"),
        # a bracket closed inside the span is part of it, and one before it is trimmed
        ("NAD(P)H oxidase", "NAD(P)H oxidase", "NAD(P)H oxidase"),
        ("gene (a) of (b)", "gene (a) of (b", "gene (a) of"),
        ("the (CI", "(CI", "CI"),
    ],
)
def test_edges_of_gold(text: str, gold: str, expected: str) -> None:
    assert f"{expected}/gold" in units(text, [gold])


@pytest.mark.parametrize("text", ["confidence interval (CI)", "Poly(A)", "Ca(2+)"])
def test_a_bracket_that_gold_closes_stays(text: str) -> None:
    assert units(f"the {text} of", [text]) == [f"{text}/gold"]


@pytest.mark.parametrize("string", ["The", "of the", ",", "( )", " ", "- the"])
def test_gold_without_content_is_counted(string: str) -> None:
    text = "The gene of the ( ) - the , cell"
    assert units(text, [string]) == ["gene/word", "cell/word"]
    assert counted(text, [string]) == {EMPTY: 1}


def test_repeated_strings_are_labelled_where_they_are_marked() -> None:
    text = "heart failure after heart failure"
    marked = Marked(text, ((20, 33, "Disease"),))
    assert label(marked).units == (Span(0, 5), Span(6, 13), Span(20, 33))
    assert label(marked, terms=Terms(["heart failure"])).layers == ("term", "gold")


def test_segments_that_do_not_occur_are_counted() -> None:
    dropped: Counter[str] = Counter()
    label(Marked("heart", lost=2), dropped=dropped)
    label(Marked("heart", lost=1), dropped=dropped)
    assert dropped["segments that do not occur"] == 3


# Terms


def test_terms_are_of_two_words_or_more() -> None:
    text = "aspirin for heart failure"
    assert units(text, terms=["aspirin", "heart failure"]) == ["aspirin/word", "heart failure/term"]


def test_the_longest_term_wins_and_a_term_that_meets_gold_is_counted() -> None:
    text = "congestive heart failure"
    terms = ["heart failure", "congestive heart failure", "congestive heart"]
    assert units(text, terms=terms) == ["congestive heart failure/term"]
    assert units(text, ["failure"], terms=terms) == [
        "congestive/word",
        "heart/word",
        "failure/gold",
    ]
    assert counted(text, ["failure"], terms=terms) == {"terms that meet a longer unit": 1}
    assert units(text, ["failure"], terms=terms[:1]) == units(text, ["failure"])


def test_a_term_of_more_than_six_words_is_not_a_unit() -> None:
    text = "a1 a2 a3 a4 a5 a6 a7"
    assert units(text, terms=[text]) == [f"{word}/word" for word in text.split()]
    assert counted(text, [], terms=[text]) == {"terms that meet a longer unit": 1}


@pytest.mark.parametrize(
    ("term", "is_kept"),
    [
        ("heart failure", True),
        ("COX-2", True),
        ("cancer of the lung", True),
        ("肺癌", True),
        ("aspirin", False),
        ("in fact", False),
        ("follow up", False),
        ("癌", False),
        ("C++", False),
        ("(heart)", False),
        ("", False),
    ],
)
def test_terms_that_can_be_units(term: str, is_kept: bool) -> None:
    assert multiword_terms([term, "heart failure"]) == [term] * is_kept + ["heart failure"]


# Noun phrases


def test_noun_phrases_of_the_corpus_or_else_of_the_chunker() -> None:
    text = "chronic kidney disease needs low dose therapy"
    chunker = ["chronic kidney", "low dose therapy"]
    assert units(text, phrases=chunker) == [
        "chronic kidney/noun phrase",
        "disease/word",
        "needs/word",
        "low dose therapy/noun phrase",
    ]
    expected = ["chronic kidney disease/noun phrase", *(f"{w}/word" for w in text.split()[3:])]
    assert units(text, own=["chronic kidney disease"], phrases=chunker) == expected
    assert units(text, own=["chronic kidney disease"]) == expected


def test_pronouns_are_marked_but_are_no_noun_phrase() -> None:
    text = "you two folks treat heart failure"
    pronoun, phrase = (0, 13, "NP-PRP"), (20, 33, "NP-NN")
    plain = ["two/word", "folks/word", "treat/word", "heart/word", "failure/word"]
    assert named(label(Marked(text, (pronoun,)))) == plain
    assert named(label(Marked(text, (pronoun,)), phrases=[Span(20, 33)])) == plain
    assert named(label(Marked(text, (pronoun, phrase)))) == [
        *plain[:3],
        "heart failure/noun phrase",
    ]


@pytest.mark.parametrize("kind", ["NP", "NP-PRP", "NP-X", "NPs"])
def test_noun_phrases_are_not_gold(kind: str) -> None:
    labelled = label(Marked("heart failure", ((0, 13, kind),)), length="minimal")
    assert labelled.layers == ("word", "word")


@pytest.mark.parametrize(
    ("phrase", "expected"),
    [
        ("the heart failure", ["heart failure"]),
        ("heart failure of the old kidney", ["heart failure", "old kidney"]),
        ("heart, failure and old kidney disease", ["old kidney disease"]),
        ("heart failure (old kidney)", ["heart failure", "old kidney"]),
        ("COX-2 inhibitors", ["COX-2 inhibitors"]),
        ("left/right heart", ["left/right heart"]),
        ("well - known heart", ["known heart"]),
        ("non-\nsmall cell", ["small cell"]),
        ("state-of-the-art kit", ["art kit"]),
        ("heart", []),
        ("the heart.", []),
        ("of the", []),
    ],
)
def test_a_noun_phrase_is_cut_at_function_words_and_punctuation(
    phrase: str, expected: Strings
) -> None:
    found = [unit for unit in units(phrase, phrases=[phrase]) if unit.endswith("/noun phrase")]
    assert found == [f"{unit}/noun phrase" for unit in expected]


def test_a_noun_phrase_takes_in_terms_and_compounds_but_not_gold() -> None:
    text = "severe IL-6 heart failure at 5 mg daily dose"
    phrases = ["severe IL-6 heart failure", "5 mg daily dose"]
    terms = ["heart failure", "daily dose"]
    assert units(text, terms=terms, phrases=phrases) == [
        "severe IL-6 heart failure/noun phrase",
        "5 mg daily dose/noun phrase",
    ]
    assert units(text, ["heart failure"], terms=terms, phrases=phrases) == [
        "severe IL-6/noun phrase",
        "heart failure/gold",
        "5 mg daily dose/noun phrase",
    ]
    assert units(text, ["IL-6 heart"], phrases=phrases)[:3] == [
        "severe/word",
        "IL-6 heart/gold",
        "failure/word",
    ]


def test_minimal_units_have_no_noun_phrases() -> None:
    text = "severe IL-6 heart failure in old age"
    terms, phrase = ["heart failure"], "severe IL-6 heart failure"
    expected = ["severe/word", "IL-6/rule", "heart failure/term", "old/word", "age/word"]
    assert units(text, terms=terms, phrases=[phrase], minimal=True) == expected
    assert units(text, terms=terms, own=[phrase], minimal=True) == expected
    assert units(text, ["old age"], own=[phrase], minimal=True)[-1] == "old age/gold"


def test_the_length_is_one_of_two() -> None:
    with pytest.raises(InputError, match="unknown length 'long'; known: minimal, noun-phrase"):
        label(Marked("heart"), length="long")  # type: ignore[arg-type]


# Chinese


def test_chinese() -> None:
    text = "糖尿病患者的心力衰竭治疗，每日5毫克"
    assert units(text)[:3] == ["糖尿病/word", "患者/word", "的/word"]
    found = units(text, ["糖尿病"], terms=["心力衰竭"], phrases=["患者", "心力衰竭治疗"])
    assert found[:4] == ["糖尿病/gold", "患者/noun phrase", "的/word", "心力衰竭治疗/noun phrase"]
    assert units(text, terms=["心力衰竭"], minimal=True)[3:5] == ["心力衰竭/term", "治疗/word"]
    # A term that divides a word leaves the rest of it.
    assert units("高血压病", terms=["血压"], minimal=True) == ["高/word", "血压/term", "病/word"]
    assert not any("，" in unit for unit in found)


def test_chinese_gold_has_up_to_twelve_characters() -> None:
    text = "非小细胞肺癌晚期患者化疗"
    assert len(text) == 12
    assert units(text, [text]) == [f"{text}/gold"]
    assert units(f"{text}后", [f"{text}后"])[0].endswith("/word")


def test_wide_characters_are_whole() -> None:
    text = "cafe\u0301 au lait 👍🏽"
    assert units(text, ["caf", "lait"]) == ["cafe\u0301/gold", "au/word", "lait/gold"]


# Gold by a naive painter

VOCABULARY = ["heart", "failure", "cell", "p53", "the", "of", ",", "-"]
WORD = re.compile(r"[a-z0-9]+|\S")


@st.composite
def marked_texts(draw: st.DrawFn, *, more: Strings = (), kinds: Strings = ("Disease",)) -> Marked:
    """Words with a space or nothing between them, and spans with edges anywhere."""
    pieces = draw(st.lists(st.sampled_from([*VOCABULARY, *more]), max_size=16))
    gaps = draw(st.lists(st.sampled_from([" ", " ", " ", ""]), min_size=16, max_size=16))
    text = "".join(piece + gap for piece, gap in zip(pieces, gaps, strict=False))
    if not text:
        return Marked("")
    edges = st.integers(0, len(text) - 1)
    spans = draw(st.lists(st.tuples(edges, edges, st.sampled_from(kinds)), max_size=6))
    return Marked(text, tuple((min(a, b), max(a, b) + 1, kind) for a, b, kind in spans))


def naive_gold(marked: Marked) -> tuple[list[tuple[int, int]], int, int, int]:
    found = [match.span() for match in WORD.finditer(marked.text)]
    spelled = [marked.text[a:b] for a, b in found]
    taken: list[set[int]] = []
    empty = too_long = crosses = 0
    longest_first = sorted(marked.spans, key=lambda span: (-(span[1] - span[0]), span[0]))
    for start, end, _ in longest_first:
        touched = [i for i, (a, b) in enumerate(found) if max(a, start) < min(b, end)]
        while touched and (
            spelled[touched[0]] in ("the", "of") or not spelled[touched[0]].isalnum()
        ):
            touched.pop(0)
        while touched and not spelled[touched[-1]].isalnum():
            touched.pop()
        if not touched:
            empty += 1
        elif sum(spelled[i].isalnum() for i in touched) > 6:
            too_long += 1
        elif any(set(touched) & other for other in taken):
            crosses += 1
        else:
            taken.append(set(touched))
    kept = sorted((found[min(own)][0], found[max(own)][1]) for own in taken)
    return kept, empty, too_long, crosses


@settings(max_examples=300, deadline=None)
@given(marked_texts())
def test_gold_equals_the_naive_painter(marked: Marked) -> None:
    dropped: Counter[str] = Counter()
    labelled = label(marked, dropped=dropped)
    pairs = zip(labelled.units, labelled.layers, strict=True)
    kept, empty, too_long, crosses = naive_gold(marked)
    assert [unit for unit, layer in pairs if layer == "gold"] == kept
    assert (
        dropped[EMPTY],
        dropped[TOO_LONG],
        dropped[CROSSES],
    ) == (empty, too_long, crosses)


# Properties of any text

MORE = ["(", "]", "5", "mg", "%", "IL-6", "p", "糖尿病", "患者", "é", "👍🏽", "\n", "no", "."]
TERMS = Terms(["heart failure", "failure of the cell", "cell p53", "糖尿病", "病患", "5 mg"])
KINDS = ["Disease", "segment", "NP", "NP-PRP"]


@st.composite
def phrases_of(draw: st.DrawFn, text: str) -> list[Span]:
    """Disjoint, in order, edges anywhere, as a chunker's are."""
    cuts = sorted(draw(st.sets(st.integers(0, len(text)), max_size=8)))
    return [Span(*pair) for pair in pairwise(cuts)]


cases = marked_texts(more=MORE, kinds=KINDS).flatmap(
    lambda marked: st.tuples(
        st.just(marked),
        phrases_of(marked.text),
        st.sampled_from(["minimal", "noun-phrase"]),
        st.booleans(),
    )
)


@settings(max_examples=400, deadline=None)
@given(cases)
@example((Marked("the (heart", ((0, 10, "Disease"),)), [], "minimal", True))
def test_units_stand_in_order_on_the_edges_of_words(case: tuple[Marked, list, str, bool]) -> None:
    marked, phrases, length, listed = case
    text = marked.text
    labelled = label(
        marked,
        terms=TERMS if listed else None,
        phrases=phrases,
        length=length,  # type: ignore[arg-type]
    )
    assert labelled.text == text
    assert len(labelled.units) == len(labelled.layers)
    found = words(text, han="characters")
    starts, ends = {word.start for word in found}, {word.end for word in found}
    free = 0
    for start, end in labelled.units:
        assert free <= start < end <= len(text)
        assert start in starts
        assert end in ends
        free = end
    # Content words are all in a unit; what is outside carries none, and begins no unit.
    stop = {"the", "of"}
    for a, b in found:
        is_content = text[a:b] not in stop and any(c.isalnum() for c in text[a:b])
        inside = [unit for unit in labelled.units if unit.start <= a and b <= unit.end]
        assert len(inside) <= 1
        assert inside or not is_content
        assert is_content or all(unit.start != a for unit in inside)
    for (start, end), layer in zip(labelled.units, labelled.layers, strict=True):
        several = sum(start <= word.start < end for word in found) > 1
        assert layer in LAYERS
        assert several or layer in ("gold", "word")
        assert not (several and layer == "word" and text[start:end].isascii())
        assert not (layer == "noun phrase" and length == "minimal")
        assert not (layer == "term" and not listed)


@settings(max_examples=200, deadline=None)
@given(cases)
def test_gold_does_not_depend_on_the_layers_below(case: tuple[Marked, list, str, bool]) -> None:
    marked, phrases, length, _ = case

    def gold(labelled: Labelled) -> list[Span]:
        pairs = zip(labelled.units, labelled.layers, strict=True)
        return [unit for unit, layer in pairs if layer == "gold"]

    dropped: Counter[str] = Counter()
    plain = gold(label(marked, dropped=dropped))
    full = label(marked, terms=TERMS, phrases=phrases, length=length)  # type: ignore[arg-type]
    assert gold(full) == plain
    given_spans = [span for span in marked.spans if not span[2].startswith("NP")]
    lost = sum(dropped[what] for what in (EMPTY, TOO_LONG, CROSSES))
    assert len(plain) + lost == len(given_spans)


@settings(max_examples=200, deadline=None)
@given(cases)
def test_minimal_units_are_gold_then_terms_then_rules(
    case: tuple[Marked, list, str, bool],
) -> None:
    """A term that gold leaves free is a unit, whatever else the text says."""
    marked, phrases, _, _ = case
    labelled = label(marked, terms=TERMS, phrases=phrases, length="minimal")
    assert labelled == label(marked, terms=TERMS, length="minimal")
    layer_of = dict(zip(labelled.units, labelled.layers, strict=True))
    gold = [unit for unit, layer in layer_of.items() if layer == "gold"]
    for start, end, _ in TERMS.find(marked.text):
        if all(b <= start or end <= a for a, b in gold):
            assert layer_of[Span(start, end)] == "term"


def test_patterns_join_units_and_what_no_unit_covers() -> None:
    assert units("lower (P < 0.001) than", patterns=True) == ["lower/word", "P < 0.001/pattern"]
    text = "no shortness of breath"
    assert units(text, ["breath"], patterns=True) == ["no shortness of breath/pattern"]


def test_patterns_divide_units_and_leave_no_function_word_at_an_edge() -> None:
    text = "took warfarin 5 mg daily"
    assert units(text, ["warfarin 5 mg daily"], patterns=True) == [
        "took/word",
        "warfarin/gold",
        "5 mg/gold",
        "daily/gold",
    ]
    assert units("a rise of 95%", ["rise of 95%"], patterns=True) == ["rise/gold", "95%/gold"]


def test_patterns_leave_other_units_as_they_are() -> None:
    text = "severe heart failure in the elderly"
    own = {"phrases": ["severe heart failure"]}
    assert units(text, **own, patterns=True) == units(text, **own)


@given(st.text(alphabet="aB1 .,-/(<µg%", max_size=40))
def test_settled_units_are_in_order_and_begin_and_end_with_a_word(text: str) -> None:
    labelled = label(Marked(text, ()))
    found = words(text, han="characters")
    starts, ends = {word.start for word in found}, {word.end for word in found}
    assert all(own.start in starts and own.end in ends for own in labelled.units)
    assert all(a.end <= b.start for a, b in pairwise(labelled.units))
    assert set(labelled.layers) <= set(LAYERS)
