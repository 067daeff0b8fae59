"""What a list of terms changes in the units of texts."""

from __future__ import annotations

import copy
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from hplus.model import HPlus
from hplus.recipe import Side
from hplus.types import Unit
from hplus.units.terms import Terms


@dataclass(frozen=True)
class TermsCheck:
    """Units before and after; how often each term occurs; of each, the units there were in its
    place where it made a new one, joined by " │ "; how many texts changed."""

    before: list[list[Unit]]
    after: list[list[Unit]]
    occurrences: Counter[str]
    changes: dict[str, Counter[str]]
    changed_texts: int


def check_terms(
    model: HPlus, terms: Terms, texts: Sequence[str], *, side: Side = "document"
) -> TermsCheck:
    """The units that the model finds in texts with its own terms, and with these."""
    with_terms = copy.copy(model)
    with_terms.terms = terms
    before, after = (m.segment(texts, side=side) for m in (model, with_terms))
    occurrences: Counter[str] = Counter()
    changes: dict[str, Counter[str]] = defaultdict(Counter)
    changed_texts = 0
    for text, old, new in zip(texts, before, after, strict=True):
        known = {(unit.start, unit.end) for unit in old}
        changed = False
        for start, end, number in terms.find(text):
            term = terms.patterns[number]
            occurrences[term] += 1
            whole = [unit for unit in new if unit.start < end and start < unit.end]
            if whole and (whole[0].start, whole[0].end) not in known:
                there = [unit.text for unit in old if unit.start < end and start < unit.end]
                changes[term][" │ ".join(there)] += 1
                changed = True
        changed_texts += changed
    return TermsCheck(before, after, occurrences, changes, changed_texts)
