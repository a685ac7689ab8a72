"""`GET /admin/v1/events`: what happens, as server-sent events, from now or from where a reader was cut off.

    retry: 1000
    event: hello     id: RUN-41    data: {"gap": false}          first, always
    event: receipt   id: RUN-42    data: {"at": ..., "phase": "opened", "receipt": "r7", ...}
    : keep-alive                                                 after each 10 s of silence
    event: end                     data: {"reason": "slow_reader", "message": ...}      last, where we end it

A reader holds a place in the daemon's ring of events and no queue: it costs nothing to be slow, until the
ring has overtaken it. What events mean is none of this module's business.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, Protocol

import structlog
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from halogend.api.bodies import ClientGoneError
from halogend.api.exchange import until_gone
from halogend.api.sse import HEADERS, KEEP_ALIVE, data_line, gone_of
from halogend.control.events import Event, Events, EventsLostError, Reader

log = structlog.get_logger(__name__)

_RETRY = b"retry: 1000\n"
_ENDS = {
    "slow_reader": "Events were missed: they were read more slowly than they came. Read the status anew.",
    "shutting_down": "The daemon stops.",
    "renew": "Connect again: whoever watches is asked for its key once an hour.",
}


@dataclass(frozen=True, slots=True)
class Patience:
    """Seconds: of silence until a comment is sent, and of one connection. Its key is looked at only when it
    comes, so no stream may outlive a key for long."""

    keep_alive_s: float = 10.0
    at_most_s: float = 3600.0


class EventsEndpoint:
    """`Last-Event-ID` or `?after=` names the last event that was read."""

    def __init__(self, events: Events, patience: Patience | None = None) -> None:
        self._events = events
        self._patience = patience or Patience()

    async def stream(self, request: Request) -> Any:
        """A Response, or the stream as an ASGI application."""
        if request.method == "HEAD":
            return Response(headers=HEADERS)  # of what would never end
        after = request.headers.get("last-event-id") or request.query_params.get("after")
        return EventStream(self._events.follow(after), self._patience)


class EventStream:
    """An ASGI response. Ends at shutdown, when it was overtaken, after an hour, or when the client leaves."""

    def __init__(self, reader: Reader, patience: Patience) -> None:
        self._reader = reader
        self._patience = patience

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def put(data: bytes, *, last: bool = False) -> None:
            await send({"type": "http.response.body", "body": data, "more_body": not last})
            if gone() and not last:  # the server drops such bytes in silence
                raise ClientGoneError

        gone = gone_of(scope)
        headers = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        try:
            await until_gone(receive, self._run(put))
        except ClientGoneError:
            log.debug("watcher_gone")

    async def _run(self, put: _Put) -> None:
        await put(_RETRY + _named("hello", {"gap": self._reader.has_gap}, self._reader.place))
        reason = "renew"
        try:
            async with asyncio.timeout(self._patience.at_most_s):
                await self._pass_on(put)
            reason = "shutting_down"
        except EventsLostError:
            reason = "slow_reader"
        except TimeoutError:
            log.debug("watcher_renews")
        await put(_named("end", {"reason": reason, "message": _ENDS[reason]}), last=True)

    async def _pass_on(self, put: _Put) -> None:
        """Until there will be no more. Raises EventsLostError."""
        while True:
            try:
                async with asyncio.timeout(self._patience.keep_alive_s):
                    found = await self._reader.next()
            except TimeoutError:
                await put(KEEP_ALIVE)
                continue
            if not found:
                return
            await put(b"".join(map(_line, found)))


class _Put(Protocol):
    async def __call__(self, data: bytes, *, last: bool = False) -> None: ...


def _line(event: Event) -> bytes:
    return _named(event.kind, {"at": event.at, **event.data}, event.id)


def _named(kind: str, content: dict[str, Any], event_id: str | None = None) -> bytes:
    place = "" if event_id is None else f"id: {event_id}\n"
    return f"event: {kind}\n{place}".encode() + data_line(content)
