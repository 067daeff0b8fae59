"""The texts of a run as token ids, each side read as the model reads it, cut at a length."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from hplus.backbones import Backbone
from hplus.backbones.encode import capacity, cut_tokens
from hplus.recipe import Recipe, Side
from hplus.types import I32, I64, U8, Bool, Tokens, offsets_of, rows_of


@dataclass(frozen=True)
class Texts:
    """Texts of one side: their tokens, and what stands before and after each of them."""

    tokens: Tokens
    before: I32
    after: I32
    unknown: int
    """Id of the unknown token, -1 if there is none."""

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def around(self) -> int:
        """Special tokens and prompt of one text."""
        return len(self.before) + len(self.after)

    @property
    def lengths(self) -> I64:
        """Tokens of each text, what stands around it included."""
        return np.diff(self.tokens.offsets) + self.around

    def sequence(self, row: int) -> I32:
        """All ids of a text, as the encoder reads them."""
        first, last = self.tokens.offsets[row : row + 2].tolist()
        return np.concatenate([self.before, self.tokens.ids[first:last], self.after])

    def strings(self, rows: I64) -> tuple[str, ...]:
        """The texts of these rows as they were written."""
        return tuple(self.tokens.texts[row] for row in rows.tolist())

    def take(self, rows: I64) -> Texts:
        """These texts, in this order."""
        own, offsets = rows_of(self.tokens.offsets, rows)
        tokens = Tokens(self.strings(rows), self.tokens.ids[own], self.tokens.spans[own], offsets)
        return Texts(tokens, self.before, self.after, self.unknown)

    def inside(self) -> I64:
        """Positions of the texts' own tokens among all, i64[T]."""
        lengths = np.diff(self.tokens.offsets)
        shift = np.arange(len(self)) * self.around + len(self.before)
        return np.arange(len(self.tokens.ids)) + np.repeat(shift, lengths)

    def known(self) -> Bool:
        """Whether the tokenizer knows a token, what stands around the texts included, bool[…]."""
        flags = np.ones(int(self.lengths.sum()), np.bool_)
        flags[self.inside()] = self.tokens.ids != self.unknown
        return flags


@dataclass(frozen=True)
class StoredTexts(Texts):
    """Texts on disk, of which `take` reads the rows it is asked for; `tokens.texts` is empty.

    characters u8: all texts in UTF-8, with bounds i64[n + 1].
    """

    characters: U8
    bounds: I64

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def strings(self, rows: I64) -> tuple[str, ...]:
        """The texts of these rows as they were written."""
        return tuple(
            self.characters[self.bounds[row] : self.bounds[row + 1]]
            .tobytes()
            .decode("utf-8", "surrogatepass")
            for row in rows.tolist()
        )


def read_texts(
    texts: Sequence[str], backbone: Backbone, recipe: Recipe, side: Side, length: int
) -> Texts:
    """Texts as tokens, cut so that everything together has at most `length` of them."""
    reading = replace(recipe.reading(side), window=min(length, backbone.limit))
    tokenizer = backbone.tokenizer
    before = [*tokenizer.prefix, *tokenizer.prompt_ids(reading.prompt)]
    tokens = tokenizer.tokens(texts, reading.prompt)
    return Texts(
        cut_tokens(tokens, capacity(backbone, reading)),
        np.array(before, np.int32),
        np.array(tokenizer.suffix, np.int32),
        -1 if tokenizer.unknown is None else tokenizer.unknown,
    )


def chunks(lengths: I64, tokens: int) -> Iterator[I64]:
    """Rows of similar length together, at most `tokens` of them with padding; longest first."""
    order = np.argsort(-lengths, kind="stable")
    first = 0
    while first < len(order):
        size = max(1, tokens // max(1, int(lengths[order[first]])))
        yield order[first : first + size]
        first += size


def packed_order(lengths: I64, pieces: Sequence[I64]) -> I64:
    """Where each token of the texts, in their order, is in the pieces one after another."""
    offsets = offsets_of(lengths)
    order = np.concatenate([np.empty(0, np.int64), *pieces])
    places, _ = rows_of(offsets, order)  # token of each place in the pieces
    inverse = np.empty_like(places)
    inverse[places] = np.arange(len(places))
    return inverse
