"""A stand-in for an OpenAI-compatible endpoint, on a port of this machine.

It answers as a teacher should, unless the test gives it another `reply`: a function of the
request's body that returns a `Reply`, or does whatever a bad server does.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Any

from hplus.teach.llm import INSTRUCTION

Body = dict[str, Any]
_UNIT = re.compile(
    r"type 2 diabetes|heart failure|acute kidney injury|\d+ mg(?:/kg)?|\w+(?:-\w+)*|[^\w\s]", re.I
)


def text_of(body: Body) -> str:
    """The text that a request asks about."""
    content: str = body["messages"][0]["content"]
    assert content.startswith(INSTRUCTION)
    return content.removeprefix(INSTRUCTION)


def units_of(text: str) -> list[str]:
    """What a good teacher answers."""
    return _UNIT.findall(text)


def completion(content: Any, *, finish: str | None = "stop", usage: Any = (100, 20)) -> Body:
    """A chat completion; `content` that is not a string becomes JSON."""
    written = content if isinstance(content, str) else json.dumps(content)
    message = {"role": "assistant", "content": written}
    choice = {"index": 0, "message": message, "finish_reason": finish}
    made: Body = {"id": "x", "object": "chat.completion", "model": "m", "choices": [choice]}
    if usage is not None:
        made["usage"] = {"prompt_tokens": usage[0], "completion_tokens": usage[1]}
    return made


def good(body: Body) -> Reply:
    return Reply(completion({"segments": units_of(text_of(body))}))


@dataclass(frozen=True)
class Reply:
    """content: JSON, or bytes as they are; drip: seconds between its bytes."""

    content: Any
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    drip: float = 0.0


class HangUp(Exception):  # noqa: N818
    """Raised by a reply: the connection ends without a response."""


class StandIn:
    """A server; `bodies` and `headers` are what was asked, `most` how many requests ran at once."""

    def __init__(self, reply: Callable[[Body], Reply], port: int = 0) -> None:
        self.reply = reply
        self.bodies: list[Body] = []
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.running = self.most = 0
        self.over = Event()
        self.lock = Lock()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                outer.handle(self)

            def log_message(self, *_: Any) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 64

            def handle_error(self, *_: Any) -> None:
                pass  # a client that has gone

        self.server = Server(("127.0.0.1", port), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1"

    @property
    def texts(self) -> list[str]:
        return [text_of(body) for body in self.bodies]

    def handle(self, request: BaseHTTPRequestHandler) -> None:
        raw = request.rfile.read(int(request.headers["content-length"]))
        with self.lock:
            self.bodies.append(json.loads(raw))
            self.headers.append({name.lower(): value for name, value in request.headers.items()})
            self.paths.append(request.path)
            self.running += 1
            self.most = max(self.most, self.running)
            body = self.bodies[-1]
        try:
            reply = self.reply(body)
        except HangUp:
            request.close_connection = True
            return
        finally:
            with self.lock:
                self.running -= 1
        content = reply.content
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        request.send_response(reply.status)
        for name, value in {"content-length": str(len(data)), **reply.headers}.items():
            request.send_header(name, value)
        request.end_headers()
        if not reply.drip:
            request.wfile.write(data)
        for byte in data if reply.drip else b"":
            request.wfile.write(bytes([byte]))
            request.wfile.flush()
            if self.over.wait(reply.drip):
                return

    def hang(self, _: Body) -> Reply:
        """A reply that never comes."""
        self.over.wait(30)
        raise HangUp


@contextmanager
def serving(reply: Callable[[Body], Reply] = good, port: int = 0) -> Iterator[StandIn]:
    """A stand-in that runs while the block does."""
    made = StandIn(reply, port)
    thread = Thread(target=made.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield made
    finally:
        made.over.set()
        made.server.shutdown()
        made.server.server_close()
        thread.join()


def run_batch(requests: Path, results: Path) -> None:
    """What `vllm run-batch -i requests -o results` does."""
    rows = []
    for line in requests.read_text().splitlines():
        row = json.loads(line)
        assert (row["method"], row["url"]) == ("POST", "/v1/chat/completions")
        response = {"status_code": 200, "request_id": "r", "body": good(row["body"]).content}
        rows.append(
            {"id": "vllm-1", "custom_id": row["custom_id"], "response": response, "error": None}
        )
    results.write_text("".join(json.dumps(row) + "\n" for row in reversed(rows)))
