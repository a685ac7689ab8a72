"""`Table` answers, for `kubectl get`. Columns are a custom kind's printer columns, or a few of a built-in one."""

import re
from datetime import datetime
from typing import Any

from support.kube.kinds import Kind
from support.kube.store import Object

Body = dict[str, Any]

_NAME = {"name": "Name", "type": "string", "format": "name", "description": "Name must be unique within a namespace."}
_AGE = {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}
_STEP = re.compile(
    r"""\.?([A-Za-z0-9_-]+(?:\\\.[A-Za-z0-9_./-]+)*)|\[\?\(@\.(\w+)\s*==\s*["']([^"']*)["']\)\]|\[(\d+|\*)\]|\['([^']+)'\]"""
)


def _column(name: str, type_: str, path: str, priority: int = 0) -> Body:
    return {"name": name, "type": type_, "jsonPath": path, "priority": priority}


_BUILT_IN: dict[str, list[Body]] = {
    "Pod": [
        _column("Ready", "string", '.status.conditions[?(@.type=="Ready")].status'),
        _column("Status", "string", ".status.phase"),
        _column("Restarts", "integer", ".status.containerStatuses[0].restartCount"),
        _AGE,
        _column("IP", "string", ".status.podIP", 1),
        _column("Node", "string", ".spec.nodeName", 1),
    ],
    "Deployment": [
        _column("Ready", "integer", ".status.readyReplicas"),
        _column("Up-to-date", "integer", ".status.updatedReplicas"),
        _column("Available", "integer", ".status.availableReplicas"),
        _AGE,
    ],
    "Service": [
        _column("Type", "string", ".spec.type"),
        _column("Cluster-IP", "string", ".spec.clusterIP"),
        _column("Port", "integer", ".spec.ports[0].port"),
        _AGE,
    ],
    "Secret": [_column("Type", "string", ".type"), _AGE],
    "Namespace": [_column("Status", "string", ".status.phase"), _AGE],
    "Event": [
        _column("Last Seen", "date", ".lastTimestamp"),
        _column("Type", "string", ".type"),
        _column("Reason", "string", ".reason"),
        _column("Object", "string", ".involvedObject.name"),
        _column("Message", "string", ".message"),
    ],
}


def find(body: Any, path: str) -> list[Any]:
    """Every value at a JSONPath of the kind that printer columns and scale use: names, indexes, one filter, `[*]`."""
    values = [body]
    for name, key, wanted, index, quoted in _STEP.findall(path):
        found: list[Any] = []
        for value in values:
            if key and isinstance(value, list):
                found += [item for item in value if isinstance(item, dict) and str(item.get(key)) == wanted]
            elif index and isinstance(value, list):
                found += value if index == "*" else value[int(index) : int(index) + 1]
            elif (name or quoted) and isinstance(value, dict):
                field = quoted or name.replace("\\.", ".")
                found += [value[field]] if field in value else []
        values = found
    return values


# (below so many seconds, the unit shown, the unit of its rest or none): coarser as time goes by, as people read it.
_AGES = (
    (120, "s", ""), (600, "m", "s"), (10800, "m", ""), (28800, "h", "m"), (172800, "h", ""), (691200, "d", "h"),
)  # fmt: skip
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def _age(then: str, now: datetime) -> str:
    try:
        seconds = max(int((now - datetime.fromisoformat(then)).total_seconds()), 0)
    except (TypeError, ValueError):
        return "<unknown>"
    unit, rest_unit = next(((unit, rest) for below, unit, rest in _AGES if seconds < below), ("d", ""))
    whole, rest = divmod(seconds, _UNITS[unit])
    rest = rest // _UNITS[rest_unit] if rest_unit else 0
    return f"{whole}{unit}" + (f"{rest}{rest_unit}" if rest else "")


def _cell(body: Object, column: Body, now: datetime) -> Any:
    found = find(body, column["jsonPath"])
    if not found or found[0] is None:
        return "<unknown>" if column["type"] == "date" else None
    if column["type"] == "date":
        return _age(str(found[0]), now)
    if column["type"] in {"integer", "number", "boolean"}:
        return found[0]
    return str(found[0]).lower() if isinstance(found[0], bool) else str(found[0])


def _columns(kind: Kind) -> list[Body]:
    if kind.is_custom:
        return list(kind.columns) or [_AGE]
    return _BUILT_IN.get(kind.kind, [_AGE])


def table(kind: Kind, items: list[Object], meta: Body, now: datetime, include: str = "Metadata") -> Body:
    """A Table of these objects; `include` says how much of each object goes with its row."""
    columns = _columns(kind)
    definitions = [
        {"description": "", "format": "", "priority": 0}
        | {name: value for name, value in column.items() if name != "jsonPath"}
        for column in (_NAME, *columns)
    ]
    rows = [
        {
            "cells": [item["metadata"].get("name", ""), *(_cell(item, column, now) for column in columns)],
            "object": _included(item, include),
        }
        for item in items
    ]
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": meta,
        "columnDefinitions": definitions,
        "rows": rows,
    }


def _included(item: Object, include: str) -> Body | None:
    if include == "None":
        return None
    if include == "Object":
        return item
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": item["metadata"]}
