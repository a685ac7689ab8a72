"""Objects for tests of the API server's stand-in: a custom kind of its own, and small built-in ones."""

import json
from typing import Any

import aiohttp
from support.kube.patches import APPLY, JSON, MERGE

Body = dict[str, Any]
PATHS = {
    "Widget": "/apis/test.dev/v1/namespaces/{}/widgets",
    "Deployment": "/apis/apps/v1/namespaces/{}/deployments",
    "ConfigMap": "/api/v1/namespaces/{}/configmaps",
    "Pod": "/api/v1/namespaces/{}/pods",
}


def widget_crd() -> Body:
    """Schema, defaults, bounds, rules, columns, scale, a keyed list: a little of everything."""
    part = {
        "type": "object",
        "required": ["name"],
        "properties": {"name": {"type": "string"}, "size": {"type": "integer"}},
        "x-kubernetes-validations": [
            {"rule": "self.size >= oldSelf.size", "message": "a part does not shrink", "fieldPath": ".size"}
        ],
    }
    spec = {
        "type": "object",
        "properties": {
            "replicas": {"type": "integer", "format": "int32", "minimum": 0, "default": 1},
            "soft": {"type": "number"},
            "hard": {"type": "number"},
            "color": {"type": "string", "enum": ["red", "blue"], "maxLength": 8},
            "limit": {"x-kubernetes-int-or-string": True},
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
            "tags": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
            "parts": {
                "type": "array",
                "items": part,
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name"],
            },
        },
        "x-kubernetes-validations": [
            {
                "rule": "!has(self.soft) || !has(self.hard) || self.soft < self.hard",
                "messageExpression": "'soft ' + string(self.soft) + ' is not below hard'",
            }
        ],
    }
    status = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    columns = [
        {"name": "Ready", "type": "string", "jsonPath": '.status.conditions[?(@.type=="Ready")].status'},
        {"name": "Replicas", "type": "integer", "jsonPath": ".spec.replicas"},
        {"name": "Color", "type": "string", "jsonPath": ".spec.color", "priority": 1},
    ]
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec, "status": status}}},
        "additionalPrinterColumns": columns,
        "subresources": {
            "status": {},
            "scale": {
                "specReplicasPath": ".spec.replicas",
                "statusReplicasPath": ".status.replicas",
                "labelSelectorPath": ".status.selector",
            },
        },
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.test.dev"},
        "spec": {
            "group": "test.dev",
            "scope": "Namespaced",
            "names": {"kind": "Widget", "plural": "widgets", "singular": "widget", "shortNames": ["wd"]},
            "versions": [version],
        },
    }


def widget(name: str = "w", **spec: Any) -> Body:
    return {
        "apiVersion": "test.dev/v1",
        "kind": "Widget",
        "metadata": {"name": name, "namespace": "default"},
        "spec": spec,
    }


def config_map(name: str = "c", namespace: str = "default", owner: Body | None = None, **data: str) -> Body:
    meta: Body = {"name": name, "namespace": namespace}
    if owner is not None:
        of = {"apiVersion": owner["apiVersion"], "kind": owner["kind"]}
        meta["ownerReferences"] = [of | {"name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"]}]
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data}


def deployment(name: str = "d", **container: Any) -> Body:
    labels = {"app": name}
    pod = {"containers": [{"name": "main", "image": "registry.test/main:1"} | container]}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": pod}},
    }


def pod(name: str = "p", **spec: Any) -> Body:
    meta = {"name": name, "namespace": "default"}
    container = {"name": "main", "image": "registry.test/main:1"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {"containers": [container]} | spec}


class Wire:
    """Plain HTTP to the stand-in. Every method gives (status, body)."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self.session = session
        self.url = url

    @staticmethod
    def path(kind: str, name: str = "", sub: str = "", namespace: str = "default") -> str:
        return "/".join(part for part in (PATHS[kind].format(namespace), name, sub) if part)

    async def send(
        self, method: str, path: str, body: Any = None, form: str = "application/json", **params: str
    ) -> tuple[int, Body]:
        headers = {"Content-Type": form, "User-Agent": "wire/1"}
        data = None if body is None else json.dumps(body)
        async with self.session.request(method, self.url + path, data=data, headers=headers, params=params) as answer:
            return answer.status, await answer.json(content_type=None)

    async def get(self, path: str, **params: str) -> tuple[int, Body]:
        return await self.send("GET", path, **params)

    async def merge(self, path: str, body: Body, **params: str) -> tuple[int, Body]:
        return await self.send("PATCH", path, body, MERGE, **params)

    async def json_patch(self, path: str, *operations: Body, **params: str) -> tuple[int, Body]:
        return await self.send("PATCH", path, list(operations), JSON, **params)

    async def apply(self, path: str, body: Body, manager: str = "applier", **params: str) -> tuple[int, Body]:
        return await self.send("PATCH", path, body, APPLY, fieldManager=manager, **params)
