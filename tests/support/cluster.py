"""A cluster for end-to-end tests of the operator: the API server's stand-in, or the one of HALOGEN_TEST_KUBECONFIG.

In both a node of our own runs the pods as real daemons. A real cluster brings its own controllers, scheduler and
garbage collector; beside the stand-in they are played. All of it lives in the event loop of the test.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import secrets
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from fakekube import FakeKube
from halogen_operator import login
from halogen_operator.app import Started, run
from halogen_operator.settings import Settings
from support.controllers import Controllers, is_ready
from support.kube_client import Body, KubeClient, View
from support.kubelet import Kubelet
from support.pod_box import why_no_box
from support.real_cluster import furnished

KUBECONFIG = "HALOGEN_TEST_KUBECONFIG"
CHILDREN = (
    "Deployment", "Pod", "ConfigMap", "Secret", "Service", "ServiceAccount", "NetworkPolicy", "PodDisruptionBudget",
)  # fmt: skip
CLAIM = "models"
AS_OWNER = ("Deployment", "Service", "ServiceAccount", "NetworkPolicy")
"""Children that are called as their HalogenModel."""
PATIENCE_S = 60.0


@dataclass
class Cluster:
    """`kube` is the stand-in; None on a real cluster. `controllers` likewise."""

    client: KubeClient
    kubelet: Kubelet
    access: login.Access
    settings: Settings
    pod_view: View
    kube: FakeKube | None = None
    controllers: Controllers | None = None
    tasks: list[asyncio.Task[None]] = field(default_factory=list)

    async def apply(self, name: str, **spec: Any) -> Body:
        """A new HalogenModel whose models are those of the claim, on processors, open to everybody."""
        usual = {
            "device": ["cpu:0"],
            "precision": "fp32",
            "auth": {"none": True},
            "volumes": [{"name": "models", "mountPath": "/models", "persistentVolumeClaim": {"claimName": CLAIM}}],
        }
        here = {} if self.kube is not None else {"nodeSelector": {"halogen.dev/stand-in": "true"}}
        here |= (
            {} if self.kube is not None else {"tolerations": [{"key": "halogen.dev/stand-in", "operator": "Exists"}]}
        )
        metadata = {"name": name, "namespace": self.client.namespace}
        body = {"apiVersion": "halogen.dev/v1alpha1", "kind": "HalogenModel", "metadata": metadata}
        return await self.client.create("HalogenModel", body | {"spec": usual | here | spec})

    async def edit(self, name: str, **spec: Any) -> int:
        """Returns the generation that it became."""
        changed = await self.client.merge("HalogenModel", name, {"spec": spec})
        return int(changed["metadata"]["generation"])

    async def until(self, name: str, what: Callable[[Body], Any], patience_s: float = PATIENCE_S) -> Body:
        """Looks at the HalogenModel until this is true of it, and returns it."""
        deadline = time.monotonic() + patience_s
        while time.monotonic() < deadline:
            self.check()
            model = await self.client.get("HalogenModel", name)
            if what(model):
                return model
            await asyncio.sleep(0.05)
        raise AssertionError(await self.account(name))

    async def eventually(self, what: Callable[[], Awaitable[Any]], patience_s: float = PATIENCE_S) -> Any:
        """Until the coroutine function gives something true; returns that."""
        async with asyncio.timeout(patience_s):
            while not (found := await what()):
                self.check()
                await asyncio.sleep(0.05)
        return found

    async def until_settled(self, name: str, generation: int, patience_s: float = PATIENCE_S) -> Body:
        return await self.until(name, lambda model: is_settled(model, generation), patience_s)

    async def until_gone(self, patience_s: float = PATIENCE_S) -> None:
        """Until nothing of any HalogenModel is left, process or object."""
        deadline = time.monotonic() + patience_s
        while left := {**await self.children(), **self.kubelet.runs}:
            self.check()
            if time.monotonic() > deadline:
                raise AssertionError(f"left: {list(left)}")
            await asyncio.sleep(0.05)

    def check(self) -> None:
        """Raises what ended a part of the cluster."""
        for task in self.tasks:
            if task.done():
                task.result()
                raise AssertionError(f"{task.get_name()} ended by itself")

    async def children(self) -> dict[tuple[str, str], Body]:
        """By kind and name, what the operator made and what was made of that."""
        label = "app.kubernetes.io/name=halogend"
        found = {kind: await self.client.all(kind, labelSelector=label) for kind in CHILDREN}
        return {(kind, body["metadata"]["name"]): body for kind, bodies in found.items() for body in bodies}

    async def made(self) -> set[tuple[str, str]]:
        """Kinds and names of what the operator made."""
        return {each for each in await self.children() if each[0] != "Pod"}

    async def pods(self) -> list[Body]:
        """Those that nobody has deleted."""
        return [pod for pod in await self.client.all("Pod") if "deletionTimestamp" not in pod["metadata"]]

    def endpoints(self) -> list[str]:
        """Addresses of the pods that a Service would send a request to now."""
        pods = self.pod_view.items.values()
        ready = [pod for pod in pods if is_ready(pod) and "deletionTimestamp" not in pod["metadata"]]
        return [f"http://{pod['status']['podIP']}:8000" for pod in ready]

    async def events(self) -> Counter[tuple[str, str]]:
        """(type, reason) of what was told of HalogenModels, and how often."""
        told = [each for each in await self.client.all("Event") if each["involvedObject"]["kind"] == "HalogenModel"]
        return Counter((each["type"], each["reason"]) for each in told)

    async def account(self, name: str) -> str:
        """What there is, for who looks at a test that failed."""
        model = await self.client.find("HalogenModel", name)
        logs = [f"{run.name}:\n{run.log.read_text()[-4000:]}" for run in self.kubelet.runs.values() if run.log.exists()]
        events = [f"{each['reason']}: {each.get('message')}" for each in await self.client.all("Event")]
        pods = [(pod["metadata"]["name"], pod.get("status")) for pod in await self.client.all("Pod")]
        return "\n".join(map(str, [model and model.get("status"), *pods, *events, *logs]))

    @contextlib.asynccontextmanager
    async def operator(self, **changes: Any) -> AsyncIterator[Started]:
        """Runs an operator for as long as the block; `changes` are of its settings."""
        stop, told = asyncio.Event(), asyncio.get_running_loop().create_future()
        running = run(replace(self.settings, **changes), stop, access=self.access, on_start=told.set_result)
        task = asyncio.create_task(running, name="operator")
        self.tasks.append(task)
        try:
            await asyncio.wait([told, task], return_when=asyncio.FIRST_COMPLETED)
            self.check()
            yield await told
        finally:
            self.tasks.remove(task)
            stop.set()
            async with asyncio.timeout(PATIENCE_S):
                await task

    async def killed_operator(self, seconds: float) -> None:
        """One that runs so long and has no time to end."""
        task = asyncio.create_task(run(self.settings, asyncio.Event(), access=self.access), name="operator")
        await asyncio.wait([task], timeout=seconds)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@contextlib.asynccontextmanager
async def cluster(folder: Path, models: Path, room: Mapping[str, int] | None = None) -> AsyncIterator[Cluster]:
    """`models` is the folder that the claim is; `room` what the node has of accelerators. Skips the test where this
    machine can run no pod."""
    if (why := why_no_box()) is not None:
        pytest.skip(why)
    async with contextlib.AsyncExitStack() as stack:
        if kubeconfig := os.environ.get(KUBECONFIG):
            if room is not None:
                pytest.skip("accelerators that are not there need the stand-in's scheduler")
            kube, namespace = None, f"halogen-{secrets.token_hex(4)}"
            access = login.from_kubeconfig(Path(kubeconfig))
        else:
            kube, namespace = await stack.enter_async_context(FakeKube()), "default"
            access = login.Access(kube.url)
        connector = await stack.enter_async_context(login.connector(access))
        session = await stack.enter_async_context(login.session(access, connector))
        client = KubeClient(session, access.server, namespace)
        if kube is None:
            await stack.enter_async_context(furnished(client, CLAIM, models))
        kubelet = Kubelet(client, folder / "node", {CLAIM: models})
        controllers = None if kube is None else Controllers(client, dict(room or {}))
        made = Cluster(client, kubelet, access, _settings(namespace), View(client, "Pod"), kube, controllers)
        await stack.enter_async_context(_running(made))
        yield made


def _settings(namespace: str) -> Settings:
    """Of an operator that looks more often than one in earnest."""
    quick = {"follow_s": 0.1, "look_again_s": 1.0, "shortest_back_off_s": 0.1}
    return Settings(namespaces=(namespace,), host="127.0.0.1", port=0, image="halogend:test", version="test", **quick)


@contextlib.asynccontextmanager
async def _running(made: Cluster) -> AsyncIterator[None]:
    parts = {"kubelet": made.kubelet.run(), "pods": made.pod_view.run()}
    if made.controllers is not None:
        parts["controllers"] = made.controllers.run()
    made.tasks = [asyncio.create_task(part, name=name) for name, part in parts.items()]
    try:
        yield
    finally:
        for task in made.tasks:
            task.cancel()
        await asyncio.gather(*made.tasks, return_exceptions=True)


def usual_children(name: str) -> set[tuple[str, str]]:
    """What the operator makes for one replica."""
    return {(kind, name) for kind in AS_OWNER} | {("ConfigMap", f"{name}-document"), ("Secret", f"{name}-admin")}


def secret(name: str, **values: str) -> Body:
    """An object to create."""
    coded = {key: base64.b64encode(value.encode()).decode() for key, value in values.items()}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": coded}


def conditions(model: Body) -> dict[str, str]:
    """`status/reason` by type."""
    found = model.get("status", {}).get("conditions", [])
    return {each["type"]: f"{each['status']}/{each['reason']}" for each in found}


def condition(model: Body, kind: str) -> Body:
    """One of them; an empty one where it is not there."""
    return next((each for each in model.get("status", {}).get("conditions", []) if each["type"] == kind), {})


def is_settled(model: Body, generation: int) -> bool:
    """As kstatus decides: this generation was seen, nothing is under way or stalled, and it is ready."""
    status = model.get("status", {})
    wanted = {"Ready": "True", "Reconciling": "False", "Stalled": "False"}
    is_seen = status.get("observedGeneration") == generation
    return is_seen and all(condition(model, kind).get("status") == value for kind, value in wanted.items())
