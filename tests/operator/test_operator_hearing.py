"""Watches are heard below kopf: their ages, and whole lists."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any, Self

import aiohttp
import pytest
from aiohttp import web
from halogen_operator.health import Health
from halogen_operator.hearing import Hearing, items, streams
from halogen_operator.resources import HALOGEN_MODEL, POD

_PODS = (POD, "n")


class _Server:
    """Answers lists, and watches with what is put in; counts the lines that were sent."""

    def __init__(self) -> None:
        self.lines: asyncio.Queue[bytes] = asyncio.Queue()
        self.url = ""
        self.status = 200
        app = web.Application()
        app.router.add_get("/api/v1/namespaces/n/pods", self._answer)
        self._runner = web.AppRunner(app)

    async def __aenter__(self) -> Self:
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}/api/v1/namespaces/n/pods"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        if "watch" not in request.query:
            body = {"kind": "PodList", "metadata": {"resourceVersion": "7"}, "items": [{"metadata": {"name": "p"}}]}
            return web.json_response(body, status=self.status)
        answer = web.StreamResponse()
        await answer.prepare(request)
        while line := await self.lines.get():
            await answer.write(line)
        return answer


def _at_once(function: Callable[..., object], *arguments: object) -> None:
    function(*arguments)


class _World:
    def __init__(self) -> None:
        self.now = 0.0
        self.lists: list[Any] = []
        known = streams([HALOGEN_MODEL, POD], ["n"])
        self.hearing = Hearing(lambda: self.now, known, lambda *told: self.lists.append(told))


@pytest.fixture
async def server() -> AsyncIterator[_Server]:
    async with _Server() as made:
        yield made


async def test_o7_a_watch_is_as_old_as_the_last_thing_it_said_bookmarks_too(server: _Server) -> None:
    world = _World()
    async with (
        aiohttp.ClientSession(response_class=world.hearing.answers(_at_once)) as session,
        session.get(server.url, params={"watch": "true"}) as answer,
    ):
        chunks = answer.content.iter_chunked(1 << 20)
        world.now = 250.0
        await server.lines.put(json.dumps({"type": "BOOKMARK"}).encode() + b"\n")
        assert b"BOOKMARK" in await anext(chunks)
        world.now = 400.0
        ages = world.hearing.ages()
        await server.lines.put(b"")
    assert ages[_PODS] == 150.0
    assert ages[(HALOGEN_MODEL, "n")] == 400.0


async def test_a_watch_that_is_open_and_silent_is_not_heard(server: _Server) -> None:
    world = _World()
    async with (
        aiohttp.ClientSession(response_class=world.hearing.answers(_at_once)) as session,
        session.get(server.url, params={"watch": "true"}) as answer,
    ):
        world.now = 100.0
        await server.lines.put(b"")
        assert [chunk async for chunk in answer.content.iter_chunked(1 << 20)] == []
    assert world.hearing.ages()[_PODS] == 100.0


async def test_a_whole_list_is_told_and_heard(server: _Server) -> None:
    world = _World()
    async with aiohttp.ClientSession(response_class=world.hearing.answers(_at_once)) as session:
        world.now = 9.0
        answer = await session.get(server.url)
        await answer.json()
    [(kind, namespace, listed)] = world.lists
    assert (kind, namespace) == _PODS
    assert items(kind, listed) == [{"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "p"}}]
    assert world.hearing.ages()[_PODS] == 0.0


async def test_a_list_that_failed_is_none(server: _Server) -> None:
    world = _World()
    server.status = 500
    async with aiohttp.ClientSession(response_class=world.hearing.answers(_at_once)) as session:
        answer = await session.get(server.url)
        await answer.json()
    assert world.lists == []


def test_o7_a_silent_watch_ends_the_operator_unless_another_one_goes_first() -> None:
    ages = {(POD, "n"): 301.0, (HALOGEN_MODEL, None): 299.0}
    health = Health(lambda: ages, 300.0, lambda: False, lambda: True)
    assert health.silent() == ["the watch of pods in n said nothing for 301 s"]
    assert Health(lambda: ages, 300.0, lambda: True, lambda: True).silent() == []
