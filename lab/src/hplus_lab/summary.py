"""All figures of one protocol's cells: tables, plots and the file for machines only show them.

A task that did not run is missing, and so is every mean it belongs to; nothing is averaged over
what happens to be there.

Cost: one bootstrap a contrast, about 0.4 s for 4,500 queries; lines share theirs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from hplus.errors import InputError
from hplus.evaluate.statistics import (
    Difference,
    Interval,
    differences,
    holm,
    intervals,
    paired_difference,
)
from hplus_lab import macros
from hplus_lab.cell import Cell, check_comparable, check_shared, contrasts, rounded
from hplus_lab.cost import Cost, mean_cost
from hplus_lab.kinds import KINDS
from hplus_lab.line import At
from hplus_lab.paper import Delta, Printed
from hplus_lab.protocol import Contrast, Protocol
from hplus_lab.protocols import parse

SOURCE = (
    *("system", "task", "split", "documents", "fingerprint"),
    *("terms", "data_hash", "pool_hash", "queries"),
)


@dataclass(frozen=True)
class LineFigures:
    """One line of one system, means from 0 to 1; None: not measured on all the tasks it needs.
    facts: task -> what was measured beside."""

    system: str
    line: str
    at: At
    tasks: dict[str, float | None]
    macros: dict[str, Interval | None]
    cost: Cost | None
    facts: dict[str, dict[str, float]]


@dataclass(frozen=True)
class Outcome:
    """One contrast of one system, over all tasks; by_task: of contrasts that no budget repeats."""

    system: str
    contrast: Contrast
    difference: Difference | None
    holm: float | None
    by_task: dict[str, Difference]


@dataclass(frozen=True)
class Lead:
    """The first system's line minus the same line of another, paired query by query. p: None in
    files of before it was kept."""

    system: str
    other: str
    line: str
    tasks: dict[str, float]
    all: Interval
    p: float | None = None


@dataclass(frozen=True)
class Summary:
    """All figures of a protocol. sources: what each cell was measured on, by the names of
    `SOURCE`. named: macro -> its tasks, "all" has every one. cjk: whether one of them is in
    Chinese, Japanese or Korean."""

    protocol: Protocol
    sources: tuple[dict[str, Any], ...]
    named: dict[str, list[str]]
    rows: tuple[LineFigures, ...]
    outcomes: tuple[Outcome, ...]
    leads: tuple[Lead, ...]
    cjk: bool

    @property
    def tasks(self) -> list[str]:
        return self.named["all"]

    @property
    def systems(self) -> list[str]:
        return list(dict.fromkeys(source["system"] for source in self.sources))

    def corrected(self) -> dict[tuple[str, Contrast], float]:
        """p after Holm of every contrast that was taken, by its system: corrected for all contrasts
        of the table, whatever their families."""
        taken = [(o, o.difference.p) for o in self.outcomes if o.difference is not None]
        return {
            (outcome.system, outcome.contrast): p
            for (outcome, _), p in zip(taken, holm([p for _, p in taken]), strict=True)
        }

    def corrected_leads(self) -> dict[tuple[str, str], float]:
        """p after Holm of every lead, by the other system and the line: corrected for all leads of
        the table, shown or not."""
        taken = [(lead, lead.p) for lead in self.leads if lead.p is not None]
        corrected = holm([p for _, p in taken])
        return {(own.other, own.line): p for (own, _), p in zip(taken, corrected, strict=True)}

    def printed(self) -> list[Printed]:
        """What the paper has for this protocol."""
        label = self.protocol.paper
        return KINDS[self.protocol.kind].paper(label, self.cjk) if label else []

    def in_paper(self, contrast: Contrast) -> tuple[Printed, Delta] | None:
        """The paper's difference for a contrast: from the table of its family, or the nearest."""
        for source in sorted(self.printed(), key=lambda own: own.family != contrast.family):
            value = source.difference(contrast)
            if value is not None:
                return source, value
        return None


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
    check_comparable(cells)
    if cells[0].protocol_hash != protocol.hash:
        raise InputError(
            f"cells of {cells[0].protocol} ({cells[0].protocol_hash[:12]}) under the protocol "
            f"{protocol.name} ({protocol.hash[:12]}); their numbers are not its own"
        )
    if protocol.kind == "shared-pool":
        check_shared(cells)
    cells = [_as_written(cell) for cell in cells]
    everything = list(dict.fromkeys([*tasks, *(cell.task for cell in cells)]))
    groups = macros.groups(everything, seen, languages=languages)
    named = {name: groups[name] for name in ("all", *protocol.macros) if name in groups}
    by_system: dict[str, dict[str, Cell]] = {}
    for cell in cells:
        own = by_system.setdefault(cell.system, {})
        if cell.task in own:
            raise InputError(
                f"{protocol.name}: {cell.system} has two cells of one task, {cell.task}; give one"
            )
        own[cell.task] = cell
    systems = by_system.items()
    return Summary(
        protocol,
        tuple(_source(cell) for cell in cells),
        named,
        tuple(row for system, own in systems for row in _rows(system, own, named)),
        tuple(o for system, own in systems for o in _outcomes(system, protocol, own, everything)),
        tuple(_leads(by_system, everything)),
        _has_cjk(groups),
    )


def to_json(summary: Summary) -> dict[str, Any]:
    """Every figure of a protocol, from 0 to 1; None: missing."""
    protocol = summary.protocol
    return {
        "name": protocol.name,
        "hash": protocol.hash,
        "specification": str(protocol),
        "macros": summary.named,
        "cells": list(summary.sources),
        "lines": [asdict(row) for row in summary.rows],
        "contrasts": [
            {
                "system": outcome.system,
                **{name: getattr(outcome.contrast, name) for name in ("ours", "theirs", "family")},
                "difference": None if outcome.difference is None else asdict(outcome.difference),
                "holm": outcome.holm,
                "tasks": {task: asdict(found) for task, found in outcome.by_task.items()},
            }
            for outcome in summary.outcomes
        ],
        "leads": [asdict(lead) for lead in summary.leads],
    }


def from_json(
    table: Mapping[str, Any], where: str, seen: Sequence[str], languages: Mapping[str, str]
) -> Summary:
    """A summary as it was written; `where` is named in complaints about its protocol."""

    def maybe(kind: type, found: Mapping[str, Any] | None) -> Any:
        return None if found is None else kind(**found)

    rows = tuple(
        LineFigures(
            **{key: row[key] for key in ("system", "line", "at", "tasks", "facts")},
            macros={name: maybe(Interval, found) for name, found in row["macros"].items()},
            cost=maybe(Cost, row["cost"]),
        )
        for row in table["lines"]
    )
    outcomes = tuple(
        Outcome(
            found["system"],
            Contrast(found["ours"], found["theirs"], found["family"]),
            maybe(Difference, found["difference"]),
            found["holm"],
            {task: Difference(**own) for task, own in found["tasks"].items()},
        )
        for found in table["contrasts"]
    )
    leads = tuple(Lead(**{**own, "all": Interval(**own["all"])}) for own in table["leads"])
    cjk = _has_cjk(macros.groups(table["macros"]["all"], seen, languages=languages))
    protocol = parse(table["specification"], where)
    if protocol.hash != table["hash"]:
        raise InputError(
            f"{where}: {protocol.name} was measured under the hash {table['hash'][:12]}, its text "
            f"has {protocol.hash[:12]}; run the config again"
        )
    return Summary(protocol, tuple(table["cells"]), table["macros"], rows, outcomes, leads, cjk)


def _has_cjk(groups: Mapping[str, Sequence[str]]) -> bool:
    return groups.get("non-cjk") != groups["all"]


def _source(cell: Cell) -> dict[str, Any]:
    return {name: getattr(cell, name) for name in SOURCE[:-1]} | {"queries": len(cell.query_ids)}


def _as_written(cell: Cell) -> Cell:
    """With values as a file keeps them, so that a cell just measured counts like one read."""
    lines = {
        name: replace(line, values=np.array([rounded(v) for v in line.values], np.float64))
        for name, line in cell.lines.items()
    }
    return replace(cell, lines=lines)


def _rows(
    system: str, by_task: Mapping[str, Cell], named: Mapping[str, Sequence[str]]
) -> list[LineFigures]:
    """Every line of a system; groups of the same tasks are drawn once."""
    names = dict.fromkeys(name for cell in by_task.values() for name in cell.lines)
    there = {
        name: {task: cell.lines[name] for task, cell in by_task.items() if name in cell.lines}
        for name in names
    }
    found = {
        group: intervals(
            {
                name: {task: own[task].values for task in group}
                for name, own in there.items()
                if all(task in own for task in group)
            }
        )
        for group in {tuple(tasks) for tasks in named.values()}
    }
    tasks = named["all"]
    return [
        LineFigures(
            system,
            name,
            next(iter(own.values())).at,
            {t: float(own[t].values.mean()) if t in own else None for t in tasks},
            {macro: found[tuple(group)].get(name) for macro, group in named.items()},
            mean_cost([own[t].cost for t in tasks]) if len(own) == len(tasks) else None,
            {t: own[t].facts for t in tasks if t in own and own[t].facts},
        )
        for name, own in there.items()
    ]


def _outcomes(
    system: str, protocol: Protocol, by_task: Mapping[str, Cell], tasks: Sequence[str]
) -> list[Outcome]:
    """The family of one system; what cannot be taken over all tasks is missing, not smaller."""
    cells = [by_task[task] for task in tasks if task in by_task]
    anywhere = [c for c in protocol.planned() if any(_has(cell, c) for cell in cells)]
    whole = [
        c for c in anywhere if len(cells) == len(tasks) and all(_has(cell, c) for cell in cells)
    ]
    found = {c: (difference, p) for c, difference, p in contrasts(cells, whole)}
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


def _leads(by_system: Mapping[str, Mapping[str, Cell]], tasks: Sequence[str]) -> list[Lead]:
    """Of the first system over every other, for all lines that both have on every task."""
    (first, ours), *others = by_system.items()
    found: list[Lead] = []
    for other, theirs in others:
        if not all(task in ours and task in theirs for task in tasks):
            continue
        apart = {
            line: {task: ours[task].lines[line].values - theirs[task].lines[line].values
                   for task in tasks}
            for line in ours[tasks[0]].lines
            if all(line in own[task].lines for own in (ours, theirs) for task in tasks)
        }  # fmt: skip
        for line, own in differences(apart).items():
            means = {task: float(values.mean()) for task, values in apart[line].items()}
            whole = Interval(own.mean, own.low, own.high)
            found.append(Lead(first, other, line, means, whole, own.p))
    return found
