"""Every error that leaves an endpoint becomes a response of one shape, in both applications."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import structlog
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from halogend.api.errors import internal_error, response_to
from halogend.control.requests import RequestError

log = structlog.get_logger(__name__)


def application(routes: Sequence[Route]) -> Starlette:
    """A Starlette whose every error is typed: unknown paths and methods too."""

    async def on_request_error(_request: Request, error: Exception) -> Response:
        return response_to(error) if isinstance(error, RequestError) else response_to(internal_error())

    async def on_http_error(request: Request, error: Exception) -> Response:
        if not isinstance(error, HTTPException):
            return response_to(internal_error())
        return response_to(_typed(request, error, routes), dict(error.headers or {}))

    app = Starlette(
        routes=list(routes),
        middleware=[Middleware(_OwnBugs)],
        exception_handlers={RequestError: on_request_error, HTTPException: on_http_error},
    )
    app.router.redirect_slashes = False  # a path is right or it is a 404 that says what is
    return app


def _typed(request: Request, error: HTTPException, routes: Sequence[BaseRoute]) -> RequestError:
    asked = f"{request.method} {request.url.path}"
    if error.status_code == 405:
        allowed = (error.headers or {}).get("Allow", "")
        return RequestError("method_not_allowed", f"{asked}: this path takes {allowed}.")
    if error.status_code == 404:
        there = ", ".join(f"{_method(route)} {route.path}" for route in routes if isinstance(route, Route))
        return RequestError("not_found", f"{asked} is not here. What is: {there}.")
    return RequestError("invalid_value", error.detail)


def _method(route: Route) -> str:
    return "POST" if "POST" in (route.methods or ()) else "GET"


class _OwnBugs:
    """What no handler knows is a bug of ours: logged, answered once, and the server goes on."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = False

        async def watched(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self._app(scope, receive, watched)
        except Exception:  # the last border: one request's bug must not reach the next
            log.exception("request_failed_by_our_bug", path=_path(scope))
            if started:
                raise
            await response_to(internal_error())(scope, receive, send)


def _path(scope: Scope) -> Any:
    return scope.get("path")
