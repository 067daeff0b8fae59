"""What sentences say of made-up intervals, word for word."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hplus.evaluate.statistics import Difference
from hplus_lab import protocols
from hplus_lab.protocol import Contrast, Protocol
from hplus_lab.summary import Outcome, Summary, summarise
from hplus_lab.verdicts import sentences
from made_up_cells import cell


def summary_of(own: Protocol, *tested: Outcome) -> Summary:
    lines = {name: [0.1, 0.2] for name in {s for c in own.planned() for s in (c.ours, c.theirs)}}
    return replace(summarise(own, [cell(own, "scifact", lines)]), outcomes=tested)


def outcome(contrast: Contrast, mean: float, low: float, high: float, holm: float) -> Outcome:
    return Outcome("mini", contrast, Difference(mean, low, high, holm), holm, {})


PHRASE = Contrast("phrase", "global")


@pytest.mark.parametrize(
    ("figures", "sentence"),
    [
        ((0.032, 0.021, 0.043, 0.0004), "phrase above global: +3.20 [2.10, 4.30], p_Holm < .001."),
        (
            (0.002, -0.003, 0.007, 0.4),
            "phrase and global: +0.20 [-0.30, 0.70], p_Holm = .400, "
            "no difference that the interval shows.",
        ),
        (
            (0.032, 0.001, 0.06, 0.08),
            "phrase above global: +3.20 [0.10, 6.00], p_Holm = .080: "
            "by the interval, but not after correction.",
        ),
        (
            (-0.03, -0.04, -0.02, 0.001),
            "phrase below global: -3.00 [-4.00, -2.00], p_Holm = .001. "
            "Against the paper, which has +6.91 (tab:main_results, 16 tasks).",
        ),
    ],
)
def test_what_the_intervals_show(figures: tuple[float, ...], sentence: str) -> None:
    own = protocols.load("broad-deployed")
    assert sentences(summary_of(own, outcome(PHRASE, *figures))) == [sentence]


def test_the_paper_may_have_no_difference() -> None:
    own = protocols.load("dimensional")
    contrast = Contrast("phrase full, own gate", "phrase 128, own gate")
    (found,) = sentences(summary_of(own, outcome(contrast, 0.03, 0.02, 0.04, 0.001)))
    assert found.endswith(
        " The paper sees no difference: -0.02 [-0.29, 0.26] (tab:dimension_full19, 19 tasks)."
    )


def test_one_sentence_for_all_budgets() -> None:
    own = replace(
        protocols.load("exact-count"),
        budgets=(4, 8, 16, 32),
        contrasts=(Contrast("model, joint {B}", "random, joint {B}"),),
    )
    four, eight, sixteen, more = own.planned()
    summary = summary_of(
        own,
        outcome(four, 0.03, 0.02, 0.04, 0.001),
        outcome(eight, 0.03, 0.001, 0.04, 0.09),
        outcome(sixteen, -0.03, -0.04, -0.02, 0.001),
        Outcome("mini", more, None, None, {}),
    )
    assert sentences(summary) == [
        "model, joint B against random, joint B: above at B = 4; above, but not after correction, "
        "at B = 8; below at B = 16; missing at B = 32. "
        "Against the paper, which has -1.52 [-2.42, -0.60] at B = 4, -0.93 [-1.79, -0.09] at B = 8 "
        "(tab:budget_transfer:b, 19 tasks). "
        "The paper sees no difference: +0.23 [-0.53, 0.99] at B = 16 "
        "(tab:budget_transfer:b, 19 tasks)."
    ]


def test_families_and_systems_are_named_where_there_are_several() -> None:
    second = replace(PHRASE, family="second")
    own = replace(protocols.load("broad-deployed"), contrasts=(PHRASE, second))
    summary = summary_of(own, *(outcome(c, 0.1, 0.05, 0.2, 0.001) for c in (PHRASE, second)))
    assert [s.split(" ")[0] for s in sentences(summary)] == ["main:", "second:"]
