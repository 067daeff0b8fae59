"""A line of a table: what was measured, and all that is needed to measure it.

A kind of protocol gives lines; nothing else knows how they are made. Tables read figures and
names, plots and the paper's figures read the coordinates, a clock runs the scorer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from hplus.types import F32, F64, I64
from hplus_lab.cost import Cost

At = dict[str, str | int | float]


@dataclass(frozen=True)
class Line:
    """The protocol's measure of every query, f64[queries], and what it costs.

    at: the coordinates of the line in its table, as {"rule": "tokens", "budget": 16}. facts: what
    was measured beside, as the recall of its candidates. file: bytes a document in the file that
    the line reads.

    The rest is for a clock and absent from a line read from a file. score: the scores of one query,
    by its row, with its candidates on one thread, in the order of `candidates[row]`. encode: makes
    documents ready to be searched.
    """

    name: str
    values: F64
    cost: Cost
    at: At = field(default_factory=dict)
    facts: dict[str, float] = field(default_factory=dict)
    file: float = 0.0
    score: Callable[[int], F32 | F64] | None = None
    candidates: Sequence[I64] = ()
    encode: Callable[[list[str]], object] | None = None
