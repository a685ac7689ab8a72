"""One stored Event, two APIs: core/v1 as it is stored, events.k8s.io/v1 as it is shown."""

from typing import Any

Body = dict[str, Any]

_NAMES = {
    "regarding": "involvedObject",
    "note": "message",
    "reportingController": "reportingComponent",
    "deprecatedSource": "source",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
}


def stored(body: Body) -> Body:
    """From events.k8s.io/v1."""
    return {_NAMES.get(name, name): value for name, value in body.items()} | {"apiVersion": "v1", "kind": "Event"}


def shown(body: Body) -> Body:
    """As events.k8s.io/v1."""
    names = {core: name for name, core in _NAMES.items()}
    renamed = {names.get(name, name): value for name, value in body.items()}
    return renamed | {"apiVersion": "events.k8s.io/v1", "kind": "Event"}
