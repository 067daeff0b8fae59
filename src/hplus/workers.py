"""Bulk encoding in several processes: one per device, or several on the CPU.

Processes are spawned, never forked, and only when there is more than one step of work; each
loads the checkpoint itself. Results come back in order, at most two steps a worker ahead, so
memory stays bounded. A script that uses this needs the usual `if __name__ == "__main__":`.
"""

from __future__ import annotations

import multiprocessing
import sys
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Any

from threadpoolctl import threadpool_limits

from hplus.errors import HPlusError
from hplus.heads.importance import Idf
from hplus.progress import Progress
from hplus.recipe import Recipe
from hplus.types import Encoded
from hplus.units.select import Budget
from hplus.units.terms import Terms

if TYPE_CHECKING:
    from hplus.model import HPlus

# The model of a worker process, or why it has none.
_model: HPlus | HPlusError | None = None


@dataclass(frozen=True)
class Blueprint:
    """What another process needs to make the same model from the files on disk."""

    source: str
    recipe: Recipe
    idf: Idf | None
    files: Mapping[str, str]
    terms: tuple[str, ...] | None
    threads: int

    def build(self, device: str | None) -> HPlus:
        """The model, on a device."""
        from hplus.model import HPlus

        terms = None if self.terms is None else Terms(self.terms)
        model = HPlus(self.source, device=device, terms=terms)
        model.threads = self.threads
        model.checkpoint = replace(
            model.checkpoint, recipe=self.recipe, idf=self.idf, files=self.files
        )
        return model


def encode_in_processes(
    model: HPlus,
    steps: Iterator[list[str]],
    budget: Budget,
    width: int,
    *,
    workers: int,
    devices: Sequence[str] | None,
    bar: Progress,
) -> Iterator[Encoded]:
    """Encode steps of texts in `workers` processes, or in one for each of `devices`."""
    failure: list[Exception] = []
    rest = _until_failure(steps, failure)
    first, second = next(rest, None), next(rest, None)
    if first is None or second is None:
        if first is not None:
            yield model.encode_step(first, budget, width, advance=bar.advance)
        _raise(failure)
        return
    places = list(devices) if devices else [model.device] * workers
    context = multiprocessing.get_context("spawn")
    queue: Any = context.Queue()
    for device in places:
        queue.put(device)
    checkpoint = model.checkpoint
    blueprint = Blueprint(
        source=checkpoint.source,
        recipe=checkpoint.recipe,
        idf=checkpoint.idf,
        files=dict(checkpoint.files),
        terms=None if model.terms is None else model.terms.patterns,
        threads=max(1, model.threads // len(places)),
    )
    pool = ProcessPoolExecutor(
        len(places), mp_context=context, initializer=_start, initargs=(queue, blueprint)
    )
    waiting: deque[tuple[int, Future[Encoded]]] = deque()
    try:
        for step in chain([first, second], rest):
            waiting.append((len(step), pool.submit(_run, step, budget, width)))
            if len(waiting) >= 2 * len(places):
                yield _next(waiting, bar)
        while waiting:
            yield _next(waiting, bar)
        _raise(failure)
    except BrokenProcessPool as error:
        raise HPlusError(
            "a worker process ended early (out of memory, or the script lacks "
            "`if __name__ == '__main__':`); try fewer workers"
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


def _until_failure(steps: Iterator[list[str]], failure: list[Exception]) -> Iterator[list[str]]:
    """Steps until the source fails, so that what came before is encoded before it is told."""
    try:
        yield from steps
    except Exception as error:  # whatever the caller's iterator raises
        failure.append(error)


def _raise(failure: list[Exception]) -> None:
    if failure:
        raise failure[0]


def _next(waiting: deque[tuple[int, Future[Encoded]]], bar: Progress) -> Encoded:
    texts, future = waiting.popleft()
    encoded = future.result()
    bar.advance(texts)
    return encoded


def _start(queue: Any, blueprint: Blueprint) -> None:
    global _model
    # The workers share the cores: each one's BLAS, and torch if it is used, gets its part.
    threadpool_limits(blueprint.threads)
    device = queue.get()
    try:
        _model = blueprint.build(device)
    except HPlusError as error:
        _model = error
        return
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(blueprint.threads)


def _run(step: list[str], budget: Budget, width: int) -> Encoded:
    if isinstance(_model, HPlusError):
        raise _model
    if _model is None:
        raise HPlusError("the worker process has no model")
    return _model.encode_step(step, budget, width)
