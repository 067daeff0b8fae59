"""The paper's result tables, to hold our own figures against.

They are in `paper.toml`, as printed. Rows and columns bear the paper's words; each kind of protocol
says which of them are its lines, and gives them as `Printed`. The paper's model is another
(Qwen3-Embedding-0.6B), so its figures stand beside ours and are never mixed with them.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any

from hplus.errors import InputError
from hplus_lab.protocol import Contrast

# Sets drawn anew from the source of the task of that name; the paper's own bears its capitals.
_OWN_SAMPLES = ("medicalqa", "medicalqa-dev")


@dataclass(frozen=True)
class PaperTable:
    """One table, or one panel of a table.

    protocol: what was measured, in the words of our protocols where one is the same. metric: as
    `hplus.evaluate.metrics.measure` names it, in points of 100; "boundary-f1" from 0 to 1. tasks:
    what its means are over. rows: column -> value, one dict a row. summary: rows below the line,
    "all", "sensitivity" or "mean" for a task. extra: what the caption adds.
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


@dataclass(frozen=True)
class Delta:
    """A difference in points of 100, with its 95 % interval where the paper prints one."""

    points: float
    low: float | None = None
    high: float | None = None

    def __str__(self) -> str:
        spread = "" if self.low is None else f" [{self.low:.2f}, {self.high:.2f}]"
        return f"{self.points:+.2f}{spread}"

    @property
    def open(self) -> bool:
        """Whether zero is in the interval."""
        return self.low is not None and self.high is not None and self.low <= 0 <= self.high


@dataclass(frozen=True)
class Printed:
    """A table in the words of our lines; points of 100. by_task: line -> task -> value. macros:
    line -> mean over all `tasks`. differences: (ours, theirs) -> over all `tasks`. family: the
    contrasts it was planned for."""

    label: str
    tasks: list[str]
    by_task: dict[str, dict[str, float]] = field(default_factory=dict)
    macros: dict[str, float] = field(default_factory=dict)
    differences: dict[tuple[str, str], Delta] = field(default_factory=dict)
    family: str = ""

    def difference(self, contrast: Contrast) -> Delta | None:
        """The paper's ours - theirs, where it has both lines or prints their difference."""
        sides = (contrast.ours, contrast.theirs)
        if sides in self.differences:
            return self.differences[sides]
        if not all(side in self.macros for side in sides):
            return None
        return Delta(round(self.macros[contrast.ours] - self.macros[contrast.theirs], 2))


def labels() -> list[str]:
    """The labels of all tables; panel (a) of tab:x is "tab:x:a"."""
    return [label for label in _file() if label != "suites"]


def table(label: str) -> PaperTable:
    """A table by the label it has in the paper.

    >>> table("tab:fusion").rows[1]
    {'views': 'P', 'ndcg@10': 63.17}
    """
    if label not in labels():
        raise InputError(f"unknown table {label!r}; known: {', '.join(labels())}")
    fields = dict(_file()[label])
    suite, columns = fields.pop("suite", None), fields.pop("columns")

    def rows(name: str) -> list[dict[str, Any]]:
        return [dict(zip(columns, row, strict=True)) for row in fields.pop(name, [])]

    return PaperTable(
        label=label,
        protocol=fields.pop("protocol"),
        metric=fields.pop("metric"),
        tasks=list(_file()["suites"][suite]) if suite else [],
        rows=rows("rows"),
        summary=rows("summary"),
        extra=fields,
    )


def same_task(ours: str, theirs: str) -> bool:
    """Whether our set is the paper's task: the same name, but for its capitals where the set is
    not another sample of the same source."""
    return ours == theirs or (ours.casefold() == theirs.casefold() and ours not in _OWN_SAMPLES)


@cache
def _file() -> dict[str, Any]:
    text = resources.files("hplus_lab").joinpath("paper.toml").read_text("utf-8")
    return tomllib.loads(text)
