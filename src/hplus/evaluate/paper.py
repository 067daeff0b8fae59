"""The paper's result tables, to hold our own figures against.

They are in `paper.toml`, as printed. Which figures may be compared is decided by the protocol:
`table(label).protocol` is one of `PROTOCOLS`.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from hplus.errors import InputError

PROTOCOLS = {
    "broad-deployed": "CRF and terms, the global top 1,000 rescored, 16 tasks",
    "dimensional": "CRF alone, each width rescores the global top 1,000 of its own",
    "shared-pool": "one union of three dense top 1,000 for all systems",
    "pool-sensitivity": "CRF alone, the model's own global top K for several K",
    "exact-count": "every grouping keeps the same number of units in every text (eq:exact_count)",
    "ablation": "one rule of weighting or selecting against another",
    "boundary-audit": "boundaries against people's, no retrieval",
}


@dataclass(frozen=True)
class Table:
    """One table, or one panel of a table.

    metric: as `hplus.evaluate.metrics.measure` names it, in points of 100; "boundary-f1" from 0
    to 1. tasks: what its means are over. rows: column -> value, one dict a row. summary: rows
    below the line, "all", "sensitivity" or "mean" for a task. extra: what the caption adds.
    """

    label: str
    protocol: str
    metric: str
    tasks: list[str]
    rows: list[dict[str, Any]]
    summary: list[dict[str, Any]]
    extra: dict[str, Any]

    def by_task(self, column: str) -> dict[str, float]:
        """One column of a table that has a row a task: task -> value.

        >>> table("tab:main_results").by_task("phrase")["SciFact"]
        72.52
        """
        for needed in ("task", column):
            if needed not in self.rows[0]:
                raise InputError(f"{self.label} has no column {needed!r}; it has {[*self.rows[0]]}")
        return {row["task"]: row[column] for row in self.rows}


def labels() -> list[str]:
    """The labels of all tables; panel (a) of tab:x is "tab:x:a"."""
    return [label for label in _file() if label != "suites"]


def table(label: str) -> Table:
    """A table by the label it has in the paper.

    >>> table("tab:fusion").rows[1]
    {'views': 'P', 'ndcg@10': 63.17}
    """
    if label not in labels():
        raise InputError(f"table {label!r} asked; known: {', '.join(labels())}")
    fields = dict(_file()[label])
    suite, columns = fields.pop("suite", None), fields.pop("columns")

    def rows(name: str) -> list[dict[str, Any]]:
        return [dict(zip(columns, row, strict=True)) for row in fields.pop(name, [])]

    return Table(
        label=label,
        protocol=fields.pop("protocol"),
        metric=fields.pop("metric"),
        tasks=list(_file()["suites"][suite]) if suite else [],
        rows=rows("rows"),
        summary=rows("summary"),
        extra=fields,
    )


@cache
def _file() -> dict[str, Any]:
    text = resources.files("hplus.evaluate").joinpath("paper.toml").read_text("utf-8")
    return tomllib.loads(text)
