"""A custom kind's structural schema at work: prune, default, validate. CEL rules are in `support.kube.cel`.

The messages are the API server's: `spec.replicas: Invalid value: -1: spec.replicas in body should be greater than or
equal to 0`.
"""

import copy
import json
import re
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from support.kube.errors import Cause

Schema = dict[str, Any]
_PRESERVE = "x-kubernetes-preserve-unknown-fields"
_INT_OR_STRING = "x-kubernetes-int-or-string"
_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
}


def prune(schema: Schema, value: Any, at: str = "", is_root: bool = True) -> tuple[Any, list[str]]:
    """The value without what its schema does not know, and where that was."""
    gone: list[str] = []
    if isinstance(value, list):
        kept = []
        for index, item in enumerate(value):
            below, more = prune(schema.get("items", {_PRESERVE: True}), item, f"{at}[{index}]", False)
            kept.append(below)
            gone += more
        return kept, gone
    if not isinstance(value, dict):
        return value, gone
    known, more_schema = schema.get("properties", {}), schema.get("additionalProperties")
    envelope = {"apiVersion", "kind", "metadata"} if is_root or schema.get("x-kubernetes-embedded-resource") else set()
    result = {}
    for name, item in value.items():
        place = f"{at}.{name}" if at else name
        if name in envelope:
            result[name] = item
        elif name in known:
            result[name], more = prune(known[name], item, place, False)
            gone += more
        elif isinstance(more_schema, dict):
            result[name], more = prune(more_schema, item, place, False)
            gone += more
        elif schema.get(_PRESERVE) or more_schema is True:
            result[name] = item
        else:
            gone.append(place)
    return result, gone


def defaulted(schema: Schema, value: Any) -> Any:
    """With the schema's defaults where nothing was written; a null that may not be one gives way to its default."""
    if isinstance(value, list) and "items" in schema:
        return [defaulted(schema["items"], item) for item in value]
    if not isinstance(value, dict):
        return value
    result = dict(value)
    for name, below in schema.get("properties", {}).items():
        if result.get(name, ...) is None and not below.get("nullable") and "default" in below:
            del result[name]
        if name not in result and "default" in below:
            result[name] = copy.deepcopy(below["default"])
        if name in result:
            result[name] = defaulted(below, result[name])
    more = schema.get("additionalProperties")
    if isinstance(more, dict):
        known = schema.get("properties", {})
        result |= {name: defaulted(more, item) for name, item in result.items() if name not in known}
    return result


def without_nulls(schema: Schema, value: Any) -> Any:
    """Nulls of fields that are not nullable are dropped, as they are when the object is decoded."""
    if isinstance(value, list):
        return [without_nulls(schema.get("items", {}), item) for item in value]
    if not isinstance(value, dict):
        return value
    known, more = schema.get("properties", {}), schema.get("additionalProperties")
    result = {}
    for name, item in value.items():
        below = known.get(name, more if isinstance(more, dict) else {_PRESERVE: True})
        if item is None and name in known and not below.get("nullable"):
            continue
        result[name] = without_nulls(below, item)
    return result


def _shown(value: Any) -> str:
    if isinstance(value, str):
        return json.dumps(value)
    if isinstance(value, dict | list):
        return json.dumps(value)
    return json.dumps(value)


def _typed(value: Any) -> str:
    for name in ("boolean", "string", "integer", "number", "object", "array"):
        if isinstance(value, _TYPES[name]):
            return name
    return "null"


def problems(schema: Schema, value: Any, at: str = "") -> Iterator[Cause]:
    """All that is wrong with `value`, in the order of the schema."""
    if value is None and schema.get("nullable"):
        return
    yield from _type_problems(schema, value, at)
    if isinstance(value, str):
        yield from _string(schema, value, at)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield from _number(schema, value, at)
    elif isinstance(value, list):
        yield from _list(schema, value, at)
    elif isinstance(value, dict):
        yield from _map(schema, value, at)
    if "enum" in schema and not any(
        value == word and isinstance(value, bool) == isinstance(word, bool) for word in schema["enum"]
    ):
        known = ", ".join(_shown(word) for word in schema["enum"])
        yield Cause(at, f"Unsupported value: {_shown(value)}: supported values: {known}", "FieldValueNotSupported")
    yield from _logical(schema, value, at)


def _type_problems(schema: Schema, value: Any, at: str) -> Iterator[Cause]:
    wanted = schema.get("type")
    if schema.get(_INT_OR_STRING):
        if not isinstance(value, int | str) or isinstance(value, bool):
            yield _bad(at, f'{at} in body must be of type integer,string: "{_typed(value)}"', _typed(value))
        return
    if wanted is None:
        return
    fits = isinstance(value, _TYPES[wanted]) and not (isinstance(value, bool) and wanted in {"integer", "number"})
    fits = fits or (wanted == "integer" and isinstance(value, float) and value.is_integer())
    if not fits:
        shown = _typed(value)
        message = f'Invalid value: "{shown}": {at} in body must be of type {wanted}: "{shown}"'
        yield Cause(at, message, "FieldValueTypeInvalid")


def _bad(at: str, why: str, value: Any) -> Cause:
    return Cause(at, f"Invalid value: {_shown(value)}: {why}", "FieldValueInvalid")


def _string(schema: Schema, value: str, at: str) -> Iterator[Cause]:
    if "maxLength" in schema and len(value) > schema["maxLength"]:
        yield Cause(at, f"Too long: may not be more than {schema['maxLength']} bytes", "FieldValueTooLong")
    if "minLength" in schema and len(value) < schema["minLength"]:
        yield _bad(at, f"{at} in body should be at least {schema['minLength']} chars long", value)
    if "pattern" in schema and not re.search(schema["pattern"], value):
        yield _bad(at, f"{at} in body should match '{schema['pattern']}'", value)
    if schema.get("format") == "date-time" and not _is_time(value):
        yield _bad(at, f'{at} in body must be of type date-time: "{value}"', value)


def _is_time(text: str) -> bool:
    if not re.match(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)$", text):
        return False
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


def _number(schema: Schema, value: float, at: str) -> Iterator[Cause]:
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is not None and (value < low or (schema.get("exclusiveMinimum") and value == low)):
        than = "greater than" if schema.get("exclusiveMinimum") else "greater than or equal to"
        yield _bad(at, f"{at} in body should be {than} {low}", value)
    if high is not None and (value > high or (schema.get("exclusiveMaximum") and value == high)):
        than = "less than" if schema.get("exclusiveMaximum") else "less than or equal to"
        yield _bad(at, f"{at} in body should be {than} {high}", value)
    if "multipleOf" in schema and value % schema["multipleOf"]:
        yield _bad(at, f"{at} in body should be a multiple of {schema['multipleOf']}", value)
    bits = {"int32": 31, "int64": 63}.get(schema.get("format", ""))
    if bits and not -(2**bits) <= value < 2**bits:
        yield _bad(at, f"{at} in body should be of format {schema['format']}", value)


def _list(schema: Schema, value: list[Any], at: str) -> Iterator[Cause]:
    if "maxItems" in schema and len(value) > schema["maxItems"]:
        yield Cause(at, f"Too many: {len(value)}: must have at most {schema['maxItems']} items", "FieldValueTooMany")
    if "minItems" in schema and len(value) < schema["minItems"]:
        yield _bad(at, f"{at} in body should have at least {schema['minItems']} items", len(value))
    if schema.get("uniqueItems") and any(item in value[:index] for index, item in enumerate(value)):
        yield _bad(at, f"{at} in body shouldn't contain duplicates", value)
    yield from _duplicates(schema, value, at)
    for index, item in enumerate(value):
        yield from problems(schema.get("items", {}), item, f"{at}[{index}]")


def _duplicates(schema: Schema, value: list[Any], at: str) -> Iterator[Cause]:
    how, keys = schema.get("x-kubernetes-list-type"), schema.get("x-kubernetes-list-map-keys", [])
    if how not in {"map", "set"}:
        return
    seen: list[Any] = []
    for index, item in enumerate(value):
        known = {key: item.get(key) for key in keys} if how == "map" and isinstance(item, dict) else item
        if known in seen:
            yield Cause(f"{at}[{index}]", f"Duplicate value: {_shown(known)}", "FieldValueDuplicate")
        seen.append(known)


def _map(schema: Schema, value: dict[str, Any], at: str) -> Iterator[Cause]:
    for name in schema.get("required", []):
        if name not in value:
            yield Cause(f"{at}.{name}" if at else name, "Required value", "FieldValueRequired")
    if "maxProperties" in schema and len(value) > schema["maxProperties"]:
        limit = schema["maxProperties"]
        yield Cause(at, f"Too many: {len(value)}: must have at most {limit} items", "FieldValueTooMany")
    if "minProperties" in schema and len(value) < schema["minProperties"]:
        yield _bad(at, f"{at} in body should have at least {schema['minProperties']} properties", len(value))
    known, more = schema.get("properties", {}), schema.get("additionalProperties")
    for name, item in value.items():
        below = known.get(name, more if isinstance(more, dict) else None)
        if below is not None:
            yield from problems(below, item, f"{at}.{name}" if at else name)


def _logical(schema: Schema, value: Any, at: str) -> Iterator[Cause]:
    for part in schema.get("allOf", []):
        yield from problems(part, value, at)
    for word, least, most in (("anyOf", 1, None), ("oneOf", 1, 1)):
        if word in schema:
            fitting = sum(not list(problems(part, value, at)) for part in schema[word])
            if fitting < least or (most is not None and fitting > most):
                why = "at least one schema" if most is None else "one and only one schema"
                yield _bad(at, f'"{at}" must validate {why} ({word})', value)
    if "not" in schema and not list(problems(schema["not"], value, at)):
        yield _bad(at, f'"{at}" must not validate the schema (not)', value)
