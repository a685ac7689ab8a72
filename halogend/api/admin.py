"""The admin application: what is active, what changed, and asking for a change."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from halogend.api.bodies import ClientGoneError
from halogend.api.exchange import until_gone
from halogend.api.faults import application
from halogend.api.generation import CLIENT_GONE
from halogend.api.ports import Admin
from halogend.control.receipts import Milestone, Outcome, Receipt
from halogend.control.requests import RequestError

_PREFIX = "/admin/v1"
_WAITS = {"none": None, "serving": Milestone.SERVING, "closed": Milestone.CLOSED}
_STATUS = {
    Outcome.UNCHANGED: 200,
    Outcome.APPLIED: 200,
    Outcome.PARTIALLY_APPLIED: 207,
    Outcome.SUPERSEDED: 409,
    Outcome.REJECTED: 422,
    Outcome.FAILED: 500,
}
_ACCEPTED = 202


def admin_app(admin: Admin) -> Starlette:
    """An ASGI application, for a listener only operators reach."""
    endpoint = _AdminEndpoint(admin)
    return application(
        [
            Route(f"{_PREFIX}/status", endpoint.status, methods=["GET"]),
            Route(f"{_PREFIX}/receipts", endpoint.receipts, methods=["GET"]),
            Route(f"{_PREFIX}/receipts/{{id}}", endpoint.receipt, methods=["GET"]),
            Route(f"{_PREFIX}/document", endpoint.document, methods=["GET"]),
            Route(f"{_PREFIX}/reload", endpoint.reload, methods=["POST"]),
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

    async def receipts(self, _request: Request) -> Response:
        """Newest first."""
        return JSONResponse({"receipts": [receipt.view() for receipt in reversed(self.admin.receipts())]})

    async def receipt(self, request: Request) -> Response:
        """With `?wait=` it answers when the change has come that far."""
        wanted = request.path_params["id"]
        receipt = self.admin.receipt(wanted)
        if receipt is None:
            raise RequestError("receipt_not_found", f"There is no receipt `{wanted}`; old ones are dropped.")
        return await _answer(request, lambda: receipt, lambda _: 200)

    async def document(self, _request: Request) -> Response:
        return Response(self.admin.document(), media_type="application/yaml")

    async def reload(self, request: Request) -> Response:
        return await _answer(request, lambda: self.admin.reload("api", actor_of(request)), status_of)


def actor_of(request: Request) -> str:
    """The key's name on TCP; the user at the other end of a unix socket, as the kernel says."""
    state = request.scope.get("state") or {}
    if key := state.get("key"):
        return f"key:{key}"
    return str(state.get("peer") or "unix")


async def _answer(request: Request, get: Callable[[], Receipt], status: Callable[[Receipt], int]) -> Response:
    """Reads `?wait=` before it asks for anything. The change goes on when its caller leaves."""
    wait = request.query_params.get("wait", "none")
    if wait not in _WAITS:
        raise RequestError("invalid_value", f"`wait` takes one of {', '.join(_WAITS)}", param="wait")
    milestone = _WAITS[wait]
    receipt = get()
    if milestone is not None:
        try:
            await until_gone(request.receive, receipt.wait(milestone))
        except ClientGoneError:
            return Response(status_code=CLIENT_GONE)
    location = {"location": f"{_PREFIX}/receipts/{receipt.id}"}
    return JSONResponse(receipt.view(), status_code=status(receipt), headers=location)
