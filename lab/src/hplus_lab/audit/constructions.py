"""The ways of dividing texts into units that an audit compares.

Length-matched random spans draw from the CRF's own histogram of lengths on the same texts, once
for each of five seeds. Equal chunks are, in each text, as many as the CRF has units there.
Content-word runs are the units of a model without a trained CRF.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np

from hplus.errors import InputError
from hplus.teach.align import tags_of_units
from hplus.types import Bool, Span, Tokens
from hplus.units import rules
from hplus.units.partition import (
    begins_of_tags,
    keep_characters_whole,
    partition,
    spans_of_units,
)
from hplus.units.terms import Terms, override
from hplus_lab.length_histogram import histogram_random, length_histogram

SEEDS = (13, 42, 2027, 3407, 9001)
NEEDED = {"crf+trie": "a list of terms (--terms)", "teacher": "a file of labels (--teacher)"}
"""Constructions that need more than a model, and what they need."""


def constructions(
    tokens: Tokens,
    crf: Bool,
    *,
    terms: Terms | None = None,
    teacher: Mapping[str, Sequence[Span]] | None = None,
) -> dict[str, list[Bool]]:
    """Where units begin, bool[T], by each construction: one run each, five of the random one."""
    counts = np.diff(partition(crf, tokens.offsets).offsets)
    histogram = length_histogram(crf, tokens)
    made = {"crf": [crf]}
    if terms is not None:
        made["crf+trie"] = [keep_characters_whole(override(crf, tokens, terms), tokens)]
    if teacher is not None:
        made["teacher"] = [_taught(tokens, teacher)]
    return made | {
        "whole words": [rules.whole_words(tokens)],
        "content-word runs": [rules.content_word_runs(tokens)],
        "whitespace words": [rules.whole_words_by_whitespace(tokens)],
        "random": [histogram_random(tokens, histogram, seed) for seed in SEEDS],
        "bigrams": [rules.ngrams(tokens, 2)],
        "trigrams": [rules.ngrams(tokens, 3)],
        "equal chunks": [rules.equal_chunks(tokens, counts)],
    }


def units_of(tokens: Tokens, begins: Bool) -> list[list[Span]]:
    """The units of each text, in characters."""
    units = partition(begins, tokens.offsets)
    spans = [Span(*span) for span in spans_of_units(tokens, units).tolist()]
    return [spans[first:last] for first, last in pairwise(units.offsets.tolist())]


def ends_of(tokens: Tokens) -> list[int]:
    """Where the last token of each text ends: no system can find what the window left out."""
    return [
        int(tokens.spans[first:last, 1].max()) if last > first else 0
        for first, last in pairwise(tokens.offsets.tolist())
    ]


def _taught(tokens: Tokens, teacher: Mapping[str, Sequence[Span]]) -> Bool:
    absent = [text for text in tokens.texts if text not in teacher]
    if absent:
        raise InputError(
            f"the teacher has no labels for {len(absent)} of {len(tokens)} texts, the first "
            f"{absent[0][:40]!r}; label the texts of the audit"
        )
    tags = tags_of_units(tokens, [teacher[text] for text in tokens.texts])
    return keep_characters_whole(begins_of_tags(tags, tokens.offsets), tokens)
