"""One request and its streamed answer, line by line as they come.

A reader from `asyncio.streams` takes a buffer of 256 KiB for each token that comes, and wakes a task. The load shares
the cores with what it measures: what it takes is missing there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from torture.http11 import HEAD_END, head_of

_READ_BYTES = 1 << 14
_LINE_END = b"\r\n"


class Body:
    """Bytes of an answer's body in, whole lines out, without their ends. The three ways a body may end are those of
    `http11`: in chunks, at a length, with the connection. Raises ValueError for what are no chunks."""

    def __init__(self, headers: dict[str, str], on_line: Callable[[bytes], None]) -> None:
        length = headers.get("content-length")
        self._on_line = on_line
        self._is_chunked = headers.get("transfer-encoding", "").lower() == "chunked"
        self._left = None if length is None or self._is_chunked else int(length)
        self._held = b""  # no whole chunk yet
        self._line = b""  # no whole line yet
        self.is_whole = self._left == 0

    def feed(self, data: bytes) -> None:
        if self._is_chunked:
            self._chunks(data)
            return
        self._lines(data)
        if self._left is not None:
            self._left -= len(data)
            if self._left <= 0:
                self._finish()

    def end(self) -> None:
        """The connection is over. Raises IncompleteReadError if the answer is not."""
        if self.is_whole:
            return
        if self._is_chunked or self._left is not None:
            raise asyncio.IncompleteReadError(self._held, self._left)
        self._finish()

    def _chunks(self, data: bytes) -> None:
        held, start = self._held + data, 0
        while not self.is_whole and (line := held.find(_LINE_END, start)) >= 0:
            begin, size = line + len(_LINE_END), int(held[start:line], 16)
            end = begin + size
            if len(held) < end + len(_LINE_END):
                break
            self._lines(held[begin:end])
            if not size:
                self._finish()
            start = end + len(_LINE_END)
        self._held = held[start:]

    def _finish(self) -> None:
        self.is_whole = True
        if self._line:
            self._on_line(self._line)

    def _lines(self, part: bytes) -> None:
        *lines, self._line = (self._line + part).split(b"\n")
        for line in lines:
            self._on_line(line.removesuffix(b"\r"))


class Stream(asyncio.BufferedProtocol):
    """Sends `request` once connected. `status` is there with the first line, `ended` when the answer is whole; its
    exception is what broke it: OSError, IncompleteReadError, ValueError, or what `on_line` raised."""

    def __init__(self, request: bytes, on_line: Callable[[bytes], None]) -> None:
        self.status = 0
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._request = request
        self._on_line = on_line
        self._buffer = memoryview(bytearray(_READ_BYTES))
        self._head = b""
        self._body: Body | None = None
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if not isinstance(transport, asyncio.Transport):
            raise TypeError("an answer needs a stream transport")
        self._transport = transport
        transport.write(self._request)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        if self.ended.done():
            return
        try:
            self._take(bytes(self._buffer[:nbytes]))
        except Exception as error:  # noqa: BLE001  who waits for the answer is told
            self._end(error)

    def connection_lost(self, exc: Exception | None) -> None:
        try:
            if exc is None and self._body is not None:
                self._body.end()
                self._end(None)
            else:
                self._end(exc or asyncio.IncompleteReadError(self._head, None))
        except EOFError as error:
            self._end(error)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def _take(self, data: bytes) -> None:
        if self._body is None:
            head, found, data = (self._head + data).partition(HEAD_END)
            if not found:
                self._head = head
                return
            self.status, headers = head_of(head)
            self._body = Body(headers, self._on_line)
        self._body.feed(data)
        if self._body.is_whole:
            self._end(None)

    def _end(self, error: Exception | None) -> None:
        if self.ended.done():
            return
        if error is None:
            self.ended.set_result(None)
        else:
            self.ended.set_exception(error)
