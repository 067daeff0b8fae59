"""How far units agree with a reference, and two annotators with each other, text by text.

Units that meet no reference unit are neither right nor wrong. A term is *recalled* when it lies
whole inside one unit, however large: a text that is one unit recalls them all, so term recall says
nothing without boundary F1 beside it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence, Set
from dataclasses import dataclass
from operator import itemgetter
from typing import NamedTuple

import numpy as np

from hplus.types import F64, Span
from hplus_lab.audit.items import ANNOTATORS, Item
from hplus_lab.audit.reference import FLAGS, Reference, reference_of, token_count
from hplus_lab.audit.tally import Tally, overlapping, tally, total


class TextCounts(NamedTuple):
    """What is counted in one text.

    multi: units of several tokens; terms and recalled: how many terms there are, and how many of
    them lie whole inside one unit; errors: which of FLAGS a wrong boundary shows.
    """

    boundaries: Tally
    units: Tally
    multi: Tally
    terms: int
    recalled: int
    errors: frozenset[str]


@dataclass(frozen=True)
class Agreement:
    """Two annotators over the items both marked: means over items, exact span F1 over all units.

    kappa leaves out the `undefined` items, where both say the same at every gap; boundary_f1
    leaves out items of one token; boundaries: how many each marks per item.
    """

    items: int
    kappa: float
    undefined: int
    boundary_f1: float
    exact_f1: float
    boundaries: tuple[float, float]


def count(reference: Reference, units: Sequence[Span]) -> TextCounts:
    """Counts a system's units, which are in order and do not overlap."""
    begins = {unit.start for unit in units[1:] if reference.counted[unit.start]}
    met = overlapping(reference.units, units)
    errors = 0
    for boundary in begins - reference.boundaries:
        errors |= reference.errors[boundary]
    return TextCounts(
        tally(reference.boundaries, begins),
        tally(set(reference.units), met),
        tally(reference.multi, [u for u in met if token_count(reference.tokens, u) > 1]),
        len(reference.terms),
        sum(_is_whole(units, term) for term in reference.terms),
        frozenset(flag for kind, flag in enumerate(FLAGS) if errors >> kind & 1),
    )


def boundary_f1(references: Sequence[Reference], counts: Sequence[TextCounts]) -> F64:
    """Boundary F1 of each item, f64[n]; nan where no gap counts, whatever the system."""
    return np.array(
        [
            own.boundaries.f1 if reference.gaps else np.nan
            for reference, own in zip(references, counts, strict=True)
        ]
    )


def cohens_kappa(a: Set[int], b: Set[int], gaps: int) -> float | None:
    """Agreement beyond chance about which of `gaps` gaps are boundaries.

    (observed - expected) / (1 - expected), expected from how often each says boundary; undefined
    (None) where both say boundary everywhere, or nowhere.

    >>> cohens_kappa({1, 2}, {2, 3}, 4), cohens_kappa(set(), set(), 4)
    (0.0, None)
    """
    # All times gaps squared, in integers, so that "undefined" does not depend on rounding.
    observed = gaps * (len(a & b) + gaps - len(a | b))
    expected = len(a) * len(b) + (gaps - len(a)) * (gaps - len(b))
    return None if expected == gaps**2 else (observed - expected) / (gaps**2 - expected)


def agreement(items: Sequence[Item]) -> Agreement | None:
    """How far A and B agree on the units of the items that both marked; None if there are none."""
    pairs = [
        (reference_of(item, "A"), reference_of(item, "B"))
        for item in items
        if set(ANNOTATORS) <= item.marks.keys()
    ]
    if not pairs:
        return None
    kappas = [cohens_kappa(a.boundaries, b.boundaries, a.gaps) for a, b in pairs]
    defined = [kappa for kappa in kappas if kappa is not None]
    counts = [count(a, b.units) for a, b in pairs]
    values = boundary_f1([a for a, _ in pairs], counts)
    values = values[~np.isnan(values)]
    boundaries = total(own.boundaries for own in counts)
    return Agreement(
        items=len(pairs),
        kappa=float(np.mean(defined)) if defined else float("nan"),
        undefined=len(kappas) - len(defined),
        boundary_f1=float(values.mean()) if len(values) else float("nan"),
        exact_f1=total(own.units for own in counts).f1,
        boundaries=(boundaries.marked / len(pairs), boundaries.predicted / len(pairs)),
    )


def _is_whole(units: Sequence[Span], span: Span) -> bool:
    """Whether one unit contains the span."""
    row = bisect_right(units, span.start, key=itemgetter(0)) - 1
    return row >= 0 and span.end <= units[row].end
