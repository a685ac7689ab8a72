"""The scale subresource: autoscaling/v1 Scale, read from and written through the paths its kind names."""

from typing import Any

from support.kube.kinds import Kind
from support.kube.store import Object
from support.kube.tables import find

Body = dict[str, Any]


def read(kind: Kind, body: Object) -> Body:
    paths = kind.scale or {}
    meta = {
        name: body["metadata"][name]
        for name in ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
        if name in body["metadata"]
    }
    status: Body = {"replicas": _number(body, paths["status"])}
    if selector := _selector(kind, body):
        status["selector"] = selector
    spec = {"replicas": _number(body, paths["spec"])}
    return {"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": meta, "spec": spec, "status": status}


def _number(body: Object, path: str) -> int:
    found = find(body, path)
    return int(found[0]) if found else 0


def _selector(kind: Kind, body: Object) -> str:
    path = (kind.scale or {})["selector"]
    if path:
        found = find(body, path)
        return str(found[0]) if found else ""
    labels = body.get("spec", {}).get("selector", {}).get("matchLabels", {})
    return ",".join(f"{name}={value}" for name, value in sorted(labels.items()))


def write(kind: Kind, body: Object, wanted: Body) -> Body:
    """`body` with the replicas and the expected resourceVersion of a Scale."""
    meta = dict(body["metadata"])
    version = wanted.get("metadata", {}).get("resourceVersion")
    if version:
        meta["resourceVersion"] = version
    result = body | {"metadata": meta}
    *above, last = (kind.scale or {})["spec"].strip(".").split(".")
    here = result
    for name in above:
        here[name] = dict(here.get(name, {}))
        here = here[name]
    here[last] = wanted.get("spec", {}).get("replicas", 0)
    return result
