"""The admin application: what is active, what changed, and asking for a change."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from halogend.api.bodies import ClientGoneError, read_bytes
from halogend.api.events import EventsEndpoint
from halogend.api.exchange import until_gone
from halogend.api.faults import application
from halogend.api.generation import CLIENT_GONE
from halogend.api.ports import Admin
from halogend.api.push_headers import etag, push_of
from halogend.api.ui.pages import ui_routes
from halogend.control.plan_report import PlanOutcome
from halogend.control.planning import Given
from halogend.control.receipts import Milestone, Outcome, Receipt
from halogend.control.requests import RequestError
from halogend.control.source import MAX_DOCUMENT_BYTES, Content

_PREFIX = "/admin/v1"
_WAITS = {"none": None, "serving": Milestone.SERVING, "closed": Milestone.CLOSED}
_STATUS = {
    Outcome.UNCHANGED: 200,
    Outcome.APPLIED: 200,
    Outcome.PARTIALLY_APPLIED: 207,
    Outcome.SUPERSEDED: 409,
    Outcome.REJECTED: 422,
    Outcome.FAILED: 500,
    Outcome.ROLLED_BACK: 500,
}
_ACCEPTED = 202
_DOCUMENTS = ("active", "desired")
_SWITCH = {"false": False, "true": True}
_BODY_PATIENCE_S = 30.0
_FILE_CHARACTERS = 4096


def admin_app(admin: Admin) -> Starlette:
    """An ASGI application, for a listener only operators reach."""
    endpoint = _AdminEndpoint(admin)
    return application(
        [
            Route(f"{_PREFIX}/status", endpoint.status, methods=["GET"]),
            Route(f"{_PREFIX}/receipts", endpoint.receipts, methods=["GET"]),
            Route(f"{_PREFIX}/receipts/{{id}}", endpoint.receipt, methods=["GET"]),
            Route(f"{_PREFIX}/document", endpoint.document, methods=["GET", "PUT"]),
            Route(f"{_PREFIX}/ledger", endpoint.ledger, methods=["GET"]),
            Route(f"{_PREFIX}/cache", endpoint.cache, methods=["GET"]),
            Route(f"{_PREFIX}/events", endpoint.events, methods=["GET"]),
            Route(f"{_PREFIX}/plan", endpoint.plan_source, methods=["GET"]),
            Route(f"{_PREFIX}/plan", endpoint.plan, methods=["POST"]),
            Route(f"{_PREFIX}/reload", endpoint.reload, methods=["POST"]),
            Route(f"{_PREFIX}/rollback", endpoint.rollback, methods=["POST"]),
            Route(f"{_PREFIX}/hold", endpoint.hold, methods=["POST"]),
            Route(f"{_PREFIX}/resume", endpoint.resume, methods=["POST"]),
            Route(f"{_PREFIX}/models/{{name:path}}/drain", endpoint.drain, methods=["POST"]),
            *ui_routes(f"{_PREFIX}/ui"),
        ]
    )


def status_of(receipt: Receipt) -> int:
    """The HTTP status that says how a change stands."""
    return _ACCEPTED if receipt.outcome is None else _STATUS[receipt.outcome]


@dataclass(frozen=True, slots=True)
class _AdminEndpoint:
    admin: Admin

    async def status(self, _request: Request) -> Response:
        return JSONResponse(self.admin.status())

    async def receipts(self, request: Request) -> Response:
        """Newest first; `?limit=` of them at the most, `?uid=` of one origin alone."""
        uid = request.query_params.get("uid")
        found = [each for each in self.admin.receipts() if uid is None or (each.origin or {}).get("uid") == uid]
        newest = found[::-1][: _limit(request)]
        return JSONResponse({"receipts": [receipt.view() for receipt in newest]})

    async def receipt(self, request: Request) -> Response:
        """With `?wait=` it answers when the change has come that far."""
        wanted = request.path_params["id"]
        receipt = self.admin.receipt(wanted)
        if receipt is None:
            raise RequestError("receipt_not_found", f"There is no receipt `{wanted}`; old ones are dropped.")
        return await _answer(request, lambda: receipt, lambda _: 200)

    async def document(self, request: Request) -> Response:
        """`?of=desired`: the one whose targets are set, else the active one. The tag is its revision."""
        if request.method == "PUT":
            return await self.put(request)
        wanted = request.query_params.get("of", "active")
        if wanted not in _DOCUMENTS:
            raise RequestError("invalid_value", f"`of` takes one of {', '.join(_DOCUMENTS)}", param="of")
        text, revision = self.admin.document(is_desired=wanted == "desired")
        tag = {} if revision is None else {"etag": etag(revision)}
        return Response(text, media_type="application/yaml", headers=tag)

    async def put(self, request: Request) -> Response:
        """The document in the body, whatever the source holds; answers as a reload does. `?dry_run=true` answers
        with the plan of it, `?force=true` goes through a hold and takes an origin's lower generation, `?file=` is what
        its problems call it."""
        is_dry, force, file = _switch(request, "dry_run"), _switch(request, "force"), _file(request, "pushed")
        _milestone(request)
        try:
            data = await read_bytes(request, patience_s=_BODY_PATIENCE_S, max_bytes=MAX_DOCUMENT_BYTES)
        except ClientGoneError:
            return Response(status_code=CLIENT_GONE)
        push = push_of(request.headers, data, file)
        if is_dry:
            return _planned(await self.admin.plan_put(push, force=force))
        return await _answer(request, lambda: self.admin.put(push, actor_of(request), force=force), status_of)

    async def ledger(self, _request: Request) -> Response:
        return JSONResponse(self.admin.ledger())

    async def cache(self, _request: Request) -> Response:
        return JSONResponse(self.admin.cache())

    async def events(self, request: Request) -> Any:
        return await EventsEndpoint(self.admin.events()).stream(request)

    async def drain(self, request: Request) -> Response:
        """What drains of a model; `?now=true` ends its requests, `?wait=closed` answers when nothing of it is left."""
        is_now, milestone = _switch(request, "now"), _milestone(request, "none", "closed")
        draining = self.admin.draining(request.path_params["name"])
        if is_now:
            draining.end(actor_of(request))
        if milestone is not None:
            try:
                await until_gone(request.receive, draining.closed())
            except ClientGoneError:
                return Response(status_code=CLIENT_GONE)
        return JSONResponse(draining.view())

    async def plan_source(self, _request: Request) -> Response:
        """Of what the source holds now."""
        return _planned(await self.admin.plan(None))

    async def plan(self, request: Request) -> Response:
        """Of the document in the body; `?file=` is what its problems call it."""
        file = _file(request, "")
        try:
            data = await read_bytes(request, patience_s=_BODY_PATIENCE_S, max_bytes=MAX_DOCUMENT_BYTES)
        except ClientGoneError:
            return Response(status_code=CLIENT_GONE)
        return _planned(await self.admin.plan(Given(Content.of(data), file)))

    async def reload(self, request: Request) -> Response:
        """`?dry_run=true` answers with the plan of it, `?force=true` goes through a hold."""
        if _switch(request, "dry_run"):
            return await self.plan_source(request)
        force = _switch(request, "force")
        return await _answer(request, lambda: self.admin.reload("api", actor_of(request), force=force), status_of)

    async def rollback(self, request: Request) -> Response:
        """To `?receipt=`, else to the document before; `?dry_run=true` answers with the plan of it."""
        wanted = request.query_params.get("receipt")
        if _switch(request, "dry_run"):
            return _planned(await self.admin.plan_rollback(wanted))
        return await _answer(request, lambda: self.admin.rollback(wanted, actor_of(request)), status_of)

    async def hold(self, request: Request) -> Response:
        return JSONResponse(self.admin.hold(actor_of(request)))

    async def resume(self, request: Request) -> Response:
        """The receipt of what was put off, as a reload answers; else that nothing is held."""
        _milestone(request)
        receipt = self.admin.resume(actor_of(request))
        if receipt is None:
            return JSONResponse({"hold": None})
        return await _answer(request, lambda: receipt, status_of)


def actor_of(request: Request) -> str:
    """The key's name on TCP; the user at the other end of a unix socket, as the kernel says."""
    state = request.scope.get("state") or {}
    if key := state.get("key"):
        return f"key:{key}"
    return str(state.get("peer") or "unix")


def _planned(plan: dict[str, Any]) -> Response:
    """One that would be rejected is no success."""
    status = _STATUS[Outcome.REJECTED] if plan["outcome"] == PlanOutcome.REJECTED else _STATUS[Outcome.UNCHANGED]
    return JSONResponse(plan, status_code=status)


def _file(request: Request, default: str) -> str:
    """It is shown on terminals, and stands in the line that the service manager is told."""
    name = request.query_params.get("file", default)
    if not name.isprintable() or len(name) > _FILE_CHARACTERS:
        text = f"`file` takes a name of at most {_FILE_CHARACTERS} characters that can be printed"
        raise RequestError("invalid_value", text, param="file")
    return name


def _limit(request: Request) -> int | None:
    text = request.query_params.get("limit")
    if text is None:
        return None
    if not (text.isascii() and text.isdecimal() and int(text[:9]) > 0):
        raise RequestError("invalid_value", "`limit` takes a number of receipts, 1 or more", param="limit")
    return int(text[:9])


def _switch(request: Request, name: str) -> bool:
    text = request.query_params.get(name, "false")
    if text not in _SWITCH:
        raise RequestError("invalid_value", f"`{name}` takes one of {', '.join(_SWITCH)}", param=name)
    return _SWITCH[text]


def _milestone(request: Request, *taken: str) -> Milestone | None:
    """Of `?wait=`; None: nothing is waited for. `taken`: what may be, if not all."""
    wait = request.query_params.get("wait", "none")
    if wait not in (taken or _WAITS):
        raise RequestError("invalid_value", f"`wait` takes one of {', '.join(taken or _WAITS)}", param="wait")
    return _WAITS[wait]


async def _answer(request: Request, get: Callable[[], Receipt], status: Callable[[Receipt], int]) -> Response:
    """Reads `?wait=` before it asks for anything. The change goes on when its caller leaves."""
    milestone = _milestone(request)
    receipt = get()
    if milestone is not None:
        try:
            await until_gone(request.receive, receipt.wait(milestone))
        except ClientGoneError:
            return Response(status_code=CLIENT_GONE)
    location = {"location": f"{_PREFIX}/receipts/{receipt.id}"}
    return JSONResponse(receipt.view(), status_code=status(receipt), headers=location)
