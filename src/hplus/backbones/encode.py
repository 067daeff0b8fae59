"""Tokens -> states: prompts, windows, packs, stitching; the same for every backbone.

A text longer than the window is read in overlapping windows, and each of its tokens is taken
from the window in which it stands furthest from an edge, so every token counts once. Every window
begins with the prompt, as the encoder never saw a text without it. Windows are sorted by length
and packed into batches of about PACK tokens.
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
from hplus.types import F32, F64, I32, I64, States, Tokens, item_of_row, offsets_of

Long = Literal["stitch", "cut"]
Pooling = Literal["mean", "cls", "last"]
MeanOver = Literal["all", "text"]
# Tokens of one batch. Large enough for the matrix products, small enough for the caches and for
# an even share between threads (measured: 512 to 2,048 are alike, 4,096 is slower).
PACK = 1_024


@dataclass(frozen=True)
class Reading:
    """How the texts of one side are read, as the encoder was trained to read them.

    window: tokens of one pass, special ones and the prompt included. long: "stitch" windows
    together, or "cut" at the first. layer: the one whose states the heads read, None the last.
    prompt: what stands before every text; its tokens take part in attention and in the mean, and
    are no part of the text. pooling: the global vector is the mean of the states, the first one
    (cls) or the last one (last); of a stitched text, cls and last are means over its windows.
    mean_over: "all" tokens, or those of the "text" without special tokens and prompt.
    """

    window: int
    long: Long = "stitch"
    layer: int | None = None
    prompt: str = ""
    pooling: Pooling = "mean"
    mean_over: MeanOver = "all"


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


def capacity(backbone: Backbone, reading: Reading) -> int:
    """Tokens of the text that a window holds beside the special ones and the prompt."""
    before, after = _surroundings(backbone, reading)
    taken = len(before) + len(after)
    if not taken < reading.window <= backbone.limit:
        raise InputError(
            f"expected a window of {taken + 1} to {backbone.limit} tokens, got {reading.window}"
            + (f" ({taken} of them are special tokens and the prompt)" if reading.prompt else "")
        )
    return reading.window - taken


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
    reading: Reading,
    *,
    threads: int = 1,
    advance: Callable[[float], None] = lambda _: None,
) -> States:
    """Contextual states of all tokens, and the pooled vector of each text.

    `tokens` are those of `Tokenizer.tokens(texts, reading.prompt)`. With long="cut" the tokens
    beyond the first window are left out, and `cut` counts them. `advance(n)` is called as n more
    texts are done, of a long one as its windows are.
    """
    before, after = _surroundings(backbone, reading)
    room = capacity(backbone, reading)
    read = cut_tokens(tokens, room) if reading.long == "cut" else tokens
    plan = plan_windows(read.offsets, room)
    lengths = plan.last - plan.first
    sizes = lengths + len(before) + len(after)
    packs = _packs(np.argsort(lengths, kind="stable"), sizes)

    dim, depth = backbone.dim, backbone.depth
    wanted = [depth] if reading.layer in (None, depth) else [depth, reading.layer]
    states = np.empty((len(read.ids), dim), np.float32)
    inner = states if len(wanted) == 1 else np.empty_like(states)
    by_window = np.zeros((len(plan.text), dim), np.float64)
    is_first = plan.keep_first == read.offsets[plan.text]
    is_last = np.r_[plan.text[1:] != plan.text[:-1], True][: len(plan.text)]
    counts = np.diff(read.offsets)
    # What part of its text each window gives.
    share = (plan.keep_last - plan.keep_first) / counts[plan.text]

    # Unknown pieces share one token, and two of them need not be the same piece: no direction, so
    # that they match nothing; a text of nothing else has no global vector either.
    is_known = read.ids != (
        -1 if backbone.tokenizer.unknown is None else backbone.tokenizer.unknown
    )
    has_known = np.bincount(item_of_row(read.offsets)[is_known], minlength=len(read)) > 0

    # A closure: the packs of all threads write into the same arrays.
    def run(pack: I64) -> None:
        pieces = [
            part for w in pack for part in (before, read.ids[plan.first[w] : plan.last[w]], after)
        ]
        bounds = offsets_of(sizes[pack])
        packed, *below = backbone.layers(np.concatenate(pieces), bounds, wanted)
        for w, begin, end in zip(pack, bounds[:-1], bounds[1:], strict=True):
            keep = slice(plan.keep_first[w], plan.keep_last[w])
            at = begin + len(before) + keep.start - plan.first[w]
            kept = slice(at, at + keep.stop - keep.start)
            packed[kept][~is_known[keep]] = 0
            states[keep] = packed[kept]
            if below:
                inner[keep] = below[0][kept]
            # Of a stitched text, what surrounds it counts once: before the first window and after
            # the last.
            ends = (
                packed[begin : begin + len(before) * int(is_first[w])],
                packed[end - len(after) * int(is_last[w]) : end],
            )
            by_window[w] = _pool(packed[begin:end], packed[kept], ends, reading)
        advance(float(share[pack].sum()))

    _run_all(backbone, run, packs, threads)
    sums = np.zeros((len(read), dim), np.float64)
    np.add.at(sums, plan.text, by_window)
    windows = np.bincount(plan.text, minlength=len(read)).astype(np.int32)
    sums[~has_known] = 0
    summed = pooled_states(backbone, reading, counts, windows)
    pooled: F32 = (sums / np.maximum(summed, 1)[:, None]).astype(np.float32)
    advance(int((counts == 0).sum()))
    cut = (np.diff(tokens.offsets) - np.diff(read.offsets)).astype(np.int32)
    return States(read, states, inner, pooled, windows, cut)


def pooled_states(backbone: Backbone, reading: Reading, tokens: I64, windows: I32) -> I64:
    """Of how many states each text's pooled vector is the mean, i64[n]."""
    if reading.pooling != "mean":
        return windows.astype(np.int64)
    around = sum(map(len, _surroundings(backbone, reading)))
    return tokens + around if reading.mean_over == "all" else tokens


def _surroundings(backbone: Backbone, reading: Reading) -> tuple[I32, I32]:
    """What stands before and after the tokens of a window: special tokens and the prompt."""
    tokenizer = backbone.tokenizer
    before = [*tokenizer.prefix, *tokenizer.prompt_ids(reading.prompt)]
    return np.array(before, np.int32), np.array(tokenizer.suffix, np.int32)


def _pool(window: F32, kept: F32, ends: tuple[F32, F32], reading: Reading) -> F64:
    """What a window adds to its text's global vector: a state, or a sum of states, f64[d]."""
    if reading.pooling != "mean":
        state: F64 = window[0 if reading.pooling == "cls" else -1].astype(np.float64)
        return state
    total: F64 = kept.sum(axis=0, dtype=np.float64)
    if reading.mean_over == "all":
        for rows in ends:
            total += rows.sum(axis=0)
    return total


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
