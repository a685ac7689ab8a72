"""One streamed completion over HTTP/1.1, read event by event, with the time of each.

Both servers send server-sent events in a chunked body. Nothing here knows which server it is.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

_HOST = "127.0.0.1"
_LINE_BYTES = 1 << 20
_DONE = "[DONE]"


class AnswerError(Exception):
    """The server refused a request or sent what is no event stream; the message holds what it said."""


@dataclass(frozen=True, slots=True)
class Event:
    """One event's JSON and when it was read, in seconds of `time.monotonic`."""

    at_s: float
    body: dict[str, Any]


async def stream(port: int, path: str, body: dict[str, Any]) -> AsyncIterator[Event]:
    """The events of one answer, in order. Raises AnswerError, OSError."""
    reader, writer = await asyncio.open_connection(_HOST, port, limit=_LINE_BYTES)
    try:
        data = json.dumps(body).encode()
        head = f"POST {path} HTTP/1.1\r\nHost: {_HOST}:{port}\r\nContent-Type: application/json\r\n"
        writer.write(f"{head}Content-Length: {len(data)}\r\nConnection: close\r\n\r\n".encode() + data)
        await _read_head(reader)
        partial = b""
        async for chunk in _chunks(reader):
            *lines, partial = (partial + chunk).split(b"\n")
            now = time.monotonic()
            for line in lines:
                if line.startswith(b"data:") and (text := line[5:].strip().decode()) != _DONE:
                    yield Event(now, _event(text))
    except asyncio.IncompleteReadError as error:
        raise AnswerError(f"{path}: the answer was cut short") from error
    finally:
        writer.close()


async def _read_head(reader: asyncio.StreamReader) -> None:
    status, *headers = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    if status.split()[1] != "200":
        raise AnswerError(f"{status}: {(await reader.read(1000)).decode(errors='replace')}")
    if not any(header.lower().replace(" ", "") == "transfer-encoding:chunked" for header in headers):
        raise AnswerError("the answer is not sent in chunks")


async def _chunks(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    while size := int(await reader.readuntil(b"\n"), 16):
        yield (await reader.readexactly(size + 2))[:-2]


def _event(text: str) -> dict[str, Any]:
    held = json.loads(text)
    if not isinstance(held, dict) or "error" in held:
        raise AnswerError(text)
    return held
