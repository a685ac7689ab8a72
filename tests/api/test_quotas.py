"""What one API key may ask for: a rate and a number at once, each of them live, and no other key's business."""

import asyncio
import hashlib
from dataclasses import replace

import pytest
from support.http_world import ROUTES, World
from support.scripted_router import ScriptedRouter, deltas, finished

from halogend.api.auth import Guard
from halogend.api.quotas import Quotas
from halogend.control.keys import Key, Keyring
from halogend.control.requests import RequestError


def key(name: str = "a", rpm: int | None = None, max_concurrent: int | None = None) -> Key:
    digest = hashlib.sha256(f"{name}-key-0123456789".encode()).digest()
    return Key(name, frozenset({"infer"}), digest, rpm=rpm, max_concurrent=max_concurrent)


def bearer(name: str) -> dict[str, str]:
    return {"authorization": f"Bearer {name}-key-0123456789"}


class Guarded(World):
    """`keys` and `now` may be changed."""

    def __init__(self, *keys: Key, manual: bool = False) -> None:
        super().__init__(ScriptedRouter(manual=manual))
        self.keys = keys
        self.now = 100.0
        self.app = Guard(self.app, lambda: Keyring(self.keys), "infer", self.metrics, clock=lambda: self.now)


def passes(quotas: Quotas, of: Key, now: float) -> bool:
    try:
        with quotas.entered(of, now):
            return True
    except RequestError:
        return False


def test_a_minutes_worth_may_come_at_once_and_comes_back_evenly() -> None:
    quotas, limited = Quotas(), key(rpm=6)
    assert [passes(quotas, limited, 0.0) for _ in range(7)] == [True] * 6 + [False]
    with pytest.raises(RequestError, match="6 requests a minute") as refused, quotas.entered(limited, 4.0):
        pytest.fail("it came in")
    assert (refused.value.code, refused.value.retry_after_s) == ("rate_limited", 6)
    assert [passes(quotas, limited, 10.0) for _ in range(2)] == [True, False]
    assert sum(passes(quotas, limited, 10_000.0) for _ in range(20)) == 6  # more than a minute's worth is not kept
    assert passes(quotas, key("b", rpm=6), 10_000.0)


def test_a_limit_that_changes_counts_from_the_next_request_on() -> None:
    quotas = Quotas()
    assert [passes(quotas, key(rpm=1), 0.0) for _ in range(2)] == [True, False]
    assert not passes(quotas, key(rpm=60), 0.0)
    assert passes(quotas, key(rpm=60), 1.0)
    assert all(passes(quotas, key(), 1.0) for _ in range(50))


@pytest.mark.parametrize("path", ROUTES)
async def test_over_its_rate_a_key_gets_429_with_retry_after_and_others_do_not(path: str) -> None:
    world = Guarded(key("a", rpm=1), key("b"))
    async with world.client() as client:
        answers = [await client.post(path, json=ROUTES[path](), headers=bearer(name)) for name in "aabb"]
        free = await client.get("/v1/models", headers=bearer("a"))
        world.now += 60
        later = await client.post(path, json=ROUTES[path](), headers=bearer("a"))
    assert [each.status_code for each in answers] == [200, 429, 200, 200]
    assert (free.status_code, later.status_code) == (200, 200)
    refusal = answers[1]
    assert (refusal.headers["retry-after"], refusal.json()["error"]["explain"]) == ("60", "HAP-1022")
    assert "www-authenticate" not in refusal.headers
    assert world.sample("access_refused_total", scope="infer", reason="rate_limited") == 1


@pytest.mark.parametrize("stream", [False, True])
async def test_a_request_counts_until_its_answer_is_over_or_its_client_has_left(*, stream: bool) -> None:
    world = Guarded(key("a", max_concurrent=1), manual=True)
    path = "/v1/completions"
    body = ROUTES[path](stream=stream)
    async with world.client() as client:
        first = asyncio.create_task(client.post(path, json=body, headers=bearer("a")))
        answer = await world.router.answers.get()
        refused = await client.post(path, json=body, headers=bearer("a"))
        assert (refused.status_code, refused.json()["error"]["code"]) == (429, "too_many_at_once")
        answer.push(*deltas("x"), finished())
        assert (await first).status_code == 200
        gone = asyncio.create_task(client.post(path, json=body, headers=bearer("a")))
        await world.router.answers.get()
        gone.cancel()
        await asyncio.gather(gone, return_exceptions=True)
        world.keys = (replace(world.keys[0], max_concurrent=2),)
        last = asyncio.create_task(client.post(path, json=body, headers=bearer("a")))
        answer = await world.router.answers.get()
        answer.push(*deltas("x"), finished())
        assert (await last).status_code == 200
