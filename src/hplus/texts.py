"""Texts on their way in: checked one by one, cut into steps, repeats found.

What is wrong is told with its position, and nothing that came before it is lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from hplus.errors import InputError
from hplus.types import I64

# One step of bulk encoding: as many texts as hold this many characters; 50 MB of states in
# English, where a token has four characters, and 200 MB in Chinese.
STEP_CHARACTERS = 128_000
STEP_TEXTS = 256


def as_texts(texts: str | Sequence[str]) -> list[str]:
    """One text or several, all of them strings."""
    if isinstance(texts, str):
        return [texts]
    if isinstance(texts, bytes) or not isinstance(texts, Iterable):
        raise InputError(f"a text or a list of texts expected, {type(texts).__name__} came")
    return list(checked(texts))


def checked(texts: Iterable[str]) -> Iterator[str]:
    """The texts one by one; what is no text is told with its position."""
    if isinstance(texts, (str, bytes)):
        raise InputError("a list of texts expected, a single one came; put it in brackets")
    for i, text in enumerate(texts):
        if not isinstance(text, str):
            raise InputError(f"texts[{i}] is {type(text).__name__}, expected str")
        yield text


def in_steps(texts: Iterable[str]) -> Iterator[list[str]]:
    """Texts in order, as many at a time as bulk encoding takes in one step."""
    step: list[str] = []
    size = 0
    source = iter(texts)
    while True:
        try:
            text = next(source)
        except StopIteration:
            break
        except Exception:
            # What came before the bad element is not lost with it.
            if step:
                yield step
            raise
        step.append(text)
        size += len(text)
        if size >= STEP_CHARACTERS or len(step) >= STEP_TEXTS:
            yield step
            step, size = [], 0
    if step:
        yield step


def distinct(texts: list[str]) -> tuple[list[str], I64 | None]:
    """Each text once, and for all of them which it is; None if none repeats."""
    number = {text: i for i, text in enumerate(dict.fromkeys(texts))}
    if len(number) == len(texts):
        return texts, None
    return list(number), np.array([number[text] for text in texts], np.int64)
