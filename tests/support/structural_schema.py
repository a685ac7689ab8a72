"""What an API server asks of a custom kind's schema before it takes it, as the documentation of Kubernetes lists it.

Made from those rules alone: it knows nothing of how our schema is written.
"""

from collections.abc import Iterator
from typing import Any

Schema = dict[str, Any]

_INT_OR_STRING = "x-kubernetes-int-or-string"
_ANY = "x-kubernetes-preserve-unknown-fields"
_KNOWN = frozenset(
    {
        *("type", "description", "default", "enum", "format", "nullable", "properties", "required", "items"),
        *("additionalProperties", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
        *("minLength", "maxLength", "pattern", "minItems", "maxItems", "minProperties", "maxProperties"),
        *("anyOf", "allOf", "oneOf", "not", _INT_OR_STRING, _ANY, "x-kubernetes-validations"),
        *("x-kubernetes-list-type", "x-kubernetes-list-map-keys", "x-kubernetes-map-type"),
    }
)
_NOT_IN_ALTERNATIVES = frozenset({"type", "default", "description", "additionalProperties", "nullable"})
_EITHER = [{"type": "integer"}, {"type": "string"}]


def schemas(schema: Schema, path: str = "") -> Iterator[tuple[str, Schema]]:
    """Every place of a schema with its path, `spec.volumes[].name`; a map's values are `{}`."""
    yield path, schema
    for key, inner in schema.get("properties", {}).items():
        yield from schemas(inner, f"{path}.{key}".lstrip("."))
    if isinstance(schema.get("items"), dict):
        yield from schemas(schema["items"], f"{path}[]")
    if isinstance(schema.get("additionalProperties"), dict):
        yield from schemas(schema["additionalProperties"], f"{path}{{}}")


def violations(whole: Schema) -> list[str]:
    """What an API server would refuse it for."""
    return [f"{path or 'the root'}: {fault}" for path, schema in schemas(whole) for fault in _faults(schema)]


def _faults(schema: Schema) -> Iterator[str]:
    yield from _kind(schema)
    yield from _properties(schema)
    yield from _alternatives(schema)
    yield from _lists(schema)


def _kind(schema: Schema) -> Iterator[str]:
    kind = schema.get("type")
    if kind is None and not schema.get(_INT_OR_STRING) and not schema.get(_ANY):
        yield "has no type"
    if kind is not None and schema.get(_INT_OR_STRING):
        yield "has a type beside int-or-string"
    if unknown := set(schema) - _KNOWN:
        yield f"has {sorted(unknown)}"
    for bound in ("exclusiveMinimum", "exclusiveMaximum"):
        if not isinstance(schema.get(bound, False), bool):
            yield f"{bound} is no boolean"


def _properties(schema: Schema) -> Iterator[str]:
    kind = schema.get("type")
    if kind != "object" and ({"properties", "additionalProperties", "required"} & set(schema)):
        yield "has properties and is no object"
    if kind != "array" and "items" in schema:
        yield "has items and is no array"
    if kind == "array" and not isinstance(schema.get("items"), dict):
        yield "is an array of nothing"
    if "properties" in schema and "additionalProperties" in schema:
        yield "has properties and additionalProperties"
    if schema.get("additionalProperties") is False:
        yield "forbids additionalProperties"
    if missing := set(schema.get("required", ())) - set(schema.get("properties", {})):
        yield f"requires {sorted(missing)}, which it does not have"


def _alternatives(schema: Schema) -> Iterator[str]:
    for word in ("anyOf", "allOf", "oneOf"):
        is_pattern = word == "anyOf" and schema.get(_INT_OR_STRING) and schema.get(word) == _EITHER
        for part in () if is_pattern else schema.get(word, ()):
            if found := _NOT_IN_ALTERNATIVES & set(part):
                yield f"{word} has {sorted(found)}"


def _lists(schema: Schema) -> Iterator[str]:
    how, items = schema.get("x-kubernetes-list-type"), schema.get("items", {})
    if how == "set" and items.get("type") not in {"string", "integer", "boolean", "number"}:
        yield "is a set of what is no scalar"
    if how == "map":
        for key in schema.get("x-kubernetes-list-map-keys", ()):
            inner = items.get("properties", {}).get(key, {})
            if key not in items.get("required", ()) and "default" not in inner:
                yield f"its entries need not have the key {key}"
        if not schema.get("x-kubernetes-list-map-keys"):
            yield "has no keys"


def unbounded(whole: Schema) -> list[str]:
    """Lists, maps and texts without a maximum, but for what the API server bounds itself."""
    own = {"apiVersion", "kind", "metadata"}
    return [path for path, schema in schemas(whole) if path not in own and not _is_bounded(schema)]


def _is_bounded(schema: Schema) -> bool:
    if "enum" in schema:
        return True
    if schema.get(_INT_OR_STRING):
        return "maxLength" in schema
    if schema.get(_ANY):
        return False
    wanted = {"string": "maxLength", "array": "maxItems"}.get(schema.get("type", ""))
    if "additionalProperties" in schema:
        wanted = "maxProperties"
    return wanted is None or wanted in schema


def cardinality(whole: Schema, path: str) -> int:
    """How often a place may be there in one object: the product of the maxima around it."""
    product = 1
    for at, schema in schemas(whole):
        if at != path and path.startswith((f"{at}[]", f"{at}{{}}")) and at:
            product *= schema.get("maxItems", schema.get("maxProperties", 1))
    return product
