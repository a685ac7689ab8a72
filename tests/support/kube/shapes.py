"""How a kind's lists and maps merge: as one value (atomic), by keys (map), or as a set.

Server-side apply, field ownership and strategic merge all read it from here. A custom kind says it in its schema
(`x-kubernetes-list-type`); of the built-in ones this table knows what Kubernetes' types are marked with.
"""

from dataclasses import dataclass
from typing import Any

from support.kube.kinds import Kind


@dataclass(frozen=True)
class Shape:
    """A place in an object. `keys` of a list whose items are told apart by them; `is_atomic`: one value, one owner."""

    is_atomic: bool = False
    is_set: bool = False
    keys: tuple[str, ...] = ()


GRANULAR = Shape()
ATOMIC = Shape(is_atomic=True)
SET = Shape(is_set=True)

_KEYS = {
    "containers": ("name",),
    "initContainers": ("name",),
    "ephemeralContainers": ("name",),
    "volumes": ("name",),
    "env": ("name",),
    "imagePullSecrets": ("name",),
    "volumeMounts": ("mountPath",),
    "volumeDevices": ("devicePath",),
    "ownerReferences": ("uid",),
    "conditions": ("type",),
    "hostAliases": ("ip",),
    "topologySpreadConstraints": ("topologyKey", "whenUnsatisfiable"),
    "resourceClaims": ("name",),
}
_SETS = {"finalizers", "accessModes"}
_ATOMIC_MAPS = {
    "selector", "nodeSelector", "labelSelector", "podSelector", "namespaceSelector", "configMapKeyRef", "secretKeyRef",
    "fieldRef", "resourceFieldRef", "nodeSelectorTerms", "involvedObject", "regarding", "roleRef",
}  # fmt: skip
_DEFAULTS = {"protocol": "TCP"}


def _built_in(path: tuple[str, ...], value: Any) -> Shape:
    name = path[-1] if path else ""
    if isinstance(value, dict):
        return ATOMIC if name in _ATOMIC_MAPS else GRANULAR
    if not isinstance(value, list):
        return ATOMIC
    if name == "ports" and "containers" in path:
        return Shape(keys=("containerPort", "protocol"))
    if name == "ports" and path == ("spec", "ports"):
        return Shape(keys=("port", "protocol"))
    if name in _SETS:
        return SET
    return Shape(keys=_KEYS[name]) if name in _KEYS else ATOMIC


def _declared(schema: dict[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
    for name in path:
        if schema.get("type") == "array" or "items" in schema:
            schema = schema.get("items", {})
            continue
        below = schema.get("properties", {}).get(name)
        more = schema.get("additionalProperties")
        schema = below if below is not None else more if isinstance(more, dict) else {}
    return schema


def shape(kind: Kind, path: tuple[str, ...], value: Any) -> Shape:
    """Of `value` at `path` (names; an item of a list stands in it as "[]")."""
    if kind.schema is None or path[:1] == ("metadata",):
        return _built_in(path, value)
    schema = _declared(kind.schema, path)
    if isinstance(value, dict):
        return ATOMIC if schema.get("x-kubernetes-map-type") == "atomic" else GRANULAR
    if not isinstance(value, list):
        return ATOMIC
    how = schema.get("x-kubernetes-list-type", "atomic")
    if how == "map":
        return Shape(keys=tuple(schema.get("x-kubernetes-list-map-keys", ())))
    return SET if how == "set" else ATOMIC


def item_key(item: Any, keys: tuple[str, ...]) -> tuple[tuple[str, Any], ...]:
    """What tells an item of a keyed list from the others."""
    if not isinstance(item, dict):
        return ()
    return tuple((key, item.get(key, _DEFAULTS.get(key))) for key in sorted(keys))
