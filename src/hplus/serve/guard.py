"""What every request passes: who may ask, how much, how long; and one line of log for each.

A plain ASGI layer round the application. It reads the body (a stream of documents excepted), then
runs the endpoint and listens to the client at the same time: one that goes away, or that asks for
more time than there is, has its work cancelled.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import secrets
import time
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from hplus.serve.keys import Keys, Scope
from hplus.serve.limits import Limits
from hplus.serve.metrics import Metrics
from hplus.serve.problems import RefusedError, full, internal

ScopeData = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[ScopeData, Receive, Send], Awaitable[None]]

# Asked for by whoever looks after the service, also when it is full.
WATCHED = {"/health", "/ready", "/metrics"}
# What reads, though it is posted: everything else that is not GET or HEAD changes something.
READING = re.compile(
    r"/indexes/[^/]+/(search|rerank|more-like/.*)|/segment|/terms/check"
    r"|/v1/(embeddings|rerank)|/v2/rerank|/embed_sparse|/embed_all"
)
STREAM = re.compile(r"/indexes/[^/]+/documents")
LOOPBACK = {"localhost", "127.0.0.1", "::1"}
HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
API_POLICY = (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'")
REQUEST_ID = "hplus.request_id"
"""Where a request's id is in its scope."""
_ID = re.compile(r"[\w.:-]{1,64}")
_log = logging.getLogger("hplus.serve.requests")


@dataclass(frozen=True)
class Rules:
    """Who may do what.

    keys: None lets everybody in, which is for loopback alone; then the service also answers only to
    the names of loopback, so that no web site can reach it under a name of its own. origins: other
    sites whose pages may call it. log_queries: queries go into the log.
    """

    limits: Limits
    keys: Keys | None = None
    read_only: bool = False
    origins: tuple[str, ...] = ()
    log_queries: bool = False


class Guard:
    """The layer round an application."""

    def __init__(self, app: App, rules: Rules, metrics: Metrics) -> None:
        self.app, self.rules, self.metrics = app, rules, metrics
        self._at_work = 0

    async def __call__(self, scope: ScopeData, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return await self.app(scope, receive, send)
        if scope["type"] != "http":  # a web socket, which nothing here speaks
            return await send({"type": "websocket.close", "code": 1003})
        headers = dict(scope["headers"])
        answer = _Answer(send, _request_id(headers))
        scope[REQUEST_ID] = answer.id
        started = time.perf_counter()
        try:
            self._check(scope, headers)
            await self._admitted(scope, headers, receive, answer)
        except RefusedError as problem:
            await answer.fail(problem)
        except Exception:
            _log.exception("request %s failed", answer.id)
            await answer.fail(internal(answer.id))
        finally:
            self._note(scope, answer, time.perf_counter() - started)

    def _check(self, scope: ScopeData, headers: dict[bytes, bytes]) -> None:
        path, method = scope["path"], scope["method"]
        if path == "/health":
            return
        self._check_origin(method, headers)
        needed: Scope = "read"
        if method not in ("GET", "HEAD") and not READING.fullmatch(path):
            needed = "write"
        if self.rules.keys is not None:
            scopes = self.rules.keys.scopes(headers.get(b"authorization", b""))
            if not scopes:
                raise RefusedError(
                    401,
                    "key",
                    "expected a key: Authorization: Bearer KEY",
                    headers={"www-authenticate": 'Basic realm="hplus", charset="UTF-8"'},
                )
            if needed not in scopes:
                raise RefusedError(403, "scope", "this key may read, not write")
        elif _host(headers) not in LOOPBACK:
            raise RefusedError(421, "host", "without keys, only requests to localhost are answered")
        if needed == "write" and self.rules.read_only:
            raise RefusedError(403, "read_only", "this service is read-only")

    def _check_origin(self, method: str, headers: dict[bytes, bytes]) -> None:
        """No page of another site may change or ask something in its visitor's name."""
        origin = headers.get(b"origin", b"").decode("latin-1")
        if method in ("GET", "HEAD") or origin in self.rules.origins:
            return
        site = headers.get(b"sec-fetch-site")
        own = origin.partition("://")[2].encode("latin-1") == headers.get(b"host")
        if site not in (None, b"same-origin", b"none") or (site is None and origin and not own):
            raise RefusedError(403, "origin", "pages of other sites may not call this service")

    async def _admitted(
        self, scope: ScopeData, headers: dict[bytes, bytes], receive: Receive, answer: _Answer
    ) -> None:
        if scope["path"] in WATCHED:
            return await self.app(scope, receive, answer.send)
        if self._at_work >= self.rules.limits.requests:
            raise full(f"{self._at_work} requests are at work")
        self._at_work += 1
        self.metrics.at_work.set(self._at_work)
        try:
            await self._run(scope, headers, receive, answer)
        finally:
            self._at_work -= 1
            self.metrics.at_work.set(self._at_work)

    async def _run(
        self, scope: ScopeData, headers: dict[bytes, bytes], receive: Receive, answer: _Answer
    ) -> None:
        limits = self.rules.limits
        kind = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
        streams = STREAM.fullmatch(scope["path"]) and kind == b"application/x-ndjson"
        if streams and scope["method"] == "POST":  # the endpoint bounds its lines and its pauses
            await self.app(scope, receive, answer.send)
            return
        try:
            async with asyncio.timeout(limits.seconds):
                body = await _read(receive, headers, limits.body)
        except TimeoutError:
            raise RefusedError(
                408, "slow", f"the body took over {limits.seconds:g} seconds"
            ) from None
        if body is None:
            return
        if self.rules.log_queries:
            answer.query = _query(body)
        reads = scope["method"] in ("GET", "HEAD") or READING.fullmatch(scope["path"])
        seconds = limits.seconds if reads else limits.write_seconds
        await self._watched(scope, body, receive, answer, seconds)

    async def _watched(
        self, scope: ScopeData, body: bytes, receive: Receive, answer: _Answer, seconds: float
    ) -> None:
        """Run the endpoint; cancel it if the client goes away first, or if it takes too long."""
        endpoint = asyncio.current_task()
        assert endpoint is not None
        gone = asyncio.ensure_future(_disconnected(receive))
        gone.add_done_callback(lambda task: task.cancelled() or endpoint.cancel())
        given = False

        async def receive_body() -> Message:
            nonlocal given
            if given:
                await gone
                return {"type": "http.disconnect"}
            given = True
            return {"type": "http.request", "body": body, "more_body": False}

        try:
            async with asyncio.timeout(seconds) as clock:
                await self.app(scope, receive_body, answer.send)
        except asyncio.CancelledError:
            if not gone.done():
                raise
            endpoint.uncancel()
            answer.status = 499  # as nginx notes a client that went away
        except TimeoutError:
            if not clock.expired():
                raise
            raise RefusedError(
                504, "slow", f"this took over {seconds:g} seconds and was given up"
            ) from None
        finally:
            gone.cancel()

    def _note(self, scope: ScopeData, answer: _Answer, seconds: float) -> None:
        endpoint = getattr(scope.get("route"), "path", "none")
        self.metrics.requests.labels(scope["method"], endpoint, answer.status).inc()
        self.metrics.seconds.labels(endpoint).observe(seconds)
        if _log.isEnabledFor(logging.INFO):
            line = {
                "id": answer.id,
                "method": scope["method"],
                "path": scope["path"],
                "status": answer.status,
                "ms": round(1000 * seconds, 1),
                "client": (scope.get("client") or ("",))[0],
            }
            if answer.query is not None:
                line["query"] = answer.query
            _log.info("request", extra={"line": line})


class _Answer:
    """The way back: every answer has the safe headers."""

    def __init__(self, send: Send, id_: str) -> None:
        self._send, self.id = send, id_
        self.status = 0
        self.query: str | None = None

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = list(message.get("headers", ()))
            named = {name for name, _ in headers}
            headers += [(b"x-request-id", self.id.encode()), *HEADERS]
            if API_POLICY[0] not in named:
                headers += [API_POLICY, (b"cache-control", b"no-store")]
            message = {**message, "headers": headers}
        await self._send(message)

    async def fail(self, problem: RefusedError) -> None:
        if self.status:  # too late to say so
            return
        body = problem.body()
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            *((name.encode(), value.encode()) for name, value in (problem.headers or {}).items()),
        ]
        if problem.status in (408, 413):  # the rest of the body is not read
            headers.append((b"connection", b"close"))
        try:
            await self.send(
                {"type": "http.response.start", "status": problem.status, "headers": headers}
            )
            await self.send({"type": "http.response.body", "body": body})
        except OSError:
            pass


async def _read(receive: Receive, headers: dict[bytes, bytes], most: int) -> bytes | None:
    """The whole body, or None if the client went away."""
    announced = headers.get(b"content-length", b"0")
    if announced.isdigit() and int(announced[:20]) > most:
        raise _too_large(most)
    parts, size = [], 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > most:
            raise _too_large(most)
        if not message.get("more_body", False):
            return b"".join(parts)


def _too_large(most: int) -> RefusedError:
    return RefusedError(
        413,
        "size",
        f"the body has more than {most:,} bytes; send documents in several requests, or as a "
        "stream: Content-Type: application/x-ndjson",
    )


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _request_id(headers: dict[bytes, bytes]) -> str:
    """The client's, if it is harmless, else a new one."""
    given = headers.get(b"x-request-id", b"").decode("latin-1")
    return given if _ID.fullmatch(given) and given.isascii() else secrets.token_hex(8)


def _host(headers: dict[bytes, bytes]) -> str:
    try:
        return urlsplit("//" + headers.get(b"host", b"").decode("latin-1")).hostname or ""
    except ValueError:
        return ""


def _query(body: bytes) -> str | None:
    try:
        query = json.loads(body).get("query")
    except (ValueError, AttributeError, RecursionError):
        return None
    return query if isinstance(query, str) else None
