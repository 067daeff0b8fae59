"""A client against a server that answers well, badly, slowly, with errors, and not at all."""

from __future__ import annotations

import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from threading import Barrier
from typing import Any

import pytest

from hplus import HPlusError, InputError, MissingExtraError, TeacherError
from hplus.progress import Progress
from hplus.teach import llm_client
from hplus.teach.llm import Question, longest_question
from hplus.teach.llm_client import RETRIED, TRIES, Endpoint, ask_all
from hplus.teach.llm_spending import Price, Spending
from llm_server import Body, HangUp, Reply, completion, good, serving, text_of

TEXTS = [f"heart failure {i}" for i in range(12)]
QUESTION = Question("m")


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


class Run:
    """What came of asking about some texts."""

    def __init__(
        self,
        url: str,
        texts: list[str] = TEXTS,
        *,
        question: Question = QUESTION,
        spending: Spending | None = None,
        **options: Any,
    ) -> None:
        self.answers: dict[str, Body] = {}
        self.spending = spending or Spending()
        self.error: HPlusError | None = None
        self.failed: dict[str, int] = {}
        endpoint = Endpoint(url, **{"pause": 0.001, "timeout": 60.0, **options})
        try:
            failed = ask_all(
                endpoint,
                question,
                texts,
                keep=self.answers.__setitem__,
                spending=self.spending,
                bar=Progress(),
            )
            start = "texts without an answer: "
            assert all(reason.startswith(start) for reason in failed)
            self.failed = {reason.removeprefix(start): n for reason, n in failed.items()}
        except HPlusError as error:
            self.error = error

    @property
    def counts(self) -> tuple[int, dict[str, int], HPlusError | None]:
        return len(self.answers), self.failed, self.error


def in_turn(*replies: Callable[[Body], Reply]) -> Callable[[Body], Reply]:
    """One reply after the other, the last one for ever."""
    left: Iterator[Callable[[Body], Reply]] = iter(replies[:-1])
    return lambda body: next(left, replies[-1])(body)


def status(code: int, content: Any = None, **headers: str) -> Callable[[Body], Reply]:
    written = {"error": {"message": "not\n now"}} if content is None else content
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda _: Reply(written, status=code, headers=named)


def hang_up(_: Body) -> Reply:
    raise HangUp


# Answers


def test_every_text_is_asked_once_and_answered() -> None:
    with serving() as server:
        run = Run(server.url + "/", concurrency=3)
    assert run.counts == (len(TEXTS), {}, None)
    assert sorted(server.texts) == sorted(TEXTS)
    assert set(server.paths) == {"/v1/chat/completions"}
    assert run.answers == {text: good(QUESTION.body(text)).content for text in TEXTS}
    assert (run.spending.question_tokens, run.spending.answer_tokens) == (1200, 240)


@pytest.mark.parametrize("concurrency", [1, 4])
def test_no_more_requests_at_once_than_allowed(concurrency: int) -> None:
    together = Barrier(concurrency, timeout=60)

    def reply(body: Body) -> Reply:
        together.wait()  # for as many as are allowed
        return good(body)

    with serving(reply) as server:
        run = Run(server.url, concurrency=concurrency)
    assert run.counts == (len(TEXTS), {}, None)
    assert server.most == concurrency


def test_bad_answers_are_answers() -> None:
    """Whether they teach anything is not decided here."""
    bad = [completion("no JSON"), completion("[]", finish="length"), completion("", usage=None)]
    with serving(in_turn(*(status(200, answer) for answer in bad))) as server:
        run = Run(server.url, TEXTS[:3], concurrency=1)
    assert list(run.answers.values()) == bad


@pytest.mark.parametrize("key", [None, "secret"])
def test_the_key_goes_into_a_header(key: str | None) -> None:
    with serving() as server:
        Run(server.url, TEXTS[:1], key=key)
    assert server.headers[0].get("authorization") == (key and f"Bearer {key}")


# The format of the answer


@pytest.mark.parametrize("code", [400, 422])
def test_without_the_schema_where_the_server_refuses_it(code: int) -> None:
    def reply(body: Body) -> Reply:
        return status(code)(body) if "response_format" in body else good(body)

    with serving(reply) as server:
        run = Run(server.url, concurrency=1)
    assert run.counts == (len(TEXTS), {}, None)
    assert ["response_format" in body for body in server.bodies] == [True] + [False] * len(TEXTS)


def test_a_second_400_is_about_the_text() -> None:
    def reply(body: Body) -> Reply:
        return status(400)(body) if text_of(body) == TEXTS[0] else good(body)

    with serving(reply) as server:
        run = Run(server.url, concurrency=1)
    assert run.counts == (len(TEXTS) - 1, {"HTTP 400": 1}, None)
    formats = ["response_format" in body for body in server.bodies]
    assert formats == [True, False] + [True] * (len(TEXTS) - 1)


# Errors that pass


@pytest.mark.parametrize("code", sorted(RETRIED))
def test_what_may_pass_is_tried_again(code: int) -> None:
    with serving(in_turn(status(code), status(code), good)) as server:
        run = Run(server.url, TEXTS[:1])
    assert run.counts == (1, {}, None)
    assert len(server.bodies) == 3


def test_five_times_is_enough() -> None:
    with serving(lambda body: status(503)(body) if "11" in text_of(body) else good(body)) as server:
        run = Run(server.url)
    assert run.counts == (len(TEXTS) - 1, {"HTTP 503, 5 times": 1}, None)
    assert server.texts.count(TEXTS[11]) == TRIES == 5


def test_pauses_grow_with_jitter_and_heed_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr(llm_client.asyncio, "sleep", sleep)
    with serving(status(429)) as server:
        Run(server.url, TEXTS[:3], concurrency=1, pause=1.0)
    assert len(pauses) == 3 * (TRIES - 1)
    for i, pause in enumerate(pauses):
        assert 0.5 <= pause / 2 ** (i % 4) <= 1.5
    assert len(set(pauses)) == len(pauses)
    pauses.clear()
    replies = [status(429, retry_after=v) for v in ("20", "7000", "Fri, 31 Dec 1999 23:59:59 GMT")]
    with serving(in_turn(*replies, good)) as server:
        Run(server.url, TEXTS[:1], pause=0.001)
    assert 20 <= pauses[0] <= 24
    assert pauses[1] == 60
    assert pauses[2] < 0.1


def test_a_broken_connection_is_tried_again() -> None:
    with serving(in_turn(hang_up, hang_up, good)) as server:
        run = Run(server.url, TEXTS[:1])
    assert run.counts == (1, {}, None)
    assert len(server.bodies) == 3


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def test_a_server_that_is_not_there() -> None:
    run = Run(f"http://127.0.0.1:{free_port()}/v1")
    assert isinstance(run.error, TeacherError)
    assert "after 5 tries" in str(run.error)
    assert "the same command continues" in str(run.error)


def test_a_server_that_starts_late(monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_port()
    with ExitStack() as stack:
        started = []

        async def sleep(_: float) -> None:
            if not started:
                started.append(stack.enter_context(serving(port=port)))

        monkeypatch.setattr(llm_client.asyncio, "sleep", sleep)
        run = Run(f"http://127.0.0.1:{port}/v1", TEXTS[:3])
        assert run.counts == (3, {}, None)
        assert sorted(started[0].texts) == TEXTS[:3]


# Slow servers


def test_a_read_timeout_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    posted = []
    post = llm_client._Asking.post

    async def counted_post(asking: Any, body: Body) -> Any:
        posted.append(body)
        return await post(asking, body)

    monkeypatch.setattr(llm_client._Asking, "post", counted_post)
    with serving() as server:
        server.reply = server.hang
        run = Run(server.url, TEXTS[:2], timeout=0.3)
    assert run.counts == (0, {"no answer within 0.3 seconds": 2}, None)
    bodies = [QUESTION.body(text) for text in TEXTS[:2]]
    assert posted == bodies
    # The server may have written the whole answers, so all of them is taken for spent.
    assert run.spending.question_tokens == sum(map(longest_question, bodies))
    assert run.spending.answer_tokens == sum(body["max_tokens"] for body in bodies)


def test_an_answer_byte_by_byte_has_no_more_time() -> None:
    with serving(lambda body: Reply(good(body).content, drip=0.05)) as server:
        run = Run(server.url, TEXTS[:1], timeout=0.5)
    assert run.counts == (0, {"no answer within 0.5 seconds": 1}, None)


# Servers that will not do


@pytest.mark.parametrize("code", [301, 401, 403, 404])
def test_what_no_other_text_would_change_ends_the_run(code: int) -> None:
    with serving(status(code, location="/elsewhere")) as server:
        run = Run(server.url, concurrency=1)
    assert len(server.bodies) == 1
    assert isinstance(run.error, TeacherError)
    assert f"/v1/chat/completions answered HTTP {code}: not now; check --llm" in str(run.error)


@pytest.mark.parametrize(
    "content", [b"<html>Welcome</html>", b"", [], {"choices": []}, b"\xff\xfe", b"[" * 100_000]
)
def test_200_is_not_always_an_answer(content: Any) -> None:
    with serving(in_turn(status(200, content), good)) as server:
        run = Run(server.url, concurrency=1)
    reason = "a response that is not a chat completion"
    assert run.counts == (len(TEXTS) - 1, {reason: 1}, None)


def test_an_endless_response(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(llm_client, "ANSWER_BYTES", 1 << 20)
    with serving(in_turn(status(200, b" " * (2 << 20)), good)) as server:
        run = Run(server.url, concurrency=1)
    assert run.counts == (len(TEXTS) - 1, {"more than 1 MB of answer": 1}, None)


def test_a_compressed_response_that_is_none() -> None:
    with serving(in_turn(status(200, b"plain", content_encoding="gzip"), good)) as server:
        run = Run(server.url, concurrency=1)
    assert run.counts == (len(TEXTS) - 1, {"a response that cannot be decoded": 1}, None)


def test_failures_in_a_row_end_the_run() -> None:
    with serving(status(413)) as server:
        run = Run(server.url, concurrency=1)
    assert len(server.bodies) == 10
    assert "failed on 10 texts in a row, at last with HTTP 413: not now" in str(run.error)
    # … but only in a row
    with serving(lambda body: (status(413) if "bad" in text_of(body) else good)(body)) as server:
        texts = [f"{side} {i}" for i in range(12) for side in ("bad", "good")]
        run = Run(server.url, texts, concurrency=1)
    assert run.counts == (12, {"HTTP 413": 12}, None)


# The budget


def counted(body: Body) -> Reply:
    """An answer as long as it may be."""
    usage = (longest_question(body) // 4, body["max_tokens"])
    return Reply(completion(["x"], usage=usage))


@pytest.mark.parametrize("concurrency", [1, 5])
@pytest.mark.parametrize("limit", [0, 2_000, 6_000, 1_000_000])
def test_tokens_stay_within_the_budget(limit: int, concurrency: int) -> None:
    with serving(counted) as server:
        run = Run(server.url, spending=Spending(limit), concurrency=concurrency)
    usages = [answer["usage"] for answer in run.answers.values()]
    used = sum(usage["prompt_tokens"] + usage["completion_tokens"] for usage in usages)
    assert run.spending.spent == used <= limit
    left = len(TEXTS) - len(run.answers)
    assert run.failed == ({"not asked, the budget is spent": left} if left else {})
    if left:
        longest = QUESTION.body(TEXTS[-1])
        most = longest_question(longest) + longest["max_tokens"]
        assert used + most > limit, "as much as certainly fits is asked"
    assert (len(run.answers) == 12) == (limit == 1_000_000)
    assert run.error is None


def test_money_stays_within_the_budget() -> None:
    spending = Spending(0.01, Price(question=1.0, answer=10.0))
    with serving(counted) as server:
        run = Run(server.url, spending=spending, concurrency=4)
    assert 0 < len(run.answers) < len(TEXTS)
    tokens = run.spending.question_tokens, run.spending.answer_tokens
    assert run.spending.spent == pytest.approx((tokens[0] + 10 * tokens[1]) / 1e6)
    assert run.spending.spent <= 0.01


def test_a_server_that_does_not_count_costs_the_most() -> None:
    usages = [None, (-5, 5), ("1", 2)]
    replies = [status(200, completion(["x"], usage=usage)) for usage in usages]
    with serving(in_turn(*replies)) as server:
        run = Run(server.url, TEXTS[:3], concurrency=1)
    bodies = [QUESTION.body(text) for text in TEXTS[:3]]
    assert run.spending.question_tokens == sum(map(longest_question, bodies))
    assert run.spending.answer_tokens == sum(body["max_tokens"] for body in bodies)


# What is given


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("localhost:8000/v1", "expected a URL like http://localhost:8000/v1"),
        ("ftp://host/v1", "expected a URL"),
        ("http:///v1", "expected a URL"),
        ("http://host:99999/v1", "expected a URL"),
        ("http://[::1/v1", "expected a URL"),
        ("http://host/v 1", "expected a URL"),
        ("http://me:secret@host/v1", "HPLUS_LLM_KEY"),
    ],
)
def test_a_bad_url(url: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        Endpoint(url)
    assert "secret" not in str(caught.value)


def test_a_bad_key() -> None:
    for key in ("sécret", "se\ncret"):
        with pytest.raises(InputError, match="HPLUS_LLM_KEY"):
            Endpoint("http://host/v1", key=key)


def test_without_httpx_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "httpx", None)
    run = Run("http://127.0.0.1:9/v1")
    assert isinstance(run.error, MissingExtraError)
    assert "hplus[llm]" in str(run.error)


def test_an_interrupt_ends_what_is_under_way() -> None:
    """Ctrl-C while two requests hang: at once, with the answers so far kept."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
    kept: list[str] = []

    def keep(text: str, _: Body) -> None:
        kept.append(text)
        if len(kept) == 3:
            signal.raise_signal(signal.SIGINT)

    def reply(body: Body) -> Reply:
        return server.hang(body) if text_of(body) in TEXTS[:2] else good(body)

    with serving() as server:
        server.reply = reply
        began = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            ask_all(
                Endpoint(server.url, concurrency=3),
                QUESTION,
                TEXTS,
                keep=keep,
                spending=Spending(),
                bar=Progress(),
            )
        assert time.monotonic() - began < 25, "a hanging reply ends after 30 seconds"
    assert kept == TEXTS[2:5]
