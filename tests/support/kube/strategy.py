"""What of a write depends on the kind: when a generation counts, what holds an object, how long its end may take."""

from typing import Any

from support.kube.kinds import Kind
from support.kube.requests import Deletion
from support.kube.store import Object

HOLDS = {"Foreground": "foregroundDeletion", "Orphan": "orphan"}


def timeless(body: Object) -> dict[str, Any]:
    """Without the times at which its managers wrote: a write that changes these alone is none."""
    meta = body["metadata"]
    booked = [entry | {"time": ""} for entry in meta.get("managedFields") or []]
    return body | {"metadata": meta | {"managedFields": booked}}


def seen_by_rules(body: Object) -> dict[str, Any]:
    """Of the metadata a schema's rules see the name alone."""
    meta = {name: body["metadata"][name] for name in ("name", "generateName") if name in body["metadata"]}
    return body | {"metadata": meta}


def is_held(body: Object) -> bool:
    return bool(body["metadata"].get("finalizers") or (body["kind"] == "Namespace" and body["spec"].get("finalizers")))


def grace_s(kind: Kind, body: Object, options: Deletion) -> int:
    """Only a pod that runs somewhere is given time: its kubelet says when it is gone."""
    if kind.kind != "Pod" or not body.get("spec", {}).get("nodeName"):
        return 0
    if body.get("status", {}).get("phase") in {"Succeeded", "Failed"}:
        return 0
    if options.grace_s is not None:
        return options.grace_s
    return int(body["spec"].get("terminationGracePeriodSeconds", 30))


def is_new_generation(kind: Kind, before: Object, after: dict[str, Any]) -> bool:
    if not kind.has_generation:
        return False
    if kind.is_custom:
        aside = {"metadata", "status"} if kind.has_status else {"metadata"}
        return {k: v for k, v in before.items() if k not in aside} != {k: v for k, v in after.items() if k not in aside}
    if before.get("spec") != after.get("spec"):
        return True
    annotated = kind.kind in {"Deployment", "ReplicaSet"}
    return annotated and before["metadata"].get("annotations") != after["metadata"].get("annotations")
