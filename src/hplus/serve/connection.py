"""Connections that send nothing, or their headers byte by byte, are closed in time.

uvicorn bounds the pause between two requests, but not how long the headers of one may take; and
beyond its limit of connections it still reads requests. Here both are bounded.
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
            super().connection_lost(exc)

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
