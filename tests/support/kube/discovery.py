"""How clients learn what is served: /version, /api, /apis, groups, resources, and the OpenAPI that kubectl asks for."""

from typing import Any

from support.kube.kinds import VERBS, Kind, Kinds

Body = dict[str, Any]

VERSION = {
    "major": "1",
    "minor": "33",
    "gitVersion": "v1.33.0",
    "gitCommit": "0000000000000000000000000000000000000000",
    "gitTreeState": "clean",
    "buildDate": "2025-04-23T13:00:00Z",
    "goVersion": "go1.24.2",
    "compiler": "gc",
    "platform": "linux/amd64",
}


def answer(kinds: Kinds, path: str) -> Body | str | None:
    """What stands at a path that is not a resource's; None when nothing does. Text for the health endpoints."""
    parts = path.strip("/").split("/")
    if path in {"/healthz", "/livez", "/readyz"}:
        return "ok"
    if path == "/version":
        return VERSION
    if path == "/api":
        return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}
    if path == "/apis":
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_group(kinds, name) for name in _groups(kinds)]}
    if parts[0] == "apis" and len(parts) == 2 and parts[1] in _groups(kinds):
        return {"apiVersion": "v1"} | _group(kinds, parts[1]) | {"kind": "APIGroup"}
    if (parts[0] == "api" and len(parts) == 2) or (parts[0] == "apis" and len(parts) == 3):
        return _resources(kinds, parts[1] if parts[0] == "apis" else "", parts[-1])
    if parts[:2] == ["openapi", "v3"]:
        return _openapi(kinds, "/".join(parts[2:]))
    return None


def _groups(kinds: Kinds) -> list[str]:
    return sorted({kind.group for kind in kinds if kind.group})


def _group(kinds: Kinds, name: str) -> Body:
    versions = list(dict.fromkeys(kind.version for kind in kinds if kind.group == name))
    named = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": named, "preferredVersion": named[0]}


def _resources(kinds: Kinds, group: str, version: str) -> Body | None:
    found = [kind for kind in kinds if (kind.group, kind.version) == (group, version)]
    if not found:
        return None
    resources = [entry for kind in found for entry in _entries(kind)]
    named = f"{group}/{version}" if group else version
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": named, "resources": resources}


def _entries(kind: Kind) -> list[Body]:
    main: Body = {
        "name": kind.plural,
        "singularName": kind.kind.lower(),
        "namespaced": kind.namespaced,
        "kind": kind.kind,
        "verbs": list(VERBS),
    }
    if kind.short:
        main["shortNames"] = list(kind.short)
    if kind.categories:
        main["categories"] = list(kind.categories)
    below = []
    for name in kind.subresources:
        entry: Body = {"name": f"{kind.plural}/{name}", "singularName": "", "namespaced": kind.namespaced}
        entry |= {"kind": kind.kind, "verbs": ["get", "patch", "update"]}
        if name == "scale":
            entry |= {"kind": "Scale", "group": "autoscaling", "version": "v1"}
        below.append(entry)
    return [main, *below]


def _openapi(kinds: Kinds, below: str) -> Body | None:
    """The index, or one group's document: its kinds' schemas, and that writes take `fieldValidation`."""
    roots = {f"apis/{kind.api_version}" if kind.group else f"api/{kind.version}" for kind in kinds}
    if not below:
        return {"paths": {root: {"serverRelativeURL": f"/openapi/v3/{root}?hash=0"} for root in sorted(roots)}}
    if below not in roots:
        return None
    found = [kind for kind in kinds if below.removeprefix("apis/").removeprefix("api/") == kind.api_version]
    return {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": VERSION["gitVersion"]},
        "paths": {f"/{below}/{kind.plural}/{{name}}": _writes(kind) for kind in found},
        "components": {"schemas": {f"{kind.kind}": _component(kind) for kind in found}},
    }


def _gvk(kind: Kind) -> Body:
    return {"group": kind.group, "version": kind.version, "kind": kind.kind}


def _writes(kind: Kind) -> Body:
    parameters = [
        {"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": True}}
        for name in ("dryRun", "fieldManager", "fieldValidation", "force")
    ]
    response = {"200": {"description": "OK"}}
    operation = {"parameters": parameters, "responses": response, "x-kubernetes-group-version-kind": _gvk(kind)}
    return {
        "patch": operation | {"x-kubernetes-action": "patch"},
        "put": operation | {"x-kubernetes-action": "put"},
        "get": operation | {"x-kubernetes-action": "get"},
    }


def _component(kind: Kind) -> Body:
    schema = kind.schema or {"type": "object"}
    return schema | {"x-kubernetes-group-version-kind": [_gvk(kind)]}
