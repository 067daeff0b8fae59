"""What the intervals of a protocol's contrasts show and what not, in sentences.

A difference is reported where its interval is clear of zero, with whether it survives Holm's
correction over the whole table and whether the paper has the opposite.
"""

from __future__ import annotations

from collections.abc import Sequence

from hplus_lab.protocol import Contrast
from hplus_lab.summary import Outcome, Summary
from hplus_lab.tables import MISSING, SIGNIFICANT, p_value, signed, spread

NO_DIFFERENCE = "no difference that the interval shows"


def sentences(summary: Summary) -> list[str]:
    """A sentence for every contrast, one for all its budgets together."""
    stated = {filled: (template, b) for template, b, filled in summary.protocol.filled_in()}
    families: dict[tuple[str, Contrast], list[tuple[int, Outcome]]] = {}
    for outcome in summary.outcomes:
        template, budget = stated[outcome.contrast]
        families.setdefault((outcome.system, template), []).append((budget, outcome))
    several = len(summary.systems) > 1
    groups = len({contrast.family for _, contrast in families}) > 1
    found = []
    for (system, template), members in families.items():
        one = members[0][1]
        alone = template == one.contrast
        text = _sentence(summary, one) if alone else _over_budgets(summary, template, members)
        of = [system] * several + [template.family] * groups
        found.append(": ".join([*of, text]))
    return found


def _sentence(summary: Summary, outcome: Outcome) -> str:
    ours, theirs, found = outcome.contrast.ours, outcome.contrast.theirs, outcome.difference
    if found is None:
        return f"{ours} and {theirs}: {MISSING}, not every task has both."
    side, p = _side(outcome), summary.corrected()[outcome.system, outcome.contrast]
    figures = f"{signed(found.mean)} [{spread(found).replace(' to ', ', ')}], {_p(p)}"
    if not side:
        return f"{ours} and {theirs}: {figures}, {NO_DIFFERENCE}."
    sure = "." if p < SIGNIFICANT else ": by the interval, but not after correction."
    return f"{ours} {side} {theirs}: {figures}{sure}{_opposite(summary, [(0, outcome)])}"


def _over_budgets(
    summary: Summary, template: Contrast, members: Sequence[tuple[int, Outcome]]
) -> str:
    ours, theirs = (side.replace("{B}", "B") for side in (template.ours, template.theirs))
    corrected = summary.corrected()
    groups: dict[str, list[str]] = {}
    for budget, outcome in members:
        if outcome.difference is None:
            verdict = MISSING
        elif not (side := _side(outcome)):
            verdict = NO_DIFFERENCE
        else:
            sure = corrected[outcome.system, outcome.contrast] < SIGNIFICANT
            verdict = side if sure else f"{side}, but not after correction,"
        groups.setdefault(verdict, []).append(str(budget))
    said = "; ".join(f"{verdict} at B = {', '.join(at)}" for verdict, at in groups.items())
    return f"{ours} against {theirs}: {said}.{_opposite(summary, members)}"


def _side(outcome: Outcome) -> str:
    """ "above" or "below" where the interval is clear of zero, else nothing."""
    found = outcome.difference
    if found is None or found.low <= 0 <= found.high:
        return ""
    return "above" if found.low > 0 else "below"


def _opposite(summary: Summary, members: Sequence[tuple[int, Outcome]]) -> str:
    """Where our interval lies on the other side of zero than the paper's figure."""
    clear: dict[str, list[str]] = {}
    open_: dict[str, list[str]] = {}
    for budget, outcome in members:
        there = summary.in_paper(outcome.contrast)
        if there is None or outcome.difference is None or not _side(outcome):
            continue
        source, value = there
        if value.points * outcome.difference.mean < 0:
            where = f"{source.label}, {len(source.tasks)} tasks"
            said = f"{value} at B = {budget}" if budget else str(value)
            (open_ if value.open else clear).setdefault(where, []).append(said)
    text = ""
    for begin, found in (
        ("Against the paper, which has", clear),
        ("The paper sees no difference:", open_),
    ):
        if found:
            parts = [f"{', '.join(said)} ({where})" for where, said in found.items()]
            text += f" {begin} {'; '.join(parts)}."
    return text


def _p(holm: float) -> str:
    text = p_value(holm)
    return f"p_Holm {text}" if text.startswith("<") else f"p_Holm = {text}"
