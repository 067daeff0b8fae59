"""Connections that send nothing, or their headers byte by byte, or that do not read their answers
are closed in time.

uvicorn bounds the pause between two requests, but not how long the headers of one may take, nor how
long an answer may wait to be read; and beyond its limit of connections it still reads requests.
Here all of that is bounded.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from hplus.serve.limits import Limits


def protocol_of(limits: Limits) -> type[asyncio.Protocol]:
    """uvicorn's protocol under these limits."""

    class Bounded(HttpToolsProtocol):
        _timer: asyncio.TimerHandle | None = None
        _unread: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            if len(self.connections) > limits.connections:
                transport.abort()
                return
            self._start()

        def data_received(self, data: bytes) -> None:
            waits = self.cycle is None or self.cycle.response_complete
            if waits and self._timer is None:
                self._start()
            super().data_received(data)

        def on_headers_complete(self) -> None:
            self._stop()
            super().on_headers_complete()

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop()
            self._read()
            super().connection_lost(exc)

        def pause_writing(self) -> None:
            super().pause_writing()
            self._unread = self.loop.call_later(limits.seconds, self.transport.abort)

        def resume_writing(self) -> None:
            self._read()
            super().resume_writing()

        def timeout_keep_alive_handler(self) -> None:
            self.transport.abort()  # closed politely, it would wait for its answer to be read

        def _read(self) -> None:
            if self._unread is not None:
                self._unread.cancel()
                self._unread = None

        def _start(self) -> None:
            self._timer = self.loop.call_later(limits.header_seconds, self._give_up)

        def _stop(self) -> None:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

        def _give_up(self) -> None:
            self._timer = None
            self.transport.abort()

    return Bounded
