"""One client connection: uvicorn's HTTP/1.1 protocol with the bounds it lacks.

* A peer that takes no byte for `unread_s` while we have some for it is cut. The transport's own
  buffer is kept at nothing, so a sender waits as soon as the kernel's is full.
* A request's head must be complete `head_s` after the connection or its first byte.
* Errors below HTTP have the shape of all others.

What the applications may ask of it stands in the scope's state: `peer`, who is at the other end of
a unix socket or None; `gone()`, whether what is sent now reaches nobody; `more(data)`, which writes a part of a body.
"""

from __future__ import annotations

import array
import asyncio
import fcntl
import socket
import struct
import termios
import time
from collections.abc import Callable
from dataclasses import dataclass
from email.utils import formatdate
from typing import Any

import h11
import msgspec
import structlog
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from halogend.api.errors import body_of
from halogend.control.requests import RequestError

log = structlog.get_logger(__name__)

_CLOSE = (b"connection", b"close")
_PEER_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid
_RESET = struct.pack("ii", 1, 0)
_ACKED, _ACKED_AT = struct.Struct("Q"), 120  # 8 bytes, 24 u32, two u64 before it
_READ_AHEAD_BYTES = 64 << 10


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Seconds and bytes one connection may take."""

    idle_s: int = 300  # between two requests
    head_s: float = 60.0
    unread_s: float = 60.0
    first_s: float = 1.0  # for the first request of a connection whose listener ends
    head_bytes: int = 64 << 10


class Connections(ServerState):
    """What the connections of one listener share. `on_lost` is called when one is gone; `is_ending`: no
    other will come, and each ends with what it is doing."""

    def __init__(self, limits: ConnectionLimits, on_lost: Callable[[], None]) -> None:
        super().__init__()
        self.limits = limits
        self.on_lost = on_lost
        self.is_ending = False
        self._dated_at = 0

    def refresh_date(self) -> None:
        """The Date header, made anew at most once a second."""
        now = int(time.time())
        if now != self._dated_at:
            self._dated_at = now
            self.default_headers = [(b"date", formatdate(now, usegmt=True).encode())]


class Connection(H11Protocol):
    """Single writer: the event loop."""

    def __init__(self, config: Config, connections: Connections) -> None:
        super().__init__(config=config, server_state=connections, app_state={})
        self._shared = connections
        self._limits = connections.limits
        self._head_timer: asyncio.TimerHandle | None = None
        self._unread_timer: asyncio.TimerHandle | None = None
        self._first_timer: asyncio.TimerHandle | None = None
        self.first_request: asyncio.Future[None] | None = None
        self._is_tls = False

    # --- the life of a connection -------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        # Under TLS the mark must be above nothing: asyncio looks at it after each write, and 0 is always reached.
        self._is_tls = transport.get_extra_info("sslcontext") is not None
        transport.set_write_buffer_limits(high=int(self._is_tls), low=0)
        self.app_state = {"peer": _peer(transport), "gone": transport.is_closing, "more": self._write_more}
        self._await_head()
        if self._shared.is_ending:
            self.shutdown()

    def data_received(self, data: bytes) -> None:
        self._shared.refresh_date()
        super().data_received(data)
        if self.transport.is_closing():
            return
        if self._answering():
            self._cancel_head_timer()
            self._read_on_behind_request()
            if self.first_request is not None and not self.first_request.done():
                self._end()
        else:
            self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_head_timer()
        self._cancel_unread_timer()
        self._first_is_over()
        super().connection_lost(exc)
        self._unset_keepalive_if_required()
        self._shared.on_lost()

    def shutdown(self) -> None:
        """Closes when idle; else after the response that runs, which says so if it still can. Where nothing
        was asked yet, `first_request` is done when it was, or is given up: it may be on its way."""
        if self.cycle is not None:
            self._end()
        elif self.first_request is None and not self.transport.is_closing():
            self.first_request = self.loop.create_future()
            self._first_timer = self.loop.call_later(self._limits.first_s, self._end)

    def _end(self) -> None:
        self._first_is_over()
        if self.transport.is_closing():
            return
        if self._answering():
            self.cycle.default_headers = [*self.cycle.default_headers, _CLOSE]
        super().shutdown()

    def _first_is_over(self) -> None:
        if self._first_timer is not None:
            self._first_timer.cancel()
            self._first_timer = None
        if self.first_request is not None and not self.first_request.done():
            self.first_request.set_result(None)

    def abort(self) -> None:
        self.transport.abort()

    # --- a body that comes in many small parts --------------------------------------------------

    def _write_more(self, data: bytes) -> bool:
        """A part of a body of unknown length, neither empty nor the last, as `send` would write it, at once: the way
        there through the applications' layers and h11's states costs several times what writing does. False, and
        nothing is written, where `send` would have to wait or the body is not sent in chunks."""
        cycle, conn = self.cycle, self.conn
        if cycle is None or self.flow.write_paused or conn.our_state is not h11.SEND_BODY:
            return False
        if conn.their_http_version != b"1.1" or cycle.scope["method"] == "HEAD":
            return False
        self.transport.write(b"%x\r\n%b\r\n" % (len(data), data))
        return True

    # --- a peer that sends nothing --------------------------------------------------------------

    def _answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _await_head(self) -> None:
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(self._limits.head_s, self._give_up_on_head)

    def _cancel_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _give_up_on_head(self) -> None:
        self._head_timer = None
        self.abort()

    def _read_on_behind_request(self) -> None:
        """Bytes behind a complete request make uvicorn stop reading, and then it would not see the
        peer leave."""
        behind, _ = self.conn.trailing_data
        if not self.cycle.more_body and self.flow.read_paused and len(behind) < _READ_AHEAD_BYTES:
            self.flow.resume_reading()

    # --- a peer that reads nothing --------------------------------------------------------------

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_reading()

    def resume_writing(self) -> None:
        self._cancel_unread_timer()
        super().resume_writing()

    def _watch_reading(self) -> None:
        self._unread_timer = self.loop.call_later(self._limits.unread_s, self._check_reading, self._unread_bytes())

    def _check_reading(self, unread_before: int) -> None:
        self._unread_timer = None
        if self._unread_bytes() < unread_before:
            self._watch_reading()
            return
        log.info("client_cut", reason="took no byte", seconds=self._limits.unread_s, peer=self.client)
        sock = self.transport.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)  # or the kernel keeps its queue for minutes
        self.abort()

    def _unread_bytes(self) -> int:
        """Falls when the peer takes a byte. Ours and the kernel's: its queue can be megabytes, and a slow reader
        drains that for long. Under TLS there is a buffer between the two that cannot be seen, and would keep the
        kernel's full: what the peer has acknowledged counts, downwards."""
        sock = self.transport.get_extra_info("socket")
        if self._is_tls and (acknowledged := _acknowledged_bytes(sock)) is not None:
            return -acknowledged
        queued = array.array("i", [0])
        fcntl.ioctl(sock.fileno(), termios.TIOCOUTQ, queued)
        return self.transport.get_write_buffer_size() + queued[0]

    def _cancel_unread_timer(self) -> None:
        if self._unread_timer is not None:
            self._unread_timer.cancel()
            self._unread_timer = None

    # --- errors below HTTP ------------------------------------------------------------------------

    def send_400_response(self, msg: str) -> None:
        """Called by uvicorn for what is not HTTP/1.1."""
        if self.conn.our_state not in {h11.IDLE, h11.SEND_RESPONSE}:
            self.abort()  # in the middle of an answer there is no room for another
            return
        error = RequestError("bad_http", "The request is not valid HTTP/1.1, or its head is too large.")
        body = msgspec.json.encode(body_of(error))
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            _CLOSE,
        ]
        for event in (h11.Response(status_code=400, headers=headers), h11.Data(data=body), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()


def _acknowledged_bytes(sock: Any) -> int | None:
    """tcpi_bytes_acked of struct tcp_info (linux/tcp.h); None where the kernel does not tell."""
    info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _ACKED_AT + _ACKED.size)
    return _ACKED.unpack_from(info, _ACKED_AT)[0] if len(info) >= _ACKED_AT + _ACKED.size else None


def _peer(transport: asyncio.Transport) -> str | None:
    """`uid:N` of the process at the other end of a unix socket, as the kernel vouches."""
    sock: Any = transport.get_extra_info("socket")
    if sock is None or sock.family != socket.AF_UNIX:
        return None
    credentials = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER_CREDENTIALS.size)
    _, uid, _ = _PEER_CREDENTIALS.unpack(credentials)
    return f"uid:{uid}"
