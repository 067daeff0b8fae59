"""Threads that wait for work: starting one takes longer than the work of a query."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any, TypeVar

import numpy as np

from hplus.types import I64

Answer = TypeVar("Answer")
# Multiply-adds that justify a thread: about a quarter of a millisecond.
WORTH_A_THREAD = 1 << 23


def shares(starts: I64, ends: I64, threads: int, each: int) -> list[slice]:
    """Documents as runs of about as many rows, at most one run per thread, fewer if there is little
    to do; each: multiply-adds for a row."""
    if threads > 1:
        rows = np.cumsum(ends - starts)
        work = int(rows[-1]) * each if len(rows) else 0
        threads = min(threads, len(rows), work // WORTH_A_THREAD)
    if threads < 2:
        return [slice(0, len(starts))]
    edges = np.searchsorted(rows, rows[-1] * np.arange(1, threads) // threads).tolist()
    return [slice(a, b) for a, b in zip([0, *edges], [*edges, len(starts)], strict=True)]


def each_of(run: Callable[[Any], Answer], parts: Sequence[Any]) -> list[Answer]:
    """The answers for all parts: the first by this thread, the others at the same time."""
    if len(parts) == 1:
        return [run(parts[0])]
    waiting = [_workers().submit(run, part) for part in parts[1:]]
    return [run(parts[0]), *(future.result() for future in waiting)]


@cache
def _workers() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix="hplus")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_workers.cache_clear)  # a child has no threads
