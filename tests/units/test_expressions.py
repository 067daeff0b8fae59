"""How the list of fixed expressions is made, and what it must and must not contain."""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path

import pytest

from hplus.units.patterns import EXPRESSIONS
from hplus.units.terms import Terms
from hplus.units.words import STOP_WORDS, is_content

SCRIPTS = Path(__file__).parents[2] / "experiments"
sys.path.insert(0, str(SCRIPTS))

import make_expressions as made  # noqa: E402

LIST = EXPRESSIONS.read_text("utf-8").splitlines()


def counts(*texts: str) -> made.Counts:
    return made.Counts(Terms(["no such term"]), texts)


def test_expressions_have_function_words_between_content_words() -> None:
    assert sorted(set(LIST)) == LIST
    for expression in LIST:
        first, *between, last = expression.split()
        assert is_content(first)
        assert is_content(last)
        assert (STOP_WORDS | made.LINKS) & set(between), expression


def test_the_list_stays_small() -> None:
    assert len(gzip.compress("\n".join(LIST).encode())) < 60_000


@pytest.mark.parametrize(
    ("expression", "listed"),
    [
        ("shortness of breath", True),  # MeSH
        ("wear and tear", True),  # an idiom of WordNet
        ("nausea and vomiting", False),  # two findings
        ("time to event", True),  # hyphenated
        ("years of life lost", True),  # abbreviated
        ("site of infection", True),  # like "source of infection"
        ("mechanisms of action", True),  # the other number
        ("left to right", False),  # "from left to right"
        ("risk of diabetes", False),  # a finding that must be found alone
        ("cookbooks as topic", False),  # a heading
    ],
)
def test_what_is_listed(expression: str, listed: bool) -> None:
    assert (expression in LIST) is listed


@pytest.mark.parametrize(
    ("term", "expected"),
    [
        ("loss of consciousness", True),
        ("graft versus host disease", True),
        ("heart failure", False),
        ("in vitro", False),  # a function word at the edge
        ("take a hop", False),  # an article alone
        ("nausea and vomiting", False),
        ("neoplasm of bone and joint", False),
        ("a very long name of some thing", False),
    ],
)
def test_which_terms_can_be_expressions(term: str, expected: bool) -> None:
    assert made.is_expression(term, made.PREPOSITIONS) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("the limit of detection (LoD) was low", ["limit of detection"]),
        ("a graft-versus-host disease (GVHD)", ["graft versus host disease"]),
        ("a loss of hair (ABC)", []),
        ("years (YLL)", []),
        ("low-grade loss of function (LOF)", ["loss of function"]),
    ],
)
def test_what_a_text_abbreviates(text: str, expected: list[str]) -> None:
    assert list(made.long_forms(text)) == expected


def test_an_expression_that_from_opens_is_none() -> None:
    found = counts("from left to right", "it moved from left to right", "mild to moderate pain")
    assert found.often_after_from("left to right")
    assert not found.often_after_from("mild to moderate")


def test_a_collocation_holds_together_or_is_like_known_ones() -> None:
    sentence = "The site of infection was large; the colour of infection, the site was a colour. "
    texts = [sentence * 2, "infection of the site and colour " * 30, "other words here " * 300]
    few = counts(*texts, "the site of infection, the site of infection, the site of infection.")
    known = {"source of infection", "chain of infection"}
    assert made.collocations(few, known) == {"site of infection"}
    assert made.collocations(few, {"chain of infection"}) == set()


def test_the_head_in_its_other_number() -> None:
    found = counts("causes of death", "causes of death", "modes of death")
    assert made.other_numbers(found, {"cause of death", "mode of death"}) == {"causes of death"}


def test_lists_and_texts_make_a_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lists = dict.fromkeys((*made.GENERAL, *made.SPECIAL), "nothing here\n")
    lists["mesh"] = "Range of Motion\nnausea and vomiting\n"
    lists["wordnet_multiword"] = "wear and tear\ntake a hop\n"
    lists["mondo"] = "disease of skin\ndisease of bone\n"
    text = "A disease of skin, time-to-event analysis, years of life lost (YLL), ranges of motion."
    for folder, names in (("terms", lists), ("texts", made.TEXTS)):
        (tmp_path / folder).mkdir()
        for name in names:
            with gzip.open(tmp_path / folder / f"{name}.txt.gz", "wt", encoding="utf-8") as out:
                out.write(lists[name] if folder == "terms" else f"{text} {name}\n")
    for name in (*made.SPANS, *made.PAIRS):
        spans = name in made.SPANS
        file = f"spans/{name}/train" if spans else f"pairs/{name}"
        path = tmp_path / f"{file}.jsonl.gz"
        path.parent.mkdir(parents=True, exist_ok=True)
        with gzip.open(path, "wt", encoding="utf-8") as out:
            out.write(json.dumps({"text" if spans else "positive": text}) + "\n")
    target = tmp_path / "list.txt"
    monkeypatch.setattr(sys, "argv", ["make", str(tmp_path), str(target)])
    made.main()
    assert target.read_text("utf-8").splitlines() == [
        "disease of skin",
        "range of motion",
        "ranges of motion",
        "time to event",
        "time to event analysis",
        "wear and tear",
        "years of life lost",
    ]
