"""Calls to the nodes of a Qdrant server, over gRPC, which carries vectors as bytes.

Everything hplus asks can be asked twice, so a call that fails for the moment goes to the next node
and is repeated for `patience` seconds. Before the first answer it is not: a wrong address should
say so at once.

A node that is cut off from its peers fails a change or two, then goes on without them, and takes
changes that it will forget when it is back. So a change tells which other nodes could show it.
"""

from __future__ import annotations

import os
import time
from copy import copy
from typing import Any

from hplus.engines.address import Address
from hplus.errors import HPlusError, InputError, MissingExtraError, ServiceError

try:
    import grpc as transport
    from qdrant_client import grpc
    from qdrant_client.qdrant_remote import QdrantRemote
except ImportError:
    raise MissingExtraError("to use Qdrant, run: pip install hplus[qdrant]") from None

PORT = 6334
# Collections have carried metadata of their own since this version.
OLDEST = (1, 16)
TIMEOUT = 30.0
PATIENCE = 30.0
PAUSE = 0.2
_CODES = transport.StatusCode
_FOR_THE_MOMENT = {
    _CODES.UNAVAILABLE,
    _CODES.DEADLINE_EXCEEDED,
    _CODES.ABORTED,
    _CODES.CANCELLED,
    _CODES.INTERNAL,
    _CODES.UNKNOWN,
    _CODES.RESOURCE_EXHAUSTED,
}


class Nodes:
    """One or several nodes that hold the same collections.

    Options of the address: timeout, the seconds one call may take; patience; tls=1. The key, if the
    server wants one, is in the environment as QDRANT_API_KEY.
    """

    def __init__(self, address: Address) -> None:
        unknown = sorted(set(address.options) - {"timeout", "patience", "tls"})
        if unknown:
            raise InputError(
                f"{address}: unknown option {unknown[0]!r}; known: timeout, patience, tls"
            )
        self.address = address
        self.timeout = address.number("timeout", TIMEOUT)
        self.patience = address.number("patience", PATIENCE)
        self._answered = False
        self._clients = [
            QdrantRemote(
                host=host,
                grpc_port=port or PORT,
                prefer_grpc=True,
                https=address.options.get("tls") == "1",
                api_key=os.environ.get("QDRANT_API_KEY"),
                check_compatibility=False,
                # A node that was away is asked again soon.
                grpc_options={"grpc.max_reconnect_backoff_ms": 1000},
            )
            for host, port in address.hosts
        ]
        # The nodes as they are asked, and when each failed, 0 if it has answered since.
        self._order = list(range(len(self._clients)))
        self._failed = [0.0] * len(self._clients)

    def points(self, method: str, request: Any) -> Any:
        """A call of the service for points: Query, Get, Upsert …"""
        return self._call("grpc_points", method, request)[0]

    def change(self, method: str, request: Any) -> list[Nodes]:
        """A call that changes points; gives the other nodes, each by itself and without patience,
        those that failed lately at the end."""
        _, took = self._call("grpc_points", method, request)
        others = [node for node in self._order if node != took]
        return [self._alone(node) for node in sorted(others, key=self._failed.__getitem__)]

    def collections(self, method: str, request: Any) -> Any:
        """A call of the service for collections: Create, Get …"""
        return self._call("grpc_collections", method, request)[0]

    def version(self) -> str:
        """The server's version, which must not be too old."""
        answer, _ = self._call("grpc_root", "HealthCheck", grpc.HealthCheckRequest())
        found = str(answer.version)
        numbers = tuple(int(part) for part in found.split(".")[:2] if part.isdigit())
        if numbers < OLDEST:
            raise ServiceError(
                f"{self.address} is Qdrant {found}, but hplus keeps its settings in a collection's "
                f"metadata, which Qdrant has since {OLDEST[0]}.{OLDEST[1]}; update the server"
            )
        return found

    def ask_another(self) -> None:
        """The next call goes to another node, if there is one, after a pause."""
        self._order = [*self._order[1:], self._order[0]]
        time.sleep(PAUSE)

    def close(self) -> None:
        """Close every connection."""
        for client in self._clients:
            client.close()

    def _alone(self, node: int) -> Nodes:
        one = copy(self)
        one._order, one.patience = [node], 0.0
        return one

    def _call(self, service: str, method: str, request: Any) -> tuple[Any, int]:
        """The answer, and which node gave it."""
        last = time.monotonic() + (self.patience if self._answered else 0.0)
        while True:
            order = self._order
            for i, node in enumerate(order):
                try:
                    ask = getattr(getattr(self._clients[node], service), method)
                    answer = ask(request, timeout=self.timeout)
                except transport.RpcError as error:
                    failure, self._failed[node] = self._failure(error), time.monotonic()
                    if error.code() not in _FOR_THE_MOMENT:
                        raise failure from None
                else:
                    self._answered, self._order = True, [*order[i:], *order[:i]]
                    self._failed[node] = 0.0
                    return answer, node
            if time.monotonic() >= last:
                raise failure from None
            time.sleep(PAUSE)

    def _failure(self, error: Any) -> HPlusError:
        """One sentence about what went wrong."""
        code, details = error.code(), str(error.details())
        if code == _CODES.UNAVAILABLE:
            web = "http1.x" in details or "HTTP/1" in details
            remedy = (
                f"this port speaks HTTP; give the one for gRPC, usually {PORT}"
                if web
                else f"check the host, the port (of gRPC, usually {PORT}) and that Qdrant runs"
            )
            return ServiceError(f"{self.address} cannot be reached: {remedy}")
        if code == _CODES.DEADLINE_EXCEEDED:
            return ServiceError(
                f"{self.address} gave no answer within {self.timeout:g} seconds; try again, or "
                "allow more time with ?timeout=SECONDS"
            )
        if code in (_CODES.UNAUTHENTICATED, _CODES.PERMISSION_DENIED):
            return ServiceError(
                f"{self.address} refuses the key; set QDRANT_API_KEY to one that may do this"
            )
        if code == _CODES.NOT_FOUND:
            return InputError(
                f"{self.address} does not exist; hplus push INDEX {self.address} makes it"
            )
        return ServiceError(f"{self.address} refuses: {details}")
