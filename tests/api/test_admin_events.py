"""The stream of events: what a watcher reads, resumes, and how it ends."""

import asyncio
import json
from pathlib import Path

import httpx
import pytest

from halogend.api.addresses import UnixAddress
from halogend.api.admin import admin_app
from halogend.api.connection import ConnectionLimits
from halogend.api.events import EventStream, Patience
from halogend.api.listener import Listener
from halogend.control.events import Events


class Watched:
    """An ASGI client of one stream: takes bytes only while `may_read`."""

    def __init__(self, events, patience=None, after=None):
        self.data = b""
        self.headers = {}
        self.may_read = asyncio.Event()
        self.may_read.set()
        self.wrote = asyncio.Event()
        self.leaves = asyncio.Event()
        stream = EventStream(events.follow(after), patience or Patience())
        self.task = asyncio.create_task(stream({"type": "http"}, self._receive, self._send))

    async def _receive(self):
        await self.leaves.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message):
        await self.may_read.wait()
        self.headers.update(message.get("headers", ()))
        self.data += message.get("body", b"")
        self.wrote.set()

    async def until(self, text):
        async with asyncio.timeout(5):
            while text not in self.data:
                self.wrote.clear()
                await self.wrote.wait()

    def events(self):
        """(event, id, data) of each."""
        found = []
        for block in self.data.decode().split("\n\n"):
            fields = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))
            if "event" in fields:
                found.append((fields["event"], fields.get("id"), json.loads(fields["data"])))
        return found


def ring(keep=8):
    return Events(keep=keep, clock=lambda: 7.0, run="run")


async def test_a_watcher_is_greeted_and_reads_what_happens():
    events = ring()
    events.publish("step", name="before")
    client = Watched(events)
    await client.until(b"hello")
    events.publish("receipt", receipt="r1", text="a\u2028b")
    await client.until(b"r1")
    assert client.data.startswith(b"retry: 1000\n")
    assert client.headers[b"content-type"] == b"text/event-stream; charset=utf-8"
    assert client.events() == [
        ("hello", "run-1", {"gap": False}),
        ("receipt", "run-2", {"at": 7.0, "receipt": "r1", "text": "a\u2028b"}),
    ]
    assert "\u2028".encode() not in client.data  # clients that cut lines there would lose the event
    client.leaves.set()
    await client.task


async def test_one_that_was_cut_off_reads_on_and_one_that_cannot_is_told():
    events = ring(keep=4)
    for number in range(6):
        events.publish("step", n=number)
    on, lost = Watched(events, after="run-4"), Watched(events, after="other-4")
    await on.until(b"run-6")
    await lost.until(b"hello")
    assert [event[1] for event in on.events()] == ["run-4", "run-5", "run-6"]
    assert lost.events() == [("hello", "run-6", {"gap": True})]
    for client in (on, lost):
        client.leaves.set()
        await client.task


async def test_silence_is_filled_with_comments():
    client = Watched(ring(), Patience(keep_alive_s=0.01))
    await client.until(b": keep-alive\n\n: keep-alive\n\n")
    client.leaves.set()
    await client.task


async def test_a_slow_reader_is_dropped_with_a_last_word_and_the_daemon_never_waited():
    events = ring(keep=4)
    slow, quick = Watched(events), Watched(events)
    await slow.until(b"hello")
    await quick.until(b"hello")
    slow.may_read.clear()
    for number in range(9):
        events.publish("step", n=number)  # returns at once, whoever reads
        await quick.until(f'"n":{number}'.encode())
    slow.may_read.set()
    await slow.task
    assert slow.events()[-1][0] == "end"
    assert slow.events()[-1][2]["reason"] == "slow_reader"
    assert not quick.task.done()
    quick.leaves.set()
    await quick.task


@pytest.mark.parametrize("reason", ["shutting_down", "renew"])
async def test_a_stream_ends_with_the_reason(reason):
    events = ring()
    client = Watched(events, Patience(at_most_s=0.02 if reason == "renew" else 60.0))
    if reason == "shutting_down":
        await client.until(b"hello")
        events.publish("daemon", state="stopping")
        events.close("shutting down")
    await client.task
    assert client.events()[-1][2]["reason"] == reason
    assert [kind for kind, _, _ in client.events()].count("daemon") == (reason == "shutting_down")


class OnlyEvents:
    """As much of an admin as the stream needs."""

    def __init__(self):
        self.ring = ring()

    def events(self):
        return self.ring


async def test_over_a_socket_by_id_and_to_the_end(tmp_path: Path) -> None:
    admin = OnlyEvents()
    admin.ring.publish("step", n=1)
    admin.ring.publish("step", n=2)
    listener = Listener(admin_app(admin), UnixAddress(tmp_path / "s"), ConnectionLimits())
    listener.bind()
    await listener.serve()
    transport = httpx.AsyncHTTPTransport(uds=str(tmp_path / "s"))
    async with httpx.AsyncClient(transport=transport, base_url="http://x/admin/v1") as client:
        head = await client.head("/events")
        async with client.stream("GET", "/events", headers={"last-event-id": "run-1"}) as stream:
            lines = stream.aiter_lines()
            async for line in lines:
                if line == "id: run-2":
                    admin.ring.close("shutting down")
                    break
            rest = [line async for line in lines]
        async with client.stream("GET", "/events?after=run-2") as again:
            greeting = (await again.aread()).decode()
    assert (head.status_code, head.content) == (200, b"")
    assert '"reason":"shutting_down"' in rest[-2]
    assert "id: run-2" in greeting
    await listener.close(0)
