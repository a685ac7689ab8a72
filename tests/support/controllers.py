"""What else of a cluster has a hand in pods, for the stand-in API server: the deployment controller and the scheduler.

ReplicaSets are left out: a Deployment owns its pods, which carry `pod-template-hash` as they do in a cluster. Garbage
is collected by the API server's stand-in.
"""

from __future__ import annotations

import asyncio
import copy
import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from support.kube_client import Body, KubeClient, RefusedError, View
from support.kubelet import NODE

HASH = "pod-template-hash"
_GONE = {404, 409, 422}  # somebody else was quicker: the next event tells


@dataclass
class Controllers:
    """`room` is what the node has of each resource that is counted; what is not named is without end."""

    client: KubeClient
    room: Mapping[str, int] = field(default_factory=dict)
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    _count: int = 0

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for kind in ("Deployment", "Pod"):
                view = View(self.client, kind)
                group.create_task(view.run())
                group.create_task(self._follow(view))

    async def give(self, room: Mapping[str, int]) -> None:
        """From now on the node has this."""
        self.room = room
        async with self._turn:
            await self._look()

    async def _follow(self, view: View) -> None:
        async for _ in view:
            async with self._turn:
                await self._look()

    async def _look(self) -> None:
        """At what is, not at what was told: pods that were made a moment ago count."""
        try:
            for deployment in await self.client.all("Deployment"):
                await self._walk(deployment, await self.client.all("Pod"))
            await self._schedule(await self.client.all("Pod"))
        except RefusedError as error:
            if error.status not in _GONE:
                raise

    async def _walk(self, deployment: Body, everybody: Sequence[Body]) -> None:
        """One step of a Deployment towards what it wants."""
        if "deletionTimestamp" in deployment["metadata"]:
            return
        uid = deployment["metadata"]["uid"]
        mine = [pod for pod in everybody if uid in _owners(pod)]
        mark = _mark(deployment)
        new = [pod for pod in mine if pod["metadata"]["labels"][HASH] == mark]
        old = [pod for pod in mine if pod not in new]
        for pod in to_delete(deployment, old, new):
            await self.client.delete("Pod", pod["metadata"]["name"], {"preconditions": {"uid": pod["metadata"]["uid"]}})
        for _ in range(to_create(deployment, old, new)):
            await self._create(deployment, mark)
        await self._tell(deployment, mine, new)

    async def _create(self, deployment: Body, mark: str) -> None:
        self._count += 1
        template = copy.deepcopy(deployment["spec"]["template"])
        owner = {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "name": deployment["metadata"]["name"],
            "uid": deployment["metadata"]["uid"],
            "controller": True,
            "blockOwnerDeletion": True,
        }
        metadata = template.get("metadata", {}) | {
            "name": f"{owner['name']}-{mark}-{self._count}",
            "namespace": self.client.namespace,
            "ownerReferences": [owner],
        }
        metadata["labels"] = {**metadata.get("labels", {}), HASH: mark}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}
        try:
            await self.client.create("Pod", body)
        except RefusedError as error:
            if error.status not in _GONE:
                raise

    async def _tell(self, deployment: Body, mine: Sequence[Body], new: Sequence[Body]) -> None:
        alive = [pod for pod in mine if "deletionTimestamp" not in pod["metadata"]]
        ready = sum(map(is_ready, alive))
        status = {
            "observedGeneration": deployment["metadata"]["generation"],
            "replicas": len(alive),
            "updatedReplicas": sum(pod in alive for pod in new),
            "readyReplicas": ready,
            "availableReplicas": ready,
            "unavailableReplicas": max(0, deployment["spec"].get("replicas", 1) - ready),
        }
        if any(deployment.get("status", {}).get(key) != value for key, value in status.items()):
            change = {"metadata": {"uid": deployment["metadata"]["uid"]}, "status": status}
            try:
                await self.client.merge("Deployment", deployment["metadata"]["name"], change, "status")
            except RefusedError as error:
                if error.status not in _GONE:
                    raise

    async def _schedule(self, pods: Sequence[Body]) -> None:
        free = dict(self.room)
        for pod in pods:
            if "nodeName" in pod["spec"]:
                for name, count in _asks(pod).items():
                    free[name] = free.get(name, math.inf) - count
        for pod in pods:
            asks = _asks(pod)
            missing = [name for name, count in asks.items() if free.get(name, math.inf) < count]
            if "nodeName" in pod["spec"] or "deletionTimestamp" in pod["metadata"]:
                continue
            if not missing:
                free |= {name: free.get(name, math.inf) - count for name, count in asks.items()}
            await self._place(pod, missing)

    async def _place(self, pod: Body, missing: Sequence[str]) -> None:
        name = pod["metadata"]["name"]
        uid = {"metadata": {"uid": pod["metadata"]["uid"]}}
        try:
            if not missing:
                await self.client.merge("Pod", name, uid | {"spec": {"nodeName": NODE}})
            elif not pod.get("status", {}).get("conditions"):
                message = f"0/1 nodes are available: 1 Insufficient {', '.join(missing)}."
                no = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
                await self.client.merge(
                    "Pod", name, uid | {"status": {"phase": "Pending", "conditions": [no]}}, "status"
                )
        except RefusedError as error:
            if error.status not in _GONE:
                raise


def is_ready(pod: Body) -> bool:
    conditions = pod.get("status", {}).get("conditions", [])
    return {"Ready": "True"}.items() <= {each["type"]: each["status"] for each in conditions}.items()


def _owners(pod: Body) -> set[str]:
    return {owner["uid"] for owner in pod["metadata"].get("ownerReferences", [])}


def _mark(deployment: Body) -> str:
    text = json.dumps(deployment["spec"]["template"], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:10]


def _alive(pods: Sequence[Body]) -> list[Body]:
    return [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]


def _share(value: int | str, wanted: int, *, up: bool) -> int:
    if isinstance(value, int):
        return value
    part = wanted * int(value.removesuffix("%")) / 100
    return math.ceil(part) if up else math.floor(part)


def _room(deployment: Body) -> tuple[int, int]:
    """(surge, unavailable), as the API server's defaults have them."""
    wanted = deployment["spec"].get("replicas", 1)
    rolling = deployment["spec"].get("strategy", {}).get("rollingUpdate", {})
    surge = _share(rolling.get("maxSurge", "25%"), wanted, up=True)
    return surge, _share(rolling.get("maxUnavailable", "25%"), wanted, up=False)


def to_create(deployment: Body, old: Sequence[Body], new: Sequence[Body]) -> int:
    wanted = deployment["spec"].get("replicas", 1)
    missing = wanted - len(_alive(new))
    if deployment["spec"].get("strategy", {}).get("type") == "Recreate":
        return 0 if old else max(0, missing)
    surge, _ = _room(deployment)
    return max(0, min(missing, wanted + surge - len(_alive(old)) - len(_alive(new))))


def to_delete(deployment: Body, old: Sequence[Body], new: Sequence[Body]) -> list[Body]:
    wanted = deployment["spec"].get("replicas", 1)
    living = sorted(_alive(new), key=is_ready)
    surplus = living[: max(0, len(living) - wanted)]
    if deployment["spec"].get("strategy", {}).get("type") == "Recreate":
        return [*surplus, *_alive(old)]
    _, unavailable = _room(deployment)
    ready = [pod for pod in _alive([*old, *new]) if is_ready(pod)]
    spare = max(0, len(ready) - (wanted - unavailable))
    unready = [pod for pod in _alive(old) if not is_ready(pod)]
    return [*surplus, *unready, *[pod for pod in _alive(old) if is_ready(pod)][:spare]]


def _asks(pod: Body) -> dict[str, int]:
    """What of accelerators a pod takes."""
    limits = pod["spec"]["containers"][0].get("resources", {}).get("limits", {})
    return {name: int(count) for name, count in limits.items() if name.endswith("/gpu")}
