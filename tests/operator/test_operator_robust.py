"""The operator is ended at every call it makes, and every call fails in every way: it comes to the same in the end."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import pytest
from fakekube import FakeKube
from halogen_operator.settings import Settings
from structlog.testing import capture_logs
from support.kube.errors import of_status
from support.kube.faults import Call, CutError
from support.operators import Running, eventually, halogen_model, is_ready, kill, quick, running, start
from support.played_pods import PlayedPods, revision_of
from support.ports import free_port

WRITER = "halogen-operator"
KINDS = ("ConfigMap", "Secret", "Deployment", "NetworkPolicy", "Service", "ServiceAccount", "PodDisruptionBudget")
EVERY_CALL = range(1, 37)
"""Of the operator, lists and watches included, from its start until a model of two replicas is ready, edited and ready
again: a few less."""
LEAST_CALLS = 24

FAULTS: dict[str, Callable[[], Exception]] = {
    "409": lambda: of_status(409, "", None),
    "410": lambda: of_status(410, "", None),
    "422": lambda: of_status(422, "", None),
    "429": lambda: of_status(429, "", None),
    "500": lambda: of_status(500, "", None),
    "cut": CutError,
}


@dataclass
class _World:
    kube: FakeKube
    pods: PlayedPods
    settings: Settings


@contextlib.asynccontextmanager
async def _made() -> AsyncIterator[_World]:
    port = free_port()
    async with FakeKube() as kube, PlayedPods(kube, port) as pods:
        kube.objects.create(halogen_model(replicas=2))
        yield _World(kube, pods, quick(kube.url, admin_port=port))


async def _edited(world: _World) -> None:
    """Ready, then edited, then ready again."""
    await world.kube.until(lambda: is_ready(world.kube))
    world.kube.objects.patch("HalogenModel", "chat", {"spec": {"max_batch": 7}})
    await world.kube.until(lambda: is_ready(world.kube))


def _has_converged(world: _World) -> None:
    """Everything is there once, says what was asked, and no secret was lost on the way."""
    for kind in KINDS:
        found = [one for one in world.kube.objects.list(kind, "default") if one["metadata"]["name"] != "default"]
        assert len(found) == 1, f"{kind}: {[one['metadata']['name'] for one in found]}"
    text = world.kube.objects.get("ConfigMap", "chat-document")["data"]["halogend.yaml"]
    assert [pod.revision for pod in world.pods.of("chat")] == [revision_of(text)] * 2
    assert "max_batch: 7" in text
    keys = {change.object["data"]["admin.key"] for key, _, change in world.kube.store.log if key[1] == "secrets"}
    assert len(keys) == 1
    told = [(one["type"], one["reason"], one["message"]) for one in world.kube.objects.list("Event", "default")]
    assert len(told) == len(set(told)), told


class _Killer:
    """Ends the operator at its nth call, before it is done or after, and starts another one."""

    def __init__(self, world: _World, nth: int, *, is_after: bool) -> None:
        self._world = world
        self._ended: asyncio.Task[None] | None = None
        self.operator: Running | None = None
        world.kube.faults.hook(self._strike, writer=WRITER, nth=nth, is_after=is_after)

    @property
    def has_struck(self) -> bool:
        return self._ended is not None

    def _strike(self, call: Call) -> None:
        self._ended = asyncio.create_task(self._again())
        raise CutError

    async def _again(self) -> None:
        assert self.operator is not None
        await kill(self.operator)
        self.operator = await start(self._world.settings)

    async def close(self) -> None:
        if self._ended is not None:
            await self._ended
        assert self.operator is not None
        self.operator.stop.set()
        await self.operator.task


async def _killed(nth: int, *, is_after: bool) -> bool:
    """Whether there was an nth call."""
    async with _made() as world:
        killer = _Killer(world, nth, is_after=is_after)
        killer.operator = await start(world.settings)
        await _edited(world)
        await killer.close()
        _has_converged(world)
        return killer.has_struck


@pytest.mark.parametrize("nth", [20, 23, 27])
async def test_ended_at_some_calls_the_next_operator_goes_on(nth: int) -> None:
    assert await _killed(nth, is_after=nth % 2 == 0)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("is_after", [False, True], ids=["before", "after"])
async def test_ended_at_every_call_the_next_operator_goes_on(*, is_after: bool) -> None:
    struck = [await _killed(nth, is_after=is_after) for nth in EVERY_CALL]
    assert all(struck[:LEAST_CALLS])


async def _failed(nth: int, fault: str, *, is_after: bool) -> bool:
    async with _made() as world:
        rule = world.kube.faults.raises(FAULTS[fault](), writer=WRITER, nth=nth, is_after=is_after)
        async with running(world.settings):
            await _edited(world)
        _has_converged(world)
        return bool(rule.struck)


@pytest.mark.parametrize(
    ("nth", "fault"), [(3, "500"), (12, "410"), (20, "429"), (24, "409"), (26, "422"), (21, "cut")]
)
async def test_some_calls_that_fail_are_made_again(nth: int, fault: str) -> None:
    assert await _failed(nth, fault, is_after=fault == "cut")


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("fault", [*FAULTS, "cut after"])
async def test_whichever_call_fails_is_made_again(fault: str) -> None:
    name, is_after = fault.removesuffix(" after"), fault.endswith("after")
    struck = [await _failed(nth, name, is_after=is_after) for nth in EVERY_CALL]
    assert all(struck[:LEAST_CALLS])


@pytest.mark.parametrize("abruptly", [False, True])
async def test_what_was_deleted_while_no_watch_was_open_is_noticed(*, abruptly: bool) -> None:
    async with _made() as world, running(world.settings):
        await world.kube.until(lambda: is_ready(world.kube))
        rule = world.kube.faults.fail(500, verb="watch", times=None)
        world.kube.cut_watches(abruptly=abruptly)
        world.kube.objects.delete("Service", "chat")
        world.kube.objects.create(halogen_model("other"))
        world.kube.store.compact()
        world.kube.faults.drop(rule)
        await world.kube.until(lambda: world.kube.objects.find("Service", "chat"))
        await world.kube.until(lambda: is_ready(world.kube, "other"))


async def test_watches_that_are_too_old_begin_anew() -> None:
    async with _made() as world, running(world.settings):
        await world.kube.until(lambda: is_ready(world.kube))
        world.kube.expire_watches()
        world.kube.objects.delete("NetworkPolicy", "chat")
        await world.kube.until(lambda: world.kube.objects.find("NetworkPolicy", "chat"))


async def test_a_model_that_is_gone_while_no_watch_was_open_is_forgotten() -> None:
    async with _made() as world, running(world.settings) as operator:
        await world.kube.until(lambda: is_ready(world.kube))
        rule = world.kube.faults.fail(500, verb="watch", times=None)
        world.kube.cut_watches()
        world.kube.objects.delete("HalogenModel", "chat")
        await world.kube.until(lambda: not world.kube.objects.list("Deployment", "default"))
        world.kube.store.compact()
        world.kube.faults.drop(rule)
        marker = world.kube.objects.create(halogen_model("other"))
        await world.kube.until(lambda: is_ready(world.kube, "other"))
        assert [each["metadata"]["uid"] for each in operator.started.store.models()] == [marker["metadata"]["uid"]]
    assert world.kube.objects.list("Deployment", "default", labels="halogen.dev/model=chat") == []


async def test_a_namesake_waits_for_its_predecessors_children() -> None:
    async with _made() as world, running(world.settings):
        await world.kube.until(lambda: is_ready(world.kube))
        first = world.kube.objects.get("Secret", "chat-admin")["data"]["admin.key"]
        world.kube.objects.delete("HalogenModel", "chat")
        again: Any = world.kube.objects.create(halogen_model(max_batch=3))
        await world.kube.until(lambda: is_ready(world.kube))
        uid = again["metadata"]["uid"]
        for kind in KINDS[:-1]:
            found = [one for one in world.kube.objects.list(kind, "default") if one["metadata"]["name"] != "default"]
            assert [[owner["uid"] for owner in one["metadata"]["ownerReferences"]] for one in found] == [[uid]]
        assert world.kube.objects.get("Secret", "chat-admin")["data"]["admin.key"] != first


async def test_a_look_under_way_is_finished_before_the_operator_ends() -> None:
    async with _made() as world:
        operator = await start(world.settings)
        world.kube.faults.hook(lambda _: operator.stop.set(), verb="patch", kind="NetworkPolicy")
        await operator.task
        calls = [f"{call.verb} {call.kind}" for call in world.kube.calls if call.writer == WRITER]
    assert calls[-1] == "patch HalogenModel"
    assert "patch Deployment" in calls[calls.index("patch NetworkPolicy") :]


async def test_an_object_that_breaks_the_operators_code_keeps_no_other_waiting() -> None:
    async with _made() as world, running(world.settings) as operator:
        await world.kube.until(lambda: is_ready(world.kube))
        broken = world.kube.objects.get("HalogenModel", "chat")
        broken["metadata"] |= {"name": "broken", "uid": "u", "generation": "no number"}
        with capture_logs() as lines:
            operator.started.store.put(broken)
            operator.started.queue.add("u")
            await eventually(lambda: any(line["event"] == "look_broken" for line in lines))
            operator.started.store.remove(broken)
            await _edited(world)
    assert b'halogen_operator_reconciles_total{outcome="error"}' in operator.started.metrics.render()
