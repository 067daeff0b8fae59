"""What spelling reveals: quantities, compounds, abbreviations."""

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hplus.teach.spelling import quantities, spelled_compounds
from hplus.units.rules import RUN, compounds
from hplus.units.words import STOP_WORDS


def measured(text: str) -> list[str]:
    return [text[start:end] for start, end in quantities(text)]


def spelled(text: str) -> list[str]:
    return [text[start:end] for start, end in spelled_compounds(text)]


QUANTITIES = [
    "5 mg/kg",
    "10-20 mmHg",
    "37 °C",
    "37°C",
    "0.5 mg",
    "95%",
    "95 %",
    "12 weeks",
    "5mg",
    "1,000 U/mL",
    "3.5 mg/kg/day",
    "2.5 µg",
    "1–2 h",
    "5 to 10 days",
    "5 ± 2 years",
    "24-hour",
    "9.8 m/s²",
    "100 mg·kg−1",
    "50 percent",
    "<5 mg",
    "≥ 18 years",
    "-80 °C",
    "<−0.5 mg",
]


@pytest.mark.parametrize("quantity", QUANTITIES)
@pytest.mark.parametrize("around", ["{}", "Give {} daily", "({})", "{}.", "{}, then {}", "\n{}\n"])
def test_a_quantity_is_found_whole(quantity: str, around: str) -> None:
    text = around.format(quantity, quantity)
    assert measured(text) == [quantity] * around.count("{}")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "IL-6",
        "p53",
        "COX-2 inhibitors",
        "B12 deficiency",
        "v1.5 mg",
        "x5 mg",
        "5 minds",
        "10 cells",
        "12 weekly",
        "5 mgs",
        "0.05",
        "p = 0.05",
        "type 2 diabetes",
        "5 and mg",
        "mg/kg",
        "weeks",
        "5. mg",
        "5   mg",
    ],
)
def test_no_quantity(text: str) -> None:
    assert measured(text) == []


@pytest.mark.parametrize("text", ["PD-1 T cells", "IL-6 h after", "HIV-1 M group"])
def test_the_number_of_an_identifier_is_not_a_quantity(text: str) -> None:
    assert measured(text) == []


FILLERS = ["cells", "in", "the", "p53", "IL-6", "(", ")", ",", "and", "心", "type", "dose:"]
pieces = st.lists(
    st.sampled_from(FILLERS).map(lambda filler: (filler, False))
    | st.sampled_from(QUANTITIES).map(lambda quantity: (quantity, True)),
    max_size=8,
)


@given(pieces)
def test_quantities_among_words(some: list[tuple[str, bool]]) -> None:
    text = " ".join(piece for piece, _ in some)
    assert measured(text) == [piece for piece, is_quantity in some if is_quantity]


@given(st.text(st.sampled_from("5.,0 -–/%°Cmghkd<≥x\n²心")))
@example("-0d")  # a sign directly before it belongs to the number
def test_quantities_stand_in_order_and_have_a_number_first(text: str) -> None:
    free = 0
    for start, end in quantities(text):
        assert free <= start < end <= len(text)
        assert re.match(r"[<≥]?\s?-?\d", text[start:end])
        assert not text[start:end].endswith(" ")
        assert start == 0 or not text[start - 1].isalnum()
        assert end == len(text) or not text[end].isalnum()
        free = end


# Compounds


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("COX-2", ["COX-2"]),
        ("IL-6", ["IL-6"]),
        ("HbA1c and BRCA1", ["HbA1c", "BRCA1"]),
        ("DNA, mRNA (MRI)", ["DNA", "mRNA", "MRI"]),
        ("A double-blind trial of anti-TNF in RA", ["double-blind", "anti-TNF", "RA"]),
        ("non-small-cell lung cancer", ["non-small-cell"]),
        ("α-synuclein, β‑blocker", ["α-synuclein", "β‑blocker"]),
        ("mg/kg and DNA/RNA", ["mg/kg", "DNA/RNA"]),
        ("HER2-positive", ["HER2-positive"]),
        # no more than four words, the rest is another one
        ("one-two-three-four-five-six", ["one-two-three-four", "five-six"]),
        # a function word or a space holds nothing together
        ("state-of-the-art", []),
        ("and/or up-to-date in-vivo", []),
        ("heart - failure, heart -failure, heart- failure", []),
        ("-heart failure-", []),
        # neither abbreviations nor compounds
        ("Heart p53 failure", []),
        ("The A", []),
        ("糖尿病", []),
        ("", []),
    ],
)
def test_compounds_and_abbreviations(text: str, expected: list[str]) -> None:
    assert spelled(text) == expected


SOUP = st.lists(st.sampled_from(["heart", "cell", "2", "the", "of", "-", "/", " ", ";"])).map(
    "".join
)
CONTENT = rf"(?!(?:{'|'.join(STOP_WORDS)})\b)[a-z0-9]+"
HELD = re.compile(rf"\b{CONTENT}(?:[-/]{CONTENT}){{0,{RUN - 1}}}\b")


@given(SOUP)
def test_compounds_as_a_regular_expression_finds_them(text: str) -> None:
    expected = [match.span() for match in HELD.finditer(text)]
    assert [span for span, content in compounds(text) if content] == expected
    assert spelled_compounds(text) == [(a, b) for a, b in expected if re.search("[-/]", text[a:b])]


@given(SOUP)
def test_every_sign_is_in_one_compound_and_content_is_counted(text: str) -> None:
    free = 0
    for (start, end), content in compounds(text):
        assert not text[free:start].strip()
        assert content == len(re.findall(rf"\b{CONTENT}", text[start:end]))
        free = end
    assert not text[free:].strip()
