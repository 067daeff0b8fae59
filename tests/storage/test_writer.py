"""When changes are confirmed, and what checking them costs."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from brute_force import QuickDisk
from builders import random_encoded, text_of_words
from faulty import SETTINGS, WIDTH
from hplus import texts
from hplus.errors import InputError
from hplus.index import Index
from hplus.sources.document import Document
from hplus.storage import writer
from hplus.storage.snapshot import Snapshot
from hplus.storage.writer import Report, open_writer
from hplus.types import Encoded

ROWS = [Document(f"d{i}", f"{text_of_words(40)} {i}") for i in range(40)]


class Clock:
    """Stands still until a test moves it."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(texts, "STEP_TEXTS", 1)
    with Index.create(tmp_path / "index", disk=QuickDisk(), **SETTINGS) as made:
        return made.path


def confirmed(path: Path) -> int:
    """What somebody else sees now."""
    snapshot = Snapshot(path, QuickDisk())
    with closing(snapshot):
        return sum(int(part.alive.sum()) for part in snapshot.parts)


def put(path: Path, clock: Clock, after_step: Callable[[int], None]) -> Report:
    def encode(steps: Iterator[list[str]]) -> Generator[Encoded, None, None]:
        random = np.random.default_rng(0)
        for i, step in enumerate(steps):
            yield random_encoded(random, [2] * len(step), WIDTH)
            after_step(i + 1)

    with open_writer(path, QuickDisk(), clock) as out:
        return out.put(ROWS, encode, update=True, advance=lambda _: None)


def test_a_few_seconds_of_work_are_confirmed(path: Path) -> None:
    """A step takes a second here; with the one under way, not more than five are ever at risk."""
    clock = Clock()
    unconfirmed: list[int] = []

    def after_step(done: int) -> None:
        unconfirmed.append(done - confirmed(path))
        clock.now += 1

    assert put(path, clock, after_step).added == len(ROWS)
    assert max(unconfirmed) == writer.CONFIRM_SECONDS
    assert confirmed(path) == len(ROWS)


def test_a_step_is_a_few_thousand_characters(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of a step is confirmed before it ends, so it must not take long."""
    monkeypatch.setattr(texts, "STEP_TEXTS", 256)
    monkeypatch.setattr(writer, "STEP_CHARACTERS", 4 * len(ROWS[0].text))
    clock = Clock()
    unconfirmed: list[int] = []

    def after_step(done: int) -> None:
        unconfirmed.append(4 * done - confirmed(path))
        clock.now += writer.CONFIRM_SECONDS

    put(path, clock, after_step)
    assert max(unconfirmed) <= 4


def test_what_takes_no_time_is_confirmed_at_once(path: Path) -> None:
    seen: list[int] = []
    put(path, Clock(), lambda _: seen.append(confirmed(path)))
    assert set(seen) == {0}
    assert confirmed(path) == len(ROWS)


def test_confirming_often_leaves_few_segments(path: Path) -> None:
    clock = Clock()
    segments: list[int] = []

    def after_step(_: int) -> None:
        segments.append(len(list((path / "segments").iterdir())))
        clock.now += 60

    put(path, clock, after_step)
    assert max(segments) <= 16
    with Index.open(path, disk=QuickDisk()) as index:
        assert index.verify().problems == []
        assert len(index) == len(ROWS)


class Compared(str):
    """A text that counts how often it is compared."""

    times = 0

    def __eq__(self, other: object) -> bool:
        Compared.times += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


def test_ids_are_compared_a_few_times_each(path: Path) -> None:
    ids = [Compared(f"d{i}") for i in range(2000)]
    encoded = random_encoded(np.random.default_rng(0), [1] * (len(ids) + 1), WIDTH)
    with (
        Index.open(path, disk=QuickDisk()) as index,
        pytest.raises(InputError, match="the id 'd1999' exists already"),
    ):
        index.add_encoded([*ids, Compared("d1999")], encoded)
    assert Compared.times < 20 * len(ids)
