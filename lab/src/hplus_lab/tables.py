"""A protocol's summary as tables: lines, contrasts, leads, candidates, and the paper's figures."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hplus.evaluate.statistics import Interval
from hplus_lab import macros
from hplus_lab.markdown import Strong, TextTable
from hplus_lab.paper import same_task
from hplus_lab.summary import LineFigures, Summary

MISSING = "missing"
NONE = "–"
SIGNIFICANT = 0.05
# Lines of two systems that are all set beside one another.
MANY = 30
_COSTS = ("vectors", "KB", "query units", "M mult.")
# Facts that are shares; the others are shown as they are.
_SHARES = ("recall", "oracle")


def results_table(summary: Summary) -> TextTable:
    """Every line: tasks, macros and the interval of "all" in points of 100, and its cost."""
    several = len(summary.systems) > 1
    names = ["system"] * several + ["line"]
    columns = [*names, *summary.tasks, *summary.named, "95 % of all", *_COSTS]
    rows = []
    for row in summary.rows:
        macro = [None if found is None else found.mean for found in row.macros.values()]
        whole = row.macros["all"]
        entries = [row.system] * several + [row.line]
        entries += [_points(value) for value in (*row.tasks.values(), *macro)]
        entries.append(MISSING if whole is None else spread(whole))
        rows.append([*entries, *_spent(row)])
    return TextTable(columns, rows, len(names))


def contrasts_table(summary: Summary) -> TextTable:
    """Every contrast that was run; bold where p is below .05 after Holm over the whole table."""
    corrected = summary.corrected()
    several = len(summary.systems) > 1
    families = len({outcome.contrast.family for outcome in summary.outcomes}) > 1
    names = ["system"] * several + ["family"] * families + ["ours", "theirs"]
    rows = []
    for outcome in summary.outcomes:
        entries = [outcome.system] * several + [outcome.contrast.family] * families
        entries += [outcome.contrast.ours, outcome.contrast.theirs]
        found = outcome.difference
        if found is None or outcome.holm is None:
            figures = [MISSING] * 5
        else:
            table = corrected[outcome.system, outcome.contrast]
            figures = [signed(found.mean), spread(found)]
            figures += [p_value(p) for p in (found.p, outcome.holm, table)]
            if table < SIGNIFICANT:
                figures = [*map(Strong, figures)]
        rows.append([*entries, *figures])
    columns = [*names, "points", "95 % interval", "p", "p (Holm, family)", "p (Holm, table)"]
    return TextTable(columns, rows, len(names))


def leads_table(summary: Summary) -> TextTable | None:
    """Points of 100; bold where p is below .05 after Holm over all leads. Lines on which no query
    differs are left out, and of very many only those are shown that the protocol's contrasts speak
    for; summary.json has all."""
    corrected = summary.corrected_leads()
    ours = {contrast.ours for contrast in summary.protocol.planned()}
    found = [lead for lead in summary.leads if lead.all != Interval(0, 0, 0)]
    few = len({lead.line for lead in found}) <= MANY
    rows = []
    for lead in [lead for lead in found if few or lead.line in ours]:
        p = corrected.get((lead.other, lead.line))
        figures = [signed(lead.all.mean), spread(lead.all), MISSING if p is None else p_value(p)]
        if p is not None and p < SIGNIFICANT:
            figures = [*map(Strong, figures)]
        each = [signed(lead.tasks[task]) for task in summary.tasks]
        rows.append([lead.system, lead.other, lead.line, *each, *figures])
    columns = ["ours", "theirs", "line", *summary.tasks, "all", "95 % interval", "p (Holm)"]
    return TextTable(columns, rows, 3) if summary.leads else None


def facts_table(summary: Summary) -> TextTable | None:
    """What was measured beside the lines, means over tasks; lines that agree share a row."""
    several = len(summary.systems) > 1
    rows = [row for row in summary.rows if row.facts]
    columns = dict.fromkeys(name for row in rows for own in row.facts.values() for name in own)
    columns.pop("degenerate", None)
    if not columns:
        return None
    shared: dict[tuple[str, ...], list[str]] = {}
    for row in rows:
        key = (row.system, *(_fact(row, name, summary.tasks) for name in columns))
        shared.setdefault(key, []).append(row.line)
    names = ["system"] * several + ["lines"]
    entries = [[*[key[0]] * several, "; ".join(lines), *key[1:]] for key, lines in shared.items()]
    return TextTable([*names, *columns], entries, len(names))


def degenerate(summary: Summary) -> list[str]:
    """A sentence for every group of lines whose candidates are most of a corpus."""
    found: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for row in summary.rows:
        whole = tuple(t for t, facts in row.facts.items() if facts.get("degenerate"))
        if whole:
            found.setdefault((row.system, whole), []).append(row.line)
    return [
        f"Degenerate pools ({system}; {', '.join(lines)}): they hold more than half of the corpus "
        f"of {', '.join(whole)}; there the gate decides little, and these are nearly the figures "
        "of a search of all documents."
        for (system, whole), lines in found.items()
    ]


def paper_table(summary: Summary) -> TextTable | None:
    """The paper's figures beside ours: tasks and means over the same tasks, test splits only;
    and its differences, each over its own tasks."""
    rows: list[list[str]] = []
    # The paper's figures are of test splits.
    ours = [source["task"] for source in summary.sources if source["split"] == "test"]
    for source in summary.printed():
        pairs = {t: o for t in source.tasks for o in ours if same_task(o, t)}
        for row in summary.rows:
            for task, value in source.by_task.get(row.line, {}).items():
                mean = row.tasks[pairs[task]] if task in pairs else None
                if mean is not None:
                    entry = [row.system, row.line, pairs[task], _points(mean), f"{value:.2f}"]
                    rows.append([*entry, source.label])
            means = {task: row.tasks[own] for task, own in pairs.items()}
            known = {task: mean for task, mean in means.items() if mean is not None}
            if row.line in source.macros and len(known) == len(source.tasks):
                over = f"mean of its {len(known)} tasks"
                mean = macros.macro(known, source.tasks)
                entry = [row.system, row.line, over, _points(mean)]
                rows.append([*entry, f"{source.macros[row.line]:.2f}", source.label])
    for outcome in summary.outcomes:
        there = summary.in_paper(outcome.contrast)
        if there is not None and outcome.difference is not None:
            source, delta = there
            line = f"{outcome.contrast.ours} - {outcome.contrast.theirs}"
            over = f"{len(summary.tasks)} tasks, there {len(source.tasks)}"
            entry = [outcome.system, line, over, signed(outcome.difference.mean)]
            rows.append([*entry, str(delta), source.label])
    columns = ["system", "line", "over", "ours", "the paper", "its table"]
    return TextTable(columns, rows, 3) if rows else None


def signed(share: float) -> str:
    """A difference in points of 100.

    >>> signed(0.032), signed(-0.00001)
    ('+3.20', '+0.00')
    """
    return f"{round(100 * share, 2) + 0.0:+.2f}"


def spread(found: Interval) -> str:
    """The ends of an interval in points of 100."""
    low, high = (round(100 * end, 2) + 0.0 for end in (found.low, found.high))
    return f"{low:.2f} to {high:.2f}"


def p_value(p: float) -> str:
    """
    >>> p_value(0.0002), p_value(0.0444), p_value(1.0)
    ('< .001', '.044', '1.000')
    """
    return "< .001" if p < 0.001 else f"{p:.3f}".removeprefix("0")


def _points(share: float | None) -> str:
    return MISSING if share is None else f"{100 * share:.2f}"


def _spent(row: LineFigures) -> list[str]:
    if row.cost is None:
        return [MISSING] * len(_COSTS)
    cost = row.cost
    return [
        f"{cost.vectors:.1f}",
        f"{cost.bytes / 1000:.2f}",
        f"{cost.query_units:.1f}",
        f"{cost.multiplications / 1e6:.2f}",
    ]


def _fact(row: LineFigures, name: str, tasks: Sequence[str]) -> str:
    if not any(name in facts for facts in row.facts.values()):
        return NONE
    if not all(name in row.facts.get(task, {}) for task in tasks):
        return MISSING
    mean = float(np.mean([row.facts[task][name] for task in tasks]))
    return f"{100 * mean:.2f}" if name in _SHARES else f"{mean:,.2f}".removesuffix(".00")
