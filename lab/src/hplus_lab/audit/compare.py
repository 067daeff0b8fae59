"""Every construction against what people marked.

For each: boundary F1 (mean over items), exact and multi-token span F1 and term recall (over all
items together), and how many items show each kind of error. Every figure of the random spans is
the mean over their seeds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hplus.errors import CheckpointError, InputError
from hplus.progress import show_progress
from hplus.states_file import stored_states, unit_begins
from hplus.types import F64, Span
from hplus.units.terms import Terms
from hplus_lab.audit.constructions import constructions, ends_of, units_of
from hplus_lab.audit.items import Item
from hplus_lab.audit.measures import Agreement, agreement, boundary_f1, count
from hplus_lab.audit.reference import FLAGS, Annotator, Reference, reference_of
from hplus_lab.audit.tally import total

if TYPE_CHECKING:
    from hplus.model import HPlus


@dataclass(frozen=True)
class ConstructionScores:
    """One construction; of several runs, the means.

    boundary_f1 f64[n], item by item, nan where no gap counts; the others over all items, nan
    where there is nothing to count; flags: items that show each kind of error; flagged: any.
    """

    boundary_f1: F64
    exact_f1: float
    multi_f1: float
    term_recall: float
    flags: dict[str, float]
    flagged: float
    units: float
    """Units per text."""


@dataclass(frozen=True)
class Audit:
    """Constructions by name, the CRF first, on the same items. `unseen` of the audit's tokens lie
    beyond the model's window and count for no construction."""

    rows: dict[str, ConstructionScores]
    items: int
    tokens: int
    unseen: int
    agreement: Agreement | None


def compare(
    model: HPlus,
    items: Sequence[Item],
    cache: Path,
    *,
    reference: Annotator = "A",
    terms: Terms | None = None,
    teacher: Mapping[str, Sequence[Span]] | None = None,
    name: str = "items",
) -> Audit:
    """Every construction that can be made, against one annotator or the union of both.

    teacher: the units of each text, as `hplus teach labels` makes them. Texts are cut at the
    model's window; `name` is shown beside the progress bars.
    """
    crf = model.checkpoint.crf
    if crf is None:
        raise CheckpointError(f"{model.recipe.name} has no trained CRF to audit")
    whole = [reference_of(item, reference) for item in items]
    if not any(own.gaps for own in whole):
        raise InputError(f"none of the {len(items)} items has a gap between tokens to judge")
    stored = stored_states(model, [item.text for item in items], cache, progress=f"encoding {name}")
    tokens = stored.tokens
    references = [
        reference_of(item, reference, seen=end)
        for item, end in zip(items, ends_of(tokens), strict=True)
    ]
    begins = unit_begins(crf, stored, settled=model.recipe.patterns)
    made = constructions(tokens, begins, terms=terms, teacher=teacher)
    rows = {}
    with show_progress(f"auditing {name}", sum(map(len, made.values()))) as bar:
        for construction, runs in made.items():
            scored = []
            for begins in runs:
                scored.append(_score(references, units_of(tokens, begins)))
                bar.advance(1)
            rows[construction] = _mean(scored)
    every, seen = (sum(len(own.tokens) for own in side) for side in (whole, references))
    return Audit(rows, len(items), every, every - seen, agreement(items))


def _score(references: Sequence[Reference], units: Sequence[Sequence[Span]]) -> ConstructionScores:
    counts = [count(reference, own) for reference, own in zip(references, units, strict=True)]
    multi = total(own.multi for own in counts)
    terms = sum(own.terms for own in counts)
    return ConstructionScores(
        boundary_f1(references, counts),
        total(own.units for own in counts).f1,
        multi.f1 if multi.marked else float("nan"),
        sum(own.recalled for own in counts) / terms if terms else float("nan"),
        {flag: float(sum(flag in own.errors for own in counts)) for flag in FLAGS},
        float(sum(bool(own.errors) for own in counts)),
        sum(map(len, units)) / len(units),
    )


def _mean(runs: Sequence[ConstructionScores]) -> ConstructionScores:
    def mean(name: str) -> float:
        return float(np.mean([getattr(run, name) for run in runs]))

    return ConstructionScores(
        np.mean([run.boundary_f1 for run in runs], axis=0),
        mean("exact_f1"),
        mean("multi_f1"),
        mean("term_recall"),
        {flag: float(np.mean([run.flags[flag] for run in runs])) for flag in FLAGS},
        mean("flagged"),
        mean("units"),
    )
