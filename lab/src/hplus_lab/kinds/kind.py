"""What a kind of protocol is: the lines it gives, what it needs, how its lines are drawn, and which
figures of the paper stand beside them. One module a kind; `KINDS` in `kinds/__init__.py` lists
them, and nothing else has to know of a new one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from hplus.model import HPlus
from hplus_lab.experiment import Experiment, Inputs, Pools
from hplus_lab.line import Line
from hplus_lab.paper import Printed
from hplus_lab.protocol import Protocol


@dataclass(frozen=True)
class Curve:
    """Lines as curves over one of their coordinates.

    x: the coordinate of the horizontal axis, named by `label`; lines without it are drawn as level
    rules. by: those that tell curves apart. panels: the coordinate, if any, that has a panel for
    each of its values, with their titles. facts: shares measured beside the lines that are curves
    too.
    """

    x: str
    label: str
    by: tuple[str, ...]
    panels: tuple[str, dict[str, str]] | None = None
    facts: tuple[str, ...] = ()


def _nothing(*_: object) -> list[Any]:
    return []


@dataclass(frozen=True)
class Kind:
    """One kind of protocol; only `lines` is needed."""

    lines: Callable[[Experiment], Iterator[Line]]
    """Every line of a protocol on one set."""
    edition: int = 1
    """Raised when lines are counted differently from before, so that older cells are not used."""

    counts: str = "natural"
    """What binds the number of units, as a protocol must state it."""
    states: tuple[str, ...] = ()
    """What a protocol of this kind cannot leave empty."""
    several: tuple[str, ...] = ()
    """Of pools and widths, those of which it may measure more than one."""
    check: Callable[[Protocol], list[str]] = _nothing
    """Further complaints about a protocol."""

    uses: tuple[str, ...] = ()
    """The fields of `Inputs` that it reads, beside the terms."""
    inputs: Callable[[Protocol, HPlus, Inputs], list[str]] = _nothing
    """Hashes of what the lines depend on beside model, terms and set; an InputError says what is
    missing."""
    candidates: Callable[[Experiment], Pools] = lambda experiment: experiment.gate
    """What a result names by its hash."""

    curve: Curve | None = None
    """Which lines are drawn as curves; without it every line is drawn as a point."""
    gains: bool = False
    """Whether the first contrast is drawn task by task instead."""
    sizes: bool = False
    """Whether lines are drawn against bytes too."""
    paper: Callable[[str, bool], list[Printed]] = _nothing
    """The paper's figures for our lines, the nearest first, by the label of the table that the
    protocol names and whether our tasks have texts in Chinese, Japanese or Korean."""
