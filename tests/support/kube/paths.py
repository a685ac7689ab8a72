"""From a request's method and path to what is asked for, in RBAC's words."""

from dataclasses import dataclass

from support.kube.kinds import Kind, Kinds


@dataclass(frozen=True)
class Target:
    """A resource, one object or a collection of it."""

    kind: Kind
    namespace: str
    name: str
    subresource: str


def target(kinds: Kinds, path: str) -> Target | None:
    """None for a path that is no resource's."""
    parts = [part for part in path.split("/") if part]
    if parts[:1] == ["api"] and len(parts) > 2:
        group, version, rest = "", parts[1], parts[2:]
    elif parts[:1] == ["apis"] and len(parts) > 3:
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        return None
    namespace = ""
    is_inside = len(rest) > 2 and rest[0] == "namespaces" and not (group == "" and rest[2] in {"status", "finalize"})
    if is_inside:
        namespace, rest = rest[1], rest[2:]
    kind = kinds.at(group, version, rest[0])
    if kind is None or len(rest) > 3 or (is_inside and not kind.namespaced):
        return None
    name = rest[1] if len(rest) > 1 else ""
    subresource = rest[2] if len(rest) > 2 else ""
    if subresource and subresource not in kind.subresources:
        return None
    if name and kind.namespaced and not is_inside:
        return None
    return Target(kind, namespace, name, subresource)


_ONE = {"GET": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_MANY = {"GET": "list", "POST": "create", "DELETE": "deletecollection"}


def verb(method: str, found: Target, *, is_watch: bool) -> str | None:
    """RBAC's verb; None for a method the path does not allow."""
    if is_watch and method == "GET":
        return "watch"
    return (_ONE if found.name else _MANY).get(method)
