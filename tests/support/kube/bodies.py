"""Of the body that a request brings: whose it is, and which part of it this endpoint may write."""

import uuid
from typing import Any

from support.kube.errors import bad_request
from support.kube.requests import Ask
from support.kube.store import Object

SYSTEM = ("uid", "creationTimestamp", "generation", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink")


def addressed(ask: Ask, body: dict[str, Any]) -> dict[str, Any]:
    """The body with kind, namespace and name as in its path; a made-up name where it asks for one.

    Raises:
        ApiError: 400, it says something else than its path.
    """
    kind, said = ask.kind, (body.get("apiVersion") or ask.kind.api_version, body.get("kind") or ask.kind.kind)
    if said != (kind.api_version, kind.kind):
        raise bad_request(f"the object provided is {'/'.join(said)}, expected {kind.api_version}/{kind.kind}")
    meta = body.get("metadata") or {}
    if not isinstance(meta, dict):
        raise bad_request("metadata is no object")
    if kind.namespaced and meta.get("namespace", ask.namespace) != ask.namespace:
        raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
    if ask.name and meta.get("name", ask.name) != ask.name:
        raise bad_request(f"the name of the object ({meta['name']}) does not match the name on the URL ({ask.name})")
    made_up = f"{meta['generateName']}{uuid.uuid4().hex[:5]}" if meta.get("generateName") else ""
    ask.name = ask.name or meta.get("name") or made_up
    meta = meta | {"name": ask.name} | ({"namespace": ask.namespace} if kind.namespaced else {})
    return body | {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": meta}


def without_system(body: dict[str, Any]) -> dict[str, Any]:
    meta = {name: value for name, value in body["metadata"].items() if name not in {*SYSTEM, "resourceVersion"}}
    return body | {"metadata": meta}


def own_part(ask: Ask, body: dict[str, Any]) -> dict[str, Any]:
    """Of an applied object, what this endpoint writes: all but the status, or the status alone."""
    if not ask.kind.has_status:
        return body
    if ask.subresource != "status":
        return {name: value for name, value in body.items() if name != "status"}
    meta = {name: body["metadata"][name] for name in ("name", "namespace") if name in body["metadata"]}
    kept = {name: value for name, value in body.items() if name in {"apiVersion", "kind", "status"}}
    return kept | {"metadata": meta}


def kept(ask: Ask, before: Object, wanted: dict[str, Any]) -> dict[str, Any]:
    """`wanted` with everything this endpoint may not write as it was."""
    if ask.subresource == "status":
        after = {name: value for name, value in before.items() if name != "status"}
        if "status" in wanted:
            after["status"] = wanted["status"]
        booked = wanted["metadata"].get("managedFields", before["metadata"].get("managedFields"))
        return after | {"metadata": before["metadata"] | {"managedFields": booked}}
    meta = {name: value for name, value in wanted["metadata"].items() if name not in SYSTEM}
    held = before["metadata"]
    meta |= {name: held[name] for name in (*SYSTEM, "name", "namespace", "resourceVersion") if name in held}
    if "managedFields" not in meta and "managedFields" in held:
        meta["managedFields"] = held["managedFields"]
    after = wanted | {"metadata": meta}
    if ask.kind.has_status:
        after.pop("status", None)
        if "status" in before:
            after["status"] = before["status"]
    return after
