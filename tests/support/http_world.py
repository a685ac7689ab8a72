"""The inference application as a test wants it: in process, or behind a real listener."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
from support.scripted_router import ScriptedRouter

from halogend.api.addresses import TcpAddress
from halogend.api.app import inference_app
from halogend.api.connection import ConnectionLimits
from halogend.api.listener import Listener
from halogend.api.services import Patience, Services
from halogend.obs.metrics import Metrics


class World:
    """One application around one scripted router."""

    def __init__(self, router: ScriptedRouter, patience: Patience | None = None) -> None:
        numbers = itertools.count(1)
        self.router = router
        self.metrics = Metrics("1.2.3")
        self.app = inference_app(
            Services(
                router,
                self.metrics,
                patience or Patience(),
                wall=lambda: 1_750_000_000.0,
                new_id=lambda: f"{next(numbers):04}",
            )
        )

    def client(self) -> httpx.AsyncClient:
        """In process: no socket, whole bodies only."""
        return httpx.AsyncClient(transport=httpx.ASGITransport(self.app), base_url="http://test")

    def sample(self, name: str, **labels: str) -> float | None:
        """A metric's value as a scrape shows it."""
        return self.metrics._registry.get_sample_value(f"halogen_{name}", labels)


@asynccontextmanager
async def served(world: World, limits: ConnectionLimits | None = None) -> AsyncIterator[tuple[Listener, int]]:
    """A real listener on a free port of 127.0.0.1, and that port."""
    listener = Listener(world.app, TcpAddress("127.0.0.1", 0), limits)
    listener.bind()
    address = listener.address
    await listener.serve()
    try:
        yield listener, address.port if isinstance(address, TcpAddress) else 0
    finally:
        await listener.close(0)


def chat(**fields: Any) -> dict[str, Any]:
    return {"model": "chat", "messages": [{"role": "user", "content": "Hi"}], **fields}


def completion(**fields: Any) -> dict[str, Any]:
    return {"model": "chat", "prompt": "Once", **fields}


ROUTES = {"/v1/chat/completions": chat, "/v1/completions": completion}


def events_of(text: str) -> list[Any]:
    """The data of each event; comments are left out, `[DONE]` stays a string."""
    found: list[Any] = []
    for block in text.split("\n\n"):
        if block.startswith("data: "):
            data = block.removeprefix("data: ")
            found.append(data if data == "[DONE]" else json.loads(data))
    return found


def text_of(events: list[Any]) -> str:
    """What a reader of a stream puts together, on either route."""
    choices = [choice for event in events if event != "[DONE]" for choice in event["choices"]]
    return "".join(c["delta"].get("content", "") if "delta" in c else c["text"] for c in choices)


def post(path: str, body: dict[str, Any], *, headers: str = "") -> bytes:
    """A whole request as bytes."""
    data = json.dumps(body).encode()
    return f"POST {path} HTTP/1.1\r\nhost: x\r\n{headers}content-length: {len(data)}\r\n\r\n".encode() + data


class Wire:
    """A client on the bare socket, for what no HTTP library would do."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def post(self, path: str, body: dict[str, Any], *, headers: str = "") -> None:
        self.writer.write(post(path, body, headers=headers))

    async def head(self) -> str:
        """Status line and headers of the next response, in lower case."""
        return (await self.reader.readuntil(b"\r\n\r\n")).decode().lower()

    async def body(self, head: str) -> bytes:
        """For responses with a content-length."""
        length = next(line for line in head.splitlines() if line.startswith("content-length"))
        return await self.reader.readexactly(int(length.partition(":")[2]))

    async def close(self) -> None:
        self.writer.close()
        try:
            await self.writer.wait_closed()
        except ConnectionError:
            return


@asynccontextmanager
async def wire(port: int, **options: Any) -> AsyncIterator[Wire]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, **options)
    client = Wire(reader, writer)
    try:
        yield client
    finally:
        await client.close()
