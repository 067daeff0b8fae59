"""The ASGI application: endpoints, errors in one shape, and the guard round them all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.middleware.cors import CORSMiddleware
from starlette.exceptions import HTTPException

from hplus import __version__
from hplus.errors import HPlusError
from hplus.index import Index
from hplus.serve import dropin, native, page
from hplus.serve.answers import as_response
from hplus.serve.guard import REQUEST_ID, App, Guard, Rules
from hplus.serve.metrics import CONTENT_TYPE, Metrics
from hplus.serve.problems import RefusedError, full, internal, problem_of, problem_of_request
from hplus.serve.served import Served


def create_app(indexes: Mapping[str, Served], rules: Rules, metrics: Metrics) -> App:
    """The service over these indexes; it closes them when it ends."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        fresh = [asyncio.create_task(served.keep_fresh()) for served in indexes.values()]
        state["ready"] = True
        yield
        state["ready"] = False
        for task in fresh:
            task.cancel()
        await asyncio.gather(*fresh, return_exceptions=True)
        for served in indexes.values():
            served.close()

    state = {"ready": False}
    app = FastAPI(
        title="hplus",
        version=__version__,
        summary="Retrieval by phrases: search, and see why.",
        docs_url=None,  # they would load scripts from elsewhere
        redoc_url=None,
        lifespan=lifespan,
    )
    app.include_router(native.routes(indexes, rules.limits))
    app.include_router(dropin.routes(indexes))
    app.include_router(page.routes())
    _add_watched(app, indexes, rules, metrics, state)
    _add_errors(app, indexes)
    guarded: App = Guard(app, rules, metrics)
    if rules.origins:
        guarded = CORSMiddleware(
            guarded,
            allow_origins=rules.origins,
            allow_methods=["GET", "POST", "PUT", "DELETE"],
            allow_headers=["authorization", "content-type", "x-request-id"],
        )
    return guarded


def _add_watched(
    app: FastAPI,
    indexes: Mapping[str, Served],
    rules: Rules,
    metrics: Metrics,
    state: Mapping[str, bool],
) -> None:
    @app.get("/health", tags=["watch"])
    async def health() -> Response:
        """The process lives."""
        return as_response({"status": "ok"})

    @app.get("/ready", tags=["watch"], responses={503: native.ERRORS[503]})
    async def ready() -> Response:
        """Requests can be sent: every index is open and its model is loaded."""
        if not state["ready"]:
            raise full("the service is starting or ending")
        return as_response({"status": "ready"})

    @app.get("/info", tags=["watch"])
    async def info() -> Response:
        """Version, models, indexes and limits."""
        first = next(iter(indexes.values())).model
        return as_response(
            {
                "version": __version__,
                "model_id": first.name,
                "model_sha": first.fingerprint,
                "max_client_batch_size": rules.limits.texts,
                "read_only": rules.read_only,
                "limits": asdict(rules.limits),
                "indexes": await native.abouts(indexes),
            }
        )

    @app.get("/metrics", tags=["watch"])
    async def figures() -> Response:
        """Figures for Prometheus."""
        # An engine elsewhere has figures of its own, and may take its time.
        own = {n: one.index for n, one in indexes.items() if isinstance(one.index, Index)}
        return Response(metrics.text(own), media_type=CONTENT_TYPE)


def _add_errors(app: FastAPI, indexes: Mapping[str, Served]) -> None:
    def without_paths(error: HPlusError) -> RefusedError:
        """Where an index lies is no business of clients."""
        problem = problem_of(error)
        for name, served in indexes.items():
            problem.message = problem.message.replace(served.index.place, f"index {name}")
        return problem

    def respond(problem: RefusedError) -> Response:
        return Response(
            problem.body(), problem.status, dict(problem.headers or {}), "application/json"
        )

    async def unexpected(request: Request, _: Exception) -> Response:
        return respond(internal(request.scope[REQUEST_ID]))

    def handle(kind: type[Exception], make: Any) -> None:
        async def handler(_: Request, error: Exception) -> Response:
            return respond(make(error))

        app.add_exception_handler(kind, handler)

    app.add_exception_handler(Exception, unexpected)  # the guard logs it
    handle(RefusedError, lambda error: error)
    handle(HPlusError, without_paths)
    handle(RequestValidationError, problem_of_request)
    handle(HTTPException, _problem_of_route)


def _problem_of_route(error: HTTPException) -> RefusedError:
    code, message = "request", str(error.detail)
    if error.status_code == 404:
        code, message = "missing_endpoint", "no such endpoint; /openapi.json lists them"
    elif error.status_code == 405:
        code, message = "method", f"expected {(error.headers or {})['Allow']} at this endpoint"
    return RefusedError(error.status_code, code, message, headers=error.headers)
