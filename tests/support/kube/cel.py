"""`x-kubernetes-validations`: CEL rules of a custom kind's schema, evaluated by cel-python as the API server does.

Rules run at every place that has a value; one that names `oldSelf` runs where the old object has a value for the same
place (items of a keyed list are matched by their keys, those of any other list have no past).
"""

import functools
import re
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
    environment = celpy.Environment()
    return environment.program(environment.compile(rule))


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


def problems(schema: Schema, value: Any, old: Any = None, at: str = "", *, has_old: bool = False) -> Iterator[Cause]:
    """What the rules say of `value`; `old` is what stood at the same place, if `has_old`."""
    for rule in schema.get("x-kubernetes-validations", []):
        needs_old = re.search(r"\boldSelf\b", rule["rule"]) is not None
        if not needs_old or has_old:
            cause = _failure(rule, schema, value, old if needs_old else None, at)
            if cause is not None:
                yield cause
    if isinstance(value, dict):
        yield from _below_map(schema, value, old if has_old else None, at)
    elif isinstance(value, list):
        yield from _below_list(schema, value, old if has_old else None, at)


def _below_map(schema: Schema, value: dict[str, Any], old: Any, at: str) -> Iterator[Cause]:
    known, more = schema.get("properties", {}), schema.get("additionalProperties")
    for name, item in value.items():
        below = known.get(name, more if isinstance(more, dict) else None)
        if below is None or (item is None and below.get("nullable")):
            continue
        was_there = isinstance(old, dict) and name in old
        place = f"{at}.{name}" if name in known else f"{at}[{name}]"
        yield from problems(below, item, old[name] if was_there else None, place.lstrip("."), has_old=was_there)


def _below_list(schema: Schema, value: list[Any], old: Any, at: str) -> Iterator[Cause]:
    keys = schema.get("x-kubernetes-list-map-keys", []) if schema.get("x-kubernetes-list-type") == "map" else []
    past = {}
    if keys and isinstance(old, list):
        past = {tuple(str(item.get(key)) for key in keys): item for item in old}
    for index, item in enumerate(value):
        key = tuple(str(item.get(key)) for key in keys) if keys and isinstance(item, dict) else None
        was_there = key in past
        yield from problems(
            schema.get("items", {}), item, past.get(key) if was_there else None, f"{at}[{index}]", has_old=was_there
        )


def _failure(rule: dict[str, Any], schema: Schema, value: Any, old: Any, at: str) -> Cause | None:
    variables = {"self": typed(schema, value)}
    if old is not None:
        variables["oldSelf"] = typed(schema, old)
    try:
        if bool(program(rule["rule"]).evaluate(variables)):
            return None
        message = _message(rule, variables)
    except celpy.CELEvalError as error:
        message = f"{error.args[0]} evaluating rule: {rule.get('message') or rule['rule']}"
    form = _REASONS[rule.get("reason", "FieldValueInvalid")]
    place = at + rule.get("fieldPath", "")
    text = form.format(value=f'"{_type_of(schema, value)}"', message=message)
    return Cause(place.lstrip("."), text, rule.get("reason", "FieldValueInvalid"))


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
