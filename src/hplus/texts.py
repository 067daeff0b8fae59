"""Texts on their way in: checked one by one, grouped into steps, repeats found.

Errors name the position of a bad element, and nothing before it is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

import numpy as np

from hplus.errors import InputError
from hplus.types import I64

# One step of bulk encoding ends at this many characters or texts: 25 MB of states in English, where
# a token has four characters, and 100 MB in Chinese. Twice as many take 70 MB more for nothing.
STEP_CHARACTERS = 64_000
STEP_TEXTS = 256

Item = TypeVar("Item")


def as_texts(texts: str | Sequence[str]) -> list[str]:
    """One text or several, all of them strings."""
    if isinstance(texts, str):
        return [texts]
    if isinstance(texts, bytes) or not isinstance(texts, Iterable):
        raise InputError(f"expected a text or a list of texts, got {type(texts).__name__}")
    return list(checked(texts))


def checked(texts: Iterable[str]) -> Iterator[str]:
    """The texts one by one; errors name the position of an element that is not text."""
    if isinstance(texts, (str, bytes)):
        raise InputError("expected a list of texts, got a single one; put it in brackets")
    if not isinstance(texts, Iterable):
        raise InputError(f"expected a list of texts, got {type(texts).__name__}")
    for i, text in enumerate(texts):
        if not isinstance(text, str):
            raise InputError(f"texts[{i}] is {type(text).__name__}, expected str")
        yield text


def in_steps(texts: Iterable[str]) -> Iterator[list[str]]:
    """Texts in order, as many at a time as bulk encoding takes in one step."""
    return steps_of(texts, len)


def steps_of(
    items: Iterable[Item], characters: Callable[[Item], int], most: int = STEP_CHARACTERS
) -> Iterator[list[Item]]:
    """The same for anything whose text has `characters(item)` characters, `most` per step."""
    step: list[Item] = []
    size = 0
    source = iter(items)
    while True:
        try:
            item = next(source)
        except StopIteration:
            break
        except Exception:
            # The elements before the bad one are not lost with it.
            if step:
                yield step
            raise
        step.append(item)
        size += characters(item)
        if size >= most or len(step) >= STEP_TEXTS:
            yield step
            step, size = [], 0
    if step:
        yield step


def distinct(texts: list[str]) -> tuple[list[str], I64 | None]:
    """Each text once, and which of them each text is; None if no text repeats."""
    number = {text: i for i, text in enumerate(dict.fromkeys(texts))}
    if len(number) == len(texts):
        return texts, None
    return list(number), np.array([number[text] for text in texts], np.int64)
