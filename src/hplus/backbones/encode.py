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
from hplus.types import F32, I32, I64, Bool, States, Tokens, offsets_of

Long = Literal["stitch", "cut"]
# Tokens of one batch. Large enough for the matrix products, small enough for the caches and for
# an even share between threads (measured: 1,024 to 4,096 are alike).
PACK = 2_048


@dataclass(frozen=True)
class Windows:
    """Windows of a batch: window w reads tokens first[w]:last[w] (rows of `Tokens.ids`) and
    gives the states of keep_first[w]:keep_last[w]; i64[W] each."""

    text: I64
    first: I64
    last: I64
    keep_first: I64
    keep_last: I64


def plan_windows(offsets: I64, capacity: int, long: Long) -> Windows:
    """Lay windows of at most `capacity` tokens over the texts; texts without tokens get none.

    Consecutive windows share at least a quarter of their tokens and are spread evenly; a token
    goes to the window whose centre is nearest, that is, in which it is furthest from an edge.
    """
    overlap = capacity // 4
    rows: list[tuple[int, int, int, int, int]] = []
    for text, (begin, end) in enumerate(pairwise(offsets.tolist())):
        n = end - begin
        if n == 0:
            continue
        if n <= capacity or long == "cut":
            stop = begin + min(n, capacity)
            rows.append((text, begin, stop, begin, stop))
            continue
        count = -(-(n - overlap) // (capacity - overlap))
        starts = [begin + round(i * (n - capacity) / (count - 1)) for i in range(count)]
        borders = [(a + b + capacity) // 2 for a, b in pairwise(starts)]
        keeps = zip([begin, *borders], [*borders, end], strict=True)
        rows += [(text, s, s + capacity, *keep) for s, keep in zip(starts, keeps, strict=True)]
    table = np.array(rows, np.int64).reshape(-1, 5)
    return Windows(*table.T)


def encode_states(
    backbone: Backbone,
    tokens: Tokens,
    *,
    window: int,
    long: Long = "stitch",
    threads: int = 1,
    advance: Callable[[int], None] = lambda _: None,
) -> States:
    """Contextual states of all tokens, and their mean per text.

    With long="cut" the tokens beyond the first window are left out, and `cut` counts them.
    `advance(n)` is called as n more texts are done.
    """
    tokenizer = backbone.tokenizer
    specials = len(tokenizer.prefix) + len(tokenizer.suffix)
    capacity = window - specials
    if not specials < window <= backbone.limit:
        raise InputError(
            f"window {window} asked; this backbone reads {specials + 1} to {backbone.limit} tokens"
        )
    plan = plan_windows(tokens.offsets, capacity, long)
    lengths = plan.last - plan.first
    order = np.argsort(lengths, kind="stable")
    packs = _packs(order, lengths + specials)

    dim = backbone.dim
    states = np.empty((len(tokens.ids), dim), np.float32)
    sums = np.zeros((len(tokens), dim), np.float64)
    counts = np.zeros(len(tokens), np.int64)
    is_first = plan.keep_first == tokens.offsets[plan.text]
    is_last = np.r_[plan.text[1:] != plan.text[:-1], True][: len(plan.text)]

    def run(pack: I64) -> None:
        prefix = np.array(tokenizer.prefix, np.int32)
        suffix = np.array(tokenizer.suffix, np.int32)
        pieces = [
            part
            for w in pack
            for part in (prefix, tokens.ids[plan.first[w] : plan.last[w]], suffix)
        ]
        bounds = offsets_of(lengths[pack] + specials)
        packed = backbone.forward(np.concatenate(pieces), bounds)
        for w, begin, end in zip(pack, bounds[:-1], bounds[1:], strict=True):
            keep = slice(plan.keep_first[w], plan.keep_last[w])
            at = begin + len(prefix) + keep.start - plan.first[w]
            kept = packed[at : at + keep.stop - keep.start]
            states[keep] = kept
            window_sums[w] = kept.sum(axis=0, dtype=np.float64)
            # Special tokens belong to the mean that MiniLM-like checkpoints were trained with;
            # of a stitched text, the first window's prefix and the last window's suffix.
            if is_first[w]:
                window_sums[w] += packed[begin : begin + len(prefix)].sum(axis=0)
            if is_last[w]:
                window_sums[w] += packed[end - len(suffix) : end].sum(axis=0)
        advance(int(is_last[pack].sum()))

    window_sums = np.zeros((len(plan.text), dim), np.float64)
    _run_all(run, packs, threads if backbone.concurrent else 1)
    np.add.at(sums, plan.text, window_sums)
    np.add.at(counts, plan.text, plan.keep_last - plan.keep_first)
    seen = counts > 0
    counts[seen] += specials
    mean: F32 = (sums / np.maximum(counts, 1)[:, None]).astype(np.float32)
    windows = np.bincount(plan.text, minlength=len(tokens)).astype(np.int32)
    advance(int((~seen).sum()))
    if long == "cut":
        return _cut(tokens, states, mean, windows, plan)
    return States(tokens, states, mean, windows, np.zeros(len(tokens), np.int32))


def _packs(order: I64, lengths: I64) -> list[I64]:
    """Windows in `order` as batches of about PACK tokens, the largest first."""
    filled = np.cumsum(lengths[order])
    borders = np.searchsorted(filled, np.arange(PACK, int(filled[-1]) if len(filled) else 0, PACK))
    return [pack for pack in np.split(order, np.unique(borders)) if len(pack)][::-1]


def _run_all(run: Callable[[I64], None], packs: list[I64], threads: int) -> None:
    if threads == 1 or len(packs) == 1:
        for pack in packs:
            run(pack)
        return
    from threadpoolctl import threadpool_limits

    # Each thread has its own pack, so that element-wise work is shared as well as the products;
    # BLAS threads on top of that would only fight for the cores.
    with threadpool_limits(1, user_api="blas"), ThreadPoolExecutor(threads) as pool:
        for _ in pool.map(run, packs):
            pass


def _cut(tokens: Tokens, states: F32, mean: F32, windows: I32, plan: Windows) -> States:
    """Leave the tokens that no window read out of everything that follows."""
    seen: Bool = np.zeros(len(tokens.ids), np.bool_)
    for first, last in zip(plan.keep_first, plan.keep_last, strict=True):
        seen[first:last] = True
    kept = np.zeros(len(tokens), np.int64)
    kept[plan.text] = plan.keep_last - plan.keep_first
    cut = (np.diff(tokens.offsets) - kept).astype(np.int32)
    short = Tokens(tokens.texts, tokens.ids[seen], tokens.spans[seen], offsets_of(kept))
    return States(short, states[seen], mean, windows, cut)
