"""Label and field selectors, parsed as the API server parses them."""

import re
from collections.abc import Callable
from typing import Any

from support.kube.errors import bad_request

Test = Callable[[dict[str, Any]], bool]

_SET = re.compile(r"^(?P<key>\S+)\s+(?P<how>in|notin)\s*\((?P<values>[^)]*)\)$")
_EQUAL = re.compile(r"^(?P<key>[^=!\s]+)\s*(?P<how>==|=|!=)\s*(?P<value>[^=!]*)$")
_KEY = re.compile(r"^!?[A-Za-z0-9][A-Za-z0-9_./-]*$")


def _pieces(text: str) -> list[str]:
    """Split at commas that stand outside parentheses."""
    return [piece.strip() for piece in re.split(r",(?![^(]*\))", text) if piece.strip()]


def _label_test(piece: str) -> Callable[[dict[str, str]], bool]:
    if found := _SET.match(piece):
        values = {value.strip() for value in found["values"].split(",")}
        key = found["key"]
        if found["how"] == "in":
            return lambda labels: labels.get(key) in values
        return lambda labels: labels.get(key) not in values
    if found := _EQUAL.match(piece):
        key, value = found["key"], found["value"].strip()
        if found["how"] == "!=":
            return lambda labels: labels.get(key) != value
        return lambda labels: labels.get(key) == value
    if _KEY.match(piece):
        if piece.startswith("!"):
            return lambda labels: piece[1:] not in labels
        return lambda labels: piece in labels
    raise bad_request(f"unable to parse requirement: found '{piece}'")


def labels(text: str) -> Test:
    """Whether an object's labels fit.

    Raises:
        ApiError: 400, it cannot be parsed.
    """
    tests = [_label_test(piece) for piece in _pieces(text)]
    return lambda found: all(test(found["metadata"].get("labels") or {}) for test in tests)


_ANYWHERE = {"metadata.name", "metadata.namespace"}
_OF_KIND = {
    "events": {
        "involvedObject.kind", "involvedObject.namespace", "involvedObject.name", "involvedObject.uid",
        "involvedObject.apiVersion", "involvedObject.resourceVersion", "involvedObject.fieldPath",
        "reason", "reportingComponent", "source", "type",
    },
    "pods": {
        "spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName", "status.phase",
        "status.podIP", "status.nominatedNodeName",
    },
    "secrets": {"type"},
    "namespaces": {"status.phase"},
    "nodes": {"spec.unschedulable"},
    "replicasets": {"status.replicas"},
}  # fmt: skip


def _value(found: dict[str, Any], path: str) -> str:
    value: Any = found
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return "" if value is None else str(value)


def fields(text: str, plural: str) -> Test:
    """Whether an object's fields fit; only those that its kind indexes may be asked for.

    Raises:
        ApiError: 400, it cannot be parsed, or the kind has no such selector.
    """
    tests: list[tuple[str, bool, str]] = []
    for piece in _pieces(text):
        found = _EQUAL.match(piece)
        if found is None:
            raise bad_request(f"invalid field selector: {piece}")
        if found["key"] not in _ANYWHERE | _OF_KIND.get(plural, set()):
            raise bad_request(f"field label not supported: {found['key']}")
        tests.append((found["key"], found["how"] != "!=", found["value"]))
    return lambda found: all((_value(found, path) == value) is equal for path, equal, value in tests)


def both(label_selector: str, field_selector: str, plural: str) -> Test | None:
    """The test for a request's two selectors; None when it selects everything."""
    tests = [labels(label_selector)] if label_selector else []
    tests += [fields(field_selector, plural)] if field_selector else []
    return (lambda found: all(test(found) for test in tests)) if tests else None
