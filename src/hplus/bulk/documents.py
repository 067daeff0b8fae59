"""The documents of each shard, read from the source by whoever encodes it.

Ids must differ in the whole corpus, so the documents before a shard are read, too: about 20
microseconds and 100 bytes of memory each. Shards taken in ascending order read the source once.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from itertools import islice

from hplus.bulk.job import Job
from hplus.sources import read as sources
from hplus.sources.document import Document

Report = Callable[[str], None]


class Documents:
    """A source in shards; `report` is given each row that is skipped."""

    def __init__(
        self, source: str | os.PathLike[str], job: Job, report: Report = lambda _: None
    ) -> None:
        self.source, self.job, self.report = source, job, report
        self._rest: Iterator[Document] = iter(())
        self._position: int | None = None

    def of(self, shard: int) -> list[Document]:
        """The documents of one shard, in the order of the source."""
        first, last = self.job.bounds(shard)
        if self._position is None or first < self._position:
            self._rest, self._position = self._read(), 0
        skipped = sum(1 for _ in islice(self._rest, first - self._position))
        found = list(islice(self._rest, None if last is None else last - first))
        self._position += skipped + len(found)
        return found

    def _read(self) -> Iterator[Document]:
        seen: set[str] = set()

        def is_new(id_: str) -> bool:
            before = len(seen)
            seen.add(id_)
            return len(seen) > before

        return sources.read(
            self.source,
            on_error="skip" if self.job.on_error == "skip" else "stop",
            report=self.report,
            is_new=is_new,
            columns=self.job.columns,
        )
