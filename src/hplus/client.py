"""`Client` and `AsyncClient`: a served index with the methods of `Index`.

    index = Index.open("med.hplus")                 # embedded
    index = Client("http://127.0.0.1:8000", "med")  # served

Both clients send the same calls (`hplus.calls`), one waits for the answer, the other awaits it.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from types import TracebackType
from typing import Any, overload

from hplus import calls
from hplus.calls import Call, Found
from hplus.errors import InputError, MissingDocumentError, MissingExtraError, ServiceError
from hplus.search.requests import Query
from hplus.search.results import Results
from hplus.sources.columns import Columns
from hplus.sources.document import Document
from hplus.storage.stats import Stats
from hplus.storage.writer import Report

try:
    import httpx
except ModuleNotFoundError:
    raise MissingExtraError("a client needs httpx: pip install 'hplus[client]'") from None

# Seconds to connect, and to wait for an answer: a change may have to encode for minutes.
TIMEOUT = httpx.Timeout(600.0, connect=10.0)


class _Settings:
    """Where the service is, and which of its indexes is meant."""

    def __init__(self, url: str, index: str | None = None, *, key: str | None = None) -> None:
        if not isinstance(url, str) or not url.startswith(("http://", "https://")):
            raise InputError(f"expected the address of a service, http://…, got {url!r:.100}")
        self.url, self.index = url.rstrip("/"), index
        self._options: dict[str, Any] = {
            "base_url": self.url,
            "headers": {} if key is None else {"authorization": f"Bearer {key}"},
            "timeout": TIMEOUT,
            "trust_env": False,  # no proxy of the environment hears of it
        }

    def _unreachable(self, error: httpx.HTTPError) -> ServiceError:
        return ServiceError(f"no answer from {self.url}: {error or type(error).__name__}")


class Client(_Settings):
    """A served index.

    url: where the service is; index: its name there, which can be left out if the service has only
    one; key: what the service demands, if it does.
    """

    def __init__(self, url: str, index: str | None = None, *, key: str | None = None) -> None:
        super().__init__(url, index, key=key)
        self._http = httpx.Client(**self._options)

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Release the connections."""
        self._http.close()

    def _send(self, call: Call[Found]) -> Found:
        if self.index is None and call.of_index:
            self.index = self._send(calls.only_index())
        try:
            answer = self._http.request(
                call.method, call.path(self.index), content=call.body, **call.options
            )
        except httpx.HTTPError as error:
            raise self._unreachable(error) from None
        return call.answer(answer.status_code, answer.content)

    @overload
    def search(self, query: Query, **options: Any) -> Results: ...
    @overload
    def search(self, query: Sequence[Query], **options: Any) -> list[Results]: ...
    def search(self, query: Query | Sequence[Query], **options: Any) -> Results | list[Results]:
        """As `Index.search`; queries and filters are texts."""
        found = [one for call in calls.search(query, options) for one in self._send(call)]
        return found[0] if isinstance(query, Query) else found

    def more_like(self, id_: str, **options: Any) -> Results:
        """As `Index.more_like`."""
        return self._send(calls.more_like(id_, options))

    def rerank(self, query: Query, ids: Sequence[str], **options: Any) -> Results:
        """As `Index.rerank`."""
        return self._send(calls.rerank(query, ids, options))

    def add(
        self, source: str | os.PathLike[str] | Iterable[Any], *, columns: Columns | None = None
    ) -> Report:
        """As `Index.add`: a file or folder of this machine, or any iterable."""
        return self._send(calls.put(source, columns, update=False))

    def update(
        self, source: str | os.PathLike[str] | Iterable[Any], *, columns: Columns | None = None
    ) -> Report:
        """As `Index.update`."""
        return self._send(calls.put(source, columns, update=True))

    def delete(self, ids: str | Sequence[str] | None = None, *, where: str | None = None) -> int:
        """As `Index.delete`."""
        return sum(self._send(call) for call in calls.delete(ids, where))

    def compact(self, *, budget: int | None = None, width: int | None = None) -> None:
        """As `Index.compact`."""
        self._send(calls.compact(budget, width))

    @overload
    def get(self, ids: str) -> Document | None: ...  # type: ignore[overload-overlap]
    @overload
    def get(self, ids: Sequence[str]) -> list[Document | None]: ...
    def get(self, ids: str | Sequence[str]) -> Document | list[Document | None] | None:
        """As `Index.get`."""
        found = [self._send(call) for call in calls.get(ids)]
        return found[0] if isinstance(ids, str) else found

    def __getitem__(self, id_: str) -> Document:
        """The document of an id; `MissingDocumentError`, which is a KeyError, if there is none."""
        found = self.get(id_)
        if found is None:
            raise MissingDocumentError(f"no document {id_!r} in the index {self.index}")
        return found

    def __contains__(self, id_: str) -> bool:
        return self.get(id_) is not None

    def count(self, where: str | None = None) -> int:
        """As `Index.count`."""
        return self._send(calls.count(where))

    def __len__(self) -> int:
        return self.count()

    def stats(self) -> Stats:
        """As `Index.stats`."""
        return self._send(calls.stats())


class AsyncClient(_Settings):
    """The same for programs with an event loop: every method is awaited."""

    def __init__(self, url: str, index: str | None = None, *, key: str | None = None) -> None:
        super().__init__(url, index, key=key)
        self._http = httpx.AsyncClient(**self._options)

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Release the connections."""
        await self._http.aclose()

    async def _send(self, call: Call[Found]) -> Found:
        if self.index is None and call.of_index:
            self.index = await self._send(calls.only_index())
        body = call.body
        try:
            answer = await self._http.request(
                call.method,
                call.path(self.index),
                content=body if body is None or isinstance(body, bytes) else _awaited(body),
                **call.options,
            )
        except httpx.HTTPError as error:
            raise self._unreachable(error) from None
        return call.answer(answer.status_code, answer.content)

    @overload
    async def search(self, query: Query, **options: Any) -> Results: ...
    @overload
    async def search(self, query: Sequence[Query], **options: Any) -> list[Results]: ...
    async def search(
        self, query: Query | Sequence[Query], **options: Any
    ) -> Results | list[Results]:
        """As `Index.search`; queries and filters are texts."""
        found = [one for call in calls.search(query, options) for one in await self._send(call)]
        return found[0] if isinstance(query, Query) else found

    async def more_like(self, id_: str, **options: Any) -> Results:
        """As `Index.more_like`."""
        return await self._send(calls.more_like(id_, options))

    async def rerank(self, query: Query, ids: Sequence[str], **options: Any) -> Results:
        """As `Index.rerank`."""
        return await self._send(calls.rerank(query, ids, options))

    async def add(
        self, source: str | os.PathLike[str] | Iterable[Any], *, columns: Columns | None = None
    ) -> Report:
        """As `Index.add`: a file or folder of this machine, or any iterable."""
        return await self._send(calls.put(source, columns, update=False))

    async def update(
        self, source: str | os.PathLike[str] | Iterable[Any], *, columns: Columns | None = None
    ) -> Report:
        """As `Index.update`."""
        return await self._send(calls.put(source, columns, update=True))

    async def delete(
        self, ids: str | Sequence[str] | None = None, *, where: str | None = None
    ) -> int:
        """As `Index.delete`."""
        return sum([await self._send(call) for call in calls.delete(ids, where)])

    async def compact(self, *, budget: int | None = None, width: int | None = None) -> None:
        """As `Index.compact`."""
        await self._send(calls.compact(budget, width))

    @overload
    async def get(self, ids: str) -> Document | None: ...  # type: ignore[overload-overlap]
    @overload
    async def get(self, ids: Sequence[str]) -> list[Document | None]: ...
    async def get(self, ids: str | Sequence[str]) -> Document | list[Document | None] | None:
        """As `Index.get`."""
        found = [await self._send(call) for call in calls.get(ids)]
        return found[0] if isinstance(ids, str) else found

    async def count(self, where: str | None = None) -> int:
        """As `Index.count`."""
        return await self._send(calls.count(where))

    async def stats(self) -> Stats:
        """As `Index.stats`."""
        return await self._send(calls.stats())


async def _awaited(parts: Iterator[bytes]) -> AsyncIterator[bytes]:
    for part in parts:
        yield part
