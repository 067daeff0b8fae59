"""Questions to any OpenAI-compatible endpoint, several at once, within a budget.

What may pass is tried again with growing, jittered pauses: 429, 500, 502, 503, 504, refused and
broken connections. A read timeout is not: the server may still be working on the answer, and asking
again would double its load. A failed text is counted and left for the next run; a server that fails
on one text after the other, or refuses the key, ends the run with one sentence.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

from hplus.errors import InputError, MissingExtraError, TeacherError
from hplus.progress import Progress
from hplus.teach.llm import Question, is_answer, longest_answer, longest_question
from hplus.teach.llm_spending import Spending

if TYPE_CHECKING:
    import httpx

TRIES = 5
RETRIED = frozenset({429, 500, 502, 503, 504})
# Nothing about the text: no other will fare better.
HOPELESS = frozenset({301, 302, 303, 307, 308, 401, 402, 403, 404, 405})
LONGEST_PAUSE = 60.0
ANSWER_BYTES = 16 * 2**20
BUDGET_SPENT = "not asked, the budget is spent"

Keep = Callable[[str, dict[str, Any]], None]


@dataclass(frozen=True)
class Endpoint:
    """url: up to and including /v1. timeout: seconds for one answer. key: sent as a bearer token.
    pause: seconds before the first repetition; each further one waits twice as long."""

    url: str
    concurrency: int = 8
    timeout: float = 300.0
    key: str | None = None
    pause: float = 1.0

    def __post_init__(self) -> None:
        try:
            parts = urlsplit(self.url)
            usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        except ValueError:  # a port or an address in brackets that is none
            usable = False
        if not usable or not self.url.isprintable() or " " in self.url:
            raise InputError(f"expected a URL like http://localhost:8000/v1, got {self.url!r:.200}")
        if parts.username is not None or parts.password is not None:
            raise InputError("a URL with a password would be shown in messages; set HPLUS_LLM_KEY")
        if self.key is not None and not (self.key.isascii() and self.key.isprintable()):
            raise InputError("the key in HPLUS_LLM_KEY has characters that no header can carry")

    @property
    def completions(self) -> str:
        """Where chat completions are asked for.

        >>> Endpoint("http://localhost:8000/v1/?api-version=1").completions
        'http://localhost:8000/v1/chat/completions?api-version=1'
        """
        scheme, host, path, query, _ = urlsplit(self.url)
        path = path.rstrip("/").removesuffix("/chat/completions") + "/chat/completions"
        return urlunsplit((scheme, host, path, query, ""))


def ask_all(
    endpoint: Endpoint,
    question: Question,
    texts: Iterable[str],
    *,
    keep: Keep,
    spending: Spending,
    bar: Progress,
) -> Counter[str]:
    """Ask about every text; `keep` gets each answer as it arrives. Returns how many texts have no
    answer, by reason."""
    try:
        import httpx
    except ImportError:
        raise MissingExtraError("to ask a language model, run: pip install 'hplus[llm]'") from None

    async def run() -> Counter[str]:
        headers = {"content-type": "application/json", "accept": "application/json"}
        if endpoint.key:
            headers["authorization"] = f"Bearer {endpoint.key}"
        timeout = httpx.Timeout(endpoint.timeout, connect=min(30.0, endpoint.timeout), pool=None)
        limits = httpx.Limits(max_connections=endpoint.concurrency)
        async with httpx.AsyncClient(headers=headers, timeout=timeout, limits=limits) as client:
            asking = _Asking(endpoint, question, spending, client, keep, bar)
            waiting = iter(texts)
            try:
                async with asyncio.TaskGroup() as group:
                    for _ in range(endpoint.concurrency):
                        group.create_task(asking.work(waiting))
            except BaseExceptionGroup as failures:
                raise failures.exceptions[0] from None
            if left := sum(1 for _ in waiting):
                asking.failed[BUDGET_SPENT] += left
        return Counter({f"texts without an answer: {why}": n for why, n in asking.failed.items()})

    return asyncio.run(run())


class _TextFailedError(Exception):
    """This text has no answer; `reason` is what it is counted under."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"{reason}{detail and ': '}{detail}")
        self.reason = reason


class _Asking:
    """One run: what its workers share."""

    def __init__(
        self,
        endpoint: Endpoint,
        question: Question,
        spending: Spending,
        client: httpx.AsyncClient,
        keep: Keep,
        bar: Progress,
    ) -> None:
        self.endpoint, self.question, self.spending = endpoint, question, spending
        self.client, self.keep, self.bar = client, keep, bar
        self.failed: Counter[str] = Counter()
        self.in_a_row = 0
        self.schema = True

    async def work(self, texts: Iterator[str]) -> None:
        for text in texts:
            body = self.question.body(text)
            bounds = (body.get(name) for name in ("max_tokens", "max_completion_tokens"))
            answer = next((b for b in bounds if isinstance(b, int)), longest_answer(text))
            most = (longest_question(body), answer)
            if not await self.spending.reserve(*most):
                self.failed[BUDGET_SPENT] += 1
                return
            used = (0, 0)
            try:
                found = await self.ask(text)
                used = _usage(found, most)
                self.keep(text, found)
                self.in_a_row = 0
            except TimeoutError:
                used = most  # the server may well have written the whole answer
                self.count(_TextFailedError(f"no answer within {self.endpoint.timeout:g} seconds"))
            except _TextFailedError as failure:
                self.count(failure)
            finally:
                self.spending.settle(most, used)
            self.bar.advance(1)

    def count(self, failure: _TextFailedError) -> None:
        self.failed[failure.reason] += 1
        self.in_a_row += 1
        if self.in_a_row >= max(10, 2 * self.endpoint.concurrency):
            raise TeacherError(
                f"{self.endpoint.completions} failed on {self.in_a_row} texts in a row, at last "
                f"with {failure}; what was answered is kept, the same command continues"
            )

    async def ask(self, text: str) -> dict[str, Any]:
        """The answer about one text, however many requests it takes."""
        schema = self.schema
        failures = 0
        while True:
            status, data, retry_after = await self.post(self.question.body(text, schema=schema))
            if status == 200:
                break
            if status in (400, 422) and schema:
                schema = False  # once more, without a format the server may not know
            elif status in HOPELESS:
                raise TeacherError(
                    f"{self.endpoint.completions} answered HTTP {status}: {_message(data)}; check "
                    "--llm, --llm-model and the key in HPLUS_LLM_KEY"
                )
            elif status is not None and status not in RETRIED:
                raise _TextFailedError(f"HTTP {status}", _message(data))
            else:
                failures += 1
                if failures == TRIES and status is None:
                    raise TeacherError(
                        f"cannot reach {self.endpoint.completions} after {TRIES} tries: "
                        f"{_message(data)}; what was answered is kept, the same command continues"
                    )
                if failures == TRIES:
                    raise _TextFailedError(f"HTTP {status}, {TRIES} times", _message(data))
                await asyncio.sleep(self.wait(failures, retry_after))
        self.schema = schema
        try:
            found = json.loads(data)
        except (ValueError, RecursionError):
            found = None
        if not is_answer(found):
            raise _TextFailedError("a response that is not a chat completion", _message(data))
        return found

    def wait(self, failures: int, retry_after: float) -> float:
        """Seconds until the next try; never less than the server asks for, up to a minute."""
        pause = self.endpoint.pause * 2.0 ** (failures - 1) * random.uniform(0.5, 1.5)
        return min(max(pause, retry_after * random.uniform(1.0, 1.2)), LONGEST_PAUSE)

    async def post(self, body: dict[str, Any]) -> tuple[int | None, bytes, float]:
        """Status, content and Retry-After; the status is None if the connection failed."""
        import httpx

        content = json.dumps(body).encode()
        data = bytearray()
        try:
            # httpx counts its timeout anew for every piece that arrives.
            async with (
                asyncio.timeout(self.endpoint.timeout),
                self.client.stream("POST", self.endpoint.completions, content=content) as response,
            ):
                async for piece in response.aiter_bytes():
                    data += piece
                    if len(data) > ANSWER_BYTES:
                        raise _TextFailedError(f"more than {ANSWER_BYTES >> 20} MB of answer")
                return response.status_code, bytes(data), _seconds(response)
        except (httpx.ReadTimeout, httpx.WriteTimeout):
            raise TimeoutError from None
        except httpx.TransportError as error:
            return None, (str(error) or type(error).__name__).encode(), 0.0
        except httpx.DecodingError as error:
            raise _TextFailedError("a response that cannot be decoded", str(error)) from None


def _seconds(response: httpx.Response) -> float:
    """Retry-After, if it is given in seconds."""
    value = response.headers.get("retry-after", "")
    return float(value) if value.isascii() and value.isdigit() else 0.0


def _message(data: bytes) -> str:
    """What a server says about an error, on one line."""
    text = data[:2000].decode(errors="replace")
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        found = None
    match found:
        case {"error": {"message": str(message)}} | {"error": str(message)}:
            text = message
        case {"message": str(message)} | {"detail": str(message)}:
            text = message
    return " ".join(text.split())[:200] or "no message"


def _usage(answer: dict[str, Any], most: tuple[int, int]) -> tuple[int, int]:
    """Tokens of question and answer; the most there can be if the server does not say."""
    match answer.get("usage"):
        case {"prompt_tokens": int(question), "completion_tokens": int(written)} if (
            question >= 0 and written >= 0
        ):
            return question, written
    return most
