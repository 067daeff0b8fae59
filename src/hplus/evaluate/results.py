"""Cells: one protocol, one system, one set; the numbers of every line and query, on disk.

A cell names all that made it: the protocol and the hash of its text, the model's fingerprint, the
hashes of data and candidates. Equal inputs give equal bytes; times are not in it. Cells of two
protocols, or of other data, are never compared.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hplus.errors import InputError
from hplus.evaluate.cost import Cost
from hplus.evaluate.data import RetrievalSet
from hplus.evaluate.lab import Line
from hplus.evaluate.protocol import Contrast
from hplus.evaluate.statistics import Difference, Interval, holm, interval, paired_difference

FORMAT = 1


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


def data_hash(data: RetrievalSet) -> str:
    """Of documents, queries and judgements."""
    digest = hashlib.sha256()
    judged = {name: sorted(data.judgements[name].items()) for name in data.query_ids}
    parts = [data.document_ids, data.documents, data.query_ids, data.queries, judged]
    for part in parts:
        digest.update(json.dumps(part, ensure_ascii=False).encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def write(path: Path, cell: Cell) -> None:
    """As JSON: a cell that is there is whole."""
    lines = {
        line.name: {
            "values": [round(float(value), 6) for value in line.values],
            "cost": None if line.cost is None else asdict(line.cost),
            "facts": line.facts,
        }
        for line in cell.lines.values()
    }
    table = {"format": FORMAT, **asdict(cell), "query_ids": list(cell.query_ids), "lines": lines}
    write_json(path, table)


def write_json(path: Path, table: Mapping[str, Any]) -> None:
    """In one step."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(".draft")
    draft.write_text(json.dumps(table, ensure_ascii=False, default=str), encoding="utf-8")
    draft.replace(path)


def read(path: Path) -> Cell:
    """A cell as it was written."""
    try:
        table: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if table.pop("format") != FORMAT:
            raise InputError(f"{path} has another format; delete it and run again")
        lines = {
            name: Line(
                name,
                np.array(line["values"], np.float64),
                None if line["cost"] is None else Cost(**line["cost"]),
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
    by_task: dict[str, Cell] = {}
    for cell in cells:
        other = by_task.setdefault(cell.task, cell)
        if (other.data_hash, other.query_ids) != (cell.data_hash, cell.query_ids):
            raise InputError(
                f"{cell.task}: {other.system} and {cell.system} were measured on other data or "
                "queries; run one of them again"
            )


def check_shared(cells: Sequence[Cell]) -> None:
    """Systems of a shared pool have ranked the same candidates."""
    by_task: dict[str, Cell] = {}
    for cell in cells:
        other = by_task.setdefault(cell.task, cell)
        if cell.pool_hash != other.pool_hash:
            raise InputError(
                f"{cell.task}: {other.system} and {cell.system} have ranked two pools "
                f"({other.pool_hash[:12]}, {cell.pool_hash[:12]}): their own candidates are in "
                "them; put systems with other gates in tables of their own"
            )


def macro(cells: Sequence[Cell], line: str) -> Interval:
    """The macro of one system's line over its tasks, with its interval."""
    return interval({cell.task: _line(cell, line).values for cell in cells})


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
        have = [all(name in cell.lines for name in sides) for cell in cells]
        if not any(have):
            continue
        if not all(have):
            lacking = next(cell.task for cell, there in zip(cells, have, strict=True) if not there)
            raise InputError(f"{lacking} lacks {contrast.ours!r} or {contrast.theirs!r}")
        ours, theirs = ({cell.task: _line(cell, name).values for cell in cells} for name in sides)
        found.append((contrast, paired_difference(ours, theirs)))
    corrected: dict[Contrast, float] = {}
    for family in dict.fromkeys(contrast.family for contrast, _ in found):
        own = [(contrast, d.p) for contrast, d in found if contrast.family == family]
        corrected |= dict(zip([c for c, _ in own], holm([p for _, p in own]), strict=True))
    return [(contrast, d, corrected[contrast]) for contrast, d in found]


def mean_cost(cells: Sequence[Cell], line: str) -> Cost | None:
    """Equal-task mean of what a line costs."""
    costs = [_line(cell, line).cost for cell in cells]
    known = [cost for cost in costs if cost is not None]
    if len(known) < len(costs):
        return None
    names: Mapping[str, Any] = asdict(known[0])
    return Cost(**{name: float(np.mean([getattr(c, name) for c in known])) for name in names})


def _line(cell: Cell, name: str) -> Line:
    if name not in cell.lines:
        raise InputError(f"{cell.task} has no line {name!r}; it has: {', '.join(cell.lines)}")
    return cell.lines[name]
