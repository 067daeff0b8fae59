"""What a run may spend on a language model, in tokens or in money, and has spent so far.

A request begins only if the most it can cost still fits beside the most that the requests under way
can cost. So the limit holds however many run at once, as long as the server keeps to max_tokens.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import NamedTuple


class Price(NamedTuple):
    """Money for a million tokens of questions and of answers."""

    question: float
    answer: float


@dataclass
class Spending:
    """limit: tokens, or with a price the money, that may be spent; None: no limit."""

    limit: float | None = None
    price: Price | None = None
    question_tokens: int = 0
    answer_tokens: int = 0
    _reserved: float = 0.0
    _changed: asyncio.Event | None = field(default=None, repr=False)

    @property
    def spent(self) -> float:
        """In the currency of the limit."""
        return self.cost(self.question_tokens, self.answer_tokens)

    def cost(self, question: int, answer: int) -> float:
        """Of so many tokens, in the currency of the limit.

        >>> Spending(price=Price(2.0, 8.0)).cost(1_000_000, 500_000), Spending().cost(10, 5)
        (6.0, 15)
        """
        if self.price is None:
            return question + answer
        return (question * self.price.question + answer * self.price.answer) / 1e6

    async def reserve(self, question: int, answer: int) -> bool:
        """Wait until so many tokens fit; False if they never will in this run."""
        wanted = self.cost(question, answer)
        while self.limit is not None and self.spent + self._reserved + wanted > self.limit:
            if self._reserved == 0:
                return False
            self._changed = self._changed or asyncio.Event()
            await self._changed.wait()
        self._reserved += wanted
        return True

    def settle(self, reserved: tuple[int, int], used: tuple[int, int]) -> None:
        """Replace what was reserved by what was used."""
        self._reserved -= self.cost(*reserved)
        if self._reserved < 1e-9:  # a rest of rounding is nothing to wait for
            self._reserved = 0.0
        self.question_tokens += used[0]
        self.answer_tokens += used[1]
        if self._changed is not None:
            self._changed.set()
            self._changed = None
