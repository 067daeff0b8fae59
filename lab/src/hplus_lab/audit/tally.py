"""What people marked against what a system gives: the one way in which the audit counts.

A `Tally` of one text is three numbers, whatever is compared: boundaries, units, units of several
tokens. Tallies are kept text by text, because the bootstrap draws texts.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Hashable, Iterable, Sequence, Set
from itertools import accumulate
from typing import Literal, NamedTuple, TypeVar

import numpy as np

from hplus.errors import InputError
from hplus.evaluate.statistics import RESAMPLES, Difference, difference, resampled_sums
from hplus.types import F64, Span

Measure = Literal["f1", "precision", "recall"]
Number = TypeVar("Number", int, F64)


class Tally(NamedTuple):
    """How many were marked, how many predicted, and how many are both.

    Measures are 1 where there is nothing to count: nothing is missing and nothing is wrong.
    """

    marked: int
    predicted: int
    hits: int

    @property
    def f1(self) -> float:
        """2 hits / (marked + predicted), the harmonic mean of precision and recall.

        >>> Tally(4, 2, 1).f1 == Tally(2, 4, 1).f1 == 1 / 3
        True
        """
        return self.measure("f1")

    @property
    def precision(self) -> float:
        return self.measure("precision")

    @property
    def recall(self) -> float:
        return self.measure("recall")

    def measure(self, name: Measure) -> float:
        part, whole = _fraction(name, *self)
        return part / whole if whole else 1.0


def tally(marked: Set[Hashable], predicted: Collection[Hashable]) -> Tally:
    """Counts one text; `predicted` has no repetitions."""
    return Tally(len(marked), len(predicted), len(marked & set(predicted)))


def total(tallies: Iterable[Tally]) -> Tally:
    """The sums over all texts.

    >>> total([Tally(2, 1, 1), Tally(1, 3, 0)])
    Tally(marked=3, predicted=4, hits=1)
    """
    return Tally(*map(sum, zip(Tally(0, 0, 0), *tallies, strict=True)))


def overlapping(marked: Iterable[Span], units: Iterable[Span]) -> list[Span]:
    """The units that share a character with a marked span; marked spans may nest and cross.

    >>> overlapping([Span(0, 9), Span(2, 4)], [Span(4, 6), Span(8, 12), Span(12, 15)])
    [Span(start=4, end=6), Span(start=8, end=12)]
    """
    spans = sorted(marked)
    starts = [span.start for span in spans]
    reach = list(accumulate((span.end for span in spans), max, initial=0))
    return [unit for unit in units if reach[bisect_left(starts, unit.end)] > unit.start]


def measure_difference(
    ours: Sequence[Tally],
    theirs: Sequence[Tally],
    measure: Measure = "f1",
    *,
    resamples: int = RESAMPLES,
    seed: int = 13,
) -> Difference:
    """ours - theirs in a measure over all texts, with a paired bootstrap over texts."""
    if not ours or len(ours) != len(theirs):
        raise InputError(
            f"expected tallies of the same texts, got {len(ours)} of ours and {len(theirs)} of "
            "theirs; both sides need at least one"
        )
    for row, (our, their) in enumerate(zip(ours, theirs, strict=True)):
        if our.marked != their.marked:
            raise InputError(
                f"text {row} has {our.marked} marks in our tallies and {their.marked} in theirs; "
                "compare tallies of the same marks"
            )
    fractions = [
        column
        for side in (ours, theirs)
        for column in _fraction(measure, *np.array(side, np.float64).T)
    ]
    a, b, c, d = resampled_sums(fractions, resamples, np.random.default_rng(seed))
    resampled = _ratio(a, b) - _ratio(c, d)
    return difference(total(ours).measure(measure) - total(theirs).measure(measure), resampled)


def _fraction(
    name: Measure, marked: Number, predicted: Number, hits: Number
) -> tuple[Number, Number]:
    """Numerator and denominator of a measure, to be summed over texts before dividing."""
    match name:
        case "f1":
            return 2 * hits, marked + predicted
        case "precision":
            return hits, predicted
        case "recall":
            return hits, marked
    raise InputError(f"expected the measure f1, precision or recall, got {name!r}")


def _ratio(part: F64, whole: F64) -> F64:
    return np.divide(part, whole, out=np.ones_like(part), where=whole > 0)
