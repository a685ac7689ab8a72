"""A value the schema refused -> a problem that says what was expected, what stands there and what to do."""

from __future__ import annotations

import difflib
from typing import Any

from pydantic_core import ErrorDetails

from halogend.config import accepts, nodes
from halogend.config.codes import Code
from halogend.config.findings import Findings, Slot, kind
from halogend.config.schema import DeviceRef
from halogend.config.values import shown

_BOOLEAN_WORDS = {"true": "true", "yes": "true", "on": "true", "y": "true"} | dict.fromkeys(
    ("false", "no", "off", "n"), "false"
)
_DEVICE_KEYS = tuple(DeviceRef.model_fields)  # the one mapping that stands inside a leaf
_LENGTH_ERRORS = frozenset({"string_too_short", "string_too_long", "too_short", "too_long"})
_JSON_TYPES = {str: "string", bool: "boolean", int: "integer", float: "number", tuple: "array", dict: "object"}


def report_refusal(path: str, details: list[ErrorDetails], findings: Findings) -> None:
    """`details` are the schema's errors for the one field at `path`."""
    first = details[0]
    if first["type"] == "missing":
        parent, _, key = path.rpartition(".")
        in_entry = findings.marks.get(parent) != findings.marks[""]  # the short form's model is the root itself
        message = f"`{key}` is missing in `{parent}`" if in_entry else f"`{key}` is missing"
        findings.report(Code.MISSING_FIELD, _mark(parent, findings), path, message, f"add {key}: ...")
        return
    if first["type"] == "extra_forbidden":
        key = path.rpartition(".")[2]
        close = difflib.get_close_matches(key, _DEVICE_KEYS, n=1)
        hint = f"did you mean `{close[0]}`?" if close else f"known here: {', '.join(_DEVICE_KEYS)}"
        findings.report(Code.UNKNOWN_KEY, _mark(path, findings), path, f"unknown key {key!r}", hint)
        return
    slot, name = _slot_of(path, findings)
    said = next((d for d in details if d["type"] == "value_error"), None)
    if said is not None:
        text = f"`{name}` {said['ctx']['error']}"
        findings.report(Code.BAD_VALUE, _mark(path, findings), path, text, _hint_for(path, slot, findings))
        return
    node = findings.nodes.get(path)
    schema = _schema_at(path, slot)
    is_type = bool(schema) and not _fits_type(node, schema)
    found = f", found {kind(node)}" if node is not None else ""
    message = f"`{name}` must be {accepts.words(schema)}{found}" if schema else f"`{name}` {_plainer(first)}{found}"
    if first["type"] in _LENGTH_ERRORS:
        message = f"`{name}` {_plainer(first)}"
    code = Code.WRONG_TYPE if is_type else Code.BAD_VALUE
    findings.report(code, _mark(path, findings), path, message, _hint_for(path, slot, findings))


def _mark(path: str, findings: Findings) -> Any:
    while path and path not in findings.marks:
        path = path[: max(path.rfind("."), path.rfind("["), 0)]
    return findings.marks.get(path)


def _slot_of(path: str, findings: Findings) -> tuple[Slot | None, str]:
    """The field around `path`, and how to name the place in it: `aliases[1]`."""
    around = path
    while around and around not in findings.slots:
        around = around[: max(around.rfind("."), around.rfind("["), 0)]
    slot = findings.slots.get(around)
    return slot, (slot.name + path[len(slot.path) :] if slot else path)


def _schema_at(path: str, slot: Slot | None) -> dict[str, Any]:
    """What stands at `path`: the field's JSON Schema or its items'; empty if it is deeper inside."""
    if slot is None:
        return {}
    schema = accepts.schema_of(slot.owner, slot.key)
    if path == slot.path:
        return schema
    items = schema.get("items", {})
    return items if isinstance(items, dict) and "$ref" not in items else {}


def _fits_type(node: nodes.Node | None, schema: dict[str, Any]) -> bool:
    value = nodes.plain_value(node) if node is not None else None
    kind_of_value = _JSON_TYPES.get(type(value), "")
    allowed = accepts.json_types(schema)
    return kind_of_value in allowed or (kind_of_value == "integer" and "number" in allowed)


def _plainer(details: ErrorDetails) -> str:
    """The schema library's sentence without its subject."""
    if details["type"] == "string_too_short":
        return "must not be empty"
    _, _, rest = details["msg"].partition(" should ")
    return f"must {rest.replace(' after validation', '')}" if rest else details["msg"]


def _hint_for(path: str, slot: Slot | None, findings: Findings) -> str:
    node = findings.nodes.get(path)
    schema = _schema_at(path, slot)
    if not isinstance(node, nodes.Scalar) or not schema:
        return ""
    allowed = accepts.json_types(schema)
    choices = [str(choice) for choice in accepts.choices(schema) if isinstance(choice, str)]
    value = node.value
    if not isinstance(value, str):
        return f'put it in quotes: "{shown(value)}"' if allowed == {"string"} and not choices else ""
    if "boolean" in allowed and value.lower() in _BOOLEAN_WORDS:
        return f"write {_BOOLEAN_WORDS[value.lower()]}, without quotes"
    if allowed & {"integer", "number"} and any(char.isdigit() for char in value):
        if not node.plain and not isinstance(nodes.resolve(value), str):
            return "remove the quotes"
        if "string" not in allowed or choices:
            return "write a plain decimal number: no unit, leading zero, underscore, 0x or colon"
    close = difflib.get_close_matches(value.lower(), choices, n=1)
    return f"did you mean {close[0]}?" if close else ""
