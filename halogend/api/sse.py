"""An answer as a stream of server-sent events.

Status and headers wait for the first token, so that an early failure keeps its true status; after
`keep_alive_s` of silence the stream begins anyway, with a comment, and a later failure is an event.

    data: {chunk}  ...  data: [DONE]          or, after the first byte,   data: {"error": ...}  and the end
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import aclosing
from typing import Any, Protocol

import msgspec
import structlog
from starlette.types import Receive, Scope, Send

from halogend.api.bodies import ClientGoneError
from halogend.api.errors import body_of, response_to
from halogend.api.exchange import Exchange, unfinished, until_gone
from halogend.control.requests import RequestError
from halogend.wire.requests import Delta, Finished

log = structlog.get_logger(__name__)

HEADERS = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-cache",
    "x-accel-buffering": "no",  # proxies that gather output would hold tokens back
}
KEEP_ALIVE = b": keep-alive\n\n"
_DONE = b"data: [DONE]\n\n"
# No line ends of this format, but clients that cut lines as str.splitlines does (httpx) take them for such.
_LINE_ENDS = {char.encode(): f"\\u{ord(char):04x}".encode() for char in "\u0085\u2028\u2029"}


class ChunkShape(Protocol):
    """How a route writes an answer in chunks."""

    def opening(self, model: str) -> Iterable[dict[str, Any]]: ...
    def delta(self, model: str, text: str) -> Iterable[dict[str, Any]]: ...
    def closing(self, model: str, finished: Finished) -> Iterable[dict[str, Any]]: ...


class EventStream:
    """An ASGI response. Ends in [DONE], an error event, or with the client's leaving."""

    def __init__(self, exchange: Exchange, shape: ChunkShape, headers: dict[str, str], keep_alive_s: float) -> None:
        self._exchange = exchange
        self._shape = shape
        self._headers = {**HEADERS, **headers}
        self._keep_alive_s = keep_alive_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        writer = _Writer(send, self._headers, gone_of(scope), more_of(scope))
        try:
            await until_gone(receive, self._run(writer))
        except ClientGoneError:
            log.debug("client_gone", model=self._exchange.model)

    async def _run(self, writer: _Writer) -> None:
        ticker = asyncio.create_task(writer.tick(self._keep_alive_s))
        failure: RequestError | None = None
        try:
            async with aclosing(self._exchange.events()) as events:
                await self._write_all(events, writer)
        except RequestError as error:
            failure = error
        finally:
            ticker.cancel()
            await asyncio.gather(ticker, return_exceptions=True)
        await (writer.end() if failure is None else writer.fail(failure))

    async def _write_all(self, events: AsyncGenerator[Delta | Finished, None], writer: _Writer) -> None:
        opened = ended = False
        async for event in events:
            model = self._exchange.model
            if not opened:
                opened = True
                await writer.write(self._shape.opening(model))
                self._exchange.tap(lambda text: writer.write_now(self._shape.delta(self._exchange.model, text)))
            if isinstance(event, Finished):
                ended = True
                await writer.write(self._shape.closing(model, event))
            elif event.text:
                await writer.write(self._shape.delta(model, event.text))
        if not ended:
            raise unfinished(self._exchange)


class _Writer:
    """One response. The stream and the ticker both write; the lock keeps their events whole and in order."""

    def __init__(
        self, send: Send, headers: dict[str, str], gone: Callable[[], bool], more: Callable[[bytes], bool]
    ) -> None:
        self._send = send
        self._gone = gone
        self._more = more
        self._headers = [(name.encode(), value.encode()) for name, value in headers.items()]
        self._lock = asyncio.Lock()
        self._about_to = 0  # write: those who have the lock or wait for it
        self._started = False
        self._loop = asyncio.get_running_loop()
        self._wrote_at = self._loop.time()

    async def write(self, chunks: Iterable[dict[str, Any]]) -> None:
        data = b"".join(map(data_line, chunks))
        if data:
            await self._put(data)

    def write_now(self, chunks: Iterable[dict[str, Any]]) -> bool:
        """Without waiting, where the response has begun, nobody else is about to write and the client takes what is
        written; else nothing (False)."""
        if self._about_to or self._gone() or not self._more(b"".join(map(data_line, chunks))):
            return False
        self._wrote_at = self._loop.time()
        return True

    async def tick(self, every_s: float) -> None:
        """Writes a comment after each `every_s` without a byte, for ever."""
        while True:
            rest = self._wrote_at + every_s - self._loop.time()
            if rest > 0:
                await asyncio.sleep(rest)
            else:
                await self._put(KEEP_ALIVE)

    async def end(self) -> None:
        await self._put(_DONE, last=True)

    async def fail(self, error: RequestError) -> None:
        """The true status while nothing was sent; an event in the stream afterwards."""
        if not self._started:
            await response_to(error)({"type": "http"}, _nothing, self._send)
            return
        await self._put(data_line(body_of(error)), last=True)

    async def _put(self, data: bytes, *, last: bool = False) -> None:
        self._about_to += 1
        try:
            async with self._lock:
                if not self._started:
                    self._started = True
                    await self._send({"type": "http.response.start", "status": 200, "headers": self._headers})
                await self._send({"type": "http.response.body", "body": data, "more_body": not last})
                if self._gone() and not last:  # the server drops such bytes in silence
                    raise ClientGoneError
                self._wrote_at = self._loop.time()
        finally:
            self._about_to -= 1


def data_line(content: dict[str, Any]) -> bytes:
    """The JSON of an event, and the empty line that ends it."""
    data = msgspec.json.encode(content)
    for char, escape in _LINE_ENDS.items():  # UTF-8: no other character holds these bytes
        data = data.replace(char, escape)
    return b"data: " + data + b"\n\n"


def gone_of(scope: Scope) -> Callable[[], bool]:
    """How to ask whether the client has left; without our own listener nobody knows before `receive`."""
    gone: Callable[[], bool] = (scope.get("state") or {}).get("gone", lambda: False)
    return gone


def more_of(scope: Scope) -> Callable[[bytes], bool]:
    """How to write a part of the body at once; without our own listener everything goes by `send`."""
    more: Callable[[bytes], bool] = (scope.get("state") or {}).get("more", lambda data: False)
    return more


async def _nothing() -> dict[str, Any]:
    return {"type": "http.disconnect"}
