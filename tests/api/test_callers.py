"""Whose a request is: its key, and the headers for class and conversation, on every route."""

from __future__ import annotations

import hashlib

import pytest
from support.http_world import ROUTES, World
from support.scripted_router import ScriptedRouter

from halogend.api.auth import Guard
from halogend.api.callers import SESSION_CHARS
from halogend.control.keys import Key, Keyring
from halogend.control.requests import RequestError
from halogend.wire.policy import Caller

ALICE = "alice-key-0123456789"
KEY = Key(
    "alice", frozenset({"infer"}), hashlib.sha256(ALICE.encode()).digest(), classes=frozenset({"gold"}), weight=3.0
)


def guarded() -> World:
    world = World(ScriptedRouter())
    world.app = Guard(world.app, lambda: Keyring((KEY,)), "infer", world.metrics)
    return world


@pytest.mark.parametrize("path", ROUTES)
async def test_open_access_has_no_key_and_any_class(path: str) -> None:
    world = World(ScriptedRouter())
    headers = {"X-Halogen-Class": "gold", "x-halogen-session": "a/b#1"}
    async with world.client() as client:
        assert (await client.post(path, json=ROUTES[path]())).status_code == 200
        assert (await client.post(path, json=ROUTES[path](), headers=headers)).status_code == 200
    plain, said = world.router.requests
    assert (plain.caller, plain.classes) == (Caller(), None)
    assert (said.caller, said.classes) == (Caller(klass="gold", session="a/b#1"), None)


@pytest.mark.parametrize("path", ROUTES)
async def test_a_key_brings_its_name_its_weight_and_the_classes_that_it_may_name(path: str) -> None:
    world = guarded()
    headers = {"authorization": f"Bearer {ALICE}", "x-halogen-class": "silver"}
    async with world.client() as client:
        await client.post(path, json=ROUTES[path](), headers=headers)
    (came,) = world.router.requests
    assert came.caller == Caller(key="alice", weight=3.0, klass="silver")
    assert came.classes == frozenset({"gold"})


@pytest.mark.parametrize("path", ROUTES)
@pytest.mark.parametrize(
    ("headers", "param"),
    [
        ([("x-halogen-session", "s" * (SESSION_CHARS + 1))], "X-Halogen-Session"),
        ([("x-halogen-session", "a b")], "X-Halogen-Session"),
        ([("x-halogen-session", "")], "X-Halogen-Session"),
        ([("x-halogen-session", "a"), ("x-halogen-session", "b")], "X-Halogen-Session"),
        ([("x-halogen-class", "g" * 129)], "X-Halogen-Class"),
        ([("x-halogen-class", "\xe9")], "X-Halogen-Class"),
    ],
)
async def test_a_header_of_another_form_is_refused_by_name(
    path: str, headers: list[tuple[str, str]], param: str
) -> None:
    world = World(ScriptedRouter())
    async with world.client() as client:
        told = [(name.encode(), value.encode("latin-1")) for name, value in headers]
        answer = await client.post(path, json=ROUTES[path](), headers=told)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["param"]) == (400, "invalid_value", param)
    assert world.router.requests == []


@pytest.mark.parametrize(
    ("code", "status", "explain"),
    [("unknown_class", 400, "HAP-1020"), ("class_not_allowed", 403, "HAP-1021")],
)
async def test_what_the_router_says_of_a_class_has_its_status(code: str, status: int, explain: str) -> None:
    world = World(ScriptedRouter(refusal=RequestError(code, "no", param="X-Halogen-Class")))
    async with world.client() as client:
        answer = await client.post("/v1/completions", json=ROUTES["/v1/completions"]())
    assert (answer.status_code, answer.json()["error"]["explain"]) == (status, explain)


@pytest.mark.parametrize("path", ROUTES)
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("code", ["queue_full", "queue_timeout"])
async def test_a2_a8_a_full_queue_is_503_with_retry_after_on_every_route(path: str, code: str, stream: bool) -> None:
    """Which of the two caps it was, and whether engine or router said so, makes no difference to a client."""
    world = World(ScriptedRouter(refusal=RequestError(code, "300 tokens wait already")))
    async with world.client() as client:
        answer = await client.post(path, json=ROUTES[path](stream=stream))
    assert answer.status_code == 503
    assert int(answer.headers["retry-after"]) >= 1
    assert "x-should-retry" not in answer.headers
    assert answer.json()["error"]["code"] == code
