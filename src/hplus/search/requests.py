"""Requests from what people pass to `search`: one query or many, with options by name.

The queries of a list that have the same options share passes over the vectors, a few at a time, and
find what each of them finds alone, to the last bit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, replace
from typing import Any, TypeAlias, TypeVar

from hplus.errors import InputError
from hplus.types import Encoded, Search

Query: TypeAlias = str | Encoded | Search
Answer = TypeVar("Answer")
OPTIONS = [field.name for field in fields(Search)][1:]
# Queries that share a pass. With twice as many little is gained, and their vectors need twice the
# room in the cache (experiments/LOG.md).
TOGETHER = 32


def as_request(query: Query, options: Mapping[str, Any]) -> Search:
    """A request from what `search` was called with."""
    unknown = [name for name in options if name not in OPTIONS]
    if unknown:
        raise InputError(f"unknown option {min(unknown)!r}; known: {', '.join(OPTIONS)}")
    if isinstance(query, Search):
        return replace(query, **options)
    return Search(query, **options)


def as_requests(queries: Sequence[Query], options: Mapping[str, Any]) -> list[Search]:
    """The same for each query of a list."""
    several = queries.tolist() if hasattr(queries, "tolist") else queries  # numpy, pandas
    if not isinstance(several, Sequence) or isinstance(several, bytes):
        given = type(queries).__name__
        raise InputError(f"expected a text, an encoding, a Search, or a list of them, got {given}")
    for i, query in enumerate(several):
        if not isinstance(query, Query):
            given = type(query).__name__
            raise InputError(f"queries[{i}] is {given}, expected a text, an encoding or a Search")
    return [as_request(query, options) for query in several]


def in_threads(
    answer: Callable[[Sequence[Search]], list[Answer]], requests: Sequence[Search]
) -> list[Answer]:
    """The answers in the order of the requests; requests that differ by their queries alone are
    answered together, as many runs of them at a time as one of them has threads."""
    threads = max((request.threads for request in requests), default=1)
    if threads > 1 and len(requests) > 1:
        requests = [replace(request, threads=1) for request in requests]
    # Runs of equal length, so that no thread has one more to answer than the others.
    rounds = -(-len(requests) // (threads * TOGETHER))
    most = -(-len(requests) // max(1, threads * rounds))
    batches = _alike(requests, most)
    if threads == 1 or len(batches) < 2:
        return [own for batch in batches for own in answer(batch)]
    with ThreadPoolExecutor(threads) as pool:
        try:
            return [own for found in pool.map(answer, batches) for own in found]
        except BaseException:  # an error or interrupt must not wait for the requests not yet begun
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _alike(requests: Sequence[Search], most: int) -> list[list[Search]]:
    """Runs of at most so many requests that have the same options."""
    runs: list[list[Search]] = []
    for request in requests:
        if runs and len(runs[-1]) < most and _options(runs[-1][0]) == _options(request):
            runs[-1].append(request)
        else:
            runs.append([request])
    return runs


def _options(request: Search) -> list[Any]:
    own = replace(request, where=None)
    # Not the filter itself: in Python `x = 1` equals `x = true`.
    return [repr(request.where), *(getattr(own, name) for name in OPTIONS)]
