"""Run the service under uvicorn until SIGTERM or ctrl-C; requests under way are answered first."""

from __future__ import annotations

import json
import logging
import signal
import socket
import sys
import warnings
from collections.abc import Callable, Sequence
from ipaddress import ip_address

from hplus.errors import InputError, MissingExtraError, UnknownTokensWarning

try:
    import uvicorn

    from hplus.serve.app import create_app
    from hplus.serve.connection import protocol_of
    from hplus.serve.guard import App, Rules
    from hplus.serve.limits import Limits
    from hplus.serve.metrics import Metrics
    from hplus.serve.served import Place, open_all
except ModuleNotFoundError as missing:
    raise MissingExtraError(
        f"the service needs {missing.name}: pip install 'hplus[serve]'"
    ) from missing

KEEP_ALIVE = 75
"""Seconds that a connection may pause between two requests: longer than proxies let theirs."""


def serve(
    places: Sequence[Place],
    rules: Rules,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    model: str | None = None,
    log: str | None = None,
    started: Callable[[str], None] = lambda _: None,
) -> None:
    """Serve indexes until the process is told to end.

    log: None, "text" or "json": a line for each request on standard error. started: called with the
    address when the service listens.
    """
    if rules.keys is None and not is_loopback(host):
        raise InputError(
            f"--host {host} lets other machines in, so keys are needed: --api-key-file FILE with "
            "lines such as `read KEY` and `write KEY`"
        )
    with listen(host, port) as listening:
        metrics = Metrics()
        indexes = open_all(places, model, rules.limits, metrics.batch.observe)
        for served in indexes.values():
            served.index.encode("warm")  # the first pass of a model is slow
        set_up_logs(log)
        warnings.simplefilter("ignore", UnknownTokensWarning)
        server = uvicorn.Server(config_of(create_app(indexes, rules, metrics), rules.limits))
        # uvicorn drains, then raises the signal again, which would end this process with an error.
        signal.signal(signal.SIGTERM, lambda *_: None)
        signal.signal(signal.SIGINT, lambda *_: None)
        if hasattr(signal, "SIGPIPE"):
            # A reader of its output that has enough ends a command; a client that leaves must not.
            signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        listening.listen()
        shown = f"[{host}]" if ":" in host else host
        started(f"http://{shown}:{listening.getsockname()[1]}/")
        server.run(sockets=[listening])


def config_of(app: App, limits: Limits) -> uvicorn.Config:
    """How uvicorn runs the application."""
    return uvicorn.Config(
        app,
        http=protocol_of(limits),
        ws="none",
        lifespan="on",
        access_log=False,
        log_config=None,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=int(limits.write_seconds),
    )


def listen(host: str, port: int) -> socket.socket:
    """A socket that is bound before models are loaded, so that a port in use is known at once."""
    listening = None
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        listening = socket.socket(family, kind, protocol)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
    except OSError as error:
        if listening is not None:
            listening.close()
        reason = error.strerror or error
        raise InputError(f"cannot listen on {host} port {port}: {reason}; try --port") from None
    return listening


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def set_up_logs(log: str | None) -> None:
    """Warnings always; a line for each request if asked for."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Lines(log == "json"))
    root = logging.getLogger("hplus.serve")
    root.handlers, root.propagate = [handler], False
    root.setLevel(logging.WARNING if log is None else logging.INFO)


class _Lines(logging.Formatter):
    """Requests as JSON or as a short line; everything else with its level."""

    def __init__(self, as_json: bool) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s")
        self._as_json = as_json

    def format(self, record: logging.LogRecord) -> str:
        line = getattr(record, "line", None)
        if self._as_json:
            said = line or {"message": super().format(record)}
            time = self.formatTime(record, "%Y-%m-%dT%H:%M:%S%z")
            return json.dumps({"time": time, "level": record.levelname, **said})
        if line is None:
            return super().format(record)
        shown = " ".join(f"{name}={json.dumps(value)}" for name, value in line.items())
        return f"{self.formatTime(record)} {shown}"
