"""The two ends of a stream socket that carries messages.

AsyncChannel lives in an event loop and calls back; WorkerChannel lives in a worker's own loop and
never blocks: what the kernel does not take at once is kept and sent by `flush`. EOF means that
the peer is dead.
"""

from __future__ import annotations

import asyncio
import contextlib
import selectors
import socket
import threading
from collections.abc import Callable, Iterable

from halogend.wire.frames import FrameReader, WireError, encode
from halogend.wire.messages import AnyMessage

_READ_BYTES = 256 << 10


class ChannelClosedError(Exception):
    """The peer closed its end or died."""


class AsyncChannel(asyncio.BufferedProtocol):
    """The asyncio end. `on_message` is called for every message, in order, and must not wait;
    `on_close` exactly once, with None at EOF or the error that ended the stream."""

    def __init__(
        self,
        on_message: Callable[[AnyMessage], None],
        on_close: Callable[[Exception | None], None],
    ) -> None:
        self._on_message = on_message
        self._on_close = on_close
        self._reader = FrameReader()
        self._buffer = memoryview(bytearray(_READ_BYTES))
        self._transport: asyncio.Transport | None = None
        self._error: Exception | None = None

    @classmethod
    async def open(
        cls,
        sock: socket.socket,
        on_message: Callable[[AnyMessage], None],
        on_close: Callable[[Exception | None], None],
    ) -> AsyncChannel:
        """Takes ownership of a connected stream socket."""
        sock.setblocking(False)
        loop = asyncio.get_running_loop()
        _, channel = await loop.create_connection(lambda: cls(on_message, on_close), sock=sock)
        return channel

    @property
    def closed(self) -> bool:
        return self._transport is None or self._transport.is_closing()

    @property
    def unsent_bytes(self) -> int:
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def send(self, message: AnyMessage) -> None:
        """Never waits. Raises ChannelClosedError when the stream has ended."""
        if self._transport is None or self._transport.is_closing():
            raise ChannelClosedError
        self._transport.write(encode(message))

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if not isinstance(transport, asyncio.Transport):
            raise TypeError("a channel needs a stream transport")
        self._transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        try:
            for message in self._reader.feed(self._buffer[:nbytes]):
                self._on_message(message)
        except WireError as error:
            self._error = error
            if self._transport is not None:
                self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._on_close(self._error or exc)


class WorkerChannel:
    """The blocking world's end, over a non-blocking socket. `send` may be called from any
    thread; `receive` and `flush` belong to the loop that owns the channel."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._reader = FrameReader()
        self._unsent = bytearray()
        self._lock = threading.Lock()

    def fileno(self) -> int:
        return self._sock.fileno()

    @property
    def unsent_bytes(self) -> int:
        return len(self._unsent)

    def send(self, message: AnyMessage) -> None:
        """Queues the message and sends what the kernel takes now. Raises ChannelClosedError."""
        frame = encode(message)
        with self._lock:
            self._unsent += frame
            self._flush_locked()

    def flush(self) -> None:
        with self._lock:
            self._flush_locked()

    def receive(self) -> list[AnyMessage]:
        """Every message that is here; empty when none is. Raises ChannelClosedError at EOF."""
        messages: list[AnyMessage] = []
        while True:
            try:
                data = self._sock.recv(_READ_BYTES)
            except (BlockingIOError, InterruptedError):
                return messages
            except OSError as error:
                raise ChannelClosedError from error
            if not data:
                if messages:  # what came before EOF still counts; the next call raises
                    return messages
                raise ChannelClosedError
            messages.extend(self._reader.feed(data))

    def close(self) -> None:
        self._sock.close()

    def _flush_locked(self) -> None:
        with contextlib.suppress(BlockingIOError, InterruptedError):
            while self._unsent:
                try:
                    sent = self._sock.send(self._unsent)
                except (BlockingIOError, InterruptedError):
                    raise
                except OSError as error:
                    raise ChannelClosedError from error
                del self._unsent[:sent]


def wait(channels: Iterable[WorkerChannel], timeout_s: float | None) -> set[WorkerChannel]:
    """Sleeps until a channel can be read, for at most `timeout_s` (None: for ever), sending what
    is unsent meanwhile. Returns the channels that can be read."""
    with selectors.DefaultSelector() as selector:
        for channel in channels:
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE if channel.unsent_bytes else 0)
            selector.register(channel, events, channel)
        readable: set[WorkerChannel] = set()
        for key, events in selector.select(timeout_s):
            if events & selectors.EVENT_WRITE:
                key.data.flush()
            if events & selectors.EVENT_READ:
                readable.add(key.data)
        return readable
