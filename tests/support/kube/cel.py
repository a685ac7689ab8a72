"""`x-kubernetes-validations`: CEL rules of a custom kind's schema, evaluated by cel-python as the API server does.

Rules run at every place that has a value; one that names `oldSelf` runs where the old object has a value for the same
place (items of a keyed list are matched by their keys, those of any other list have no past).
"""

import functools
import json
import re
import sys
from collections.abc import Iterator
from typing import Any

import celpy
from celpy import celtypes
from support.kube.errors import Cause

Schema = dict[str, Any]

_KEYWORDS = {
    "true", "false", "null", "in", "as", "break", "const", "continue", "else", "for", "function", "if", "import",
    "let", "loop", "package", "namespace", "return",
}  # fmt: skip
_OLD = re.compile(r"\boldSelf\b")
_ESCAPES = {"__": "__underscores__", ".": "__dot__", "-": "__dash__", "/": "__slash__"}
_REASONS = {
    "FieldValueInvalid": "Invalid value: {value}: {message}",
    "FieldValueForbidden": "Forbidden: {message}",
    "FieldValueRequired": "Required value: {message}",
    "FieldValueDuplicate": "Duplicate value: {value}: {message}",
}


@functools.cache
def program(rule: str) -> celpy.Runner:
    """A rule, compiled.

    Raises:
        celpy.CELParseError: it is no CEL.
    """
    limit = sys.getrecursionlimit()
    try:
        environment = celpy.Environment()  # raises the limit for the whole process
        return environment.program(environment.compile(rule))
    finally:
        sys.setrecursionlimit(limit)


def escaped(name: str) -> str:
    """A property's name as a rule has to write it."""
    if name in _KEYWORDS:
        return f"__{name}__"
    return re.sub(r"__|\.|-|/", lambda found: _ESCAPES[found[0]], name)


def typed(schema: Schema, value: Any) -> Any:
    """A JSON value as CEL sees it under its schema: a `number` is a double whatever it looks like."""
    if isinstance(value, dict):
        known = schema.get("properties", {})
        more = schema.get("additionalProperties")
        pairs = {}
        for name, item in value.items():
            below = known.get(name, more if isinstance(more, dict) else {})
            key = escaped(name) if name in known else name
            pairs[celtypes.StringType(key)] = typed(below, item)
        return celtypes.MapType(pairs)
    if isinstance(value, list):
        return celtypes.ListType([typed(schema.get("items", {}), item) for item in value])
    if schema.get("type") == "number" and isinstance(value, int) and not isinstance(value, bool):
        return celtypes.DoubleType(value)
    if schema.get("format") == "date-time" and isinstance(value, str):
        return celtypes.TimestampType(value)
    return celpy.json_to_cel(value)


def has_transitions(schema: Schema) -> bool:
    """Whether a rule of it, at any depth, looks at the old object."""
    below = [*schema.get("properties", {}).values(), schema.get("items"), schema.get("additionalProperties")]
    rules = schema.get("x-kubernetes-validations", [])
    return any(_OLD.search(rule["rule"]) for rule in rules) or any(
        has_transitions(part) for part in below if isinstance(part, dict)
    )


class Rules:
    """Checks values by their schemas' rules. Remembers what held, for most of what it is asked it was asked before."""

    def __init__(self) -> None:
        self._held: dict[tuple[int, str, str], Schema] = {}  # by the schema's id, which its presence here keeps its own

    def problems(
        self, schema: Schema, value: Any, old: Any = None, at: str = "", *, has_old: bool = False
    ) -> Iterator[Cause]:
        """What the rules say of `value`; `old` is what stood at the same place, if `has_old`.

        What did not change is let be, as the API server does: only rules that name `oldSelf` look at it again.
        """
        is_same = has_old and value == old
        if is_same and not has_transitions(schema):
            return
        rules = [(rule, _OLD.search(rule["rule"]) is not None) for rule in schema.get("x-kubernetes-validations", [])]
        due = [rule for rule, needs_old in rules if (has_old if needs_old else not is_same)]
        yield from self._failures(due, schema, [value, old] if has_old else [value], at)
        if isinstance(value, dict):
            yield from self._below_map(schema, value, old if has_old else None, at)
        elif isinstance(value, list):
            yield from self._below_list(schema, value, old if has_old else None, at)

    def _below_map(self, schema: Schema, value: dict[str, Any], old: Any, at: str) -> Iterator[Cause]:
        known, more = schema.get("properties", {}), schema.get("additionalProperties")
        for name, item in value.items():
            below = known.get(name, more if isinstance(more, dict) else None)
            if below is None or (item is None and below.get("nullable")):
                continue
            was_there = isinstance(old, dict) and name in old
            place = (f"{at}.{name}" if name in known else f"{at}[{name}]").lstrip(".")
            yield from self.problems(below, item, old[name] if was_there else None, place, has_old=was_there)

    def _below_list(self, schema: Schema, value: list[Any], old: Any, at: str) -> Iterator[Cause]:
        is_keyed = schema.get("x-kubernetes-list-type") == "map"
        keys = schema.get("x-kubernetes-list-map-keys", []) if is_keyed else []
        past = {}
        if keys and isinstance(old, list):
            past = {tuple(str(item.get(key)) for key in keys): item for item in old}
        for index, item in enumerate(value):
            key = tuple(str(item.get(key)) for key in keys) if keys and isinstance(item, dict) else ()
            yield from self.problems(
                schema.get("items", {}), item, past.get(key), f"{at}[{index}]", has_old=key in past
            )

    def _failures(self, due: list[dict[str, Any]], schema: Schema, values: list[Any], at: str) -> Iterator[Cause]:
        if not due:
            return
        text = json.dumps(values, sort_keys=True)
        asked = [rule for rule in due if (id(schema), rule["rule"], text) not in self._held]
        if not asked:
            return
        variables = dict(zip(("self", "oldSelf"), (typed(schema, value) for value in values), strict=False))
        for rule in asked:
            cause = _failure(rule, variables, _type_of(schema, values[0]), at)
            if cause is None:
                self._held[id(schema), rule["rule"], text] = schema
            else:
                yield cause


def _failure(rule: dict[str, Any], variables: dict[str, Any], type_: str, at: str) -> Cause | None:
    try:
        if bool(program(rule["rule"]).evaluate(variables)):
            return None
        message = _message(rule, variables)
    except celpy.CELEvalError as error:
        message = f"{error.args[0]} evaluating rule: {rule.get('message') or rule['rule']}"
    reason = rule.get("reason", "FieldValueInvalid")
    text = _REASONS[reason].format(value=f'"{type_}"', message=message)
    return Cause((at + rule.get("fieldPath", "")).lstrip("."), text, reason)


def _message(rule: dict[str, Any], variables: dict[str, Any]) -> str:
    if "messageExpression" in rule:
        try:
            return str(program(rule["messageExpression"]).evaluate(variables))
        except celpy.CELEvalError:
            return rule.get("message", f"failed rule: {rule['rule']}")
    return rule.get("message", f"failed rule: {rule['rule']}").strip()


def _type_of(schema: Schema, value: Any) -> str:
    if "type" in schema:
        return str(schema["type"])
    return "string" if isinstance(value, str) else "integer" if isinstance(value, int) else "object"
