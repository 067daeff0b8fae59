"""Texts -> the token ids a baseline's encoder reads: prompt, marker, cut, expansion."""

from __future__ import annotations

import string
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from hplus.backbones.tokenizer import Tokenizer
from hplus.errors import BackboneError, InputError
from hplus.types import I32, I64, Bool, offsets_of
from hplus_lab.baselines.baseline import Baseline, Side


@dataclass(frozen=True)
class Sequences:
    """Sequences one after another, special tokens included: rows offsets[i]:offsets[i + 1].

    ids i32[T]; segments i32[T], 1 in the second text of a pair; attended bool[T], which tokens the
    others see; kept bool[T], whose states become vectors of a multi-vector model.
    """

    ids: I32
    segments: I32
    attended: Bool
    kept: Bool
    offsets: I64

    def __len__(self) -> int:
        return len(self.offsets) - 1


def of_texts(
    baseline: Baseline, tokenizer: Tokenizer, texts: Sequence[str], side: Side
) -> Sequences:
    """[CLS] marker prompt text [SEP], cut to the length of its side; queries expanded where set."""
    late = baseline.late
    is_query = side == "query"
    prompt = baseline.query_prompt if is_query else baseline.document_prompt
    marker = baseline.query_marker if is_query else baseline.document_marker
    head = [*tokenizer.prefix, *([_token(baseline, tokenizer, marker)] if marker else [])]
    limit = baseline.max_tokens
    if is_query and late.query_tokens:
        limit = min(limit, late.query_tokens)
    room = _room(baseline, limit - len(head) - len(tokenizer.suffix), limit)
    tokens = tokenizer.tokens([prompt + text for text in texts])
    bodies = [tokens.ids[a:b][:room].tolist() for a, b in pairwise(tokens.offsets.tolist())]
    sequences = [[*head, *body, *tokenizer.suffix] for body in bodies]
    own = [len(sequence) for sequence in sequences]
    if 0 in own:
        raise InputError(
            f"texts[{own.index(0)}] has no tokens, and {baseline.name} adds no special ones; "
            "leave it out"
        )
    if is_query and late.expand:
        mask = _token(baseline, tokenizer, _mask_of(tokenizer))
        sequences = [[*s, *[mask] * (limit - len(s))] for s in sequences]
    offsets = offsets_of([len(sequence) for sequence in sequences])
    ids = np.array([i for sequence in sequences for i in sequence], np.int32)
    position = np.arange(len(ids)) - np.repeat(offsets[:-1], np.diff(offsets))
    attended = position < np.repeat(np.array(own, np.int64), np.diff(offsets))
    kept = np.ones(len(ids), np.bool_)
    if late.skip_first:
        kept &= position > 0
    if late.skip_punctuation and not is_query:
        kept &= ~np.isin(ids, _punctuation(tokenizer))
    return Sequences(ids, np.zeros_like(ids), attended, kept, offsets)


def of_pairs(
    baseline: Baseline, tokenizer: Tokenizer, pairs: Sequence[tuple[str, str]]
) -> Sequences:
    """[CLS] query [SEP] document [SEP]: the document is cut, the query only at half the length."""
    head, tail = tokenizer.prefix, tokenizer.suffix
    most = _room(baseline, baseline.max_tokens - len(head) - 2 * len(tail) - 1, baseline.max_tokens)
    first = tokenizer.tokens([query for query, _ in pairs])
    second = tokenizer.tokens([document for _, document in pairs])
    sequences: list[list[int]] = []
    lengths: list[int] = []
    for (a, b), (c, d) in zip(
        pairwise(first.offsets.tolist()), pairwise(second.offsets.tolist()), strict=True
    ):
        query = first.ids[a:b][: (most + 1) // 2].tolist()
        document = second.ids[c:d][: most + 1 - len(query)].tolist()
        sequences.append([*head, *query, *tail, *document, *tail])
        lengths.append(len(head) + len(query) + len(tail))
    offsets = offsets_of([len(sequence) for sequence in sequences])
    ids = np.array([i for sequence in sequences for i in sequence], np.int32)
    position = np.arange(len(ids)) - np.repeat(offsets[:-1], np.diff(offsets))
    segments = position >= np.repeat(np.array(lengths, np.int64), np.diff(offsets))
    every = np.ones(len(ids), np.bool_)
    return Sequences(ids, segments.astype(np.int32), every, every, offsets)


def _room(baseline: Baseline, room: int, limit: int) -> int:
    if room < 1:
        raise InputError(
            f"{baseline.name} cut at {limit} tokens leaves no room for a text besides "
            f"{limit - room} special ones; allow more tokens"
        )
    return room


def _token(baseline: Baseline, tokenizer: Tokenizer, token: str) -> int:
    found = tokenizer.inner.token_to_id(token)
    if found is None:
        raise BackboneError(
            f"the tokenizer of {baseline.name} has no token {token!r}; "
            "its folder holds another model's tokenizer.json"
        )
    return int(found)


def _mask_of(tokenizer: Tokenizer) -> str:
    """[MASK] as BERT, <mask> as RoBERTa spells it."""
    return "[MASK]" if tokenizer.inner.token_to_id("[MASK]") is not None else "<mask>"


def _punctuation(tokenizer: Tokenizer) -> I64:
    found = (tokenizer.inner.token_to_id(sign) for sign in string.punctuation)
    return np.array([number for number in found if number is not None], np.int64)
