"""What the intervals of a protocol's contrasts carry and what not, in sentences.

A difference is said to be there where its interval is clear of zero; whether it outlives Holm's
correction is said too, and where the paper has the opposite.
"""

from __future__ import annotations

from collections.abc import Sequence

from hplus.evaluate.protocol import Contrast
from hplus.evaluate.tables import (
    MISSING,
    SIGNIFICANT,
    Outcome,
    Summary,
    in_paper,
    p_value,
    signed,
    spread,
)


def sentences(summary: Summary) -> list[str]:
    """A sentence for every contrast, one for all its budgets together."""
    protocol = summary.protocol
    templates = [
        (c, budget)
        for c in protocol.contrasts
        for budget in ((c.budgets or protocol.budgets) if "{B}" in c.ours + c.theirs else (0,))
    ]
    origin = dict(zip(protocol.families(), templates, strict=True))
    families: dict[tuple[str, Contrast], list[tuple[int, Outcome]]] = {}
    for tested in summary.contrasts:
        template, budget = origin[tested.contrast]
        families.setdefault((tested.system, template), []).append((budget, tested))
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


def _sentence(summary: Summary, tested: Outcome) -> str:
    ours, theirs, found = tested.contrast.ours, tested.contrast.theirs, tested.difference
    if found is None or tested.holm is None:
        return f"{ours} and {theirs}: {MISSING}, not every task has both."
    side = _side(tested)
    figures = f"{signed(found.mean)} [{spread(found).replace(' to ', ', ')}], {_p(tested.holm)}"
    if not side:
        return f"{ours} and {theirs}: {figures}, no difference that the interval carries."
    sure = "." if tested.holm < SIGNIFICANT else ": by the interval, but not after correction."
    return f"{ours} {side} {theirs}: {figures}{sure}{_against(summary, [(0, tested)])}"


def _over_budgets(
    summary: Summary, template: Contrast, members: Sequence[tuple[int, Outcome]]
) -> str:
    ours, theirs = (side.replace("{B}", "B") for side in (template.ours, template.theirs))
    groups: dict[str, list[str]] = {}
    for budget, tested in members:
        if tested.difference is None or tested.holm is None:
            verdict = MISSING
        elif not (side := _side(tested)):
            verdict = "no difference that the interval carries"
        else:
            verdict = side if tested.holm < SIGNIFICANT else f"{side}, but not after correction,"
        groups.setdefault(verdict, []).append(str(budget))
    said = "; ".join(f"{verdict} at B = {', '.join(at)}" for verdict, at in groups.items())
    return f"{ours} against {theirs}: {said}.{_against(summary, members)}"


def _side(tested: Outcome) -> str:
    """ "above" or "below" where the interval is clear of zero, else nothing."""
    found = tested.difference
    if found is None or found.low <= 0 <= found.high:
        return ""
    return "above" if found.low > 0 else "below"


def _against(summary: Summary, members: Sequence[tuple[int, Outcome]]) -> str:
    """Where our interval lies on the other side of zero than the paper's figure."""
    clear: dict[str, list[str]] = {}
    open_: dict[str, list[str]] = {}
    for budget, tested in members:
        there = in_paper(summary, tested.contrast)
        if there is None or tested.difference is None or not _side(tested):
            continue
        source, value = there
        if value.points * tested.difference.mean < 0:
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
