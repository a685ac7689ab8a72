"""What a field takes, in words, from its JSON Schema: one source for messages and docs."""

from __future__ import annotations

from functools import cache
from typing import Any

from pydantic import BaseModel

_TYPES = {"string": "text", "boolean": "true or false", "array": "a list", "object": "a mapping", "null": ""}


@cache
def schema_of(model: type[BaseModel], key: str) -> dict[str, Any]:
    """The JSON Schema of one field, references resolved one level."""
    whole = model.model_json_schema(by_alias=True)
    fragment: dict[str, Any] = whole["properties"][key]
    return _resolved(fragment, whole.get("$defs", {}))


def _resolved(fragment: dict[str, Any], defs: dict[str, Any]) -> dict[str, Any]:
    if "$ref" in fragment:
        return {**defs[fragment["$ref"].rpartition("/")[2]], **{k: v for k, v in fragment.items() if k != "$ref"}}
    return fragment


def choices(schema: dict[str, Any]) -> tuple[Any, ...]:
    """Every literal the schema allows."""
    own = tuple(schema.get("enum", ())) or ((schema["const"],) if "const" in schema else ())
    return own + tuple(choice for part in schema.get("anyOf", ()) for choice in choices(part))


def json_types(schema: dict[str, Any]) -> frozenset[str]:
    """The JSON types the schema allows, but for null, which no document may write."""
    own = frozenset({schema["type"]} if "type" in schema else ())
    return own.union(*(json_types(part) for part in schema.get("anyOf", ()))) - {"null"}


def words(schema: dict[str, Any]) -> str:
    """`a whole number from 1 to 65535`, `auto or a number of at least 0`, ..."""
    if "x-accepts" in schema:
        return str(schema["x-accepts"])
    if "anyOf" in schema:
        parts = [text for part in schema["anyOf"] if (text := words(part))]
        return " or ".join(sorted(dict.fromkeys(parts), key=len))
    literals = choices(schema)
    if literals:
        shown = [_shown(literal) for literal in literals]
        return ", ".join(shown[:-1]) + " or " + shown[-1] if len(shown) > 1 else shown[0]
    kind = schema.get("type", "")
    if kind in {"integer", "number"}:
        return ("a whole number" if kind == "integer" else "a number") + _range(schema)
    return _TYPES.get(kind, "a value")


def _shown(literal: Any) -> str:
    return str(literal).lower() if isinstance(literal, bool) else str(literal)


def _range(schema: dict[str, Any]) -> str:
    low, high = schema.get("minimum"), schema.get("maximum")
    above = schema.get("exclusiveMinimum")
    if low is not None and high is not None:
        return f" from {_number(low)} to {_number(high)}"
    if above is not None and high is not None:
        return f" above {_number(above)}, at most {_number(high)}"
    if low is not None:
        return f" of at least {_number(low)}"
    return f" of at most {_number(high)}" if high is not None else ""


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else str(value)
