"""A limit holds, whatever runs at once and however it ends."""

from __future__ import annotations

import asyncio

from hypothesis import given, settings
from hypothesis import strategies as st

from hplus.teach.llm_spending import Price, Spending

REQUEST = st.tuples(st.integers(0, 50), st.integers(0, 50), st.floats(0, 1), st.integers(0, 3))


@settings(max_examples=100, deadline=None)
@given(
    st.lists(REQUEST, max_size=20),
    st.none() | st.integers(0, 600),
    st.integers(1, 5),
    st.none() | st.just(Price(1e6, 3e6)),
)
def test_the_limit_holds_and_nobody_waits_for_ever(
    requests: list[tuple[int, int, float, int]],
    limit: int | None,
    concurrency: int,
    price: Price | None,
) -> None:
    spending = Spending(limit, price)
    done = []
    waiting = iter(enumerate(requests))

    async def work() -> None:
        for i, (question, answer, share, turns) in waiting:
            if not await spending.reserve(question, answer):
                return
            for _ in range(turns):
                await asyncio.sleep(0)
            spending.settle((question, answer), (question, int(answer * share)))
            done.append(i)
            assert limit is None or spending.spent <= limit

    async def run() -> None:
        async with asyncio.timeout(10):
            await asyncio.gather(*(work() for _ in range(concurrency)))

    asyncio.run(run())
    used = [(requests[i][0], int(requests[i][1] * requests[i][2])) for i in done]
    assert spending.question_tokens == sum(question for question, _ in used)
    assert spending.answer_tokens == sum(answer for _, answer in used)
    rate = 3 if price else 1
    assert spending.spent == spending.question_tokens + rate * spending.answer_tokens
    most = [question + rate * answer for question, answer, _, _ in requests]
    if limit is None or limit >= sum(most):
        assert len(done) == len(requests)
    if len(done) < len(requests):
        # Alone, one of the requests left would have been too much.
        assert limit is not None
        left = [m for i, m in enumerate(most) if i not in done]
        assert spending.spent + max(left) > limit
