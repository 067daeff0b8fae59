"""One thread for each pack: the libraries' own threads are off while packs share the cores.

Element-wise work is then shared as well as the matrix products; library threads on top of that
would only fight for the cores. Such a limit is the whole process's, so calls that overlap share
it, and the last one out restores what was before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock


class OneThreadEach:
    """A context in which `limit()` holds; what `limit` returned undoes it at the end."""

    def __init__(self, limit: Callable[[], Callable[[], object]]) -> None:
        self._limit = limit
        self._lock = Lock()
        self._users = 0
        self._restore: Callable[[], object] = lambda: None

    @contextmanager
    def __call__(self) -> Iterator[None]:
        with self._lock:
            if not self._users:
                self._restore = self._limit()
            self._users += 1
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1
                if not self._users:
                    self._restore()
