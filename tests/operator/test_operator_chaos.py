"""The operator while everything goes wrong at random: calls refused or cut, watches cut or expired, itself killed,
children deleted, and people editing all along. When it stops, everything is as it should be, soon."""

import asyncio
import random
from dataclasses import dataclass, field

import pytest
from fakekube import FakeKube
from support.kube.errors import of_status
from support.kube.faults import Call, CutError
from support.operators import Running, halogen_model, is_ready, kill, quick, start
from support.played_pods import PlayedPods
from support.ports import free_port

pytestmark = pytest.mark.slow

NAMES = ("a", "b", "c")
READS = (429, 500, 503)
WRITES = (403, 409, 410, 422, 429, 500, 503)
MADE_ANEW = ("Deployment", "NetworkPolicy", "Service", "ServiceAccount")


@dataclass
class _Chaos:
    """Its turns are drawn from `luck`. `operator` is the one that runs now."""

    kube: FakeKube
    pods: PlayedPods
    port: int
    luck: random.Random
    operator: Running
    deleted: set[str] = field(default_factory=set)

    def strike(self, call: Call) -> None:
        if self.luck.random() > 0.25:
            return
        if self.luck.random() < 0.3:
            raise CutError
        raise of_status(self.luck.choice(READS if call.verb in {"list", "watch"} else WRITES))

    async def turn(self) -> None:
        name = self.luck.choice(NAMES)
        if name in self.deleted:
            return
        turns = (self._edit, self._edit, self._scale, self._cut, self._expire, self._kill, self._spoil, self._delete)
        await self.luck.choice(turns)(name)

    async def _edit(self, name: str) -> None:
        self.kube.objects.patch("HalogenModel", name, {"spec": {"max_batch": self.luck.randint(2, 9)}})

    async def _scale(self, name: str) -> None:
        self.kube.objects.patch("HalogenModel", name, {"spec": {"replicas": self.luck.randint(0, 3)}})

    async def _cut(self, _: str) -> None:
        self.kube.cut_watches(abruptly=self.luck.random() < 0.5)

    async def _expire(self, _: str) -> None:
        self.kube.expire_watches()

    async def _kill(self, _: str) -> None:
        await kill(self.operator)
        self.operator = await start(quick(self.kube.url, admin_port=self.port))

    async def _spoil(self, name: str) -> None:
        kind = self.luck.choice(MADE_ANEW)
        if self.kube.objects.find(kind, name) is not None:
            self.kube.objects.delete(kind, name)

    async def _delete(self, name: str) -> None:
        if name == "c" and self.luck.random() < 0.3:
            self.kube.objects.delete("HalogenModel", name)
            self.deleted.add(name)

    def is_as_it_should_be(self) -> bool:
        return all(self._is_gone(name) if name in self.deleted else self._is_served(name) for name in NAMES)

    def _is_gone(self, name: str) -> bool:
        return all(self.kube.objects.find(kind, name) is None for kind in MADE_ANEW)

    def _is_served(self, name: str) -> bool:
        spec, pods = self.kube.objects.get("HalogenModel", name)["spec"], self.pods.of(name)
        told = f"max_batch: {spec['max_batch']}" if "max_batch" in spec else ""
        is_there = all(self.kube.objects.find(kind, name) is not None for kind in MADE_ANEW)
        return (
            is_there
            and is_ready(self.kube, name)
            and len(pods) == spec["replicas"]
            and all(told in pod.text for pod in pods)
        )


@pytest.mark.parametrize("seed", range(4))
async def test_after_any_chaos_all_is_as_it_should_be(seed: int) -> None:
    port = free_port()
    async with FakeKube(bookmark_s=0.3) as kube, PlayedPods(kube, port) as pods:
        operator = await start(quick(kube.url, admin_port=port))
        chaos = _Chaos(kube, pods, port, random.Random(seed), operator)
        rules = [kube.faults.hook(chaos.strike, times=None, is_after=is_after) for is_after in (False, True)]
        for name in NAMES:
            kube.objects.create(halogen_model(name, replicas=chaos.luck.randint(1, 2)))
        for _ in range(40):
            calls = len(kube.calls)
            await kube.until(lambda calls=calls: len(kube.calls) > calls or chaos.operator.task.done())
            await chaos.turn()
        for rule in rules:
            kube.faults.drop(rule)
        await kube.until(chaos.is_as_it_should_be, 30.0)
        chaos.operator.stop.set()
        async with asyncio.timeout(10.0):
            await chaos.operator.task
