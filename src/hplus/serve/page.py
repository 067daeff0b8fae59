"""The page at `/`: static files of this folder, under a policy that lets nothing else in."""

from __future__ import annotations

from importlib.resources import files

from fastapi import APIRouter, Response

FILES = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/page/style.css": ("style.css", "text/css; charset=utf-8"),
    **{
        f"/page/{name}.js": (f"{name}.js", "text/javascript; charset=utf-8")
        for name in ("page", "draw", "api")
    },
}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


def routes() -> APIRouter:
    """One endpoint for each file, read once."""
    router = APIRouter(include_in_schema=False)
    folder = files("hplus.serve") / "page"
    for path, (name, kind) in FILES.items():
        found = folder / name
        body = found.read_bytes()

        def get(body: bytes = body, kind: str = kind) -> Response:
            headers = {"content-security-policy": POLICY, "cache-control": "no-cache"}
            return Response(body, 200, headers, kind)

        router.add_api_route(path, get, methods=["GET", "HEAD"], response_model=None)
    return router
