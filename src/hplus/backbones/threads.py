"""One thread for each pack: the libraries' own threads are off while packs share the cores.

Element-wise work is then shared as well as the matrix products; library threads on top of that
would only fight for the cores. Such a limit applies to the whole process, so overlapping calls
share it, and the last one out restores what was before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from threading import Lock
from typing import Any


class OneThreadEach:
    """A context in which `limit()` holds; the function that `limit` returned undoes it."""

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


@cache
def _libraries() -> Any:
    """The BLAS that numpy has loaded: looking for it takes longer than setting its threads."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController().select(user_api="blas")


def limit_blas() -> Callable[[], object]:
    """Set BLAS to one thread; the function returned restores what was before.

    Either may be called by any thread. threadpoolctl from 3.8 on lets only the first thread that
    set a limit set another, and silently ignores the rest, until that one gives up control.
    """

    def take_control() -> None:
        for library in _libraries().lib_controllers:
            if hasattr(library, "clear_controlling_thread"):
                library.clear_controlling_thread(force=True)

    def restore() -> None:
        take_control()
        limited.restore_original_limits()
        take_control()

    take_control()
    limited = _libraries().limit(limits=1)
    return restore


one_blas_thread = OneThreadEach(limit_blas)
