"""How far a long piece of work is: done of total, rate, time left.

On a terminal a bar that moves several times a second; in a notebook a line that is rewritten every
second; in a log a new line every ten seconds, so that what takes less says nothing. Always on
standard error or in the notebook's cell, never on standard output.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any

from hplus.terminal import screen

LOG_SECONDS = 10.0
NOTEBOOK_SECONDS = 1.0
# The rate is that of the last half minute: a run that continues skips what it has in no time.
RECENT_SECONDS = 30.0

Clock = Callable[[], float]
Total = int | Callable[[], int | None] | None


class Progress:
    """Counts finished items; this plain one shows nothing."""

    def advance(self, done: float) -> None:
        """`done` more items are finished; a part of a long one counts as that part."""


class Pace:
    """What was done when, and what follows from it; used by one thread at a time."""

    def __init__(self, label: str, total: Total, clock: Clock) -> None:
        self.label, self.clock = label, clock
        self.done = 0.0
        self.began = clock()
        self._total = total
        # Times and counts at least a second apart: the oldest is where the rate is measured from.
        self._recent = deque([(self.began, 0.0)])

    @property
    def total(self) -> int | None:
        """How many items there are, counted when this is first asked for; None if unknown."""
        if callable(self._total):
            self._total = self._total()
        return self._total

    @property
    def whole(self) -> int:
        """Items that are finished; their parts may add up to a little less than one."""
        return int(self.done + 1e-6)

    def add(self, done: float) -> None:
        """More items are finished."""
        now = self.clock()
        self.done += done
        if now - self._recent[-1][0] >= 1:
            self._recent.append((now, self.done))
        while len(self._recent) > 1 and now - self._recent[1][0] >= RECENT_SECONDS:
            self._recent.popleft()

    def describe(self) -> str:
        """
        >>> pace = Pace("indexing", 3000, iter([0.0, 30.0, 30.0]).__next__)
        >>> pace.add(1200)
        >>> pace.describe()
        '1,200 of 3,000 (40%) in 0:30, 40/s, 0:45 left'
        """
        now, total = self.clock(), self.total
        percent = min(100, int(100 * (self.done + 1e-6) / total)) if total else 100
        of_total = "" if total is None else f" of {total:,} ({percent}%)"
        parts = [f"{self.whole:,}{of_total} in {duration(now - self.began)}"]
        since, before = self._recent[0]
        rate = (self.done - before) / (now - since) if now > since else 0.0
        if rate > 0:
            parts.append(_rate(rate))
            if total is not None and total > self.done:
                parts.append(f"{duration((total - self.done) / rate)} left")
        return ", ".join(parts)

    def summary(self) -> str:
        """The same when it is over."""
        return f"{self.whole:,} in {duration(self.clock() - self.began)}"


@contextmanager
def show_progress(
    label: str, total: Total, *, wanted: bool = True, clock: Clock = time.monotonic
) -> Iterator[Progress]:
    """Show how far it is, if that is wanted, where it can be seen.

    total: how many items there are, if known; a function that counts them is called only if there
    is something to show.
    """
    if not wanted:
        yield Progress()
        return
    pace = Pace(label, total, clock)
    if sys.stderr is not None and sys.stderr.isatty():
        with _bar(pace) as shown:
            yield shown
    elif (display := _notebook()) is not None:
        cell = display(_plain(f"{label}: {pace.describe()}"), raw=True, display_id=True)

        def rewrite(text: str) -> None:
            cell.update(_plain(f"{label}: {text}"), raw=True)

        yield _Lines(pace, NOTEBOOK_SECONDS, rewrite)
        rewrite(pace.summary())
    else:
        yield _Lines(pace, LOG_SECONDS, lambda text: print(f"{label}: {text}", file=sys.stderr))


class _Lines(Progress):
    """A line whenever `seconds` have passed, written by whoever advances first after that."""

    def __init__(self, pace: Pace, seconds: float, write: Callable[[str], None]) -> None:
        self.pace, self.seconds, self.write = pace, seconds, write
        self.written = pace.began
        self.lock = Lock()

    def advance(self, done: float) -> None:
        with self.lock:
            self.pace.add(done)
            now = self.pace.clock()
            if now - self.written >= self.seconds:
                self.written = now
                self.write(self.pace.describe())


@contextmanager
def _bar(pace: Pace) -> Iterator[Progress]:
    from rich.progress import BarColumn, ProgressColumn, Task, TextColumn
    from rich.progress import Progress as Bar
    from rich.table import Column as Cell
    from rich.text import Text

    lock = Lock()

    class Described(ProgressColumn):
        def render(self, task: Task) -> Text:  # noqa: ARG002  # the pace knows more than the task
            with lock:
                return Text(pace.describe())

    # The bar takes what the words leave of the line.
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=None, table_column=Cell(ratio=1)),
        Described(table_column=Cell(no_wrap=True)),
    )
    with Bar(*columns, console=screen(stderr=True), transient=True, expand=True) as bar:
        task = bar.add_task(pace.label, total=pace.total)

        class Shown(Progress):
            def advance(self, done: float) -> None:
                with lock:
                    pace.add(done)
                bar.advance(task, done)

        yield Shown()


def _notebook() -> Callable[..., Any] | None:
    """How a notebook displays something; None outside of one."""
    module: Any = sys.modules.get("IPython")
    shell = module.get_ipython() if module is not None else None
    if shell is None or not hasattr(shell, "kernel"):
        return None
    from importlib import import_module

    found: Callable[..., Any] = import_module("IPython.display").display
    return found


def _plain(text: str) -> dict[str, str]:
    return {"text/plain": text}


def _rate(rate: float) -> str:
    """
    >>> [_rate(rate) for rate in (1234.5, 10.4, 2.25, 0.05)]
    ['1,234/s', '10/s', '2.2/s', '3.0/min']
    """
    if rate < 0.5:
        return f"{60 * rate:.1f}/min"
    return f"{rate:.1f}/s" if rate < 10 else f"{rate:,.0f}/s"


def duration(seconds: float) -> str:
    """
    >>> [duration(seconds) for seconds in (0.2, 75, 3_700, 200_000)]
    ['0:00', '1:15', '1:01:40', '2 days 7:33:20']
    """
    minutes, s = divmod(int(seconds), 60)
    hours, m = divmod(minutes, 60)
    days, h = divmod(hours, 24)
    clock = f"{h}:{m:02d}:{s:02d}" if hours else f"{m}:{s:02d}"
    return f"{days} day{'s' * (days > 1)} {clock}" if days else clock
