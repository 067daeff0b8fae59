"""One system against another, line by line: what training, or another checkpoint, is worth."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hplus.evaluate.page import Strong, Table
from hplus.evaluate.resampling import intervals
from hplus.evaluate.statistics import Interval
from hplus.evaluate.tables import Summary, signed, spread
from hplus.types import F64

MANY = 30


@dataclass(frozen=True)
class Lead:
    """The first system's line minus the same line of another, paired query by query."""

    system: str
    other: str
    line: str
    tasks: dict[str, float]
    all: Interval


def leads(summary: Summary) -> list[Lead]:
    """Of the first system over every other, for all lines that both have on every task."""
    first, *others = summary.systems
    found = []
    for other in others:
        ours, theirs = (_values(summary, system) for system in (first, other))
        apart = {
            line: {task: ours[line][task] - theirs[line][task] for task in summary.tasks}
            for line in ours
            if line in theirs
            and all(task in ours[line] and task in theirs[line] for task in summary.tasks)
        }
        for line, whole in intervals(apart).items():
            means = {task: float(values.mean()) for task, values in apart[line].items()}
            found.append(Lead(first, other, line, means, whole))
    return found


def against_table(summary: Summary, found: list[Lead]) -> Table:
    """Points of 100; bold where the interval is clear of zero. Lines on which no query differs are
    left out, and of very many only those are shown that the protocol's contrasts speak for;
    summary.json has all."""
    ours = {contrast.ours for contrast in summary.protocol.families()}
    found = [lead for lead in found if lead.all != Interval(0, 0, 0)]
    few = len({lead.line for lead in found}) <= MANY
    rows = []
    for lead in [lead for lead in found if few or lead.line in ours]:
        figures = [signed(lead.all.mean), spread(lead.all)]
        if not lead.all.low <= 0 <= lead.all.high:
            figures = [*map(Strong, figures)]
        each = [signed(lead.tasks[task]) for task in summary.tasks]
        rows.append([lead.system, lead.other, lead.line, *each, *figures])
    columns = ["ours", "theirs", "line", *summary.tasks, "all", "95 % interval"]
    return Table(columns, rows, 3)


def _values(summary: Summary, system: str) -> Mapping[str, dict[str, F64]]:
    """Line -> task -> a value a query."""
    found: dict[str, dict[str, F64]] = {}
    for cell in summary.cells:
        if cell.system == system:
            for line in cell.lines.values():
                found.setdefault(line.name, {})[cell.task] = line.values
    return found
