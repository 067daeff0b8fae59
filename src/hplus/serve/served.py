"""One index as it is served: readers in a pool of threads, one thread for changes.

The library lets one thread change an index while others read it: a change is confirmed, then shown.
What other processes confirm is shown within a second; a collection of an engine elsewhere is asked
anew by every search.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

from hplus.any_index import AnyIndex
from hplus.engines import is_address, name_of
from hplus.engines.address import parse
from hplus.errors import HPlusError, InputError
from hplus.index import open_index
from hplus.search.average import Average, average
from hplus.search.requests import as_request
from hplus.search.results import Results
from hplus.serve.batch import Batches, Waiting
from hplus.serve.limits import Limits
from hplus.types import Encoded, Search
from hplus.views.stretches import as_one_text

if TYPE_CHECKING:
    from hplus.model import HPlus

REFRESH = 1.0
"""Seconds after which changes of other processes are looked for."""
SAMPLED = 60.0
"""Seconds for which a sample of documents is good where an engine counts no generations."""
_log = logging.getLogger("hplus.serve")
Answer = TypeVar("Answer")
Place = str | os.PathLike[str]
"""The folder of an index, or the address of a collection."""


class Served:
    """An open index with the threads that work on it."""

    def __init__(
        self, name: str, index: AnyIndex, limits: Limits, batched: Callable[[int], None]
    ) -> None:
        self.name, self.index = name, index
        self._readers = ThreadPoolExecutor(limits.threads, f"{name}-read")
        self._writer = ThreadPoolExecutor(1, f"{name}-write")
        self._queries = Batches(index, seen=batched)
        self._sample: tuple[float, Encoded | None] = (-1.0, None)

    @property
    def model(self) -> HPlus:
        """The model that reads its queries."""
        return self.index.model

    async def read(self, work: Callable[[], Answer]) -> Answer:
        """Work that changes nothing; cancelled before it has begun, it is not done."""
        return await asyncio.get_running_loop().run_in_executor(self._readers, work)

    async def search(
        self, request: Search, shown: Callable[[Results, Encoded], Answer]
    ) -> tuple[Answer, dict[str, float]]:
        """What `shown` makes of the results and the encoded query; the seconds that it took to
        encode and to search.

        All in one thread: on a machine that is at rest, most of what a service adds to a search is
        threads waking each other. Cancelled, what has not begun is not done: the encoding, or else
        the search.
        """
        query = Waiting(str(request.query))

        def work() -> tuple[Answer, dict[str, float]]:
            started = time.perf_counter()
            encoded = self._queries.encode(query)
            read = time.perf_counter()
            found = self.index.answer(request, encoded)
            seconds = {"encode": read - started, "search": time.perf_counter() - read}
            return shown(found, encoded), seconds

        try:
            return await self.read(work)
        finally:
            query.wanted = False

    def average(self, request: Search, query: Encoded) -> Average | None:
        """What an average document of the index scores; the sample is as old as the generation."""
        made = self.index.generation
        age = time.monotonic() // SAMPLED if made is None else made
        if self._sample[0] != age:
            self._sample = age, self.index.sample()
        documents = self._sample[1]
        return None if documents is None else average(self.index.engine, request, query, documents)

    def average_like(self, id_: str, options: Mapping[str, Any]) -> Average | None:
        """The same where the query is a document of the index."""
        engine = self.index.engine
        stored = engine.read(engine.passages(engine.find([id_]))[0], None)
        query = as_one_text(stored, engine.settings.budget)
        return self.average(as_request(query, options), query)

    async def write(self, work: Callable[[], Answer]) -> Answer:
        """A change: confirmed when this returns, one after another."""
        return await asyncio.get_running_loop().run_in_executor(self._writer, work)

    async def keep_fresh(self) -> None:
        """Show what other processes confirm, for as long as this task lives."""
        while True:
            await asyncio.sleep(REFRESH)
            try:
                if not await self.read(self.index.is_newest):
                    await self.write(self.index.refresh)
            except (HPlusError, OSError) as error:
                _log.error("%s: %s", self.name, error)

    def close(self) -> None:
        """After the work under way; nothing that waits is begun."""
        for threads in (self._readers, self._writer):
            threads.shutdown(cancel_futures=True)
        self.index.close()


def names_of(places: Sequence[Place]) -> dict[str, Place]:
    """Every index by the name that it is served under."""
    names: dict[str, Place] = {}
    for place in places:
        name = name_of(place)
        if name in names:
            first, second = (parse(str(p)) if is_address(p) else p for p in (names[name], place))
            raise InputError(
                f"{first} and {second} would both be served as {name!r}; rename one of them"
            )
        names[name] = place
    return names


def open_all(
    places: Sequence[Place],
    model: str | None,
    limits: Limits,
    batched: Callable[[int], None],
) -> dict[str, Served]:
    """Every index with its model loaded; indexes of the same model share it."""
    models: dict[str, Any] = {}
    found: dict[str, Served] = {}
    with contextlib.ExitStack() as opened:
        for name, place in names_of(places).items():
            index = opened.enter_context(open_index(place))
            made = index.settings.fingerprint
            if made in models or model is not None:
                index.close()
                index = opened.enter_context(open_index(place, models.get(made, model)))
            models[made] = index.model
            found[name] = Served(name, index, limits, batched)
        opened.pop_all()
    return found
