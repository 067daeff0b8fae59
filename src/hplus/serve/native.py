"""The service's own endpoints: search, documents, and what texts are made of."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from dataclasses import asdict, replace
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError

from hplus.errors import HPlusError, InputError, MissingDocumentError
from hplus.index import Index
from hplus.search.results import Results
from hplus.serve import schemas
from hplus.serve.answers import as_json, as_response, readable_results
from hplus.serve.limits import Limits
from hplus.serve.problems import RefusedError, problem_of
from hplus.serve.served import Served
from hplus.sources.document import Document, document_of, parse_json
from hplus.storage.writer import Report
from hplus.terms_check import check_terms
from hplus.types import Encoded, Search
from hplus.units.terms import Terms

# Documents of a stream that are confirmed together, and their characters.
STEP = 256
STEP_CHARACTERS = 1 << 20
REPORTED = ("added", "updated", "metadata_changed", "unchanged")
ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": schemas.ErrorOut}
    for status in (400, 401, 403, 404, 408, 413, 421, 422, 500, 503, 504, 507)
}
Where = Annotated[str, Query(max_length=100_000, examples=["year < 2000"])]


def routes(indexes: Mapping[str, Served], limits: Limits) -> APIRouter:
    """The endpoints over these indexes; the first one's model reads texts of no index."""
    router = APIRouter(responses=ERRORS)

    def of(name: str | None) -> Served:
        chosen = next(iter(indexes)) if name is None else name
        if chosen not in indexes:
            raise RefusedError(
                404, "missing_index", f"no index {chosen!r:.100}; GET /indexes lists them"
            )
        return indexes[chosen]

    @router.post(
        "/indexes/{name}/search",
        tags=["search"],
        responses={200: {"model": schemas.ResultsOut | schemas.ManyResultsOut}},
    )
    async def search(name: str, request: schemas.SearchRequest) -> Response:
        """The best documents for a query, or for each of several."""
        served, bodies, took = of(name), [], Counter[str]()
        for one in request.searches():
            body, seconds = await served.search(one, partial(_shown, served, one, request.readable))
            bodies.append(body)
            took.update(seconds)
        body = bodies[0] if request.queries is None else b'{"results": [%s]}' % b", ".join(bodies)
        return Response(body, 200, _timing(took), "application/json")

    @router.get("/indexes", tags=["indexes"])
    async def list_indexes() -> Response:
        """Every index: how many documents it has, and its settings."""
        return as_response({"indexes": await abouts(indexes)})

    @router.get("/indexes/{name}/stats", tags=["indexes"])
    async def stats(name: str) -> Response:
        """Documents, units, bytes by part, and what a smaller budget or width would save."""
        served = of(name)
        found = asdict(await served.read(served.index.stats))
        found["smaller"] = [
            {"budget": budget, "width": width, "bytes": size}
            for (budget, width), size in found.get("smaller", {}).items()
        ]
        return as_response({**await asyncio.to_thread(about, served), **found})

    @router.get("/indexes/{name}/count", tags=["indexes"])
    async def count(name: str, where: Where | None = None) -> Response:
        """How many documents there are, or pass a filter."""
        served = of(name)
        return as_response({"count": await served.read(partial(served.index.count, where))})

    @router.post(
        "/indexes/{name}/rerank", tags=["search"], responses={200: {"model": schemas.ResultsOut}}
    )
    async def rerank(name: str, request: schemas.RerankRequest) -> Response:
        """These documents of the index, best first."""
        served, options = of(name), request.options()

        def work() -> bytes:
            found = served.index.rerank(request.query, request.ids, **options)
            return as_json(readable_results(found) if request.readable else found.as_json())

        return Response(await served.read(work), media_type="application/json")

    @router.post(
        "/indexes/{name}/more-like/{id:path}",
        tags=["search"],
        responses={200: {"model": schemas.ResultsOut}},
    )
    async def more_like(name: str, id: str, request: schemas.Options | None = None) -> Response:
        """The documents most like one of the index, which is not among them."""
        served = of(name)
        asked = request or schemas.Options()
        options = asked.options()

        def work() -> bytes:
            found = served.index.more_like(id, **options)
            if not asked.readable:
                return as_json(found.as_json())
            return as_json(readable_results(found, usual=served.average_like(id, options)))

        return Response(await served.read(work), media_type="application/json")

    @router.get(
        "/indexes/{name}/documents/{id:path}",
        tags=["documents"],
        responses={200: {"model": schemas.DocumentOut}},
    )
    async def get_document(name: str, id: str) -> Response:
        """A document: its text and metadata."""
        served = of(name)
        found = await served.read(partial(served.index.get, id))
        if found is None:
            raise MissingDocumentError(f"no document {id!r} in the index")
        return as_response(asdict(found))

    @router.put(
        "/indexes/{name}/documents/{id:path}",
        tags=["documents"],
        responses={200: {"model": schemas.ReportOut}},
    )
    async def put_document(name: str, id: str, document: schemas.DocumentIn) -> Response:
        """Add a document, or replace it; confirmed when this answers."""
        served = of(name)
        made = Document(id, document.text, document.metadata)
        return as_response(_reported(await _put(served, [made], update=True)))

    @router.delete(
        "/indexes/{name}/documents/{id:path}",
        tags=["documents"],
        responses={200: {"model": schemas.DeletedOut}},
    )
    async def delete_document(name: str, id: str) -> Response:
        """Delete a document; 404 if there is none."""
        served = of(name)
        deleted = await served.write(partial(served.index.delete, id))
        if not deleted:
            raise MissingDocumentError(f"no document {id!r} in the index")
        return as_response({"deleted": deleted})

    @router.post(
        "/indexes/{name}/documents",
        tags=["documents"],
        responses={200: {"model": schemas.ReportOut}},
        openapi_extra={
            "requestBody": {
                "required": True,
                "content": {
                    "application/json": {"schema": schemas.DocumentsIn.model_json_schema()},
                    "application/x-ndjson": {
                        "schema": {"type": "string"},
                        "example": '{"id": "a", "text": "Metformin.", "year": 2021}\n',
                    },
                },
            }
        },
    )
    async def add_documents(name: str, request: Request, update: bool = False) -> Response:
        """Add documents, in a list or as a stream of lines; update: replace those that changed.

        A stream is confirmed in steps. If a line is bad, what came before it is confirmed, and the
        error says how much that is.
        """
        served = of(name)
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind == "application/x-ndjson":
            lines = _lines(request.stream(), limits)
            return as_response(_reported(await _put_stream(served, lines, update)))
        if kind != "application/json":
            raise RefusedError(415, "type", "expected application/json or application/x-ndjson")
        try:
            given = schemas.DocumentsIn.model_validate(await _json(request))
        except ValidationError as error:
            mistakes = [{**one, "loc": ("body", *one["loc"])} for one in error.errors()]
            raise RequestValidationError(mistakes) from None
        return as_response(_reported(await _put(served, _of_list(given.documents), update=update)))

    @router.delete(
        "/indexes/{name}/documents",
        tags=["documents"],
        responses={200: {"model": schemas.DeletedOut}},
    )
    async def delete_documents(name: str, where: Where) -> Response:
        """Delete the documents that pass a filter."""
        served = of(name)
        deleted = await served.write(partial(served.index.delete, where=where))
        return as_response({"deleted": deleted})

    @router.post("/indexes/{name}/compact", tags=["indexes"])
    async def compact(name: str, request: schemas.CompactRequest) -> Response:
        """Put segments together and drop what was deleted; searches go on meanwhile."""
        served = of(name)
        index = served.index
        if not isinstance(index, Index):
            raise InputError(f"index {name} is in an engine elsewhere, which compacts by itself")
        await served.write(partial(index.compact, budget=request.budget, width=request.width))
        return as_response(about(served))

    @router.post("/segment", tags=["texts"])
    async def segment(request: schemas.SegmentRequest) -> Response:
        """The units of texts, in reading order, with their importance."""
        served = of(request.index)
        found = await served.read(partial(served.model.segment, request.texts, side=request.side))
        return as_response({"texts": [[asdict(unit) for unit in units] for units in found]})

    @router.post("/terms/check", tags=["texts"])
    async def terms_check(request: schemas.TermsRequest) -> Response:
        """What a list of terms would change in the units of texts."""
        served = of(request.index)
        terms = Terms(request.terms)
        found = await served.read(
            partial(check_terms, served.model, terms, request.texts, side=request.side)
        )
        return as_response(
            {
                "before": [[asdict(unit) for unit in units] for units in found.before],
                "after": [[asdict(unit) for unit in units] for units in found.after],
                "terms": [
                    {"term": term, "count": count, "changed": dict(found.changes[term])}
                    for term, count in found.occurrences.most_common()
                ],
            }
        )

    return router


async def abouts(indexes: Mapping[str, Served]) -> list[dict[str, Any]]:
    """The same of every index, none of which waits for searches."""
    return [await asyncio.to_thread(about, served) for served in indexes.values()]


def about(served: Served) -> dict[str, Any]:
    """What a client should know of an index."""
    settings = served.index.settings
    return {
        "name": served.name,
        "documents": len(served.index),
        "generation": served.index.generation,
        "model": served.model.name,
        "languages": served.model.languages,
        "budget": settings.budget.count,
        "policy": settings.budget.policy,
        "width": settings.width,
        "global_width": settings.global_width,
        # How an engine keeps vectors, its own figures say.
        "format": settings.format if isinstance(served.index, Index) else None,
        "fusion": dict(settings.fusion),
        "passage_tokens": settings.passages,
    }


def _shown(
    served: Served, request: Search, readable: bool, found: Results, query: Encoded
) -> bytes:
    """Results as JSON; written in the thread that found them, since they may be long."""
    if not readable:
        return as_json(found.as_json())
    usual = served.average(request, query)
    if request.query_budget is not None:
        query = query.at(budget=request.query_budget)
    return as_json(readable_results(found, query, usual))


def _timing(seconds: Mapping[str, float]) -> dict[str, str]:
    """What the library took, in the header that browsers and proxies know."""
    parts = (f"{name};dur={1000 * value:.2f}" for name, value in seconds.items())
    return {"server-timing": ", ".join(parts)}


def _reported(report: Report) -> dict[str, int]:
    return {name: getattr(report, name) for name in REPORTED}


async def _put(served: Served, documents: list[Document], *, update: bool) -> Report:
    change = served.index.update if update else served.index.add
    return await served.write(partial(change, documents))


async def _json(request: Request) -> Any:
    try:
        return parse_json((await request.body()).decode())
    except UnicodeDecodeError:
        raise RefusedError(400, "json", "the body is not UTF-8") from None
    except InputError as error:
        raise RefusedError(400, "json", f"the body: {error}") from None


async def _put_stream(served: Served, lines: AsyncIterator[bytes], update: bool) -> Report:
    """Documents line by line, confirmed in steps; a client that goes away ends it."""
    done, number, first = Report(), 0, 1
    step: list[Document] = []
    size = 0

    async def put() -> None:
        nonlocal done, step, size, first
        if step:
            report = await _put(served, step, update=update)
            done = replace(done, **{n: getattr(done, n) + getattr(report, n) for n in REPORTED})
        step, size, first = [], 0, number + 1

    try:
        async for line in lines:
            try:
                row = _of_line(line)
            except InputError:
                await put()  # what came before a bad line is confirmed
                raise
            finally:
                number += 1
            if row is not None:
                step.append(row)
                size += len(line)
            if len(step) == STEP or size > STEP_CHARACTERS:
                await put()
        await put()
    except (HPlusError, RefusedError) as error:
        problem = error if isinstance(error, RefusedError) else problem_of(error)
        place = f"lines {first} to {number}" if step and first < number else f"line {number}"
        raise replace(
            problem,
            message=f"{place}: {problem.message}",
            details={"confirmed": _reported(done), "lines": number - 1 if not step else first - 1},
        ) from None
    return done


def _of_line(line: bytes) -> Document | None:
    """The document of a line; None if it is blank."""
    if not line.strip():
        return None
    row = parse_json(_decoded(line))
    if not isinstance(row, dict):
        raise InputError(f"expected an object, got {type(row).__name__}")
    return _document(row)


def _document(row: dict[str, Any]) -> Document:
    made = document_of(row)
    if len(made.text) > schemas.LIMITS.text:
        raise InputError(
            f"the text has {len(made.text):,} characters, at most {schemas.LIMITS.text:,} are "
            "served; index it on the command line"
        )
    return made


def _of_list(rows: list[dict[str, Any]]) -> list[Document]:
    made = []
    for i, row in enumerate(rows):
        try:
            made.append(_document(row))
        except InputError as error:
            raise InputError(f"documents[{i}]: {error}") from None
    return made


def _decoded(line: bytes) -> str:
    try:
        return line.decode()
    except UnicodeDecodeError:
        raise InputError("not UTF-8") from None


async def _lines(stream: AsyncIterator[bytes], limits: Limits) -> AsyncIterator[bytes]:
    """The lines of a body that may go on for hours, but pauses only so long."""
    rest = b""
    while True:
        try:
            async with asyncio.timeout(limits.seconds):
                part = await anext(stream)
        except StopAsyncIteration:
            break
        except TimeoutError:
            raise RefusedError(
                408, "slow", f"nothing came for {limits.seconds:g} seconds"
            ) from None
        *lines, rest = (rest + part).split(b"\n")
        for line in lines:
            yield line
        if len(rest) > limits.body:
            raise RefusedError(413, "size", f"a line has more than {limits.body:,} bytes")
    yield rest
