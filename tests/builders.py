"""Small random data of the shapes that cross the rooms, for tests anywhere in the tree.

Everything takes a `numpy.random.Generator`, so one seed is one case. Units cover words of
three digits, one space apart, numbered through the text: the spans of unit "007" cover 28:31 of
the `text_of_words`, and a test can read off what an explanation should cite.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import fields, is_dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from hplus.teach.labels import Labelled
from hplus.types import (
    F32,
    I32,
    I64,
    Coverage,
    Encoded,
    Lexical,
    Span,
    Tokens,
    Units,
    item_of_row,
    offsets_of,
)
from hplus.units.select import Budget, spend
from hplus.units.vectors import normalise

WORD = re.compile(r"\w+|[^\w\s]")
VOCABULARY = 24
TERMS = ["type 2 diabetes", "heart failure", "chronic kidney disease", "insulin therapy", "cancer"]


def random_vectors(random: np.random.Generator, rows: int, width: int) -> F32:
    """Directions spread evenly, f32[rows, width], unit length."""
    return normalise(random.normal(size=(rows, width)).astype(np.float32))


def random_weights(random: np.random.Generator, rows: int, *, ties: bool = False) -> F32:
    """Positive importance; with `ties` small whole numbers, whose sums are exact."""
    drawn = random.integers(1, 4, rows) if ties else random.gamma(2.0, size=rows) + 0.01
    return drawn.astype(np.float32)


def spread_weights(random: np.random.Generator, rows: int) -> F32:
    """Importance over many orders of magnitude: sums in another order round differently."""
    return random.lognormal(sigma=3, size=rows).astype(np.float32)


def random_units(
    random: np.random.Generator, lengths: Sequence[int], width: int = 8, *, ties: bool = False
) -> Units:
    """`lengths[i]` units of one word each in text i, in reading order."""
    offsets = offsets_of(lengths)
    rows = int(offsets[-1])
    word = np.arange(rows) - offsets[item_of_row(offsets)]
    return Units(
        vectors=random_vectors(random, rows, width),
        weights=random_weights(random, rows, ties=ties),
        offsets=offsets,
        spans=spans_of_words(word),
        span_offsets=np.arange(rows + 1),
    )


def encode_units(units: Units, budget: Budget | None = None) -> Encoded:
    """Units under a budget as an `Encoded` whose other views are empty."""
    kept, dropped = spend(budget or Budget(), units)
    return encoded_of(kept, dropped, importance=sum_by(units.weights, units.offsets))


def encoded_of(kept: Units, dropped: Units, *, importance: F32) -> Encoded:
    """What a budget kept and dropped as an `Encoded` whose other views are empty."""
    texts = len(kept)
    return Encoded(
        global_=np.zeros((texts, 1), np.float32),
        units=kept,
        lexical=Lexical(
            np.empty(0, np.int32), np.empty(0, np.float32), np.zeros(texts + 1, np.int64)
        ),
        dropped=dropped,
        coverage=Coverage(
            tokens=np.zeros(texts, np.int32),
            windows=np.ones(texts, np.int32),
            cut=np.zeros(texts, np.int32),
            importance=importance,
            kept=sum_by(kept.weights, kept.offsets),
        ),
    )


def random_encoded(
    random: np.random.Generator,
    lengths: Sequence[int],
    width: int = 8,
    *,
    dropped: Sequence[int] | None = None,
    merged: bool = False,
) -> Encoded:
    """All three views of n texts; text i keeps `lengths[i]` units and dropped `dropped[i]`.

    Every word of a text belongs to one unit, kept or dropped; with `merged` a unit has one to
    three words, not always neighbours. Lexical ids are drawn from 0 … 23.
    """
    lost = [0] * len(lengths) if dropped is None else list(dropped)
    kept_words: list[list[int]] = []
    lost_words: list[list[int]] = []
    weights: list[F32] = []
    for keep, lose in zip(lengths, lost, strict=True):
        sizes = random.integers(1, 4, keep + lose) if merged else np.ones(keep + lose, np.int64)
        words = np.split(random.permutation(int(sizes.sum())), np.cumsum(sizes)[:-1])
        members = [sorted(piece.tolist()) for piece in words if len(piece)]
        kept_words += members[:keep]
        lost_words += members[keep:]
        weights.append(-np.sort(-spread_weights(random, keep + lose)))
    terms = [
        np.flatnonzero(random.random(VOCABULARY) < random.choice([0, 0.3, 0.9])) for _ in lengths
    ]
    weights_kept = [w[:keep] for w, keep in zip(weights, lengths, strict=True)]
    weights_lost = [w[keep:] for w, keep in zip(weights, lengths, strict=True)]
    offsets, dropped_offsets = offsets_of(lengths), offsets_of(lost)
    kept = joined(weights_kept, np.float32)
    return Encoded(
        global_=random_vectors(random, len(lengths), width),
        units=Units(
            vectors=random_vectors(random, len(kept), width),
            weights=kept,
            offsets=offsets,
            spans=spans_of_words(joined(kept_words, np.int64)),
            span_offsets=offsets_of([len(words) for words in kept_words]),
        ),
        lexical=Lexical(
            ids=joined(terms, np.int32),
            weights=spread_weights(random, sum(map(len, terms))),
            offsets=offsets_of([len(ids) for ids in terms]),
        ),
        dropped=Units(
            vectors=np.empty((sum(lost), 0), np.float32),
            weights=joined(weights_lost, np.float32),
            offsets=dropped_offsets,
            spans=spans_of_words(joined(lost_words, np.int64)),
            span_offsets=offsets_of([len(words) for words in lost_words]),
        ),
        coverage=Coverage(
            tokens=random.integers(0, 99, len(lengths)).astype(np.int32),
            windows=np.ones(len(lengths), np.int32),
            cut=random.integers(0, 9, len(lengths)).astype(np.int32),
            importance=sum_by(joined(weights, np.float32), offsets + dropped_offsets),
            kept=sum_by(kept, offsets),
        ),
    )


def with_units(encoded: Encoded, **arrays: Any) -> Encoded:
    """The same encoding with other arrays in its units."""
    return replace(encoded, units=replace(encoded.units, **arrays))


def random_labelled(random: np.random.Generator, count: int) -> list[Labelled]:
    """One to three TERMS per text, each after a function word."""
    made = []
    for _ in range(count):
        text, units = "", []
        for _ in range(random.integers(1, 4)):
            text += f"{random.choice(['the', 'of', 'with', 'and', 'is'])} "
            term = str(random.choice(TERMS))
            units.append(Span(len(text), len(text) + len(term)))
            text += f"{term} "
        made.append(Labelled(text.strip(), tuple(units), ("term",) * len(units)))
    return made


def text_of_words(words: int = 100) -> str:
    """The text under the random units: "000 001 002 …"."""
    return " ".join(f"{word:03d}" for word in range(words))


def spans_of_words(words: I64) -> I32:
    """Characters of word k in `text_of_words`, i32[k, 2]."""
    starts = 4 * np.asarray(words, np.int64)
    return np.stack([starts, starts + 3], axis=1).astype(np.int32)


def plain_tokens(*texts: str) -> Tokens:
    """Words and single signs as tokens; equal pieces of text have equal ids."""
    found = [list(WORD.finditer(text)) for text in texts]
    matches = [match for text in found for match in text]
    known: dict[str, int] = {}
    ids = [known.setdefault(match[0], len(known)) for match in matches]
    return Tokens(
        texts=texts,
        ids=np.array(ids, np.int32),
        spans=np.array([match.span() for match in matches], np.int32).reshape(-1, 2),
        offsets=offsets_of([len(text) for text in found]),
    )


def joined(parts: Sequence[Any], dtype: type) -> Any:
    """Parts one after another as one array; no parts, no rows."""
    return np.concatenate([np.empty(0, dtype), *parts]).astype(dtype)


def sum_by(values: F32, offsets: I64) -> F32:
    """Sum of each text's rows, f32[n], by a plain loop."""
    sums = [float(values[a:b].sum(dtype="f8")) for a, b in pairwise(offsets)]
    return np.array(sums, np.float32)


def assert_same(actual: Encoded, expected: Encoded, *, rtol: float = 0.0) -> None:
    """Equal in every field, dtype and shape; `rtol` is the tolerance for floats."""
    for name, part in arrays_of(expected).items():
        other = arrays_of(actual)[name]
        assert other.dtype == part.dtype, name
        assert other.shape == part.shape, name
        leeway = rtol if part.dtype.kind == "f" else 0.0
        np.testing.assert_allclose(other, part, rtol=leeway, atol=leeway, err_msg=name)


def arrays_of(value: Any, name: str = "") -> dict[str, Any]:
    """Every array of a dataclass and of those inside it, by its dotted name."""
    if not is_dataclass(value):
        return {name: value}
    parts = [arrays_of(getattr(value, f.name), f"{name}.{f.name}") for f in fields(value)]
    return {name: array for part in parts for name, array in part.items()}
