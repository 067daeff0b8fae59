"""The metamorphic probe: a relevant passage must score above an unrelated one.

It finds gross errors of prompt, pooling, checkpoint or initialisation; it measures no quality.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from hplus.evaluate.baselines.baseline import Baseline
from hplus.evaluate.baselines.score import scores

QUERY = "Which drug is the first-line treatment of type 2 diabetes?"
RELEVANT = (
    "Metformin is the first-line drug for the treatment of type 2 diabetes, particularly in people "
    "who are overweight; it lowers the production of glucose in the liver."
)
UNRELATED = (
    "The Eiffel Tower is a wrought-iron lattice tower on the Champ de Mars in Paris, built for the "
    "World's Fair of 1889 and the most visited monument with an entrance fee."
)


@dataclass(frozen=True)
class Probe:
    """Both scores, as the baseline gives them."""

    relevant: float
    unrelated: float

    @property
    def passed(self) -> bool:
        """Whether the relevant passage is ahead."""
        return self.relevant > self.unrelated


def probe(baseline: Baseline, *, folder: Path | None = None) -> Probe:
    """Score the metformin and the Eiffel Tower passage."""
    ((relevant, unrelated),) = scores(
        baseline, [QUERY], [RELEVANT, UNRELATED], folder=folder
    ).tolist()
    return Probe(relevant, unrelated)
