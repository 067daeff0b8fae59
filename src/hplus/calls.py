"""What a client sends to a service for each method of `Index`, and what it makes of the answer."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from itertools import groupby
from typing import Any, Generic, TypeVar
from urllib.parse import quote

from hplus.arguments import as_ids
from hplus.errors import (
    BudgetError,
    FilterError,
    HPlusError,
    IndexBusyError,
    IndexDamagedError,
    InputError,
    MissingDocumentError,
    ServiceError,
    StorageError,
    TermsError,
)
from hplus.search.requests import Query, as_request, as_requests
from hplus.search.results import Results
from hplus.sources import read as sources
from hplus.sources.columns import Columns
from hplus.sources.document import Document
from hplus.storage.stats import Stats
from hplus.storage.writer import Report
from hplus.types import (
    DroppedUnit,
    Explanation,
    Hit,
    Search,
    Span,
    TokenMatch,
    UnitMatch,
    WordMatch,
)

# Queries of one request, and bytes of a stream sent at a time.
QUERIES = 100
PART = 1 << 16
OPTIONS = {one.name for one in fields(Search)} - {"query", "threads"}
ERRORS: dict[str, type[HPlusError]] = {
    "missing_document": MissingDocumentError,
    "budget": BudgetError,
    "terms": TermsError,
    "input": InputError,
    "missing_index": InputError,
    "size": InputError,
    "busy": IndexBusyError,
    "storage": StorageError,
    "damaged": IndexDamagedError,
}
Found = TypeVar("Found")


@dataclass(frozen=True)
class Call(Generic[Found]):
    """One request: `place` is below the index, unless it concerns the whole service; missing: what
    it means that there is no such document, if that is no error."""

    method: str
    place: str
    parse: Callable[[Any], Found]
    body: bytes | Iterator[bytes] | None = None
    params: Mapping[str, str] = field(default_factory=dict)
    kind: str = "application/json"
    of_index: bool = True
    missing: Callable[[], Found] | None = None

    def path(self, index: str | None) -> str:
        """The path of the request."""
        return (
            f"/indexes/{quote(index or '', safe='')}{self.place}" if self.of_index else self.place
        )

    @property
    def options(self) -> dict[str, Any]:
        """Parameters and headers."""
        headers = {} if self.body is None else {"content-type": self.kind}
        return {"params": dict(self.params), "headers": headers}

    def answer(self, status: int, content: bytes) -> Found:
        """What the answer means."""
        try:
            body = json.loads(content)
        except ValueError:
            raise ServiceError(f"expected JSON, got status {status}: {content[:100]!r}") from None
        if status == 200:
            return self.parse(body)
        error = body.get("error") if isinstance(body, dict) else None
        if not isinstance(error, dict):
            raise ServiceError(f"the service answered {status}: {content[:100]!r}")
        code, message = error.get("code"), str(error.get("message"))
        if code == "missing_document" and self.missing is not None:
            return self.missing()
        if code == "filter":
            raise FilterError(message, error.get("caret"))
        raise ERRORS.get(str(code), ServiceError)(message)


def only_index() -> Call[str]:
    """The name of the only index."""

    def name(body: Any) -> str:
        names = [one["name"] for one in body["indexes"]]
        if len(names) != 1:
            raise InputError(f"the service has several indexes, name one: {', '.join(names)}")
        return str(names[0])

    return Call("GET", "/indexes", name, of_index=False)


def search(
    query: Query | Sequence[Query], options: Mapping[str, Any]
) -> Iterator[Call[list[Results]]]:
    """One request for queries next to each other that share their options."""
    alone = isinstance(query, Query)
    requests = (
        [as_request(query, options)] if isinstance(query, Query) else (as_requests(query, options))
    )
    for _, same in groupby(requests, key=lambda one: repr(_options(one))):
        group = list(same)
        for first in range(0, len(group), QUERIES):
            part = group[first : first + QUERIES]
            texts = [_text(one.query) for one in part]
            asked = {"query": texts[0]} if alone else {"queries": texts}
            parse = partial(_several, from_=part[0].from_)
            yield _post("/search", {**asked, **_options(part[0])}, parse)


def more_like(id_: str, options: Mapping[str, Any]) -> Call[Results]:
    """The documents most like one."""
    request = as_request("", options)
    return _post(
        f"/more-like/{_of(id_)}", _options(request), partial(_results, from_=request.from_)
    )


def rerank(query: Query, ids: Sequence[str], options: Mapping[str, Any]) -> Call[Results]:
    """These documents, best first."""
    request = as_request(query, options)
    asked = {"query": _text(request.query), "ids": as_ids(ids), **_options(request)}
    return _post("/rerank", asked, _results)


def put(source: Any, columns: Columns | None, *, update: bool) -> Call[Report]:
    """Documents as a stream of lines."""
    lines = (_line(document) for document in sources.read(source, columns=columns))
    return Call(
        "POST",
        "/documents",
        lambda body: Report(**body),
        body=_in_parts(lines),
        params={"update": "true"} if update else {},
        kind="application/x-ndjson",
    )


def delete(ids: str | Sequence[str] | None, where: str | None) -> list[Call[int]]:
    """Documents by their ids, one request each, or those that pass a filter."""
    if (ids is None) == (where is None):
        raise InputError("give the ids of the documents to delete, or a filter: where=")
    if where is not None:
        return [Call("DELETE", "/documents", _deleted, params={"where": _filter(where)})]
    wanted = as_ids([ids] if isinstance(ids, str) else ids)
    return [Call("DELETE", f"/documents/{_of(id_)}", _deleted, missing=lambda: 0) for id_ in wanted]


def compact(budget: int | None, width: int | None) -> Call[None]:
    """Put segments together."""
    return _post("/compact", {"budget": budget, "width": width}, lambda _: None)


def get(ids: str | Sequence[str]) -> list[Call[Document | None]]:
    """Documents by their ids, one request each."""
    return [
        Call("GET", f"/documents/{_of(id_)}", lambda body: Document(**body), missing=lambda: None)
        for id_ in as_ids([ids] if isinstance(ids, str) else ids)
    ]


def count(where: str | None) -> Call[int]:
    """How many documents there are, or pass a filter."""
    params = {} if where is None else {"where": _filter(where)}
    return Call("GET", "/count", lambda body: int(body["count"]), params=params)


def stats() -> Call[Stats]:
    """What the index holds."""
    return Call("GET", "/stats", _stats)


def _post(place: str, body: Any, parse: Callable[[Any], Found]) -> Call[Found]:
    return Call("POST", place, parse, body=json.dumps(body).encode())


def _of(id_: str) -> str:
    (text,) = as_ids([id_])
    # A client on the way may take dots for steps of the path, unless they are spelled like this.
    return quote(text, safe="").replace(".", "%2E")


def _text(query: Any) -> str:
    if not isinstance(query, str):
        raise InputError("a served index takes queries as text, not as encodings")
    return query


def _filter(where: Any) -> str:
    if not isinstance(where, str):
        raise InputError("a served index takes filters as text")
    return where


def _options(request: Search) -> dict[str, Any]:
    """The options of a request that differ from the usual."""
    usual = Search("")
    given = {name: getattr(request, name) for name in sorted(OPTIONS)}
    changed = {name: value for name, value in given.items() if value != getattr(usual, name)}
    if "where" in changed:
        _filter(changed["where"])
    if "pool" in changed:
        if len(set(request.pools)) > 1:
            raise InputError("a served index takes one number as pool")
        changed["pool"] = request.pools[0]
    if "from_" in changed:
        changed["from"] = changed.pop("from_")
    if "alphas" in changed:
        changed["alphas"] = dict(changed["alphas"])
    return changed


def _line(document: Document) -> bytes:
    row = {"id": document.id, "text": document.text, "metadata": document.metadata}
    return json.dumps(row).encode() + b"\n"


def _in_parts(lines: Iterable[bytes]) -> Iterator[bytes]:
    part = bytearray()
    for line in lines:
        part += line
        if len(part) >= PART:
            yield bytes(part)
            part.clear()
    yield bytes(part)


def _deleted(body: Any) -> int:
    return int(body["deleted"])


def _stats(body: Any) -> Stats:
    known = {one.name: body[one.name] for one in fields(Stats)}
    smaller = {(one["budget"], one["width"]): one["bytes"] for one in body["smaller"]}
    return Stats(**{**known, "smaller": smaller})


def _several(body: Any, *, from_: int) -> list[Results]:
    rows = body.get("results", [body])
    return [_results(row, from_=from_) for row in rows]


def _results(body: Any, *, from_: int = 0) -> Results:
    return Results(
        query=body["query"],
        hits=[_hit(row) for row in body["hits"]],
        paths=body["paths"],
        candidates=body["candidates"],
        from_=from_,
        hint=body.get("hint", ""),
    )


def _hit(row: Any) -> Hit:
    why, passage = row.get("explanation"), row.get("passage")
    return Hit(
        id=row["id"],
        score=row["score"],
        views=row["views"],
        text=row["text"],
        metadata=row["metadata"],
        explanation=None if why is None else _explanation(why),
        passage=None if passage is None else Span(*passage),
    )


def _explanation(row: Any) -> Explanation:
    return Explanation(
        **{
            **row,
            "phrase": [UnitMatch(**_with_spans(one)) for one in row["phrase"]],
            "lexical": [TokenMatch(**one) for one in row["lexical"]],
            "dropped": [DroppedUnit(**_with_spans(one)) for one in row["dropped"]],
            "words": [WordMatch(**one) for one in row["words"]],
        }
    )


def _with_spans(row: Any) -> dict[str, Any]:
    spans = {name: [Span(*one) for one in row[name]] for name in row if name.endswith("spans")}
    return {**row, **spans}
