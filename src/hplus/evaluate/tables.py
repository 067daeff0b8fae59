"""A protocol's cells as tables: lines, contrasts, pools, and the paper's figures beside ours.

`summarise` computes all figures once; tables, plots and the machine-readable summary only show
them. A task that did not run is missing, and so is every mean it belongs to; nothing is averaged
over what happens to be there.

Cost: one bootstrap a contrast, about 0.4 s for 4,500 queries; lines share theirs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from hplus.errors import InputError
from hplus.evaluate import macros, results
from hplus.evaluate.cost import Cost
from hplus.evaluate.page import Strong, Table
from hplus.evaluate.paper_lines import Delta, Printed, printed, same_task
from hplus.evaluate.protocol import Contrast, Protocol
from hplus.evaluate.resampling import intervals
from hplus.evaluate.results import Cell
from hplus.evaluate.statistics import Difference, Interval, paired_difference

MISSING = "missing"
NONE = "–"
IN_PAPER = "In the paper (another model: Qwen3-0.6B)"
SIGNIFICANT = 0.05
_COSTS = ("vectors", "KB", "query units", "M mult.")
# Facts that are shares; the others are shown as they are.
_SHARES = ("recall", "oracle")


@dataclass(frozen=True)
class Row:
    """One line of one system, means from 0 to 1; None: not measured on all the tasks it needs."""

    system: str
    line: str
    tasks: dict[str, float | None]
    macros: dict[str, Interval | None]
    cost: Cost | None
    facts: dict[str, dict[str, float]]
    """Task -> what was measured beside."""


@dataclass(frozen=True)
class Outcome:
    """One contrast of one system, over all tasks; by_task: of contrasts that no budget repeats."""

    system: str
    contrast: Contrast
    difference: Difference | None
    holm: float | None
    by_task: dict[str, Difference]


@dataclass(frozen=True)
class Summary:
    """All figures of a protocol. named: macro -> its tasks, "all" has every one. cjk: whether one
    of them is in Chinese, Japanese or Korean."""

    protocol: Protocol
    cells: tuple[Cell, ...]
    named: dict[str, list[str]]
    rows: tuple[Row, ...]
    contrasts: tuple[Outcome, ...]
    cjk: bool

    @property
    def tasks(self) -> list[str]:
        return self.named["all"]

    @property
    def systems(self) -> list[str]:
        return list(dict.fromkeys(cell.system for cell in self.cells))

    def printed(self) -> list[Printed]:
        """What the paper has for this protocol."""
        return printed(self.protocol.paper, cjk=self.cjk)


def summarise(
    protocol: Protocol,
    cells: Sequence[Cell],
    seen: Sequence[str] = (),
    *,
    tasks: Sequence[str] = (),
    languages: Mapping[str, str] | None = None,
) -> Summary:
    """All figures of one protocol's cells, of one or several systems.

    tasks: those that should be there; those of any cell always count. seen and languages: see
    `macros.groups`.
    """
    if not cells:
        raise InputError(f"protocol {protocol.name}: no cells were given")
    results.check_comparable(cells)
    if cells[0].protocol_hash != protocol.hash:
        raise InputError(
            f"cells of {cells[0].protocol} ({cells[0].protocol_hash[:12]}) under the protocol "
            f"{protocol.name} ({protocol.hash[:12]}); their numbers are not its own"
        )
    if protocol.kind == "shared-pool":
        results.check_shared(cells)
    cells = [_as_written(cell) for cell in cells]
    everything = list(dict.fromkeys([*tasks, *(cell.task for cell in cells)]))
    groups = macros.groups(everything, seen, languages=languages)
    named = {name: groups[name] for name in ("all", *protocol.macros) if name in groups}
    rows: list[Row] = []
    contrasts: list[Outcome] = []
    for system in dict.fromkeys(cell.system for cell in cells):
        own = [cell for cell in cells if cell.system == system]
        by_task = {cell.task: cell for cell in own}
        if len(by_task) < len(own):
            raise InputError(f"{protocol.name}: {system} has two cells of one task; give one")
        rows += _rows(system, by_task, named)
        contrasts += _outcomes(system, protocol, by_task, everything)
    cjk = groups.get("non-cjk") != everything
    return Summary(protocol, tuple(cells), named, tuple(rows), tuple(contrasts), cjk)


def results_table(summary: Summary) -> Table:
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
    return Table(columns, rows, len(names))


def contrasts_table(summary: Summary) -> Table:
    """Every contrast that was run; bold where p after Holm is below .05."""
    several = len(summary.systems) > 1
    families = len({tested.contrast.family for tested in summary.contrasts}) > 1
    names = ["system"] * several + ["family"] * families + ["ours", "theirs"]
    rows = []
    for tested in summary.contrasts:
        entries = [tested.system] * several + [tested.contrast.family] * families
        entries += [tested.contrast.ours, tested.contrast.theirs]
        found = tested.difference
        if found is None or tested.holm is None:
            figures = [MISSING] * 4
        else:
            figures = [signed(found.mean), spread(found), p_value(found.p), p_value(tested.holm)]
            if tested.holm < SIGNIFICANT:
                figures = [*map(Strong, figures)]
        rows.append([*entries, *figures])
    columns = [*names, "points", "95 % interval", "p", "p (Holm)"]
    return Table(columns, rows, len(names))


def facts_table(summary: Summary) -> Table | None:
    """What was measured beside the lines, means over tasks; lines that agree share a row."""
    several = len(summary.systems) > 1
    columns: dict[str, None] = {}
    shared: dict[tuple[str, ...], list[str]] = {}
    rows = [row for row in summary.rows if row.facts]
    for row in rows:
        columns |= dict.fromkeys(name for facts in row.facts.values() for name in facts)
    columns.pop("degenerate", None)
    for row in rows:
        key = (row.system, *(_fact(row, name, summary.tasks) for name in columns))
        shared.setdefault(key, []).append(row.line)
    if not columns:
        return None
    names = ["system"] * several + ["lines"]
    entries = [[*[key[0]] * several, "; ".join(lines), *key[1:]] for key, lines in shared.items()]
    return Table([*names, *columns], entries, len(names))


def degenerate(summary: Summary) -> list[str]:
    """A sentence for every group of lines whose pool holds most of a corpus."""
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


def paper_table(summary: Summary) -> Table | None:
    """The paper's figures beside ours: tasks and means over the same tasks, test splits only;
    and its differences, each over its own tasks."""
    rows: list[list[str]] = []
    ours = _of_test_split(summary)
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
    for tested in summary.contrasts:
        there = in_paper(summary, tested.contrast)
        if there is not None and tested.difference is not None:
            source, delta = there
            line = f"{tested.contrast.ours} - {tested.contrast.theirs}"
            over = f"{len(summary.tasks)} tasks, there {len(source.tasks)}"
            entry = [tested.system, line, over, signed(tested.difference.mean)]
            rows.append([*entry, str(delta), source.label])
    columns = ["system", "line", "over", "ours", "the paper", "its table"]
    return Table(columns, rows, 3) if rows else None


def in_paper(summary: Summary, contrast: Contrast) -> tuple[Printed, Delta] | None:
    """The paper's difference for a contrast: from the table of its family, or else the nearest."""
    for source in sorted(summary.printed(), key=lambda source: source.family != contrast.family):
        value = source.difference(contrast)
        if value is not None:
            return source, value
    return None


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


def _as_written(cell: Cell) -> Cell:
    """With values as a file keeps them, so that a cell just measured counts like one read."""
    lines = {
        name: replace(line, values=np.array([round(float(v), 6) for v in line.values], np.float64))
        for name, line in cell.lines.items()
    }
    return replace(cell, lines=lines)


def _rows(
    system: str, by_task: Mapping[str, Cell], named: Mapping[str, Sequence[str]]
) -> list[Row]:
    """Every line of a system; groups of the same tasks are drawn once."""
    lines = list(dict.fromkeys(name for cell in by_task.values() for name in cell.lines))
    there = {
        line: {task: cell.lines[line] for task, cell in by_task.items() if line in cell.lines}
        for line in lines
    }
    found = {
        group: intervals(
            {
                line: {task: own[task].values for task in group}
                for line, own in there.items()
                if all(task in own for task in group)
            }
        )
        for group in {tuple(tasks) for tasks in named.values()}
    }
    tasks = named["all"]
    rows = []
    for line, own in there.items():
        means = {t: float(own[t].values.mean()) if t in own else None for t in tasks}
        whole = len(own) == len(tasks)
        cost = results.mean_cost([by_task[task] for task in tasks], line) if whole else None
        spreads = {name: found[tuple(group)].get(line) for name, group in named.items()}
        facts = {t: own[t].facts for t in tasks if t in own and own[t].facts}
        rows.append(Row(system, line, means, spreads, cost, facts))
    return rows


def _outcomes(
    system: str, protocol: Protocol, by_task: Mapping[str, Cell], tasks: Sequence[str]
) -> list[Outcome]:
    """The family of one system; what cannot be taken over all tasks is missing, not smaller."""
    cells = [by_task[task] for task in tasks if task in by_task]
    family = protocol.families()
    anywhere = [c for c in family if any(_has(cell, c) for cell in cells)]
    whole = [
        c for c in anywhere if len(cells) == len(tasks) and all(_has(cell, c) for cell in cells)
    ]
    found = {c: (difference, p) for c, difference, p in results.contrasts(cells, whole)}
    outcomes = []
    for contrast in anywhere:
        difference, p = found.get(contrast, (None, None))
        each = _differences(contrast, cells) if contrast in protocol.contrasts else {}
        outcomes.append(Outcome(system, contrast, difference, p, each))
    return outcomes


def _has(cell: Cell, contrast: Contrast) -> bool:
    return contrast.ours in cell.lines and contrast.theirs in cell.lines


def _differences(contrast: Contrast, cells: Sequence[Cell]) -> dict[str, Difference]:
    return {
        cell.task: paired_difference(
            {cell.task: cell.lines[contrast.ours].values},
            {cell.task: cell.lines[contrast.theirs].values},
        )
        for cell in cells
        if _has(cell, contrast)
    }


def _of_test_split(summary: Summary) -> list[str]:
    """Our tasks that were measured on their test split, as the paper's were."""
    return list(dict.fromkeys(cell.task for cell in summary.cells if cell.split == "test"))


def _points(share: float | None) -> str:
    return MISSING if share is None else f"{100 * share:.2f}"


def _spent(row: Row) -> list[str]:
    if row.cost is None:
        return [MISSING if row.macros["all"] is None else NONE] * len(_COSTS)
    cost = row.cost
    return [
        f"{cost.vectors:.1f}",
        f"{cost.bytes / 1000:.2f}",
        f"{cost.query_units:.1f}",
        f"{cost.multiplications / 1e6:.2f}",
    ]


def _fact(row: Row, name: str, tasks: Sequence[str]) -> str:
    if not any(name in facts for facts in row.facts.values()):
        return NONE
    if not all(name in row.facts.get(task, {}) for task in tasks):
        return MISSING
    mean = float(np.mean([row.facts[task][name] for task in tasks]))
    return f"{100 * mean:.2f}" if name in _SHARES else f"{mean:,.2f}".removesuffix(".00")
