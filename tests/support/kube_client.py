"""What the tests themselves say to an API server, the stand-in or a real one: plain requests, and views that follow.

Knows nothing of the operator, so that what the operator did is looked at by other eyes.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

import aiohttp

Body = dict[str, Any]
PLACES: Mapping[str, tuple[str, str]] = {
    "HalogenModel": ("/apis/halogen.dev/v1alpha1", "halogenmodels"),
    "CustomResourceDefinition": ("/apis/apiextensions.k8s.io/v1", "customresourcedefinitions"),
    "Deployment": ("/apis/apps/v1", "deployments"),
    "ReplicaSet": ("/apis/apps/v1", "replicasets"),
    "NetworkPolicy": ("/apis/networking.k8s.io/v1", "networkpolicies"),
    "PodDisruptionBudget": ("/apis/policy/v1", "poddisruptionbudgets"),
    "Event": ("/api/v1", "events"),
    "Pod": ("/api/v1", "pods"),
    "Node": ("/api/v1", "nodes"),
    "Namespace": ("/api/v1", "namespaces"),
    "ConfigMap": ("/api/v1", "configmaps"),
    "Secret": ("/api/v1", "secrets"),
    "Service": ("/api/v1", "services"),
    "ServiceAccount": ("/api/v1", "serviceaccounts"),
    "PersistentVolume": ("/api/v1", "persistentvolumes"),
    "PersistentVolumeClaim": ("/api/v1", "persistentvolumeclaims"),
}
MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
_AGENT = {"user-agent": "halogen-tests"}  # not the operator's, whose session this may be
_AGAIN_S = 0.05  # after a list or a watch that failed


class RefusedError(Exception):
    """An answer of 400 or above."""

    def __init__(self, status: int, body: Mapping[str, Any]) -> None:
        super().__init__(f"{status} {body.get('reason')}: {body.get('message')}")
        self.status = status


class KubeClient:
    """Of one namespace; `session` is the caller's."""

    def __init__(self, session: aiohttp.ClientSession, server: str, namespace: str) -> None:
        self.namespace = namespace
        self._session = session
        self._server = server.rstrip("/")

    def path(self, kind: str, name: str = "", sub: str = "") -> str:
        root, plural = PLACES[kind]
        spaceless = {"Node", "Namespace", "PersistentVolume", "CustomResourceDefinition"}
        space = "" if kind in spaceless else f"/namespaces/{self.namespace}"
        return "/".join(part for part in (f"{root}{space}/{plural}", name, sub) if part)

    async def request(self, method: str, path: str, body: Any = None, kind: str = "", **query: str) -> Body:
        """The JSON of the answer. Raises RefusedError."""
        headers = {"content-type": kind or "application/json", **_AGENT}
        data = None if body is None else json.dumps(body)
        url = self._server + path
        async with self._session.request(method, url, data=data, params=query, headers=headers) as answer:
            found: Body = await answer.json(content_type=None)
            if answer.status >= 400:
                raise RefusedError(answer.status, found)
            return found

    async def get(self, kind: str, name: str) -> Body:
        return await self.request("GET", self.path(kind, name))

    async def find(self, kind: str, name: str) -> Body | None:
        """None where there is none."""
        try:
            return await self.get(kind, name)
        except RefusedError as error:
            if error.status == 404:
                return None
            raise

    async def all(self, kind: str, **query: str) -> list[Body]:
        return list((await self.request("GET", self.path(kind), **query))["items"])

    async def create(self, kind: str, body: Body) -> Body:
        return await self.request("POST", self.path(kind), body)

    async def merge(self, kind: str, name: str, change: Body, sub: str = "") -> Body:
        return await self.request("PATCH", self.path(kind, name, sub), change, MERGE)

    async def delete(self, kind: str, name: str, options: Body | None = None) -> None:
        """Also where there is none, and where the options ask for another object than is there."""
        try:
            await self.request("DELETE", self.path(kind, name), options)
        except RefusedError as error:
            if error.status not in {404, 409}:
                raise

    async def watch(self, kind: str, version: str, **query: str) -> AsyncIterator[tuple[str, Body]]:
        """(type, object), until the server ends it."""
        timeout = aiohttp.ClientTimeout(total=None)
        query |= {"watch": "true", "resourceVersion": version}
        url = self._server + self.path(kind)
        async with self._session.get(url, params=query, headers=_AGENT, timeout=timeout) as answer:
            if answer.status >= 400:
                raise RefusedError(answer.status, await answer.json(content_type=None))
            async for line in answer.content:
                event = json.loads(line)
                yield event["type"], event["object"]


class View:
    """All objects of a kind, followed: `items` by name. Iterating gives it at each change."""

    def __init__(self, client: KubeClient, kind: str, **query: str) -> None:
        self.items: dict[str, Body] = {}
        self._client = client
        self._kind = kind
        self._query = query
        self._changed = asyncio.Event()

    async def __aiter__(self) -> AsyncIterator[dict[str, Body]]:
        while True:
            await self._changed.wait()
            self._changed.clear()
            yield self.items

    async def run(self) -> None:
        while True:
            with contextlib.suppress(RefusedError, aiohttp.ClientError, TimeoutError, ValueError):
                await self._follow()
            await asyncio.sleep(_AGAIN_S)

    async def _follow(self) -> None:
        found = await self._client.request("GET", self._client.path(self._kind), **self._query)
        self.items = {each["metadata"]["name"]: {"kind": self._kind, **each} for each in found["items"]}
        self._changed.set()
        async for kind, body in self._client.watch(self._kind, found["metadata"]["resourceVersion"], **self._query):
            if kind == "ERROR":
                return
            if kind == "BOOKMARK":
                continue
            if kind == "DELETED":
                self.items.pop(body["metadata"]["name"], None)
            else:
                self.items[body["metadata"]["name"]] = body
            self._changed.set()
