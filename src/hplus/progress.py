"""A progress bar on standard error, shown on a terminal only."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock


class Progress:
    """Counts finished items; this plain one shows nothing."""

    def advance(self, done: int) -> None:
        """`done` more items are finished."""


@contextmanager
def show_progress(
    label: str, total: int | Callable[[], int | None] | None, *, wanted: bool = True
) -> Iterator[Progress]:
    """A bar with the time left, if it is wanted and standard error is a terminal.

    total: how many items there are, if known; a function that counts them is called only if there
    is a bar to show.
    """
    if not wanted or not sys.stderr.isatty():
        yield Progress()
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )
    from rich.progress import Progress as Bar

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=total() if callable(total) else total)
        lock = Lock()

        class Shown(Progress):
            def advance(self, done: int) -> None:
                with lock:
                    bar.advance(task, done)

        yield Shown()
