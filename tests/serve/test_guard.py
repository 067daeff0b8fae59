"""Who may ask what, how much and how long."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from hplus import HPlus, InputError
from hplus.serve import guard
from hplus.serve.keys import Keys
from hplus.serve.limits import Limits
from service import HOME, Service, error_of, in_process

READER, WRITER = "reader-key-0123456789", "writer-key-0123456789"
SEARCH = "/indexes/med/search"


@pytest.fixture
def keys(tmp_path: Path) -> Keys:
    path = tmp_path / "keys"
    path.write_text(f"# ours\nread {READER}\n\nwrite {WRITER}\n")
    return Keys.read(path)


@pytest.fixture
def locked(folder: Path, served_model: HPlus, keys: Keys) -> Iterator[TestClient]:
    with in_process(folder, model=served_model, keys=keys) as service:
        yield service.client


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


def every_operation(client: TestClient, headers: dict[str, str]) -> Iterator[tuple[str, str]]:
    for path, methods in client.get("/openapi.json", headers=headers).json()["paths"].items():
        for method in methods:
            filled = path.replace("{name}", "med").replace("{id}", "a")
            yield method.upper(), filled
    yield from (("GET", path) for path in ("/", "/openapi.json", "/page/page.js", "/nothing"))


def test_without_a_key_nothing_but_health(locked: TestClient) -> None:
    operations = set(every_operation(locked, bearer(READER)))
    assert len(operations) > 25
    wrong = ["", "Bearer", f"Bearer {READER}x", f"Bearer {READER[:-1]}", f"Basic {READER}",
             "Basic ###", f"Token {READER}", "Bearer \xff"]  # fmt: skip
    for method, path in operations:
        for authorization in wrong if path == SEARCH else wrong[:1]:
            headers = {"authorization": authorization.encode("latin-1")}
            answer = locked.request(method, path, headers=headers)  # type: ignore[arg-type]
            if path == "/health":
                assert answer.status_code == 200
            else:
                assert answer.status_code == 401, (method, path)
                assert error_of(answer)["code"] == "key"


def test_a_read_key_reads(locked: TestClient) -> None:
    for authorization in (
        f"Bearer {READER}",
        f"bearer {READER}",
        "Basic " + base64.b64encode(f"anyone:{READER}".encode()).decode(),
    ):
        headers = {"authorization": authorization}
        assert locked.post(SEARCH, json={"query": "cell"}, headers=headers).status_code == 200
    changing = {
        (method, path)
        for method, path in every_operation(locked, bearer(READER))
        if method in ("PUT", "DELETE") or path.endswith(("/documents", "/compact"))
    }
    assert len(changing) == 5
    for method, path in changing:
        answer = locked.request(method, path, headers=bearer(READER))
        assert answer.status_code == 403
        assert error_of(answer)["code"] == "scope"
    for path in ("/unknown", "/indexes/med/searches", "/indexes/med/search/x"):
        assert locked.post(path, headers=bearer(READER)).status_code == 403
    put = locked.put("/indexes/med/documents/n", json={"text": "x"}, headers=bearer(WRITER))
    assert put.status_code == 200


def test_every_key_is_compared_in_constant_time(
    keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever key is given, the same comparisons of the same lengths are made."""
    seen: list[tuple[int, int]] = []

    def compare(a: bytes, b: bytes) -> bool:
        seen.append((len(a), len(b)))
        return a == b

    monkeypatch.setattr("hplus.serve.keys.hmac.compare_digest", compare)
    for given in (READER, WRITER, "", "x" * 5000, READER[:-1]):
        seen.clear()
        keys.scopes(f"Bearer {given}".encode())
        assert seen == [(32, 32)] * 2


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("admin key-key-key-key-key", "keys:1: expected `read KEY` or `write KEY`"),
        ("read", "keys:1: expected `read KEY`"),
        ("read short", "keys:1: expected a key of 16 or more"),
        ("# nothing", "has no keys"),
    ],
)
def test_a_bad_file_of_keys(tmp_path: Path, line: str, said: str) -> None:
    (tmp_path / "keys").write_text(line + "\n")
    with pytest.raises(InputError, match=said):
        Keys.read(tmp_path / "keys")


def test_a_read_only_service(folder: Path, served_model: HPlus) -> None:
    with in_process(folder, model=served_model, read_only=True) as service:
        client = service.client
        assert client.post(SEARCH, json={"query": "cell"}).status_code == 200
        for answer in (
            client.put("/indexes/med/documents/n", json={"text": "x"}),
            client.delete("/indexes/med/documents/a"),
            client.post("/indexes/med/compact", json={}),
        ):
            assert answer.status_code == 403
            assert error_of(answer)["code"] == "read_only"


def test_no_site_gets_in_under_a_name_of_its_own(client: TestClient) -> None:
    for host in ("evil.example", "127.0.0.1.evil.example", "", "["):
        answer = client.post(SEARCH, json={"query": "cell"}, headers={"host": host})
        assert answer.status_code == 421
    for host in ("localhost:8000", "127.0.0.1", "[::1]:80"):
        answer = client.post(SEARCH, json={"query": "cell"}, headers={"host": host})
        assert answer.status_code == 200


def test_pages_of_other_sites_cannot_call(folder: Path, served_model: HPlus) -> None:
    friend = "https://friend.example"
    cases = [
        ({"origin": "https://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"sec-fetch-site": "cross-site", "origin": HOME}, 403),
        ({"sec-fetch-site": "same-site"}, 403),
        ({"sec-fetch-site": "same-origin", "origin": "https://proxied.example"}, 200),
        ({"origin": HOME}, 200),
        ({}, 200),
    ]
    with in_process(folder, model=served_model) as service:
        for headers, status in [*cases, ({"origin": friend}, 403)]:
            answer = service.client.post(SEARCH, json={"query": "cell"}, headers=headers)
            assert answer.status_code == status, headers
            assert "access-control-allow-origin" not in answer.headers
    with in_process(folder, model=served_model, origins=(friend,)) as service:
        answer = service.client.post(SEARCH, json={"query": "cell"}, headers={"origin": friend})
        assert answer.headers["access-control-allow-origin"] == friend
        asked = {"origin": friend, "access-control-request-method": "POST"}
        assert service.client.options(SEARCH, headers=asked).status_code == 200
        evil = {"origin": "https://evil.example"}
        answer = service.client.post(SEARCH, json={"query": "cell"}, headers=evil)
        assert answer.status_code == 403


def test_the_headers_of_every_answer(client: TestClient) -> None:
    for path in ("/health", "/", "/nothing", "/indexes"):
        headers = client.get(path).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        policy = headers["content-security-policy"]
        assert policy.startswith("default-src 'none'")
        assert "unsafe" not in policy
        assert "http" not in policy
    given = client.get("/health", headers={"x-request-id": "mine-1"}).headers["x-request-id"]
    assert given == "mine-1"
    for bad in ("x" * 65, "a b", "é", '"'):
        headers = client.get("/health", headers={"x-request-id": bad.encode("latin-1")}).headers
        assert len(headers["x-request-id"]) == 16


def test_large_bodies(folder: Path, served_model: HPlus) -> None:
    limits = Limits(body=1000)
    with in_process(folder, model=served_model, limits=limits) as service:
        kind = {"content-type": "application/json"}
        stream = {"content-type": "application/x-ndjson"}
        for path, content, headers in [
            (SEARCH, b"x" * 1001, kind),
            (SEARCH, b"", {**kind, "content-length": "9" * 30}),
            ("/indexes/med/documents", b"x" * 1001, kind),
            ("/indexes/med/documents", b"x" * 1001, stream),
        ]:
            answer = service.client.post(path, content=content, headers=headers)
            assert answer.status_code == 413
            assert error_of(answer)["code"] == "size"
        lines = b'{"id": "%d", "text": "cell"}\n'
        body = b"".join(lines % i for i in range(100))  # a stream is as long as it likes
        answer = service.client.post("/indexes/med/documents", content=body, headers=stream)
        assert answer.json()["added"] == 100


class Client:
    """A client by hand: what it sends and when it goes away, and what comes back."""

    def __init__(self, path: str, body: bytes, *, method: str = "POST") -> None:
        headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
        self.scope = {"type": "http", "method": method, "path": path, "headers": headers,
                      "query_string": b"", "raw_path": path.encode(), "root_path": "",
                      "scheme": "http", "http_version": "1.1", "client": ("127.0.0.1", 1),
                      "server": ("127.0.0.1", 2)}  # fmt: skip
        self.body = body
        self.gone = asyncio.Event()
        self.asked = 0
        self.sent: list[Any] = []

    async def receive(self) -> dict[str, Any]:
        self.asked += 1
        if self.asked == 1:
            return {"type": "http.request", "body": self.body, "more_body": False}
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        self.sent.append(message)

    @property
    def status(self) -> int | None:
        return self.sent[0]["status"] if self.sent else None

    def header(self, name: bytes) -> bytes | None:
        return dict(self.sent[0]["headers"]).get(name)


def guarded(service: Service) -> Any:
    return service.client.app


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Encoding queries waits for this event."""
    free = threading.Event()
    encode = __import__("hplus.serve.batch", fromlist=["encode"]).encode

    def wait(*arguments: Any) -> Any:
        free.wait(20)
        return encode(*arguments)

    monkeypatch.setattr("hplus.serve.batch.encode", wait)
    yield free
    free.set()


def ask(query: str = "cell") -> bytes:
    return json.dumps({"query": query}).encode()


def test_a_full_service_says_so(folder: Path, served_model: HPlus, slow: threading.Event) -> None:
    async def scenario() -> None:
        clients = [Client(SEARCH, ask(f"cell {i}")) for i in range(5)]
        tasks = [asyncio.ensure_future(app(one.scope, one.receive, one.send)) for one in clients]
        while sum(one.status == 503 for one in clients) < 2:
            await asyncio.sleep(0.01)
        health = Client("/health", b"", method="GET")
        await app(health.scope, health.receive, health.send)
        assert health.status == 200
        slow.set()
        await asyncio.gather(*tasks)
        assert sorted(one.status or 0 for one in clients) == [200, 200, 200, 503, 503]
        refused = next(one for one in clients if one.status == 503)
        assert refused.header(b"retry-after") == b"1"

    with in_process(folder, model=served_model, limits=Limits(requests=3)) as service:
        app = guarded(service)
        service.client.portal.call(scenario)  # type: ignore[union-attr]
        sizes = service.client.get("/metrics").text
        assert "hplus_query_batch_sum 3.0" in sizes
        assert "hplus_query_batch_count 3.0" not in sizes  # some shared a pass


def test_what_takes_too_long(folder: Path, served_model: HPlus, slow: threading.Event) -> None:
    assert not slow.is_set()
    with in_process(folder, model=served_model, limits=Limits(seconds=0.2)) as service:
        answer = service.client.post(SEARCH, json={"query": "cell"})
        assert answer.status_code == 504
        assert error_of(answer)["code"] == "slow"
        slow.set()
        assert service.client.post(SEARCH, json={"query": "cell"}).status_code == 200


def test_a_client_that_goes_away_stops_its_work(
    folder: Path, served_model: HPlus, slow: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        first, second = Client(SEARCH, ask()), Client(SEARCH, ask("never encoded"))
        tasks = []
        for one in (first, second):
            tasks.append(asyncio.ensure_future(app(one.scope, one.receive, one.send)))
            await asyncio.sleep(0.1)
        second.gone.set()
        await tasks[1]
        assert second.sent == []
        slow.set()
        await tasks[0]
        assert first.status == 200

    with in_process(folder, model=served_model) as service:
        app = guarded(service)
        answered: list[str] = []
        index = service.indexes["med"].index
        answer = index.answer
        monkeypatch.setattr(
            index, "answer", lambda one, query: answered.append(one.query) or answer(one, query)
        )
        service.client.portal.call(scenario)  # type: ignore[union-attr]
        assert answered == ["cell"]
        assert "hplus_query_batch_sum 1.0" in service.client.get("/metrics").text


def test_what_is_encoded_for_nobody_is_not_searched(
    folder: Path, served_model: HPlus, slow: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A search that has begun goes on to its end; one that has not is left out."""

    async def scenario() -> None:
        client = Client(SEARCH, ask())
        task = asyncio.ensure_future(app(client.scope, client.receive, client.send))
        while "hplus_query_batch_sum 1.0" not in service.metrics.text({}).decode():
            await asyncio.sleep(0.01)
        client.gone.set()
        await task
        assert client.sent == []
        slow.set()

    answered: list[str] = []
    with in_process(folder, model=served_model) as service:
        app = guarded(service)
        monkeypatch.setattr(
            service.indexes["med"].index, "answer", lambda one, _: answered.append(one.query)
        )
        service.client.portal.call(scenario)  # type: ignore[union-attr]
    assert answered == []  # its thread has ended


def test_a_body_that_never_ends(folder: Path, served_model: HPlus) -> None:
    class Slow(Client):
        async def receive(self) -> dict[str, Any]:
            self.asked += 1
            if self.asked == 1:
                return {"type": "http.request", "body": b'{"query', "more_body": True}
            await asyncio.sleep(30)
            raise AssertionError("nobody gave up")

    async def scenario() -> None:
        started = time.monotonic()
        for kind in (b"application/json", b"application/x-ndjson"):
            one = Slow("/indexes/med/documents", b"")
            one.scope["headers"] = [(b"host", b"localhost"), (b"content-type", kind)]
            await app(one.scope, one.receive, one.send)
            assert one.status == 408
        assert time.monotonic() - started < 20

    with in_process(folder, model=served_model, limits=Limits(seconds=0.2)) as service:
        app = guarded(service)
        service.client.portal.call(scenario)  # type: ignore[union-attr]


def test_an_internal_error_tells_nothing(
    service: Service, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        raise RuntimeError("secret")

    monkeypatch.setattr(service.indexes["med"].index, "stats", fail)
    answer = service.client.get("/indexes/med/stats")
    assert answer.status_code == 500
    assert "secret" not in answer.text
    assert answer.headers["x-request-id"] in error_of(answer)["message"]
    assert "secret" in caplog.text


def test_logs_have_no_queries_unless_asked_for(
    folder: Path, served_model: HPlus, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, guard._log.name)
    for wanted in (False, True):
        caplog.clear()
        with in_process(folder, model=served_model, log_queries=wanted) as service:
            service.client.post(SEARCH, json={"query": "cell"}, headers={"x-request-id": "r1"})
        (record,) = [one for one in caplog.records if hasattr(one, "line")]
        line = record.line
        assert line["id"] == "r1"
        assert line["path"] == SEARCH
        assert line["status"] == 200
        assert line.get("query") == ("cell" if wanted else None)
