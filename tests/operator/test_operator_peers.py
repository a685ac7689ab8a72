"""Two operators and a peering object: one of them acts."""

from __future__ import annotations

import datetime as dt
from typing import Any

import aiohttp
import pytest
from fakekube import FakeKube
from halogen_operator import login
from halogen_operator.kube import Kube
from halogen_operator.peers import goes_first
from halogen_operator.settings import Settings
from support.operators import answer, eventually, halogen_model, is_ready, quick, running
from support.played_pods import PlayedPods
from support.ports import free_port

_NOW = dt.datetime(2026, 1, 1, 12, 0, tzinfo=dt.UTC)


def _peering(status: dict[str, Any]) -> dict[str, Any]:
    body = {"apiVersion": "kopf.dev/v1", "kind": "ClusterKopfPeering", "metadata": {"name": "halogen"}}
    return {**body, "status": status}


def _peer(priority: int, seconds_ago: float, lifetime: int = 60) -> dict[str, Any]:
    seen = (_NOW - dt.timedelta(seconds=seconds_ago)).isoformat()
    return {"priority": priority, "lifetime": lifetime, "lastseen": seen}


async def _first(status: dict[str, Any] | None, **changes: Any) -> str | None:
    async with FakeKube() as kube:
        if status is not None:
            kube.objects.create(_peering(status))
        told: dict[str, Any] = {"peering": "halogen", "priority": 5, "identity": "me", **changes}
        access = login.Access(kube.url)
        connector = login.connector(access)
        async with connector, login.session(access, connector) as session:
            return await goes_first(Kube(session, kube.url), Settings(**told), _NOW)


@pytest.mark.parametrize(
    ("status", "first"),
    [
        ({}, None),
        ({"me": _peer(5, 1)}, None),
        ({"me": _peer(5, 1), "low": _peer(4, 1)}, None),
        ({"high": _peer(6, 1)}, "high"),
        ({"same": _peer(5, 1)}, "same"),
        ({"dead": _peer(9, 61)}, None),
        ({"short": _peer(9, 11, 10)}, None),
        ({"silent": {"priority": 9}}, "silent"),
    ],
)
async def test_a_living_peer_of_no_lower_priority_goes_first(status: dict[str, Any], first: str | None) -> None:
    assert await _first(status) == first


async def test_an_operator_that_stands_alone_asks_nobody() -> None:
    assert await _first({"high": _peer(9, 1)}, peering=None) is None


async def test_nobody_acts_without_the_peering_object_that_was_named() -> None:
    first = await _first(None)
    assert first is not None
    assert "no ClusterKopfPeering halogen" in first


async def test_the_operator_of_the_higher_priority_acts_and_the_other_takes_over_from_it() -> None:
    port = free_port()
    async with FakeKube() as kube, PlayedPods(kube, port), aiohttp.ClientSession() as session:
        kube.objects.create(_peering({}))
        shared = {"admin_port": port, "peering": "halogen", "heed_peers_s": 0.02}
        async with running(quick(kube.url, identity="low", priority=1, **shared)) as low:
            kube.objects.create(halogen_model("first"))
            await eventually(lambda: b'model_condition{name="first"' in low.started.metrics.render())
            async with running(quick(kube.url, identity="high", priority=2, **shared)):
                await eventually(lambda: _is_paused(low.started.metrics))
                assert b"model_condition{" not in low.started.metrics.render()
                looks = low.started.metrics.looks()
                kube.objects.create(halogen_model())
                await kube.until(lambda: is_ready(kube))
                assert low.started.metrics.looks() <= looks + 1  # one may have been under way
                await answer(session, f"{low.started.address}/livez", 200)
            await eventually(lambda: not _is_paused(low.started.metrics))
            kube.objects.create(halogen_model("second"))
            await kube.until(lambda: is_ready(kube, "second"))
            await eventually(lambda: b'model_condition{name="first"' in low.started.metrics.render())


async def test_o7_an_operator_that_cannot_ask_for_its_peers_is_not_alive_by_that() -> None:
    """It does not act, but neither may it hear nothing for ever and look well."""
    async with FakeKube(bookmark_s=0.05) as kube, aiohttp.ClientSession() as session:
        kube.objects.create(_peering({}))
        settings = quick(kube.url, identity="me", peering="halogen", heed_peers_s=0.02, oldest_event_s=1.5)
        async with running(settings) as operator:
            address = operator.started.address
            await answer(session, f"{address}/readyz", 200)
            await answer(session, f"{address}/livez", 200)
            rule = kube.faults.fail(500, kind="ClusterKopfPeering", verb="get", times=None)
            await eventually(lambda: rule.struck)
            looks = operator.started.metrics.looks()
            kube.objects.create(halogen_model())
            await eventually(lambda: operator.started.queue.depth)
            kube.silence_watches()
            await answer(session, f"{address}/livez", 503)
            assert operator.started.metrics.looks() == looks


async def test_nobody_acts_before_it_is_known_who_goes_first() -> None:
    async with FakeKube() as kube:
        kube.objects.create(_peering({}))
        kube.objects.create(halogen_model())
        rule = kube.faults.fail(500, kind="ClusterKopfPeering", verb="get", times=None)
        async with running(quick(kube.url, identity="me", peering="halogen", heed_peers_s=0.02)) as operator:
            await eventually(lambda: operator.started.queue.depth)
            assert operator.started.metrics.looks() == 0
            kube.faults.drop(rule)
            await eventually(lambda: operator.started.metrics.looks() > 0)


def _is_paused(metrics: Any) -> bool:
    return "halogen_operator_is_paused 1.0" in metrics.render().decode()
