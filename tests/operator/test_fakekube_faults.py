"""What a test can make go wrong in the stand-in, and what it saw."""

import asyncio

import aiohttp
import pytest
from support.kube_samples import config_map


async def test_the_nth_matching_call_is_refused_and_nothing_done(kube, wire):
    kube.faults.fail(429, verb="create", kind="ConfigMap", nth=2, retry_after_s=3)
    assert (await wire.send("POST", wire.path("ConfigMap"), config_map("a")))[0] == 201
    headers = {"Content-Type": "application/json"}
    async with wire.session.post(kube.url + wire.path("ConfigMap"), json=config_map("b"), headers=headers) as answer:
        assert answer.status == 429
        assert answer.headers["Retry-After"] == "3"
        assert (await answer.json())["details"] == {"retryAfterSeconds": 3}
    assert kube.objects.find("ConfigMap", "b") is None
    assert (await wire.send("POST", wire.path("ConfigMap"), config_map("b")))[0] == 201


async def test_a_cut_before_the_work_and_one_after_it(kube, wire):
    kube.faults.cut(verb="create")
    with pytest.raises(aiohttp.ClientError):
        await wire.send("POST", wire.path("ConfigMap"), config_map("a"))
    assert kube.objects.find("ConfigMap", "a") is None
    kube.faults.cut(verb="create", is_after=True)
    with pytest.raises(aiohttp.ClientError):
        await wire.send("POST", wire.path("ConfigMap"), config_map("a"))
    assert kube.objects.find("ConfigMap", "a")


async def test_a_hook_sees_the_call_it_was_set_on(kube, wire):
    seen = []
    kube.faults.hook(seen.append, writer="applier", times=None)
    await wire.apply(wire.path("ConfigMap", "a"), config_map("a"))
    await wire.get(wire.path("ConfigMap"))
    assert [(call.verb, call.kind, call.name) for call in seen] == [("patch", "ConfigMap", "a")]


async def test_calls_are_counted_in_the_words_of_rbac(kube, wire):
    await wire.apply(wire.path("Deployment", "d"), {"apiVersion": "apps/v1", "kind": "Deployment"})
    await wire.merge(wire.path("Deployment", "d", "status"), {"status": {}})
    await wire.get(wire.path("Pod"))
    await wire.send("DELETE", wire.path("Pod", "p"))
    assert [(call.verb, call.resource, call.name, call.writer, call.status) for call in kube.calls] == [
        ("patch", "deployments", "d", "applier", 422),
        ("patch", "deployments/status", "d", "wire", 404),
        ("list", "pods", "", "wire", 200),
        ("delete", "pods", "p", "wire", 404),
    ]
    assert [call.is_write for call in kube.calls] == [True, True, False, True]


async def test_a_slow_call_holds_up_no_other(kube, wire):
    gate = asyncio.Event()
    rule = kube.faults.hook(lambda _: gate.wait(), verb="get", times=None)
    slow = asyncio.create_task(wire.get(wire.path("ConfigMap", "a")))
    await kube.until(lambda: kube.calls)
    assert (await wire.send("POST", wire.path("ConfigMap"), config_map("a")))[0] == 201
    assert not slow.done()
    gate.set()
    assert (await slow)[0] == 200
    kube.faults.drop(rule)
    assert rule.struck == 1
    await wire.get(wire.path("ConfigMap", "a"))
    assert rule.seen == 1
