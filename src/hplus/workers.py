"""Bulk encoding: in this process, in several on the CPU, or in one per device.

Processes are spawned, never forked, and only when there is more than one step of work; each loads
the checkpoint itself. Results come back in order, at most two steps per worker ahead, so memory
stays bounded. A script that uses processes needs the usual `if __name__ == "__main__":`.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, replace
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any

from threadpoolctl import threadpool_limits

from hplus.arguments import whole
from hplus.errors import HPlusError, InputError
from hplus.heads.importance import Idf
from hplus.recipe import Recipe
from hplus.types import Encoded
from hplus.units.select import Budget
from hplus.units.terms import Terms

if TYPE_CHECKING:
    from hplus.model import HPlus

# The model of a worker process, or the error that kept it from loading one.
_model: HPlus | HPlusError | None = None
_count: Callable[[float], None] | None = None
# How often the counters of the workers are read while their parent waits for one of them.
POLL_SECONDS = 0.5
MOST_WORKERS = 1_000


class WorkerEndedError(HPlusError):
    """A worker process was killed, or never got started; what it was given can be given again."""


class Counters:
    """The texts that each worker has finished, in memory that all processes share.

    Every worker writes its own number only, so no lock is needed that a killed worker could hold.
    """

    def __init__(self, workers: int) -> None:
        self.texts: Any = multiprocessing.get_context("spawn").RawArray("d", workers)
        self._told = 0.0

    def more(self) -> float:
        """How many were finished since this was last asked."""
        found = float(sum(self.texts))
        more, self._told = found - self._told, found
        return more


@dataclass(frozen=True)
class Blueprint:
    """What another process needs to build the same model from the files on disk."""

    source: str
    recipe: Recipe
    idf: Idf | None
    fitted: Mapping[str, str]
    """The hash of the idf table, which may have been fitted after loading."""
    terms: tuple[str, ...] | None
    threads: int
    fingerprint: str

    def build(self, device: str | None) -> HPlus:
        """The model, on a device."""
        from hplus.model import HPlus

        terms = None if self.terms is None else Terms(self.terms)
        # What decides how an encoder is loaded; the rest of the recipe follows below.
        names = ("pooling", "mean_over", "attention")
        settings = {name: getattr(self.recipe, name) for name in names}
        model = HPlus(self.source, device=device, terms=terms, offline=True, **settings)
        model.threads = self.threads
        loaded = model.checkpoint
        files = {**loaded.files, **self.fitted}
        model.checkpoint = replace(loaded, recipe=self.recipe, idf=self.idf, files=files)
        if model.fingerprint != self.fingerprint:
            raise HPlusError(f"{self.source} has changed since it was loaded; load it again")
        return model


def blueprint_of(model: HPlus, *, threads: int) -> Blueprint:
    """How another process builds this model."""
    checkpoint = model.checkpoint
    return Blueprint(
        source=checkpoint.source,
        recipe=checkpoint.recipe,
        idf=checkpoint.idf,
        fitted={k: digest for k, digest in checkpoint.files.items() if k == "idf.safetensors"},
        terms=None if model.terms is None else model.terms.patterns,
        threads=threads,
        fingerprint=model.fingerprint,
    )


def encode_steps(
    model: HPlus,
    steps: Iterable[list[str]],
    budget: Budget,
    width: int | None,
    *,
    workers: int = 1,
    devices: Sequence[str] | None = None,
    advance: Callable[[float], None] = lambda _: None,
) -> Generator[Encoded, None, None]:
    """One encoding per step, in order, from `workers` processes or one for each of `devices`.

    If the source of the steps fails, all steps before are encoded first. `advance` is called with
    the number of texts finished, also while a step is under way in another process.
    """
    workers = whole("workers", workers, most=MOST_WORKERS)
    listed = devices is None or isinstance(devices, (list, tuple))
    if not listed or not all(isinstance(device, str) for device in devices or ()):
        raise InputError(f"expected a list of devices, such as cuda:0, got {devices!r:.100}")
    if workers > 1 or devices:
        places: list[str | None] = list(devices) if devices else [model.device] * workers
        yield from _in_processes(model, steps, budget, width, places, advance)
        return
    for step in steps:
        yield model.encode_step(step, budget, width, advance)


def _in_processes(
    model: HPlus,
    steps: Iterable[list[str]],
    budget: Budget,
    width: int | None,
    places: list[str | None],
    advance: Callable[[float], None],
) -> Iterator[Encoded]:
    failure: list[Exception] = []
    waiting: deque[tuple[list[str], Future[Encoded] | None]] = deque()
    processes: ProcessPoolExecutor | None = None
    counters = Counters(len(places))

    def submitted(step: list[str]) -> Future[Encoded] | None:
        if processes is None or not step:
            return None
        with _interrupts_held():
            return processes.submit(_run, step, budget, width)

    def finished() -> Encoded:
        step, future = waiting.popleft()
        if future is None:  # an empty step, or the only one
            return model.encode_step(step, budget, width, advance)
        while True:
            done = wait([future], POLL_SECONDS).done
            advance(counters.more())
            if done:
                return future.result()

    try:
        for step in _until_failure(steps, failure):
            if processes is None and step and any(texts for texts, _ in waiting):
                processes = _processes(model, places, counters)
                waiting = deque((texts, submitted(texts)) for texts, _ in waiting)
            waiting.append((step, submitted(step)))
            if len(waiting) >= 2 * len(places):
                yield finished()
        while waiting:
            yield finished()
    except BrokenProcessPool as error:
        raise WorkerEndedError(
            "a worker process ended unexpectedly (out of memory, or the script lacks "
            "`if __name__ == '__main__':`); try fewer workers"
        ) from error
    finally:
        if processes:
            processes.shutdown(cancel_futures=True)
    if failure:
        raise failure[0]


def _until_failure(steps: Iterable[list[str]], failure: list[Exception]) -> Iterator[list[str]]:
    """The steps before the source fails; the error is kept for later."""
    try:
        yield from steps
    except Exception as error:  # whatever the caller's iterator raises
        failure.append(error)


def _processes(model: HPlus, places: list[str | None], counters: Counters) -> ProcessPoolExecutor:
    """A process for each place; the first task it gets finds its model loaded."""
    blueprint = blueprint_of(model, threads=max(1, model.threads // len(places)))
    context = multiprocessing.get_context("spawn")
    queue: Any = context.Queue()
    for number, place in enumerate(places):
        queue.put((number, place))
    return ProcessPoolExecutor(
        len(places),
        mp_context=context,
        initializer=_start,
        initargs=(queue, blueprint, counters.texts),
    )


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Ctrl-C waits while a process may be spawned, which inherits that until `_start`: otherwise
    a worker that is still importing would print a traceback of its own."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _start(queue: Any, blueprint: Blueprint, counters: Any) -> None:
    global _model, _count
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    Thread(target=_end_with_parent, daemon=True).start()
    # The workers share the cores: BLAS, and torch if it is used, get their part in each.
    threadpool_limits(blueprint.threads)
    number, device = queue.get()

    def count(done: float) -> None:
        with lock:  # threads of the encoder count, too
            counters[number] += done

    lock, _count = Lock(), count
    try:
        _model = blueprint.build(device)
    except HPlusError as error:
        _model = error
        return
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(blueprint.threads)


def _end_with_parent() -> None:
    """A worker whose parent was killed would wait for work forever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _run(step: list[str], budget: Budget, width: int | None) -> Encoded:
    if isinstance(_model, HPlusError):
        raise _model
    if _model is None or _count is None:
        raise HPlusError("the worker process has no model")
    return _model.encode_step(step, budget, width, _count)
