"""Five hundred HalogenModels with a pod each: how long they take to make and a start to find them, and what it costs
to look after them when all is settled. The operator runs in a process of its own, as it is by default."""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
from fakekube import FakeKube
from support.operator_process import OperatorProcess, operator_process
from support.operators import conditions, eventually, halogen_model
from support.played_pods import PlayedPods
from support.ports import free_port

COUNT = 500
WRITER = "halogen-operator"
START_S = 60.0
WATCHED_S = 60.0


@dataclass
class Cluster:
    """The cluster, its pods, and the port at which these are asked."""

    kube: FakeKube
    pods: PlayedPods
    port: int

    def is_ready(self) -> bool:
        """Is every model Ready, and nothing on its way?"""
        ready = {("Ready", "True"), ("Reconciling", "False")}
        every = self.kube.store.all_of(("halogen.dev", "halogenmodels"))
        found = (body.get("status", {}).get("conditions", ()) for body in every)
        return all(ready <= {(each["type"], each["status"]) for each in told} for told in found)

    def calls(self) -> Counter[str]:
        """Of the operator, by verb; those that write in capitals."""
        ours = (call for call in self.kube.calls if call.writer == WRITER)
        return Counter(call.verb.upper() if call.is_write else call.verb for call in ours)

    def writes(self) -> int:
        return sum(count for verb, count in self.calls().items() if verb.isupper())

    def asked(self) -> int:
        """Requests that pods answered."""
        return sum(pod.asked for pod in self.pods.pods.values())

    def forget(self) -> None:
        """Counts from now on."""
        self.kube.calls.clear()
        for pod in self.pods.pods.values():
            pod.asked = 0


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    port = free_port()
    async with FakeKube() as kube, PlayedPods(kube, port) as pods:
        yield Cluster(kube, pods, port)


def _say(what: str, operator: OperatorProcess, cluster: Cluster, since: float, cpu_s: float = 0.0) -> None:
    print(
        f"\n{what}: {time.monotonic() - since:.1f} s, {operator.cpu_s() - cpu_s:.1f} s of a core, "
        f"{operator.most_mib():.0f} MiB at most; {cluster.writes()} writes, calls {dict(cluster.calls())}, "
        f"{cluster.asked()} requests to {len(cluster.pods.pods)} pods; load {os.getloadavg()[0]:.1f}"
    )


async def _make(cluster: Cluster) -> None:
    async with operator_process(cluster.kube.url, cluster.port) as operator:
        began, cpu_s = time.monotonic(), operator.cpu_s()
        for number in range(COUNT):
            cluster.kube.objects.create(halogen_model(f"m{number:03}"))
            await asyncio.sleep(0.0)  # the server answers meanwhile
        await eventually(cluster.is_ready, 500.0, 0.2)
        _say(f"{COUNT} models made, until all were Ready", operator, cluster, began, cpu_s)
    assert len(cluster.pods.pods) == COUNT
    assert len({pod.ip for pod in cluster.pods.pods.values()}) == COUNT
    assert all(len(pod.pushes) == 1 for pod in cluster.pods.pods.values())


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_five_hundred_models_are_reconciled_at_start_and_then_left_alone(cluster: Cluster) -> None:
    await _make(cluster)
    cluster.forget()
    every = list(cluster.pods.pods.values())
    async with operator_process(cluster.kube.url, cluster.port) as operator:
        await eventually(lambda: all(pod.asked >= 3 for pod in every), 500.0, 0.2)
        start_s = time.monotonic() - operator.began
        _say(f"{COUNT} settled models and their pods looked at after a start", operator, cluster, operator.began)
        assert start_s < START_S
        assert cluster.writes() == 0

        cluster.forget()
        began, cpu_s, before = time.monotonic(), operator.cpu_s(), await operator.looks()
        await eventually(lambda: time.monotonic() - began >= WATCHED_S, 500.0, 0.5)
        looks = {outcome: count - before.get(outcome, 0) for outcome, count in (await operator.looks()).items()}
        _say(f"{WATCHED_S:.0f} s of {COUNT} settled models, {looks}", operator, cluster, began, cpu_s)
        assert set(cluster.calls()) <= {"list", "watch"}
        assert all(pod.asked >= 3 for pod in every)
        assert set(looks) == {"ok"}
        assert looks["ok"] >= COUNT
    assert conditions(cluster.kube, "m499")["Ready"] == ("True", "Serving")
