"""Cells: one protocol, one system, one set; the numbers of every line and query, on disk.

A cell names all that made it: the protocol and the hash of its text, the model's fingerprint, the
hashes of data and candidates. Equal inputs give equal bytes; times are not in it. Cells of two
protocols, or of different data, are never compared.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hplus.errors import InputError
from hplus.evaluate.statistics import Difference, Interval, holm, interval, paired_difference
from hplus_lab.cache import write_json
from hplus_lab.cost import Cost
from hplus_lab.line import Line
from hplus_lab.protocol import Contrast

FORMAT = 2


@dataclass(frozen=True)
class Cell:
    """Lines by name, with what they were measured on."""

    protocol: str
    protocol_hash: str
    system: str
    fingerprint: str
    terms: str
    task: str
    split: str
    documents: int
    query_ids: tuple[str, ...]
    data_hash: str
    pool_hash: str
    lines: dict[str, Line]


def write(path: Path, cell: Cell) -> None:
    """As JSON."""
    lines = {
        line.name: {
            "at": line.at,
            "values": [rounded(value) for value in line.values],
            "cost": asdict(line.cost),
            "facts": line.facts,
        }
        for line in cell.lines.values()
    }
    about = {name: getattr(cell, name) for name in Cell.__dataclass_fields__ if name != "lines"}
    write_json(path, {"format": FORMAT, **about, "lines": lines})


def rounded(value: float) -> float:
    """To six places, as figures are kept."""
    return round(float(value), 6) + 0.0


def read(path: Path) -> Cell:
    """A cell as it was written."""
    try:
        table: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if (found := table.pop("format")) != FORMAT:
            raise InputError(f"{path}: expected format {FORMAT}, got {found}; delete it, run again")
        lines = {
            name: Line(
                name,
                np.array(line["values"], np.float64),
                Cost(**line["cost"]),
                dict(line["at"]),
                dict(line["facts"]),
            )
            for name, line in table.pop("lines").items()
        }
        cell = Cell(**{**table, "query_ids": tuple(table["query_ids"])}, lines=lines)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path} is damaged ({error}); delete it and run again") from None
    if any(len(line.values) != len(cell.query_ids) for line in cell.lines.values()):
        raise InputError(f"{path} is damaged (values do not fit its queries); delete it")
    return cell


def check_comparable(cells: Sequence[Cell]) -> None:
    """All of one protocol, and each task on the same data and queries."""
    first = cells[0]
    for cell in cells[1:]:
        if cell.protocol_hash != first.protocol_hash:
            raise InputError(
                f"{first.protocol} ({first.protocol_hash[:12]}) and {cell.protocol} "
                f"({cell.protocol_hash[:12]}) are two protocols; their numbers are not compared"
            )
    for one, two in _pairs_by_task(cells, lambda cell: (cell.data_hash, cell.query_ids)):
        raise InputError(
            f"{one.task}: {one.system} and {two.system} were measured on different data or "
            "queries; run one of them again"
        )


def check_shared(cells: Sequence[Cell]) -> None:
    """Systems of a shared pool have ranked the same candidates."""
    for one, two in _pairs_by_task(cells, lambda cell: cell.pool_hash):
        raise InputError(
            f"{one.task}: {one.system} and {two.system} ranked different pools "
            f"({one.pool_hash[:12]}, {two.pool_hash[:12]}), since their own candidates are in "
            "them; put systems with other gates in tables of their own"
        )


def macro(cells: Sequence[Cell], line: str) -> Interval:
    """The macro of one system's line over its tasks, with its interval."""
    for cell in cells:
        if line not in cell.lines:
            raise InputError(f"{cell.task} has no line {line!r}; it has: {', '.join(cell.lines)}")
    return interval({cell.task: cell.lines[line].values for cell in cells})


def contrasts(
    cells: Sequence[Cell], planned: Sequence[Contrast]
) -> list[tuple[Contrast, Difference, float]]:
    """Each contrast that was run: the difference, and its p after Holm within its family.

    A contrast is left out only if no task has its lines (a width the model does not have); one
    that some tasks have and others lack is an error.
    """
    check_comparable(cells)
    found: list[tuple[Contrast, Difference]] = []
    for contrast in planned:
        sides = (contrast.ours, contrast.theirs)
        lacking = [cell.task for cell in cells if not all(name in cell.lines for name in sides)]
        if len(lacking) == len(cells):
            continue
        if lacking:
            raise InputError(f"{lacking[0]} lacks {contrast.ours!r} or {contrast.theirs!r}")
        ours, theirs = ({cell.task: cell.lines[side].values for cell in cells} for side in sides)
        found.append((contrast, paired_difference(ours, theirs)))
    corrected: dict[Contrast, float] = {}
    for family in dict.fromkeys(contrast.family for contrast, _ in found):
        own = [(contrast, d.p) for contrast, d in found if contrast.family == family]
        corrected |= dict(zip([c for c, _ in own], holm([p for _, p in own]), strict=True))
    return [(contrast, d, corrected[contrast]) for contrast, d in found]


def _pairs_by_task(cells: Sequence[Cell], of: Callable[[Cell], object]) -> list[tuple[Cell, Cell]]:
    """Cells of one task that differ in something."""
    first: dict[str, Cell] = {}
    return [
        (one, cell) for cell in cells if of(one := first.setdefault(cell.task, cell)) != of(cell)
    ]
