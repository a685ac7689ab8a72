"""A class of the schema -> what Kubernetes calls a structural schema, which its API server checks, fills in and
prunes by.

Narrower than JSON Schema: each place has one type, so a word beside a whole number is `int-or-string`, a number
beside a word is held to whole numbers, and a word beside true and false is a closed list of values. Keys that no
property has are pruned, never refused. Knows pydantic's JSON Schema and Kubernetes' rules, and no field by name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel

_INT_OR_STRING = "x-kubernetes-int-or-string"
_ANY_TYPE = "x-kubernetes-preserve-unknown-fields"
_SHOWN_UNITS = frozenset({"s", "ms", "tokens"})
_OF_STRINGS = ("pattern", "minLength", "maxLength", "format")
_OF_NUMBERS = ("minimum", "maximum")
_OF_ARRAYS = ("minItems", "maxItems")


def structural(model: type[BaseModel], *, filled_in: frozenset[str] = frozenset()) -> dict[str, Any]:
    """The schema of an object that `model` describes. The API server fills in the defaults of the properties in
    `filled_in` and of what is inside them; the defaults of others are told in their description and stay the
    daemon's."""
    whole = model.model_json_schema(by_alias=True)
    return _object(whole, _Definitions(whole.get("$defs", {})), filled_in)


class _Definitions:
    """What references mean."""

    def __init__(self, definitions: Mapping[str, Any]) -> None:
        self._definitions = definitions

    def resolved(self, fragment: Mapping[str, Any]) -> dict[str, Any]:
        """The fragment without reference and without the possibility of null; what stands beside a reference
        counts over what it means."""
        if "$ref" in fragment:
            name = str(fragment["$ref"]).rpartition("/")[2]
            rest = {key: value for key, value in fragment.items() if key != "$ref"}
            return self.resolved({**self._definitions[name], **rest})
        options = [each for each in fragment.get("anyOf", ()) if each != {"type": "null"}]
        if len(options) == 1:
            rest = {key: value for key, value in fragment.items() if key != "anyOf"}
            return self.resolved({**self.resolved(options[0]), **rest})
        if options:
            return {**fragment, "anyOf": [self.resolved(each) for each in options]}
        return dict(fragment)


def _object(schema: Mapping[str, Any], definitions: _Definitions, filled_in: frozenset[str] | None) -> dict[str, Any]:
    """`filled_in` is None inside a property that is filled in as a whole."""
    found: dict[str, Any] = {"type": "object"}
    if "properties" not in schema:
        inner = definitions.resolved(schema["additionalProperties"])
        found |= {"additionalProperties": _value(inner, definitions, filled=False)}
        return found | ({"maxProperties": schema["maxProperties"]} if "maxProperties" in schema else {})
    found["properties"] = {
        key: _described(definitions.resolved(part), definitions, filled=filled_in is None or key in filled_in)
        for key, part in schema["properties"].items()
    }
    return found | ({"required": sorted(schema["required"])} if schema.get("required") else {})


def _described(schema: Mapping[str, Any], definitions: _Definitions, *, filled: bool) -> dict[str, Any]:
    text = schema.get("description", "")
    words = [text, *_annotations(schema, filled=filled)]
    described = {"description": " ".join(word for word in words if word)} if text else {}
    return described | _value(schema, definitions, filled=filled)


def _annotations(schema: Mapping[str, Any], *, filled: bool) -> Iterator[str]:
    """What a schema has no word for: the unit, what an absent value stands for, and what a change of it means."""
    if schema.get("x-unit") in _SHOWN_UNITS:
        yield f"In {schema['x-unit']}."
    default = schema.get("x-unset") or _shown(schema.get("default"))
    if default and not filled:
        yield f"Absent: {default}."
    if "x-apply" in schema:
        yield f"A change: {schema['x-apply']}."


def _shown(default: Any) -> str:
    if default is None or isinstance(default, (list, dict)):
        return ""
    if isinstance(default, bool):
        return str(default).lower()
    return f"{default:g}" if isinstance(default, float) else str(default) or "empty"


def _value(schema: Mapping[str, Any], definitions: _Definitions, *, filled: bool) -> dict[str, Any]:
    found = _typed(schema, definitions, filled=filled)
    if not filled:
        return found
    if any("default" in inner for inner in found.get("properties", {}).values()):
        return {**found, "default": {}}
    is_told = found.get("type") != "object" and schema.get("default") not in (None, [])
    return {**found, "default": schema["default"]} if is_told else found


def _typed(schema: Mapping[str, Any], definitions: _Definitions, *, filled: bool) -> dict[str, Any]:
    if "anyOf" in schema:
        return _union(schema["anyOf"])
    if words := _words(schema):
        return {**type_of(words), "enum": list(words)}
    kind = schema["type"]
    if kind == "object":
        return _object(schema, definitions, None if filled else frozenset())
    if kind == "array":
        items = _value(definitions.resolved(schema["items"]), definitions, filled=filled)
        return {"type": kind, "items": items, **_taken(schema, _OF_ARRAYS)}
    if kind == "string":
        return {"type": kind, **_taken(schema, _OF_STRINGS)}
    return {"type": kind, **(_range(schema) if kind in {"integer", "number"} else {})}


def _words(schema: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(schema.get("enum", ())) or ((schema["const"],) if "const" in schema else ())


def type_of(words: tuple[Any, ...]) -> dict[str, Any]:
    """The type that a closed list of values has, or that it has none."""
    kinds = {type(word) for word in words}
    names = {str: "string", bool: "boolean", int: "integer"}
    return {"type": names[kinds.pop()]} if len(kinds) == 1 else {_ANY_TYPE: True}


def _union(options: list[dict[str, Any]]) -> dict[str, Any]:
    words = tuple(word for option in options for word in _words(option))
    if any(option.get("type") == "boolean" and not _words(option) for option in options):
        return {_ANY_TYPE: True, "enum": [*words, True, False]}
    numbers = next((option for option in options if option.get("type") in {"integer", "number"}), None)
    if numbers is None:
        raise ValueError(f"no structural schema has these alternatives: {options}")
    text = next((_taken(option, _OF_STRINGS) for option in options if option.get("type") == "string"), {})
    if words:
        text = {"pattern": f"^({'|'.join(words)})$", "maxLength": max(len(word) for word in words)}
    return {
        _INT_OR_STRING: True,
        "anyOf": [{"type": "integer"}, {"type": "string"}],
        **_range(numbers),
        **text,
    }


def _range(schema: Mapping[str, Any]) -> dict[str, Any]:
    found = _taken(schema, _OF_NUMBERS)
    for bound, name in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        if name in schema:
            found |= {bound: schema[name], name: True}
    return found


def _taken(schema: Mapping[str, Any], keys: tuple[str, ...]) -> dict[str, Any]:
    return {key: schema[key] for key in keys if key in schema}
