"""What the end-to-end tests put into a real cluster, and take out again: the CRD, a namespace, a node, a claim."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from pathlib import Path

import yaml
from support.kube_client import Body, KubeClient, RefusedError
from support.kubelet import NODE

_CRD = Path(__file__).parents[2] / "crds/halogenmodels.halogen.dev.yaml"
_APPLY = "application/apply-patch+yaml"
_TAINT = "halogen.dev/stand-in"
_PATIENCE_S = 60.0
_BEAT_S = 10.0


@contextlib.asynccontextmanager
async def furnished(client: KubeClient, claim: str, folder: Path) -> AsyncIterator[None]:
    """For as long as the block; the CRD stays, for others may use it."""
    await _apply(client, "CustomResourceDefinition", yaml.safe_load(_CRD.read_text()))
    await _apply(client, "Namespace", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": client.namespace}})
    volume = f"{client.namespace}-{claim}"
    await _apply(client, "PersistentVolume", _volume(volume, folder))
    await _apply(client, "PersistentVolumeClaim", _claim(claim, volume, client.namespace))
    await _apply(client, "Node", _node())
    beating = asyncio.create_task(_beat(client))
    try:
        await _until_served(client)
        yield
    finally:
        beating.cancel()
        await asyncio.gather(beating, return_exceptions=True)
        await client.delete("Namespace", client.namespace)
        for pod in await client.all("Pod"):  # their node is no more, and nobody else would say that they ended
            await client.delete("Pod", pod["metadata"]["name"], {"gracePeriodSeconds": 0})
        for kind, name in (("PersistentVolume", volume), ("Node", NODE)):
            await client.delete(kind, name)


async def _apply(client: KubeClient, kind: str, body: Body) -> None:
    path = client.path(kind, body["metadata"]["name"])
    await client.request("PATCH", path, body, _APPLY, fieldManager="halogen-tests", force="true")


async def _until_served(client: KubeClient) -> None:
    """A CRD takes a moment from its creation until its objects can be listed."""
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        try:
            await client.all("HalogenModel")
        except RefusedError:
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(0.2)
        else:
            return


async def _beat(client: KubeClient) -> None:
    """A node whose status nobody renews is taken for lost."""
    while True:
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "the tests' node"}
        ready |= {"lastHeartbeatTime": now}
        room = {"cpu": "64", "memory": "256Gi", "pods": "110"}
        status = {"conditions": [ready], "capacity": room, "allocatable": room}
        await client.merge("Node", NODE, {"status": status}, "status")
        await asyncio.sleep(_BEAT_S)


def _node() -> Body:
    labels = {_TAINT: "true", "kubernetes.io/os": "linux", "kubernetes.io/hostname": NODE}
    taints = [{"key": _TAINT, "value": "true", "effect": "NoSchedule"}]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": NODE, "labels": labels},
        "spec": {"taints": taints},
    }


def _volume(name: str, folder: Path) -> Body:
    spec = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadOnlyMany"],
        "persistentVolumeReclaimPolicy": "Retain",
        "storageClassName": "",
        "hostPath": {"path": str(folder)},
    }
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec}


def _claim(name: str, volume: str, namespace: str) -> Body:
    spec = {
        "accessModes": ["ReadOnlyMany"],
        "storageClassName": "",
        "volumeName": volume,
        "resources": {"requests": {"storage": "1Gi"}},
    }
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec}
