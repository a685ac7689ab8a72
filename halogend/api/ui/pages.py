"""The routes of the page: three files, read once when the application is made."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from importlib.resources import files

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

_FILES = (
    ("", "page.html", "text/html"),
    ("/page.js", "page.js", "text/javascript"),
    ("/page.css", "page.css", "text/css"),
)
HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self';"
    " img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "cache-control": "no-cache",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}


def ui_routes(path: str) -> list[Route]:
    """The page at `path`, its parts below."""
    folder = files(__package__)
    return [
        Route(path + below, _serve(folder.joinpath(name).read_bytes(), kind), methods=["GET"])
        for below, name, kind in _FILES
    ]


def _serve(data: bytes, kind: str) -> Callable[[Request], Awaitable[Response]]:
    async def serve(_request: Request) -> Response:
        return Response(data, headers=HEADERS, media_type=kind)

    return serve
