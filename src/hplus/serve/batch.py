"""Queries that arrive together are encoded together.

A thread that finds the encoder free encodes its query at once; those that come meanwhile wait for
that pass, which takes a few milliseconds, and one of them encodes for all of them. So nobody waits
for company, and a query that is alone is encoded and answered without changing threads. Queries of
one pass may differ from those encoded alone in the last bit.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import CancelledError
from dataclasses import dataclass
from threading import Lock

from hplus.any_index import AnyIndex
from hplus.errors import HPlusError, InputError
from hplus.types import Encoded
from hplus.unknown import REFUSED


@dataclass(eq=False)
class Waiting:
    """A query on its way to the model; wanted: whether anybody still waits for its answer."""

    text: str
    wanted: bool = True
    outcome: Encoded | BaseException | None = None


class Batches:
    """The queries of one index on their way to its model; seen: told the size of each pass."""

    def __init__(self, index: AnyIndex, *, seen: Callable[[int], None]) -> None:
        self._index, self._seen = index, seen
        self._encoder = Lock()
        self._waiting: deque[Waiting] = deque()

    def encode(self, query: Waiting) -> Encoded:
        """The query encoded; `CancelledError` if nobody wants it any more."""
        self._waiting.append(query)
        with self._encoder:
            if query.outcome is None:
                self._encode_waiting()
        if isinstance(query.outcome, BaseException):
            raise query.outcome
        if query.outcome is None or not query.wanted:
            raise CancelledError
        return query.outcome

    def _encode_waiting(self) -> None:
        """One pass over the queries that somebody still waits for."""
        batch = []
        while self._waiting:
            query = self._waiting.popleft()
            if query.wanted:
                batch.append(query)
        if not batch:
            return
        self._seen(len(batch))
        outcomes: list[Encoded | BaseException]
        try:
            outcomes = encode(self._index, [query.text for query in batch])
        except BaseException as error:
            outcomes = [error] * len(batch)
        for query, outcome in zip(batch, outcomes, strict=True):
            query.outcome = outcome


def encode(index: AnyIndex, texts: list[str]) -> list[Encoded | BaseException]:
    """Each query encoded, or why it is refused; one alone just as `Index.search` encodes it."""
    if len(texts) == 1:
        try:
            return [index.encode(texts[0])]
        except HPlusError as error:
            return [error]
    model = index.model
    counts = [model.count_unknown([text]) for text in texts]
    known = [i for i, count in enumerate(counts) if count.share <= REFUSED]
    encoded = model.encode_query([texts[i] for i in known], width=index.settings.width)
    found: list[Encoded | BaseException] = [
        InputError(count.advice("the query", model.recipe.name)) for count in counts
    ]
    for row, i in enumerate(known):
        found[i] = encoded[row]
    return found
