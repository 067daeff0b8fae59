"""Lines that say what units may not do, family by family: the parts of a text a family is about.

    ## drug and dose
    aspirin │ ⟦81 mg⟧ │ ⟦daily⟧ after breakfast

What stands between ⟦ and ⟧ lies whole inside one unit; at │ a unit begins (white space around it
is one space of the text; without any, none). All else is left open, so a line is right if every
mark of it holds. `## name` begins a family. An audit counts boundaries of whole texts; these lines
ask about a few constructions that a corpus rarely has.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hplus.errors import InputError
from hplus.types import Span

_MARK = re.compile(r"\s*│\s*|[⟦⟧]")


@dataclass(frozen=True)
class Line:
    """A text, what lies whole inside one unit, and where units begin (in characters)."""

    family: str
    text: str
    whole: tuple[Span, ...]
    begins: tuple[int, ...]


def read_lines(path: Path) -> list[Line]:
    """The lines of a file, in order."""
    lines: list[Line] = []
    family = ""
    for number, row in enumerate(path.read_text("utf-8").splitlines(), 1):
        if row.startswith("## "):
            family = row[3:].strip()
        elif row.strip():
            try:
                lines.append(parse(row.strip(), family))
            except InputError as error:
                raise InputError(f"{path}:{number}: {error}") from None
    if not lines:
        raise InputError(f"{path} has no lines; expected texts marked with ⟦, ⟧ and │")
    return lines


def parse(row: str, family: str = "") -> Line:
    """One marked line.

    >>> parse("aspirin │ ⟦81 mg⟧ │ daily")
    Line(family='', text='aspirin 81 mg daily', whole=(Span(start=8, end=13),), begins=(8, 14))
    """
    text = ""
    whole: list[Span] = []
    begins: list[int] = []
    opened: int | None = None
    at = 0
    for match in _MARK.finditer(row):
        text += row[at : match.start()]
        at = match.end()
        if match[0] == "⟦":
            if opened is not None:
                raise InputError(f"⟦ inside ⟦…⟧ after {text!r}")
            opened = len(text)
        elif match[0] == "⟧":
            if opened is None or opened == len(text):
                raise InputError(f"⟧ without ⟦ and text before it, after {text!r}")
            whole.append(Span(opened, len(text)))
            opened = None
        else:
            if opened is not None:
                raise InputError(f"│ inside ⟦…⟧ after {text!r}")
            text += " " * (match[0] != "│")
            begins.append(len(text))
    text += row[at:]
    if opened is not None:
        raise InputError(f"⟦ without ⟧ in {row!r}")
    if not whole and not begins:
        raise InputError(f"no mark in {row!r}; expected ⟦…⟧ or │")
    return Line(family, text, tuple(whole), tuple(begins))


def is_right(line: Line, units: Sequence[Span]) -> bool:
    """Whether units, in reading order, keep every mark of the line."""
    starts = {unit.start for unit in units}
    return all(place in starts for place in line.begins) and all(
        any(unit.start <= span.start and span.end <= unit.end for unit in units)
        for span in line.whole
    )
