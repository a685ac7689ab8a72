"""One look after another, without a queue: what each finds, and whether it wants to be followed by another one soon."""

from __future__ import annotations

import contextlib
import datetime as dt
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, NoReturn

import pytest
from aiohttp import web
from fakekube import FakeKube
from halogen_operator import login
from halogen_operator.engines import Engines
from halogen_operator.hearing import items
from halogen_operator.kube import Kube
from halogen_operator.memory import Memory
from halogen_operator.metrics import Metrics
from halogen_operator.reconcile import Look, World, reconcile
from halogen_operator.resources import CHILDREN, HALOGEN_MODEL, WATCHED
from halogen_operator.store import Store
from support.operator_values import HOUSE
from support.operators import conditions, eventually, halogen_model
from support.played_pods import PlayedPods
from support.ports import free_port

_MOST_LOOKS = 12


@dataclass
class _Looks:
    """A HalogenModel `chat` and an operator that looks at it when it is told to."""

    kube: FakeKube
    pods: PlayedPods
    world: World

    async def look(self) -> Look:
        """With all that the cluster holds by now."""
        for kind in WATCHED:
            selector = "" if kind is HALOGEN_MODEL else CHILDREN
            answer = await self.world.kube.list(kind, None, selector)
            self.world.store.replace(kind, None, items(kind, answer), answer["metadata"]["resourceVersion"])
        found = await reconcile(self.kube.objects.get("HalogenModel", "chat")["metadata"]["uid"], self.world)
        assert found is not None
        return found

    async def serve(self) -> None:
        """Looks until the model serves and nothing moves any more."""
        await self.look()
        await eventually(lambda: self.pods.of("chat") and self.kube.objects.list("Pod")[0].get("status"))
        await self.to_the_end()
        assert conditions(self.kube)["Ready"] == ("True", "Serving")

    async def to_the_end(self) -> Look:
        """Looks until nothing moves any more; the last look."""
        for _ in range(_MOST_LOOKS):
            found = await self.look()
            if found.is_settled and not found.has_changed:
                return found
        raise AssertionError(f"it goes on: {conditions(self.kube)}: {self.message('Reconciling')}")

    def message(self, kind: str) -> str:
        status = self.kube.objects.get("HalogenModel", "chat")["status"]
        return next(str(each["message"]) for each in status["conditions"] if each["type"] == kind)

    def spec(self, **fields: Any) -> None:
        self.kube.objects.patch("HalogenModel", "chat", {"spec": fields})


@pytest.fixture
async def looks() -> AsyncIterator[_Looks]:
    port = free_port()
    async with contextlib.AsyncExitStack() as stack:
        kube = await stack.enter_async_context(FakeKube())
        pods = await stack.enter_async_context(PlayedPods(kube, port))
        access = login.Access(kube.url)
        connector = await stack.enter_async_context(login.connector(access))
        session = await stack.enter_async_context(login.session(access, connector))
        engines = await stack.enter_async_context(Engines(port=port))
        api = Kube(session, kube.url)
        world = World(api, Store(), engines, Memory(HOUSE), Metrics("1"), lambda: dt.datetime.now(dt.UTC), "me")
        kube.objects.create(halogen_model())
        yield _Looks(kube, pods, world)


@pytest.mark.parametrize("answer", [web.HTTPInsufficientStorage, web.HTTPConflict], ids=["full", "overtaken"])
async def test_a_pod_that_will_not_have_the_document_is_told_and_not_asked_without_a_pause(
    looks: _Looks, answer: type[web.HTTPError]
) -> None:
    """Overtaken for good is a cluster that was restored: its generations begin before those that pods know."""
    await looks.serve()

    def refuse(_: str) -> NoReturn:
        raise answer(text='{"error": {"message": "not this one"}}')

    looks.pods.judge = refuse
    looks.spec(max_batch=5)
    await looks.look()
    assert f"to take the document: it answered {answer.status_code}: not this one" in looks.message("Reconciling")
    again = await looks.look()
    assert not again.has_changed
    looks.pods.judge = lambda _: "applied"
    assert (await looks.look()).has_changed


async def test_a_child_that_is_refused_keeps_no_edit_from_being_followed(looks: _Looks) -> None:
    """A ServiceMonitor where nobody brought its definition is tried seldom; the pods are looked at as ever."""
    await looks.serve()
    looks.kube.faults.fail(403, kind="NetworkPolicy", verb="patch", times=None)
    looks.kube.objects.delete("NetworkPolicy", "chat")
    assert (await looks.to_the_end()).is_refused
    looks.spec(max_batch=5)
    pushed = await looks.look()
    assert (pushed.has_changed, pushed.is_refused) == (True, False)
    assert (await looks.to_the_end()).is_refused
    assert conditions(looks.kube)["Ready"] == ("True", "Serving")
    assert conditions(looks.kube)["Degraded"] == ("True", "ChildRefused")


async def test_a_budget_that_a_plan_would_take_away_goes_with_the_annotation(looks: _Looks) -> None:
    """The end of a plan makes no generation."""
    looks.spec(replicas=2)
    await looks.serve()
    assert looks.kube.objects.find("PodDisruptionBudget", "chat") is not None
    looks.kube.objects.patch("HalogenModel", "chat", {"metadata": {"annotations": {"halogen.dev/plan-only": "true"}}})
    looks.spec(replicas=1)
    await looks.look()
    assert conditions(looks.kube)["Reconciling"] == ("False", "PlanOnly")
    assert looks.kube.objects.find("PodDisruptionBudget", "chat") is not None
    looks.kube.objects.patch("HalogenModel", "chat", {"metadata": {"annotations": None}})
    await looks.look()
    assert looks.kube.objects.find("PodDisruptionBudget", "chat") is None


async def test_a_status_of_which_the_definition_drops_a_part_is_not_written_without_a_pause(looks: _Looks) -> None:
    """Helm never upgrades a definition: an operator may be newer than it."""
    name = "halogenmodels.halogen.dev"
    path = "/spec/versions/0/schema/openAPIV3Schema/properties/status/properties/updatedReplicas"
    looks.kube.objects.patch("CustomResourceDefinition", name, [{"op": "remove", "path": path}], None)
    await looks.serve()
    assert "updatedReplicas" not in looks.kube.objects.get("HalogenModel", "chat")["status"]
    assert not (await looks.look()).has_changed


async def test_a_namesake_tells_whose_object_it_waits_for(looks: _Looks) -> None:
    """A load balancer's Service may take long to go: until then there is a status, and nobody is warned."""
    await looks.serve()
    service = looks.kube.objects.get("Service", "chat")
    looks.kube.objects.patch("Service", "chat", {"metadata": {"finalizers": ["example.com/load-balancer"]}})
    looks.kube.objects.delete("HalogenModel", "chat")
    await looks.kube.until(lambda: looks.kube.objects.find("Deployment", "chat") is None)
    looks.kube.objects.create(halogen_model(max_batch=3))
    found = await looks.look()
    assert not found.is_refused
    assert "Service chat of a HalogenModel before this one is still there" in looks.message("Reconciling")
    assert conditions(looks.kube)["Ready"] == ("False", "Progressing")
    assert conditions(looks.kube)["Degraded"] == ("False", "AsAsked")
    looks.kube.objects.patch("Service", "chat", {"metadata": {"finalizers": None}})
    await looks.kube.until(lambda: looks.kube.objects.find("Service", "chat") is None)
    await looks.serve()
    assert looks.kube.objects.get("Service", "chat")["metadata"]["uid"] != service["metadata"]["uid"]
