"""HTTP/1.1 as little as it takes: one request a connection, bodies of known length, chunked, or to the end.

A general client costs more processor time than the tiny models it would ask; on a small machine it
would measure itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

HEAD_END = b"\r\n\r\n"
_LIMIT_BYTES = 1 << 24


class Answer:
    """A status and headers; the body comes by `body`, once. `close` it."""

    def __init__(
        self, status: int, headers: dict[str, str], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ):
        self.status = status
        self.headers = headers
        self._reader = reader
        self._writer = writer

    async def body(self) -> bytes:
        return b"".join([part async for part in self._parts()])

    async def _parts(self) -> AsyncIterator[bytes]:
        if self.headers.get("transfer-encoding", "").lower() == "chunked":
            while size := int(await self._line(), 16):
                yield await self._reader.readexactly(size)
                await self._line()
            await self._line()
        elif (length := self.headers.get("content-length")) is not None:
            yield await self._reader.readexactly(int(length))
        else:
            while part := await self._reader.read(1 << 16):
                yield part

    async def _line(self) -> bytes:
        return (await self._reader.readuntil(b"\r\n"))[:-2]

    def close(self) -> None:
        self._writer.close()


async def unix(path: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_unix_connection(path, limit=_LIMIT_BYTES)


async def ask(
    connection: tuple[asyncio.StreamReader, asyncio.StreamWriter], method: str, target: str, body: bytes = b""
) -> Answer:
    """Sends one request and reads the head of its answer. The connection is closed if that fails. Raises
    OSError, IncompleteReadError, ValueError."""
    reader, writer = connection
    try:
        writer.write(request_of(method, target, body))
        await writer.drain()
        return Answer(*head_of(await reader.readuntil(HEAD_END)), reader, writer)
    except BaseException:
        writer.close()
        raise


def request_of(method: str, target: str, body: bytes) -> bytes:
    head = f"{method} {target} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {len(body)}\r\n"
    kind = "content-type: application/json\r\n" if body else ""
    return f"{head}{kind}\r\n".encode() + body


def head_of(data: bytes) -> tuple[int, dict[str, str]]:
    """Status and headers, with their names in lower case, of what ends in HEAD_END. Raises ValueError."""
    first, *rest = data.decode("latin-1").split("\r\n")
    words = first.split(" ", 2)
    if len(words) < 2:
        raise ValueError(f"no status line: {first[:80]!r}")
    pairs = (line.partition(":") for line in rest if line)
    return int(words[1]), {name.strip().lower(): value.strip() for name, _, value in pairs}
