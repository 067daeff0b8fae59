"""The command itself, in a process of its own, behind real sockets."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import httpx
import pytest

from hplus import HPlus, Index, InputError
from hplus.serve.guard import Rules
from hplus.serve.limits import Limits
from hplus.serve.run import serve
from service import on_loopback, process

DOCUMENTS = "/indexes/med/documents"


@pytest.fixture
def beside(folder: Path, model_folder: Path) -> Path:
    """The index, with its model where its own process finds it."""
    (folder.parent / model_folder.name).symlink_to(model_folder)
    return folder


def test_the_command_serves_until_sigterm(beside: Path) -> None:
    with process(beside, "--log", "json") as (running, address), httpx.Client() as client:
        found = client.post(f"{address}/indexes/med/search", json={"query": "heart failure"})
        assert found.json()["hits"][0]["id"] in ("b", "c")
        for id_ in ("100%", "%41", "a/b c", "ü"):  # decoded once
            place = f"{address}{DOCUMENTS}/{quote(id_, safe='')}"
            assert client.put(place, json={"text": "cell"}).json()["added"] == 1
            assert client.get(place).json()["id"] == id_
        running.send_signal(signal.SIGTERM)
        _, log = running.communicate(timeout=60)
        assert running.returncode == 0
    lines = [json.loads(line) for line in log.splitlines()]
    assert lines[0]["path"] == "/indexes/med/search"
    assert "heart failure" not in log


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="no /proc to look at")
def test_a_client_that_leaves_cannot_end_the_process(beside: Path) -> None:
    """Commands let SIGPIPE end them; of a server every client could then make an end."""
    with process(beside) as (running, _):
        status = Path(f"/proc/{running.pid}/status").read_text()
        (ignored,) = re.findall(r"^SigIgn:\s+(\w+)$", status, re.MULTILINE)
        assert int(ignored, 16) >> (signal.SIGPIPE - 1) & 1


def test_sigterm_answers_what_is_under_way(beside: Path) -> None:
    """A stream that has begun is confirmed and answered; new connections are refused."""
    with process(beside) as (running, address):
        go_on = threading.Event()
        answers: list[Any] = []

        def lines() -> Any:
            yield b'{"id": "s1", "text": "cell"}\n'
            go_on.wait(30)
            yield b'{"id": "s2", "text": "gene"}\n'

        def send() -> None:
            kind = {"content-type": "application/x-ndjson"}
            answers.append(httpx.post(address + DOCUMENTS, content=lines(), headers=kind))

        sender = threading.Thread(target=send)
        sender.start()
        while httpx.get(f"{address}/metrics").text.find("hplus_requests_at_work 1.0") < 0:
            time.sleep(0.05)
        running.send_signal(signal.SIGTERM)
        place = urlsplit(address)
        while True:
            try:
                socket.create_connection((place.hostname, place.port), 1).close()
            except OSError:
                break
            time.sleep(0.05)
        go_on.set()
        sender.join()
        assert running.wait(60) == 0
    assert answers[0].json()["added"] == 2
    with Index.open(beside) as index:
        assert "s1" in index
        assert "s2" in index


def change(client: httpx.Client, number: int, confirmed: dict[str, str | None]) -> None:
    """Add, update or delete a document, and compact now and then; what is confirmed is noted.

    What was asked and not answered is not: it may have happened or not."""
    id_, kind = f"k{number // 3}", number % 3
    before = confirmed.pop(id_, None)
    if kind == 2 and number % 2:
        assert client.delete(f"{DOCUMENTS}/{id_}").json() == {"deleted": 1}
        confirmed[id_] = None
    else:
        text = f"cell {number}"
        answer = client.put(f"{DOCUMENTS}/{id_}", json={"text": text}).json()
        assert answer["updated" if before else "added"] == 1
        confirmed[id_] = text
    if number % 10 == 9:
        assert client.post("/indexes/med/compact", json={}).status_code == 200


def test_sigkill_under_load_loses_nothing_confirmed(beside: Path) -> None:
    """In the middle of searches, changes and compactions; the service starts again by itself."""
    confirmed: dict[str, str | None] = {}

    def search(address: str) -> None:
        with httpx.Client(base_url=address) as client, suppress(httpx.TransportError):
            while client.post("/indexes/med/search", json={"query": "cell"}).status_code == 200:
                pass

    with process(beside) as (running, address):
        searching = [threading.Thread(target=search, args=[address]) for _ in range(4)]
        for one in searching:
            one.start()
        with httpx.Client(base_url=address) as client, suppress(httpx.TransportError):
            for number in range(10_000):
                change(client, number, confirmed)
                if number == 8:  # on a slow machine, too, three documents are confirmed by then
                    threading.Timer(1.0, running.kill).start()
        assert running.wait(30) == -signal.SIGKILL
        for one in searching:
            one.join()
    assert len(confirmed) >= 2  # one may have been under way
    with process(beside) as (_, address), httpx.Client(base_url=address) as client:
        for id_, text in confirmed.items():
            found = client.get(f"{DOCUMENTS}/{id_}")
            assert found.status_code == (404 if text is None else 200)
            assert text is None or found.json()["text"] == text
        assert client.post("/indexes/med/search", json={"query": "cell"}).status_code == 200
    with Index.open(beside) as index:
        assert index.verify().problems == []


def test_clients_that_dawdle_are_cut_off(folder: Path, served_model: HPlus) -> None:
    limits = Limits(header_seconds=0.3, seconds=0.3, connections=20)
    head = b"POST /indexes/med/search HTTP/1.1\r\nHost: localhost\r\n"
    body = b"Content-Type: application/json\r\nContent-Length: 99\r\n\r\n{"
    with on_loopback(folder, model=served_model, limits=limits) as (address, server):
        place = (urlsplit(address).hostname, urlsplit(address).port)
        for sent, answer in (
            (b"", b""),  # connects, and says nothing
            (head[:20], b""),
            (head, b""),
            (head + body, b"HTTP/1.1 408"),
        ):
            with socket.create_connection(place, 20) as one:
                one.sendall(sent)
                try:
                    found = one.recv(12)
                except ConnectionResetError:
                    found = b""
                assert found == answer
        with socket.create_connection(place, 20) as one:
            with suppress(OSError):  # byte by byte is no way out
                for byte in head:
                    one.sendall(bytes([byte]))
                    time.sleep(0.02)
            with suppress(ConnectionResetError):
                assert one.recv(12) == b""
        many = [socket.create_connection(place, 20) for _ in range(40)]
        time.sleep(0.2)
        assert len(server.server_state.connections) <= limits.connections
        for one in many:
            one.close()
        deadline = time.monotonic() + 20
        while server.server_state.connections and time.monotonic() < deadline:
            time.sleep(0.05)
        assert httpx.get(f"{address}/health").status_code == 200


def test_a_client_that_does_not_read_is_cut_off(folder: Path, served_model: HPlus) -> None:
    """Its answer is larger than the buffers of its connection, and would be kept for ever."""
    with Index.open(folder, model=served_model) as index:
        index.add([{"id": "long", "text": "cell", "note": " " * (16 << 20)}])
    with on_loopback(folder, model=served_model, limits=Limits(seconds=3)) as (address, server):
        place = (urlsplit(address).hostname, urlsplit(address).port)
        with socket.create_connection(place, 20) as one:
            one.sendall(f"GET {DOCUMENTS}/long HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            assert one.recv(12) == b"HTTP/1.1 200"
            deadline = time.monotonic() + 20
            while server.server_state.connections and time.monotonic() < deadline:
                time.sleep(0.05)
            assert not server.server_state.connections


def test_a_body_without_end_is_refused(folder: Path, served_model: HPlus) -> None:
    head = b"POST /indexes/med/search HTTP/1.1\r\nHost: localhost\r\n"
    with on_loopback(folder, model=served_model, limits=Limits(body=1 << 20)) as (address, _):
        place = (urlsplit(address).hostname, urlsplit(address).port)
        with socket.create_connection(place, 20) as one:
            one.sendall(head + b"Transfer-Encoding: chunked\r\n\r\n")
            with suppress(ConnectionError):
                while True:
                    one.sendall(b"10000\r\n" + b"x" * 0x10000 + b"\r\n")
        assert httpx.get(f"{address}/health").status_code == 200


def test_mistakes_before_it_serves(folder: Path, tmp_path: Path) -> None:
    rules = Rules(Limits())
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        for paths, options, said in [
            ([folder], {"host": "0.0.0.0"}, "keys are needed: --api-key-file FILE"),
            ([folder], {"host": "::"}, "keys are needed"),
            ([folder], {"port": port}, f"cannot listen on 127.0.0.1 port {port}: "),
            ([tmp_path / "none.hplus"], {"port": 0}, "is not an index"),
            ([folder, folder], {"port": 0}, "would both be served as 'med'"),
        ]:
            with pytest.raises(InputError, match=re.escape(said)):
                serve(paths, rules, **options)
    done = subprocess.run(
        [sys.executable, "-m", "hplus", "serve"], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 2
    assert "no index given; try: hplus serve notes.hplus, or hplus serve --demo" in done.stderr
