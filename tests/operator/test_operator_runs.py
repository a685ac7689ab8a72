"""The operator against a stand-in for the API server, with pods whose daemons are played."""

from __future__ import annotations

import itertools
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from typing import Any

import aiohttp
import pytest
from fakekube import FakeKube
from halogen_operator.metrics import Metrics
from halogen_operator.names import RENDERED_ANNOTATION
from halogen_operator.resources import WATCHED
from halogen_operator.settings import Settings
from support.operators import answer, conditions, eventually, halogen_model, is_ready, quick, running
from support.played_pods import PlayedPods, revision_of
from support.ports import free_port

CHILDREN = {
    ("ConfigMap", "chat-document"),
    ("Secret", "chat-admin"),
    ("Deployment", "chat"),
    ("NetworkPolicy", "chat"),
    ("Service", "chat"),
    ("ServiceAccount", "chat"),
}


@dataclass
class _World:
    kube: FakeKube
    pods: PlayedPods
    settings: Settings

    async def until_ready(self, name: str = "chat", namespace: str = "default") -> None:
        await self.kube.until(lambda: is_ready(self.kube, name, namespace))

    def status(self, name: str = "chat") -> dict[str, Any]:
        status: dict[str, Any] = self.kube.objects.get("HalogenModel", name)["status"]
        return status

    def spec(self, **fields: Any) -> None:
        self.kube.objects.patch("HalogenModel", "chat", {"spec": fields})

    def writes(self) -> list[Any]:
        return [call for call in self.kube.calls if call.is_write and call.writer == "halogen-operator"]

    def children(self) -> set[tuple[str, str]]:
        kinds = [kind for kind, _ in CHILDREN] + ["PodDisruptionBudget", "ServiceMonitor"]
        found = {(kind, one["metadata"]["name"]) for kind in kinds for one in self.kube.objects.list(kind, "default")}
        return found - {("ServiceAccount", "default")}


@pytest.fixture
async def world() -> AsyncIterator[_World]:
    port = free_port()
    async with FakeKube() as kube, PlayedPods(kube, port) as pods:
        yield _World(kube, pods, quick(kube.url, admin_port=port))


async def test_a_model_is_made_served_and_told_of(world: _World) -> None:
    world.kube.objects.create(halogen_model())
    async with running(world.settings):
        await world.until_ready()
    assert world.children() == CHILDREN
    [pod] = world.pods.of("chat")
    assert pod.pushes == [(1, "applied")]
    config_map = world.kube.objects.get("ConfigMap", "chat-document")
    assert revision_of(config_map["data"]["halogend.yaml"]) == pod.revision
    status = world.status()
    assert status["active"]["revision"] == status["desired"]["revision"] == pod.revision[:12]
    told = [(each["type"], each["reason"]) for each in world.kube.objects.list("Event", "default")]
    assert ("Normal", "Serving") in told


async def test_o4_nothing_is_left_on_a_model_and_its_deletion_waits_for_nobody(world: _World) -> None:
    world.kube.objects.create(halogen_model())
    async with running(world.settings):
        await world.until_ready()
    meta = world.kube.objects.get("HalogenModel", "chat")["metadata"]
    assert meta.get("finalizers", []) == []
    assert meta.get("annotations", {}) == {}
    world.kube.objects.delete("HalogenModel", "chat")
    await world.kube.until(lambda: not world.children())
    await world.kube.until(lambda: not world.kube.objects.list("Pod", "default"))


async def test_o5_no_object_ever_has_a_finalizer_or_an_annotation_of_kopf(world: _World) -> None:
    world.kube.objects.create(halogen_model())
    async with running(world.settings):
        await world.until_ready()
        world.spec(max_batch=7)
        await world.until_ready()
        world.kube.objects.delete("HalogenModel", "chat")
        await world.kube.until(lambda: not world.children())
    for _, _, change in world.kube.store.log:
        meta = change.object["metadata"]
        assert not meta.get("finalizers")
        assert not [name for name in meta.get("annotations") or {} if "kopf" in name]


async def test_o3_a_status_of_a_generation_that_is_past_never_lands(world: _World) -> None:
    world.kube.objects.create(halogen_model())
    async with running(world.settings):
        await world.until_ready()
        rule = world.kube.faults.hook(
            lambda _: world.spec(max_batch=9), verb="patch", kind="HalogenModel", subresource="status"
        )
        world.spec(max_batch=8)
        await world.kube.until(lambda: rule.struck)
        await world.until_ready()
    assert world.status()["observedGeneration"] == 3
    told = [
        (change.object["metadata"]["generation"], change.object.get("status", {}).get("observedGeneration", 0))
        for key, _, change in world.kube.store.log
        if key[1] == "halogenmodels"
    ]
    written = [pair for before, pair in itertools.pairwise(told) if before[1] != pair[1]]
    assert all(generation == observed for generation, observed in written), told


async def test_o9_conditions_are_written_whole_and_only_when_they_change(world: _World) -> None:
    world.kube.objects.create(halogen_model())
    foreign = {"type": "Haunted", "status": "True", "reason": "x", "message": "", "lastTransitionTime": None}
    async with running(world.settings):
        await world.until_ready()
        since = {each["type"]: each["lastTransitionTime"] for each in world.status()["conditions"]}
        foreign["lastTransitionTime"] = since["Ready"]
        path = [{"op": "add", "path": "/status/conditions/-", "value": foreign}]
        world.kube.objects.patch("HalogenModel", "chat", path, subresource="status")
        await world.kube.until(lambda: "Haunted" not in conditions(world.kube))
    types = [each["type"] for each in world.status()["conditions"]]
    assert types == ["Ready", "Validated", "Reconciling", "Stalled", "Degraded"]
    assert {each["type"]: each["lastTransitionTime"] for each in world.status()["conditions"]} == since
    statuses = [call for call in world.writes() if call.subresource == "status"]
    assert {call.verb for call in statuses} == {"patch"}


async def test_a_settled_model_costs_no_write(world: _World) -> None:
    world.kube.objects.create(halogen_model())
    settings = replace(world.settings, look_again_s=0.05)
    async with running(settings) as operator:
        await world.until_ready()
        metrics = operator.started.metrics
        await _looks(metrics, 3)
        world.kube.calls.clear()
        await _looks(metrics, 3)
        assert world.kube.calls == []
    async with running(settings) as operator:
        await _looks(operator.started.metrics, 3)
    assert world.writes() == []


async def _looks(metrics: Metrics, count: int) -> None:
    """Waits until so many more looks have ended."""
    until = metrics.looks() + count
    await eventually(lambda: metrics.looks() >= until)


async def test_a_spec_that_cannot_be_had_stalls_with_its_place_and_what_serves_serves_on(world: _World) -> None:
    world.kube.objects.create(halogen_model(replicas=2))
    async with running(world.settings):
        await world.until_ready()
        before = [pod.revision for pod in world.pods.of("chat")]
        world.spec(mmap_threshold=0.5)
        await world.until_ready()
        world.pods.judge = lambda _: "rejected"
        world.spec(max_batch=5)
        await world.kube.until(lambda: conditions(world.kube).get("Stalled") == ("True", "Rejected"))
        found = conditions(world.kube)
        assert found["Ready"] == ("False", "Rejected")
        assert found["Validated"] == ("False", "Rejected")
        [stalled] = [each for each in world.status()["conditions"] if each["type"] == "Stalled"]
        assert "spec.model: HCF-1041" in stalled["message"]
        handed = [pod.pushes[-1] for pod in world.pods.of("chat")]
        assert sorted(handed) == [(2, "applied"), (3, "rejected")]
        world.pods.judge = lambda _: "applied"
        world.spec(max_batch=6)
        await world.until_ready()
    assert all(pod.revision not in before for pod in world.pods.of("chat"))


async def test_what_somebody_spoils_in_a_child_is_mended(world: _World) -> None:
    world.kube.objects.create(halogen_model())
    async with running(world.settings):
        await world.until_ready()
        world.kube.objects.delete("Service", "chat")
        await world.kube.until(lambda: world.kube.objects.find("Service", "chat"))
        world.kube.objects.patch("Deployment", "chat", {"spec": {"replicas": 3}})
        await world.kube.until(lambda: world.kube.objects.get("Deployment", "chat")["spec"]["replicas"] == 1)
        key = world.kube.objects.get("Secret", "chat-admin")["data"]["admin.key"]
        world.kube.objects.patch("Secret", "chat-admin", {"data": {"tls.crt": None}})
        await world.kube.until(lambda: world.kube.objects.get("Secret", "chat-admin")["data"].get("tls.crt"))
    assert world.kube.objects.get("Secret", "chat-admin")["data"]["admin.key"] == key
    told = {each["reason"] for each in world.kube.objects.list("Event", "default")}
    assert "SecretBroken" in told


async def test_a_budget_comes_with_the_second_replica_and_goes_with_it(world: _World) -> None:
    world.kube.objects.create(halogen_model(replicas=2))
    async with running(world.settings):
        await world.until_ready()
        assert world.children() == {*CHILDREN, ("PodDisruptionBudget", "chat")}
        world.spec(replicas=1)
        await world.kube.until(lambda: world.children() == CHILDREN)
        world.spec(replicas=0)
        await world.kube.until(lambda: conditions(world.kube).get("Ready") == ("True", "ScaledToZero"))


async def test_an_object_of_somebody_else_is_left_alone(world: _World) -> None:
    theirs = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "chat", "namespace": "default"}}
    world.kube.objects.create({**theirs, "spec": {"ports": [{"port": 1}]}})
    world.kube.objects.create(halogen_model())
    async with running(world.settings):
        await world.kube.until(lambda: conditions(world.kube).get("Degraded") == ("True", "ChildRefused"))
        service = world.kube.objects.get("Service", "chat")
        assert service["spec"]["ports"][0]["port"] == 1
        assert RENDERED_ANNOTATION not in service["metadata"].get("annotations", {})
        world.kube.objects.delete("Service", "chat")
        await world.kube.until(lambda: is_ready(world.kube) and conditions(world.kube)["Degraded"][0] == "False")


async def test_o1_an_edit_for_more_devices_replaces_the_pod_and_one_for_fewer_does_not(world: _World) -> None:
    def deployment() -> dict[str, Any]:
        spec: dict[str, Any] = world.kube.objects.get("Deployment", "chat")["spec"]
        return spec

    def accelerators() -> dict[str, str]:
        limits: dict[str, str] = deployment()["template"]["spec"]["containers"][0]["resources"]["limits"]
        return limits

    world.kube.objects.create(halogen_model(device=["cuda:0"]))
    async with running(world.settings):
        await world.until_ready()
        [first] = world.pods.of("chat")
        assert accelerators() == {"nvidia.com/gpu": "1"}
        assert deployment()["strategy"] == {"type": "Recreate"}

        world.spec(device=["cuda:0", "cuda:1"], exec_mode="data_parallel")
        await world.until_ready()
        [second] = world.pods.of("chat")
        assert second.name != first.name
        assert [generation for generation, _ in first.pushes] == [1]
        assert second.pushes == [(2, "applied")]
        assert accelerators() == {"nvidia.com/gpu": "2"}

        world.spec(device=["cuda:0"], exec_mode="single")
        await world.until_ready()
        assert world.pods.of("chat") == [second]
        assert second.pushes == [(2, "applied"), (3, "applied")]
        assert accelerators() == {"nvidia.com/gpu": "2"}


async def test_o2_a_refused_deployment_is_not_ready_though_the_old_pods_serve(
    world: _World,
) -> None:
    world.kube.objects.create(halogen_model())
    async with running(world.settings):
        await world.until_ready()
        words = "Deployment.apps is invalid: image is not allowed"
        rule = world.kube.faults.fail(422, message=words, kind="Deployment", verb="patch", times=None)
        world.spec(image="registry.example/other:2")
        await world.kube.until(lambda: conditions(world.kube).get("Degraded") == ("True", "ChildRefused"))
        assert conditions(world.kube)["Ready"] == ("False", "Progressing")
        world.kube.faults.drop(rule)
        await world.until_ready()
        assert conditions(world.kube)["Degraded"][0] == "False"


async def test_an_operator_of_two_namespaces_touches_no_third(world: _World) -> None:
    for name in ("a", "b", "c"):
        world.kube.namespace(name)
        world.kube.objects.create(halogen_model(namespace=name))
    settings = quick(world.kube.url, admin_port=world.settings.admin_port, namespaces=("a", "b"))
    async with running(settings):
        await world.until_ready(namespace="a")
        await world.until_ready(namespace="b")
    assert "status" not in world.kube.objects.get("HalogenModel", "chat", "c")
    assert {call.namespace for call in world.kube.calls if call.writer == "halogen-operator"} == {"a", "b"}


async def test_a_plan_is_told_and_nothing_done_while_the_annotation_is_there(world: _World) -> None:
    body = halogen_model()
    body["metadata"]["annotations"] = {"halogen.dev/plan-only": "true"}
    world.kube.objects.create(body)
    async with running(world.settings):
        await world.kube.until(lambda: conditions(world.kube).get("Ready") == ("False", "PlanOnly"))
        assert world.children() == set()
        assert world.status()["plan"]["replacesPods"] is True
        world.kube.objects.patch("HalogenModel", "chat", {"metadata": {"annotations": None}})
        await world.until_ready()


async def test_metrics_of_a_model_go_with_it(world: _World) -> None:
    series = b'halogen_operator_model_condition{name="chat",namespace="default",type="Ready"} 1.0'
    world.kube.objects.create(halogen_model())
    async with running(world.settings) as operator:
        metrics = operator.started.metrics
        await eventually(lambda: series in metrics.render())
        assert b"halogen_operator_models 1.0" in metrics.render()
        world.kube.objects.delete("HalogenModel", "chat")
        await eventually(lambda: series not in metrics.render())
        scraped = metrics.render()
    assert b"halogen_operator_models 0.0" in scraped
    assert b'halogen_operator_pushes_total{outcome="applied"} 1.0' in scraped
    assert b'api_requests_total{code="200",kind="HalogenModel",verb="patch"}' in scraped


async def test_o7_a_watch_that_fell_silent_fails_the_liveness_probe() -> None:
    async with (
        FakeKube(bookmark_s=0.05) as kube,
        aiohttp.ClientSession() as session,
        running(quick(kube.url, oldest_event_s=1.5)) as operator,
    ):
        address = operator.started.address
        await eventually(lambda: len(kube.watches) == len(WATCHED))
        await answer(session, f"{address}/readyz", 200)
        await answer(session, f"{address}/livez", 200)
        kube.silence_watches("Pod")
        text = await answer(session, f"{address}/livez", 503)
        assert re.fullmatch(r"the watch of pods everywhere said nothing for \d s\n", text)
        scraped = await answer(session, f"{address}/metrics", 200)
        assert 'halogen_operator_last_event_age_seconds{kind="Pod",namespace=""}' in scraped
