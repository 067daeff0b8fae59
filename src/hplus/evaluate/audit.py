"""The boundary audit: ways of cutting texts, held against what people marked.

For each construction: boundary F1 (mean over items), exact and multi-token span F1 and term
recall (over all items together), and how many items show each kind of error. The CRF is then
compared with every other construction, item by item. Boundary F1 need not tell how well units
retrieve: `gain_correlation` puts it beside what each query gains by Phrase over Token.

Length-matched random spans draw from the CRF's own histogram of lengths on the same texts, and
every figure of theirs is the mean over five seeds. Equal chunks are, in each text, as many as the
CRF has units there. Content-word runs are what is cut before there is a CRF.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hplus.errors import CheckpointError, InputError
from hplus.evaluate.audit_file import Item
from hplus.evaluate.audit_measures import (
    FLAGS,
    Agreement,
    Annotator,
    Reference,
    agreement,
    boundary_f1,
    count,
    f1,
    reference_of,
    total,
)
from hplus.progress import show_progress
from hplus.states_file import cut, stored_states
from hplus.teach.align import tags_of_units
from hplus.types import F64, Bool, Span, Tokens
from hplus.units import controls
from hplus.units.partition import (
    begins_of_tags,
    keep_characters_whole,
    partition,
    spans_of_units,
)
from hplus.units.terms import Terms, override

if TYPE_CHECKING:
    from hplus.model import HPlus

SEEDS = (13, 42, 2027, 3407, 9001)
NEEDED = {"crf+trie": "a list of terms (--terms)", "teacher": "a file of labels (--teacher)"}
"""Constructions that need more than a model, and what."""


@dataclass(frozen=True)
class Row:
    """One construction; of several runs, the means.

    boundary_f1 f64[n], item by item, nan where no gap counts; the others over all items, nan
    where there is nothing to count; flags: items that show each kind of error, and any.
    """

    boundary_f1: F64
    exact_f1: float
    multi_f1: float
    term_recall: float
    flags: dict[str, float]
    flagged: float
    units: float
    """Units a text."""


@dataclass(frozen=True)
class Correlation:
    """Spearman's rho of boundary F1 and gain over the items with both; nan where undefined."""

    items: int
    rho: float
    p: float


@dataclass(frozen=True)
class Audit:
    """Constructions by name, the CRF first, on the same items. Of all tokens of the audit the
    `unseen` ones lie beyond the model's window and count for no construction."""

    rows: dict[str, Row]
    items: int
    tokens: int
    unseen: int
    agreement: Agreement | None
    correlation: Correlation | None


def audit(
    model: HPlus,
    items: Sequence[Item],
    cache: Path,
    *,
    reference: Annotator = "A",
    terms: Terms | None = None,
    teacher: Mapping[str, Sequence[Span]] | None = None,
    gains: Mapping[str, float] | None = None,
    name: str = "items",
) -> Audit:
    """Every construction that can be made, against one annotator or the union of both.

    teacher: the units of each text, as `hplus teach labels` makes them; gains: what each query,
    by id or text, gains. Texts are cut at the window; `name` stands beside the progress bars.
    """
    crf = model.checkpoint.crf
    if crf is None:
        raise CheckpointError(f"{model.recipe.name} has no trained CRF whose units to audit")
    whole = [reference_of(item, reference) for item in items]
    if not any(own.gaps for own in whole):
        raise InputError(f"none of the {len(items)} items has a gap between tokens to judge")
    stored = stored_states(model, [item.text for item in items], cache, progress=f"encoding {name}")
    tokens = stored.tokens
    references = [
        reference_of(item, reference, seen=end)
        for item, end in zip(items, _ends(tokens), strict=True)
    ]
    made = constructions(tokens, cut(crf, stored), terms=terms, teacher=teacher)
    rows = {}
    with show_progress(f"auditing {name}", sum(map(len, made.values()))) as bar:
        for construction, runs in made.items():
            scored = []
            for begins in runs:
                scored.append(_score(references, units_of(tokens, begins)))
                bar.advance(1)
            rows[construction] = _mean(scored)
    every, seen = (sum(len(own.tokens) for own in side) for side in (whole, references))
    correlation = gain_correlation(items, rows["crf"].boundary_f1, gains) if gains else None
    return Audit(rows, len(items), every, every - seen, agreement(items), correlation)


def constructions(
    tokens: Tokens,
    crf: Bool,
    *,
    terms: Terms | None = None,
    teacher: Mapping[str, Sequence[Span]] | None = None,
) -> dict[str, list[Bool]]:
    """Where units begin, bool[T], by each construction: a run each, five of the random one."""
    counts = np.diff(partition(crf, tokens.offsets).offsets)
    histogram = controls.length_histogram(crf, tokens)
    made = {"crf": [crf]}
    if terms is not None:
        made["crf+trie"] = [keep_characters_whole(override(crf, tokens, terms), tokens)]
    if teacher is not None:
        made["teacher"] = [_taught(tokens, teacher)]
    return made | {
        "whole words": [controls.whole_words(tokens)],
        "content-word runs": [controls.content_word_runs(tokens)],
        "whitespace words": [controls.whole_words_by_whitespace(tokens)],
        "random": [controls.histogram_random(tokens, histogram, seed) for seed in SEEDS],
        "bigrams": [controls.ngrams(tokens, 2)],
        "trigrams": [controls.ngrams(tokens, 3)],
        "equal chunks": [controls.equal_chunks(tokens, counts)],
    }


def units_of(tokens: Tokens, begins: Bool) -> list[list[Span]]:
    """The units of each text, in characters."""
    units = partition(begins, tokens.offsets)
    spans = [Span(*span) for span in spans_of_units(tokens, units).tolist()]
    return [spans[first:last] for first, last in pairwise(units.offsets.tolist())]


def gain_correlation(items: Sequence[Item], values: F64, gains: Mapping[str, float]) -> Correlation:
    """Boundary F1 f64[n] beside the gain of the item's query, found by its id or by its text.

    Items without a gain or a boundary F1 are left out. Undefined for fewer than three items, or
    where one side does not vary.
    """
    pairs = []
    for item, value in zip(items, values.tolist(), strict=True):
        known = [key for key in (item.query_id, item.text) if key is not None and key in gains]
        if known and not np.isnan(value):
            pairs.append((value, gains[known[0]]))
    if not pairs:
        raise InputError(
            f"none of the {len(gains)} gains is of a query of this audit; "
            "name them by query_id or by text"
        )
    ours, theirs = np.array(pairs).T
    if len(pairs) < 3 or np.ptp(ours) == 0 or np.ptp(theirs) == 0:
        return Correlation(len(pairs), float("nan"), float("nan"))
    from scipy import stats

    found = stats.spearmanr(ours, theirs)
    return Correlation(len(pairs), float(found.statistic), float(found.pvalue))


def _taught(tokens: Tokens, teacher: Mapping[str, Sequence[Span]]) -> Bool:
    absent = [text for text in tokens.texts if text not in teacher]
    if absent:
        raise InputError(
            f"the teacher has no labels for {len(absent)} of {len(tokens)} texts, the first "
            f"{absent[0][:40]!r}; label the texts of the audit"
        )
    tags = tags_of_units(tokens, [teacher[text] for text in tokens.texts])
    return keep_characters_whole(begins_of_tags(tags, tokens.offsets), tokens)


def _ends(tokens: Tokens) -> list[int]:
    """Where the last token of each text ends: what the window cut off, no system can cut."""
    return [
        int(tokens.spans[first:last, 1].max()) if last > first else 0
        for first, last in pairwise(tokens.offsets.tolist())
    ]


def _score(references: Sequence[Reference], units: Sequence[Sequence[Span]]) -> Row:
    counts = [count(reference, own) for reference, own in zip(references, units, strict=True)]
    every = total(counts)
    multi = f1(every.multi, every.predicted_multi, every.exact_multi)
    return Row(
        boundary_f1(references, counts),
        f1(every.units, every.predicted_units, every.exact),
        multi if every.multi else float("nan"),
        every.whole / every.terms if every.terms else float("nan"),
        {name: float(getattr(every, name)) for name in FLAGS},
        float(sum(any(own[-len(FLAGS) :]) for own in counts)),
        sum(map(len, units)) / len(units),
    )


def _mean(runs: Sequence[Row]) -> Row:
    def mean(name: str) -> float:
        return float(np.mean([getattr(run, name) for run in runs]))

    return Row(
        np.mean([run.boundary_f1 for run in runs], axis=0),
        mean("exact_f1"),
        mean("multi_f1"),
        mean("term_recall"),
        {name: float(np.mean([run.flags[name] for run in runs])) for name in FLAGS},
        mean("flagged"),
        mean("units"),
    )
