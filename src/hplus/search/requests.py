"""Requests from what people pass to `search`: one query or many, with options by name.

The queries of a list are answered one by one, several at a time if there are threads: a pass that
two queries shared would round in another way, and a list must find what its queries find.
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


def as_request(query: Query, options: Mapping[str, Any]) -> Search:
    """A request from what `search` was called with."""
    known = [field.name for field in fields(Search)][1:]
    unknown = sorted(set(options) - set(known))
    if unknown:
        raise InputError(f"unknown option {unknown[0]!r}; known: {', '.join(known)}")
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


def in_threads(answer: Callable[[Search], Answer], requests: Sequence[Search]) -> list[Answer]:
    """The answers in the order of the requests; as many at a time as one of them has threads."""
    threads = max((request.threads for request in requests), default=1)
    if threads == 1 or len(requests) < 2:
        return [answer(request) for request in requests]
    with ThreadPoolExecutor(threads) as pool:
        try:
            return list(pool.map(answer, [replace(request, threads=1) for request in requests]))
        except BaseException:  # an error or interrupt must not wait for the requests not yet begun
            pool.shutdown(wait=False, cancel_futures=True)
            raise
