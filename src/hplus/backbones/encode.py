"""Tokens -> states: windows, packs, stitching; the same for every backbone.

A text longer than the window is read in overlapping windows, and each of its tokens is taken
from the window in which it stands furthest from an edge, so every token counts once. Windows
are sorted by length and packed into batches of about PACK tokens.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np

from hplus.backbones import Backbone
from hplus.errors import InputError
from hplus.types import F32, I64, States, Tokens, offsets_of

Long = Literal["stitch", "cut"]
# Tokens of one batch. Large enough for the matrix products, small enough for the caches and for
# an even share between threads (measured: 512 to 2,048 are alike, 4,096 is slower).
PACK = 1_024


@dataclass(frozen=True)
class Windows:
    """Windows of a batch: window w reads tokens first[w]:last[w] (rows of `Tokens.ids`) and
    gives the states of keep_first[w]:keep_last[w]; i64[W] each."""

    text: I64
    first: I64
    last: I64
    keep_first: I64
    keep_last: I64


def plan_windows(offsets: I64, capacity: int) -> Windows:
    """Lay windows of at most `capacity` tokens over the texts; texts without tokens get none.

    Consecutive windows share a quarter of their tokens or more and are spread evenly; a token
    goes to the window whose centre is nearest, that is, in which it is furthest from an edge.
    """
    overlap = capacity // 4
    rows: list[tuple[int, int, int, int, int]] = []
    for text, (begin, end) in enumerate(pairwise(offsets.tolist())):
        n = end - begin
        if n == 0:
            continue
        if n <= capacity:
            rows.append((text, begin, end, begin, end))
            continue
        count = -(-(n - overlap) // (capacity - overlap))
        starts = [begin + round(i * (n - capacity) / (count - 1)) for i in range(count)]
        borders = [(a + b + capacity) // 2 for a, b in pairwise(starts)]
        keeps = zip([begin, *borders], [*borders, end], strict=True)
        rows += [(text, s, s + capacity, *keep) for s, keep in zip(starts, keeps, strict=True)]
    table = np.array(rows, np.int64).reshape(-1, 5)
    return Windows(*table.T)


def capacity(backbone: Backbone, window: int) -> int:
    """Tokens of the text that a window holds beside the special ones."""
    specials = len(backbone.tokenizer.prefix) + len(backbone.tokenizer.suffix)
    if not specials < window <= backbone.limit:
        raise InputError(
            f"window {window} asked; this backbone reads {specials + 1} to {backbone.limit} tokens"
        )
    return window - specials


def cut_tokens(tokens: Tokens, capacity: int) -> Tokens:
    """Only the tokens of each text's first window."""
    lengths = np.diff(tokens.offsets)
    position = np.arange(len(tokens.ids)) - np.repeat(tokens.offsets[:-1], lengths)
    seen = position < capacity
    offsets = offsets_of(np.minimum(lengths, capacity))
    return Tokens(tokens.texts, tokens.ids[seen], tokens.spans[seen], offsets)


def encode_states(
    backbone: Backbone,
    tokens: Tokens,
    *,
    window: int,
    long: Long = "stitch",
    threads: int = 1,
    layer: int | None = None,
    advance: Callable[[int], None] = lambda _: None,
) -> States:
    """Contextual states of all tokens, and their mean per text.

    `layer` is the one whose states become `inner`; None is the last.

    With long="cut" the tokens beyond the first window are left out, and `cut` counts them.
    `advance(n)` is called as n more texts are done.
    """
    tokenizer = backbone.tokenizer
    specials = len(tokenizer.prefix) + len(tokenizer.suffix)
    room = capacity(backbone, window)
    read = cut_tokens(tokens, room) if long == "cut" else tokens
    plan = plan_windows(read.offsets, room)
    lengths = plan.last - plan.first
    order = np.argsort(lengths, kind="stable")
    packs = _packs(order, lengths + specials)

    dim = backbone.dim
    wanted = [backbone.depth] if layer in (None, backbone.depth) else [backbone.depth, layer]
    states = np.empty((len(read.ids), dim), np.float32)
    inner = states if len(wanted) == 1 else np.empty_like(states)
    is_first = plan.keep_first == read.offsets[plan.text]
    is_last = np.r_[plan.text[1:] != plan.text[:-1], True][: len(plan.text)]

    def run(pack: I64) -> None:
        prefix = np.array(tokenizer.prefix, np.int32)
        suffix = np.array(tokenizer.suffix, np.int32)
        pieces = [
            part for w in pack for part in (prefix, read.ids[plan.first[w] : plan.last[w]], suffix)
        ]
        bounds = offsets_of(lengths[pack] + specials)
        packed, *below = backbone.layers(np.concatenate(pieces), bounds, wanted)
        for w, begin, end in zip(pack, bounds[:-1], bounds[1:], strict=True):
            keep = slice(plan.keep_first[w], plan.keep_last[w])
            at = begin + len(prefix) + keep.start - plan.first[w]
            kept = packed[at : at + keep.stop - keep.start]
            states[keep] = kept
            if below:
                inner[keep] = below[0][at : at + keep.stop - keep.start]
            window_sums[w] = kept.sum(axis=0, dtype=np.float64)
            # Special tokens belong to the mean that MiniLM-like checkpoints were trained with;
            # of a stitched text, the first window's prefix and the last window's suffix.
            if is_first[w]:
                window_sums[w] += packed[begin : begin + len(prefix)].sum(axis=0)
            if is_last[w]:
                window_sums[w] += packed[end - len(suffix) : end].sum(axis=0)
        advance(int(is_last[pack].sum()))

    window_sums = np.zeros((len(plan.text), dim), np.float64)
    _run_all(backbone, run, packs, threads)
    sums = np.zeros((len(read), dim), np.float64)
    np.add.at(sums, plan.text, window_sums)
    counts = np.diff(read.offsets)
    mean: F32 = (sums / np.maximum(counts + specials, 1)[:, None]).astype(np.float32)
    windows = np.bincount(plan.text, minlength=len(read)).astype(np.int32)
    advance(int((counts == 0).sum()))
    cut = (np.diff(tokens.offsets) - np.diff(read.offsets)).astype(np.int32)
    return States(read, states, inner, mean, windows, cut)


def _packs(order: I64, lengths: I64) -> list[I64]:
    """Windows in `order` as batches of about PACK tokens, the largest first."""
    filled = np.cumsum(lengths[order])
    borders = np.searchsorted(filled, np.arange(PACK, int(filled[-1]) if len(filled) else 0, PACK))
    return [pack for pack in np.split(order, np.unique(borders)) if len(pack)][::-1]


def _run_all(
    backbone: Backbone, run: Callable[[I64], None], packs: list[I64], threads: int
) -> None:
    if threads == 1 or len(packs) == 1 or not backbone.concurrent:
        for pack in packs:
            run(pack)
        return
    with backbone.one_thread_each(), ThreadPoolExecutor(threads) as pool:
        try:
            for _ in pool.map(run, packs):
                pass
        except BaseException:  # an interrupt must not wait for the packs not yet begun
            pool.shutdown(wait=False, cancel_futures=True)
            raise
